"""Plans that keep the order of the list, nodes skipped at will: exact for every objective.

Monotone values: a greedy that goes as far as it can at each node is optimal for a limit, since reaching further with
the same nodes never hurts. Others: dynamic programming over cuts.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence

from app.placement.auto.problem import Problem, Stage, Stages
from app.placement.auto.spread import Cuts, Spread

Step = tuple[int, int, int]
"""A cut that is reached, by which worker, from which cut."""


def probe(problem: Problem, limit: float) -> tuple[bool, float]:
    """Whether there is a plan within the limit, and its value or the next limit; for monotone values."""
    stages, following = far(problem, limit) if problem.any_count else _few(problem, limit)
    return (False, following) if stages is None else (True, problem.value(stages))


def far(problem: Problem, limit: float) -> tuple[Stages | None, float]:
    """Stages within the limit where the number of stages is free, or None and the next limit. O(nodes * log cuts)."""
    end, last, following, at = problem.chain.end, _last(problem), math.inf, 0
    stages: list[Stage] = []
    for worker in range(problem.first or 0, last + 1):
        lane = problem.lanes[worker]
        b = lane.reach(at, limit)
        following = min(following, lane.after(at, b))
        if problem.last is not None and b == end and worker != last:
            b = end - 1
        if b > at:
            stages.append((worker, at, b))
            at = b
        if at == end:
            return tuple(stages), limit
        if not stages and problem.first is not None:
            break
    return None, following


def capacity(problem: Problem) -> int:
    """The most layers short of all that fit with both ends, 0 where none do; where the number of stages is free.

    Each node in turn as the last, the nodes ahead of it as far as they reach. Where it can't go on from there, those
    ahead of it stop earlier: at the last cut from which it can, since it would get no further from one before.
    O(nodes * log layers + cuts).
    """
    first, last, best, at = problem.first, _last(problem), 0, 0
    ending = _Ending(problem)
    for worker in range(first or 0, last + 1):
        if problem.last in (None, worker):
            best = ending.most(worker, at, 0 if first in (None, worker) else 1, best)
        at = max(at, min(problem.lanes[worker].reach(at, math.inf), problem.chain.end - 1))
        if at == 0 and first is not None:
            break
    return min(best, problem.stack.n_layers - 1)


class _Ending:
    """How far a stage gets that holds the head wherever it ends, between two cuts too."""

    def __init__(self, problem: Problem) -> None:
        """O(layers)."""
        self.problem, stack = problem, problem.stack
        self.bare = stack.prefix("weights", "cache")
        self.experts = stack.prefix("experts")
        self.full = stack.prefix("weights", "cache", "experts")

    def most(self, worker: int, at: int, low: int, best: int) -> int:
        """The furthest layer that a stage gets to from a cut between ``low`` and ``at``, if further than ``best``."""
        cuts = self.problem.chain.cuts
        for a in range(at, low - 1, -1):
            if a < at and cuts[a + 1] <= best:
                break
            reached = self._furthest(worker, a)
            if reached > cuts[a]:
                return max(best, reached)
        return best

    def _furthest(self, worker: int, a: int) -> int:
        stack, start, room = self.problem.stack, self.problem.chain.cuts[a], self.problem.workers[worker]
        left = room.budget.budget_bytes - stack.end_bytes(first=a == 0, last=True)
        furthest = bisect_right(self.full, self.full[start] + left)
        if room.disk_bytes >= 0:
            on_disk = bisect_right(self.experts, self.experts[start] + room.disk_bytes)
            furthest = max(furthest, min(on_disk, bisect_right(self.bare, self.bare[start] + left)))
        return furthest - 1


def few(problem: Problem, limit: float, reaches: int) -> Stages | None:
    """``fewest`` where that takes no more ``reaches``, at about 2 us each; else those that each go furthest."""
    if problem.any_count:
        stages = far(problem, limit)[0]
        if stages is None or len(stages) * len(problem.workers) > reaches:
            return stages
    return fewest(problem, limit)


def fewest(problem: Problem, limit: float) -> Stages | None:
    """Stages within the limit with the least of the allowed numbers, None where there are none; for monotone values.

    O(stages * nodes * log cuts) per number tried.
    """
    return _few(problem, limit)[0]


def _few(problem: Problem, limit: float) -> tuple[Stages | None, float]:
    if isinstance(problem.counts, range):
        return _stretch(problem, limit, len(problem.counts))
    following = math.inf
    for count in problem.counts:
        stages, then = _exactly(problem, limit, count)
        if stages is not None:
            return stages, limit
        following = min(following, then)
    return None, following


def _stretch(problem: Problem, limit: float, most: int) -> tuple[Stages | None, float]:
    """Row by row the furthest cut with at most so many stages, for every prefix of the nodes."""
    end, following = problem.chain.end, math.inf
    before: list[int] = [0] * len(problem.workers)
    rows: list[list[Step | None]] = []
    for count in range(1, most + 1):
        row, then = _row(problem, limit, before, count)
        following = min(following, then)
        rows.append(row)
        if row[-1] is not None and row[-1][0] == end:
            return _backtrack(rows), limit
        if row[-1] is None:
            break
        before = [-1] + [-1 if step is None else step[0] for step in row[:-1]]
    return None, following


def _row(problem: Problem, limit: float, before: Sequence[int], count: int) -> tuple[list[Step | None], float]:
    """The furthest steps with one stage more than ``before`` tells for the nodes ahead of each."""
    end, last, following = problem.chain.end, problem.last, math.inf
    row: list[Step | None] = []
    best: Step | None = None
    for worker, lane in enumerate(problem.lanes):
        a = before[worker]
        if 0 <= a < end and (count > 1 or problem.first in (None, worker)):
            b = lane.reach(a, limit)
            following = min(following, lane.after(a, b))
            if last is not None:
                b = min(b, end - 1) if worker != last else b if b == end else a
            if b > a and (best is None or b > best[0]):
                best = (b, worker, a)
        row.append(best)
    return row, following


def _backtrack(rows: Sequence[Sequence[Step | None]]) -> Stages:
    stages: list[Stage] = []
    worker = len(rows[-1])
    for row in reversed(rows):
        step = row[worker - 1]
        b, worker, a = step or (0, 0, 0)
        stages.append((worker, a, b))
    return tuple(reversed(stages))


def _exactly(problem: Problem, limit: float, count: int) -> tuple[Stages | None, float]:
    """Row by row the cuts that exactly so many stages reach, for every prefix of the nodes."""
    spreads = {id(lane): Spread(lane, limit) for lane in problem.lanes}
    reached: list[list[Cuts]] = [[1] * (len(problem.workers) + 1)]
    following = math.inf
    for stage in range(count):
        row: list[Cuts] = [0]
        for worker, lane in enumerate(problem.lanes):
            ends, then = 0, math.inf
            if stage or problem.first in (None, worker):
                ends, then = spreads[id(lane)].after(reached[-1][worker])
            row.append(row[-1] | _closing(problem, worker, ends))
            following = min(following, then)
        reached.append(row)
    if not reached[-1][-1] >> problem.chain.end & 1:
        return None, following
    return _traced(problem, reached, spreads), limit


def _closing(problem: Problem, worker: int, ends: Cuts) -> Cuts:
    """The ends that are left where only the pinned last node may, and must, finish the plan."""
    whole = 1 << problem.chain.end
    if problem.last is None:
        return ends
    return ends & whole if worker == problem.last else ends & ~whole


def _traced(problem: Problem, reached: list[list[Cuts]], spreads: dict[int, Spread]) -> Stages:
    """A plan that reaches the end: of each stage the first node that reaches its cut."""
    stages: list[Stage] = []
    b, worker = problem.chain.end, len(problem.workers)
    for stage in range(len(reached) - 1, 0, -1):
        while reached[stage][worker - 1] >> b & 1:
            worker -= 1
        worker -= 1
        a = spreads[id(problem.lanes[worker])].start(reached[stage - 1][worker], b) or 0
        stages.append((worker, a, b))
        b = a
    return tuple(reversed(stages))


def _last(problem: Problem) -> int:
    return len(problem.workers) - 1 if problem.last is None else problem.last
