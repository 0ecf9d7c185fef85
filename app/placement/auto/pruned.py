"""Sums in any order beyond what ``states`` can lay out: the same dynamic programme on states that may still win.

Level by level, a level being a number of stages. An entry (nodes used, cut) is dropped when its cost, the prices of the
layers to come and the excesses of the nodes left exceed the limit: by ``prices`` no plan through it is within it. So
plans that are left include all within the limit, and the search is exact if it ends within its budget.
"""

import math
from itertools import accumulate
from operator import add

from app.placement.auto.prices import Prices
from app.placement.auto.problem import Problem, Stage, Stages
from app.placement.auto.states import Kind, kinds_of, named
from app.placement.auto.sweep import Row, Rule, columns, extended, start_of

OVERHEAD = 8
"""Entries that a column costs beside its own."""

MARGIN = 1e-9
"""Share of the limit by which entries may exceed it, for the rounding of sums."""


class Pruned:
    """The search; ``complete`` tells whether it ended within ``entries``, of which ``left`` are."""

    def __init__(self, problem: Problem, prices: Prices, limit: float, entries: int) -> None:
        """Runs it for all plans up to the limit."""
        self.problem = problem
        self.kinds = kinds_of(problem)
        self.rule = Rule(add, problem.hop_s)
        self.end = problem.chain.end
        self.pinned = problem.last is not None
        self.found: dict[int, tuple[float, int]] = {}
        self.levels: list[dict[int, Row]] = [{0: [-problem.hop_s] + [math.inf] * self.end}]
        self.left = entries
        self._limit = limit * (1 + MARGIN)
        self._sizes = [_sizes(kind) for kind in self.kinds]
        self._bars = [self._limit - prices.upto[-1] + upto for upto in prices.upto]
        self._excess = [prices.excess[kind.workers[0]] for kind in self.kinds]
        self._tail_excess = 0.0 if problem.last is None else prices.excess[problem.last]
        self._close()
        while self.levels[-1] and len(self.levels) <= max(problem.counts) - self.pinned and self.left >= 0:
            self.levels.append(self._next(self.levels[-1]))
            self._close()
        self.complete = self.left >= 0

    def _next(self, level: dict[int, Row]) -> dict[int, Row]:
        """The states with one stage more that may still win."""
        following: dict[int, Row] = {}
        for state, row in level.items():
            alive = [b for b, value in enumerate(row) if value < math.inf and b < self.end]
            if not alive or self.left < 0:
                continue
            for at, kind in enumerate(self.kinds):
                if self._may(state, at, kind):
                    self.left -= self._sizes[at][alive[0]] + OVERHEAD * self.end
                    grown = extended(row, columns(kind.lane), self.rule, self.end - self.pinned)
                    target = state + kind.stride
                    known = following.get(target)
                    following[target] = grown if known is None else list(map(min, known, grown))
        return {state: kept for state, row in following.items() if (kept := self._kept(state, row)) is not None}

    def _may(self, state: int, at: int, kind: Kind) -> bool:
        if self.problem.first is not None and (state == 0) != (at == 0):
            return False
        return kind.digit(state) < len(kind.workers)

    def _kept(self, state: int, row: Row) -> Row | None:
        """The row without entries that can't win, None where none is left."""
        rest = self._tail_excess
        for excess, kind in zip(self._excess, self.kinds, strict=True):
            rest += excess * (len(kind.workers) - kind.digit(state))
        kept = [value if value + rest <= bar else math.inf for value, bar in zip(row, self._bars, strict=True)]
        return kept if min(kept) < math.inf else None

    def _close(self) -> None:
        """Note the best plan that the last level, and the pinned last node after it, complete."""
        level, stages = self.levels[-1], len(self.levels) - 1 + self.pinned
        if stages not in self.problem.counts:
            return
        for state, row in level.items():
            if self.problem.first is not None and state == 0:
                continue
            value = self._tail(row) if self.pinned else row[-1]
            if value <= self._limit and value < self.found.get(stages, (math.inf, 0))[0]:
                self.found[stages] = (value, state)

    def _tail(self, row: Row) -> float:
        low, values = columns(self.problem.lanes[self.problem.last or 0])[-1]
        return min(map(add, row[low:-1], values), default=math.inf) + self.rule.fee

    def stages(self, count: int) -> Stages:
        """The best plan of so many stages."""
        value, state = self.found[count]
        b, found, tail = self.end, list[Stage](), Stages()
        level = count - self.pinned
        if self.problem.last is not None:
            table = columns(self.problem.lanes[self.problem.last])
            a = start_of(self.levels[level][state], table, self.rule, b, value)
            tail, b = ((self.problem.last, a, b),), a
        while state:
            state, stage = self._sources(level, state, b)[0]
            found.append(stage)
            level, b = level - 1, stage[1]
        return named(self.kinds, found[::-1]) + tail

    def _sources(self, level: int, state: int, b: int) -> list[tuple[int, Stage]]:
        """The states and stages that made an entry, which is one at least."""
        value, before = self.levels[level][state][b], self.levels[level - 1]
        return [
            (state - kind.stride, (at, start_of(row, columns(kind.lane), self.rule, b, value), b))
            for at, kind in enumerate(self.kinds)
            if kind.digit(state)
            and (row := before.get(state - kind.stride)) is not None
            and self._may(state - kind.stride, at, kind)
            and self.rule.least(row, columns(kind.lane), b) == value
        ]


def _sizes(kind: Kind) -> list[int]:
    """How many stages of the kind end beyond each cut."""
    ends = [len(values) for _, values in columns(kind.lane)]
    beyond = list(accumulate(reversed(ends), initial=0))
    return beyond[-2::-1]
