"""The last tie: among plans of the same nodes, the cuts that leave the fullest stage most room."""

from app.placement.auto.problem import Lane, Problem, Stage, Stages

ROUNDS = 10_000
"""Layers that may be moved, and cuts that may be looked up, for a tie."""


def levelled(problem: Problem, stages: Stages, limit: float) -> Stages:
    """The same nodes in the same order, the value still within the limit, the smallest headroom as large as is cheap.

    Exact for bottlenecks with monotone values. For sums layers move one at a time, from the fullest stage to any other
    where layers are equal, else to its neighbours, while that helps. Not tried where experts may be paged: headroom
    then jumps.
    """
    if len(stages) == 1 or any(layer.experts for _, layer, _ in problem.stack.runs):
        return stages
    if problem.sums:
        return _moved(problem, stages, limit)
    return _spread(problem, stages, limit)


def _spread(problem: Problem, stages: Stages, limit: float) -> Stages:
    """Search for the largest smallest headroom: a greedy that fills each stage up to it finds it if it exists."""
    lanes = [problem.lane(worker) for worker, _, _ in stages]
    low, best = problem.headroom(stages), stages
    high = min(lane.worker.budget.budget_bytes for lane in lanes) + 1
    rounds = ROUNDS // len(stages)
    while low + 1 < high and rounds > 0:
        rounds -= 1
        wanted = (low + high) >> 1
        cuts = _filled(problem, lanes, limit, wanted)
        if cuts is None:
            high = wanted
            continue
        best = tuple((w, a, b) for (w, _, _), a, b in zip(stages, [0, *cuts], cuts, strict=False))
        low = problem.headroom(best)
    return best


def _filled(problem: Problem, lanes: list[Lane], limit: float, headroom: int) -> list[int] | None:
    end, at = problem.chain.end, 0
    cuts = []
    for left, lane in zip(range(len(lanes) - 1, -1, -1), lanes, strict=True):
        low, high = at, min(lane.reach(at, limit), end - left)
        while low < high:
            middle = (low + high + 1) >> 1
            if lane.headroom(at, middle) >= headroom:
                low = middle
            else:
                high = middle - 1
        if low == at:
            return None
        at = low
        cuts.append(at)
    return cuts if at == end else None


def _moved(problem: Problem, stages: Stages, limit: float) -> Stages:
    uniform = len(problem.stack.runs) == 1
    for _ in range(ROUNDS // len(stages)):
        rooms = [problem.lane(w).headroom(a, b) for w, a, b in stages]
        fullest = min(range(len(stages)), key=rooms.__getitem__)
        others = range(len(stages)) if uniform else (fullest - 1, fullest + 1)
        better = None
        for other in sorted((o for o in others if 0 <= o < len(stages)), key=lambda o: -rooms[o]):
            moved = _shifted(stages, fullest, other)
            if moved and _fits(problem, moved) and problem.value(moved) <= limit:
                better = moved if problem.headroom(moved) > rooms[fullest] else None
                break
        if better is None:
            return stages
        stages = better
    return stages


def _fits(problem: Problem, stages: Stages) -> bool:
    return all(b <= problem.lane(w).span(a)[1] for w, a, b in stages)


def _shifted(stages: Stages, source: int, target: int) -> Stages | None:
    """One cut less for the source, one more for the target, those between moved along."""
    sizes = [b - a for _, a, b in stages]
    if source == target or sizes[source] <= 1:
        return None
    sizes[source] -= 1
    sizes[target] += 1
    moved: list[Stage] = []
    at = 0
    for (worker, _, _), size in zip(stages, sizes, strict=True):
        moved.append((worker, at, at + size))
        at += size
    return tuple(moved)
