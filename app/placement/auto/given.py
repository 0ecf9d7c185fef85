"""Plans that keep the order of the list, nodes skipped at will: exact for every objective.

Monotone values: a greedy that goes as far as it can at each node is optimal for a limit, since reaching further with
the same nodes never hurts. Others: dynamic programming over cuts.
"""

import math
from collections.abc import Sequence

from app.placement.auto.problem import Problem, Stage, Stages

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


def fewest(problem: Problem, limit: float) -> Stages | None:
    """Stages within the limit with the least of the allowed numbers, None where there are none; for monotone values.

    O(stages * nodes * log cuts) per number tried.
    """
    return _few(problem, limit)[0]


def _few(problem: Problem, limit: float) -> tuple[Stages | None, float]:
    following = math.inf
    if isinstance(problem.counts, range):
        return _stretch(problem, limit, None, len(problem.counts))
    for count in problem.counts:
        stages, then = _stretch(problem, limit, count, count)
        if stages is not None:
            return stages, limit
        following = min(following, then)
    return None, following


def _stretch(problem: Problem, limit: float, exactly: int | None, most: int) -> tuple[Stages | None, float]:
    """Row by row the furthest cut with so many stages, for every prefix of the nodes.

    ``exactly``: leave a cut for each stage that must follow; shortened stages still fit.
    """
    end, following = problem.chain.end, math.inf
    before: list[int] = [0] * len(problem.workers)
    rows: list[list[Step | None]] = []
    for count in range(1, most + 1):
        row, then = _row(problem, limit, before, count, end if exactly is None else end - exactly + count)
        following = min(following, then)
        rows.append(row)
        if (exactly is None or count == exactly) and row[-1] is not None and row[-1][0] == end:
            return _backtrack(rows), limit
        if row[-1] is None:
            break
        before = [-1] + [-1 if step is None else step[0] for step in row[:-1]]
    return None, following


def _row(
    problem: Problem, limit: float, before: Sequence[int], count: int, cap: int
) -> tuple[list[Step | None], float]:
    """The furthest steps with one stage more than ``before`` tells for the nodes ahead of each."""
    end, last, following = problem.chain.end, problem.last, math.inf
    row: list[Step | None] = []
    best: Step | None = None
    for worker, lane in enumerate(problem.lanes):
        a = before[worker]
        if 0 <= a < end and (count > 1 or problem.first in (None, worker)):
            b = lane.reach(a, limit)
            following = min(following, lane.after(a, b))
            b = min(b, cap)
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


def _last(problem: Problem) -> int:
    return len(problem.workers) - 1 if problem.last is None else problem.last
