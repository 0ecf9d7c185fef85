"""Values that no plan can beat."""

import math
from collections.abc import Sequence

from app.placement.auto.problem import Lane, Problem

SAFE = 1 - 1e-12
"""Keeps a bound below the value it bounds in spite of rounding."""

HALVINGS = 40
STEP = 20
"""What a stage that a bottleneck's bound looks at costs in entries; with fewer than one halving it is ``work``."""


def work(problem: Problem) -> float:
    """A bottleneck's least value if all nodes shared all work perfectly. O(nodes)."""
    if problem.optimize == "memory":
        held = problem.chain.bare[-1] - problem.chain.bare[0] - problem.stack.shared
        return held / max(1, sum(w.budget.budget_bytes for w in problem.workers)) * SAFE
    speed = 0.0
    for worker in problem.workers:
        speed += worker.flops_per_s
    return problem.chain.work[-1] / problem.stack.unit / speed * SAFE


def lower(problem: Problem) -> float:
    """A value that no plan of the problem beats, infinite where none fits."""
    if problem.sums:
        return _sum(problem)
    if not problem.monotone:
        return work(problem)
    return _bottleneck(problem)


def _bottleneck(problem: Problem) -> float:
    """The least limit at which the nodes' longest stages together hold everything, by several measures.

    Whatever a layer is said to weigh, the stages of a plan weigh as much as all layers, and none more than the heaviest
    stage that its node may have within the limit. Measures: layers, work, bytes read, bytes held. O(kinds * cuts) per
    limit.
    """
    chain, low, high = problem.chain, work(problem), math.inf
    measures = [list(range(chain.end + 1)), chain.work, chain.hungry, chain.bare]
    halvings = min(HALVINGS, problem.entries // STEP // (len({id(lane) for lane in problem.lanes}) * chain.end) - 1)
    if halvings < 1:
        return low
    if not _coverable(problem, measures, math.inf):
        return math.inf
    limit = low if low > 0 else 1e-9
    for _ in range(halvings):
        if _coverable(problem, measures, limit):
            high = limit
        else:
            low = limit
        limit = min(2 * limit, low + (high - low) / 2)
        if low >= high * (1 - 1e-10):  # not yet where nothing has been within a limit, and high is infinite
            break
    return low


def _coverable(problem: Problem, measures: Sequence[list[int]], limit: float) -> bool:
    heaviest: dict[int, list[int]] = {}
    for lane in problem.lanes:
        if id(lane) not in heaviest:
            heaviest[id(lane)] = _heaviest(lane, measures, limit)
    most = max(problem.counts)
    for at, measure in enumerate(measures):
        weights = sorted((heaviest[id(lane)][at] for lane in problem.lanes), reverse=True)
        once = problem.stack.shared if measure is problem.chain.bare else 0
        if sum(weights[:most]) < measure[-1] - measure[0] - once:
            return False
    return True


def _heaviest(lane: Lane, measures: Sequence[list[int]], limit: float) -> list[int]:
    heaviest, b = [0] * len(measures), 0
    for a in range(lane.chain.end):
        b, furthest = max(a, b), lane.span(a)[1]
        while b < furthest and lane.value(a, b + 1) <= limit:
            b += 1
        for at, measure in enumerate(measures):
            heaviest[at] = max(heaviest[at], measure[b] - measure[a])
    return heaviest


def _sum(problem: Problem) -> float:
    """All work on the fastest nodes, as far as they hold it, and the hops of the fewest stages that hold everything.

    A relaxation: bytes are divisible, and each costs what the cheapest layer of the node costs per byte. O(n log n).
    """
    rooms = sorted((lane.room for lane in problem.lanes), reverse=True)
    left, stages = (problem.chain.bare[-1] - problem.chain.bare[0] - problem.stack.shared, 0)
    for room in rooms:
        if left <= 0:
            break
        left, stages = left - room, stages + 1
    if left > 0 and not problem.stack.shared:
        return math.inf
    fastest = max(worker.flops_per_s for worker in problem.workers)
    widest = max(worker.bytes_per_s for worker in problem.workers)
    compute = problem.chain.work[-1] / problem.stack.unit / fastest
    stream = problem.chain.streamed[-1] / widest
    return (max(compute, stream) + problem.hop_s * max(0, stages - 1)) * SAFE
