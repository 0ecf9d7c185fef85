"""Plans in any order by dynamic programming over what has been used: exact, for as many nodes as the budget lets.

Equal nodes are one kind, so a state is how many of each kind are used, not which: the product of (count + 1) states,
2^n where all differ. Kinds are digits of a mixed radix; using one more node of a kind adds its stride, so states in
rising order are met after all that lead to them. A pinned first node is a kind alone, and the only way on from state
0; a pinned last one is no kind: it closes the plan.
"""

import math
from dataclasses import dataclass
from operator import add

from app.placement.auto.problem import Lane, Problem, Stage, Stages
from app.placement.auto.spread import Cuts, Spread
from app.placement.auto.sweep import Column, Row, Rule, columns, extended, start_of


@dataclass(frozen=True, slots=True)
class Kind:
    """Equal workers (indices into the problem's) and the kind's place in a state."""

    lane: Lane
    workers: tuple[int, ...]
    stride: int

    def digit(self, state: int) -> int:
        """How many of the kind the state uses."""
        return state // self.stride % (len(self.workers) + 1)


def kinds_of(problem: Problem) -> tuple[Kind, ...]:
    """The workers by kind, the pinned first one in front, without the pinned last one."""
    groups: dict[int, list[int]] = {}
    for worker, lane in enumerate(problem.lanes):
        if worker != problem.last:
            groups.setdefault(-1 if worker == problem.first else id(lane), []).append(worker)
    stride, kinds = 1, []
    for group in sorted(groups.values(), key=lambda g: g[0] != problem.first):
        kinds.append(Kind(problem.lanes[group[0]], tuple(group), stride))
        stride *= len(group) + 1
    return tuple(kinds)


def size(kinds: tuple[Kind, ...]) -> int:
    """The number of states."""
    return math.prod(len(kind.workers) + 1 for kind in kinds)


class States:
    """All states of a problem: ``used`` counts stages, ``moves`` lead on to (next state, kind)."""

    def __init__(self, problem: Problem) -> None:
        """O(states * kinds)."""
        self.kinds = kinds_of(problem)
        self.used: list[int] = []
        self.moves: list[list[tuple[int, int]]] = []
        for state in range(size(self.kinds)):
            digits = [kind.digit(state) for kind in self.kinds]
            free = [
                (state + kind.stride, at)
                for at, (kind, digit) in enumerate(zip(self.kinds, digits, strict=True))
                if digit < len(kind.workers)
            ]
            if problem.first is not None:
                free = free[:1] if state == 0 else free * (digits[0] > 0)
            self.used.append(sum(digits))
            self.moves.append(free)


def named(kinds: tuple[Kind, ...], stages: list[Stage]) -> Stages:
    """Stages by kind as stages by worker, the first of equal workers first."""
    left = [iter(kind.workers) for kind in kinds]
    return tuple((next(left[kind]), a, b) for kind, a, b in stages)


class _Reach(dict[int, int]):
    """The furthest cut from each cut that is asked for, and the least value beyond the limit among those."""

    def __init__(self, lane: Lane, limit: float) -> None:
        super().__init__()
        self.following = math.inf
        self._lane = lane
        self._limit = limit

    def __missing__(self, a: int) -> int:
        """O(log cuts)."""
        b = self[a] = self._lane.reach(a, self._limit)
        self.following = min(self.following, self._lane.after(a, b))
        return b


class Reaches:
    """The furthest cut of every state within a limit; for monotone values.

    ``furthest[state]`` is the largest of ``reach(furthest[state before], kind)``: O(states * kinds) per limit, and
    O(log cuts) for every cut that a kind starts from.
    """

    def __init__(self, problem: Problem) -> None:
        """Lays the states out."""
        self.problem = problem
        self.states = States(problem)
        self.end = problem.chain.end
        self.pinned = int(problem.last is not None)

    def probe(self, limit: float) -> tuple[bool, float]:
        """Whether there is a plan within the limit, and its value or the next limit."""
        stages, following = self._few(limit)
        return (False, following) if stages is None else (True, self.problem.value(stages))

    def fewest(self, limit: float) -> Stages | None:
        """Stages within the limit, the fewest of the allowed numbers, None where there are none."""
        return self._few(limit)[0]

    def _few(self, limit: float) -> tuple[Stages | None, float]:
        close, following = self._close(limit)
        if isinstance(self.problem.counts, range):
            stages, then = self._at_most(limit, len(self.problem.counts), close)
            return stages, min(following, then)
        for count in self.problem.counts:
            stages, then = self._exactly(limit, count, close)
            following = min(following, then)
            if stages is not None:
                return stages, limit
        return None, following

    def _at_most(self, limit: float, count: int, close: int) -> tuple[Stages | None, float]:
        tables = [_Reach(kind.lane, limit) for kind in self.states.kinds]
        furthest, via = self._furthest(tables)
        state = self._done(furthest, count, close)
        if state is None:
            return None, min((table.following for table in tables), default=math.inf)
        return self._stages(state, furthest, via), limit

    def _close(self, limit: float) -> tuple[int, float]:
        """The first cut from which the pinned last node finishes within the limit, and the next limit for it."""
        if self.problem.last is None:
            return self.end, math.inf
        lane, end = self.problem.lanes[self.problem.last], self.end
        finals = [lane.value(a, end) if lane.span(a)[1] == end else math.inf for a in range(end)]
        close = next((a for a, value in enumerate(finals) if value <= limit and value < math.inf), end + 1)
        return close, min((value for value in finals if value > limit), default=math.inf)

    def _furthest(self, tables: list[_Reach]) -> tuple[list[int], list[int]]:
        """The furthest cut of each state and who got there."""
        used, end = self.states.used, self.end
        furthest, via = [-1] * len(used), [0] * len(used)
        furthest[0] = 0
        for state, moves in enumerate(self.states.moves):
            at = furthest[state]
            if at < 0 or at == end:
                continue
            for target, kind in moves:
                reached = min(tables[kind][at], end - self.pinned)
                if reached > at and reached > furthest[target]:
                    furthest[target] = reached
                    via[target] = kind
        return furthest, via

    def _done(self, furthest: list[int], count: int, close: int) -> int | None:
        """The state with the fewest stages from which the plan is complete, within the allowed number."""
        used = self.states.used
        wanted = close if self.pinned else self.end
        done = (s for s, at in enumerate(furthest) if at >= wanted and used[s] <= count - self.pinned)
        if self.problem.first is not None:
            done = (s for s in done if s)
        return min(done, key=used.__getitem__, default=None)

    def _exactly(self, limit: float, count: int, close: int) -> tuple[Stages | None, float]:
        """A plan of so many stages: every state with all the cuts that it reaches, not the furthest alone."""
        used, following, inner = self.states.used, math.inf, (1 << self.end) - 1
        spreads = [Spread(kind.lane, limit) for kind in self.states.kinds]
        reached: list[Cuts] = [0] * len(used)
        reached[0] = 1
        for state, moves in enumerate(self.states.moves):
            if not reached[state] or used[state] >= count - self.pinned:
                continue
            for target, kind in moves:
                ends, then = spreads[kind].after(reached[state])
                reached[target] |= ends & inner if self.pinned else ends
                following = min(following, then)
        goal = inner >> close << close if self.pinned else 1 << self.end
        for state, cuts in enumerate(reached):
            if cuts & goal and used[state] == count - self.pinned and (state or self.problem.first is None):
                return self._traced(state, reached, spreads), limit
        return None, following

    def _traced(self, state: int, reached: list[Cuts], spreads: list[Spread]) -> Stages:
        """The stages that lead to a state, and the pinned last node's."""
        b, stages, tail = self.end, list[Stage](), Stages()
        if self.problem.last is not None:
            b = reached[state].bit_length() - 1
            tail = ((self.problem.last, b, self.end),)
        while state:
            state, stage = self._sources(state, b, reached, spreads)[0]
            stages.append(stage)
            b = stage[1]
        return named(self.states.kinds, stages[::-1]) + tail

    def _sources(self, state: int, b: int, reached: list[Cuts], spreads: list[Spread]) -> list[tuple[int, Stage]]:
        """The states and stages that lead to this state and cut, which is one at least."""
        return [
            (state - kind.stride, (at, a, b))
            for at, kind in enumerate(self.states.kinds)
            if kind.digit(state)
            and (state, at) in self.states.moves[state - kind.stride]
            and (a := spreads[at].start(reached[state - kind.stride], b)) is not None
        ]

    def _stages(self, state: int, furthest: list[int], via: list[int]) -> Stages:
        stages: list[Stage] = []
        tail = () if self.problem.last is None else ((self.problem.last, furthest[state], self.end),)
        while state:
            before = state - self.states.kinds[via[state]].stride
            stages.append((via[state], furthest[before], furthest[state]))
            state = before
        return named(self.states.kinds, stages[::-1]) + tail


class Costs:
    """The least objective of every state and cut; for any values. O(states * kinds * cuts^2)."""

    def __init__(self, problem: Problem) -> None:
        """Runs the dynamic programme."""
        self.problem = problem
        self.states = States(problem)
        hop = problem.hop_s if problem.sums else 0.0
        self.rule = Rule(add if problem.sums else max, hop)
        self.tables: list[list[Column]] = [columns(k.lane) for k in self.states.kinds]
        self.tail = [] if problem.last is None else columns(problem.lanes[problem.last])
        self.rows: list[Row | None] = [None] * len(self.states.used)
        self.rows[0] = [-hop] + [math.inf] * problem.chain.end
        pinned = int(problem.last is not None)
        most, stop = max(problem.counts, default=0) - pinned, problem.chain.end - pinned
        for state, moves in enumerate(self.states.moves):
            row = self.rows[state]
            if row is None or self.states.used[state] >= most:
                continue
            for target, kind in moves:
                grown = extended(row, self.tables[kind], self.rule, stop)
                known = self.rows[target]
                self.rows[target] = grown if known is None else list(map(min, known, grown))

    def best(self) -> dict[int, tuple[float, int]]:
        """For every allowed number of stages the least objective and its state."""
        found: dict[int, tuple[float, int]] = {}
        for state, row in enumerate(self.rows):
            count = self.states.used[state] + bool(self.tail)
            if row is None or count not in self.problem.counts or (state == 0 and self.problem.first is not None):
                continue
            value = self._closed(row) if self.tail else row[-1]
            if value < found.get(count, (math.inf, 0))[0]:
                found[count] = (value, state)
        return found

    def _closed(self, row: Row) -> float:
        low, prices = self.tail[-1]
        return min(map(self.rule.op, row[low:-1], prices), default=math.inf) + self.rule.fee

    def stages(self, value: float, state: int) -> Stages:
        """A plan of that value, which ``best`` told with the state."""
        b, found, tail = self.problem.chain.end, list[Stage](), Stages()
        if self.problem.last is not None:
            a = start_of(self.rows[state] or [], self.tail, self.rule, b, value)
            tail, b = ((self.problem.last, a, b),), a
        while state:
            state, stage = self._sources(state, b)[0]
            found.append(stage)
            b = stage[1]
        return named(self.states.kinds, found[::-1]) + tail

    def _sources(self, state: int, b: int) -> list[tuple[int, Stage]]:
        """The states and stages that made the entry of this state and cut, which is one at least."""
        value = (self.rows[state] or [])[b]
        return [
            (state - kind.stride, (at, start_of(row, self.tables[at], self.rule, b, value), b))
            for at, kind in enumerate(self.states.kinds)
            if kind.digit(state)
            and (row := self.rows[state - kind.stride]) is not None
            and (state, at) in self.states.moves[state - kind.stride]
            and self.rule.least(row, self.tables[at], b) == value
        ]
