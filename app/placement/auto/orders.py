"""Beyond the exact solvers: orders of the nodes, each planned exactly, improved by moving nodes while it helps.

A plan in a given order may skip nodes, so an order stands for all its subsequences. What is found is a plan that fits;
how far it may be from the best is told by ``bounds``.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from app.placement.auto import bounds, given
from app.placement.auto.levelling import levelled
from app.placement.auto.outcome import NOTHING, Outcome, by_count, tied
from app.placement.auto.prices import Prices, prices
from app.placement.auto.probing import smallest
from app.placement.auto.problem import Problem, Stages
from app.placement.auto.pruned import Pruned
from app.placement.auto.sweep import Sweep

REACH = 160
"""What a stage's reach costs in entries: improving takes at most as many as the budget has."""

Order = tuple[int, ...]


def any_plan(problem: Problem) -> Stages | None:
    """The first plan that is found in one of the tried orders."""
    for order in _orders(problem):
        stages = given.fewest(_ordered(problem, order), math.inf)
        if stages is not None:
            return _renamed(stages, order)
    return None


def best_effort(problem: Problem) -> Outcome:
    """The best plan found, and a bound on all plans; ``proven`` where they meet.

    Sums are searched to the end where the bound leaves few enough states.
    """
    lower = bounds.lower(problem)
    if lower == math.inf:
        return NOTHING
    stages = _improved(problem, lower)
    if stages is None:
        return Outcome(None, math.inf, 0, lower, proven=False)
    value = problem.value(stages)
    if problem.sums and _priceable(problem):
        priced = prices(problem, stages)
        lower = max(lower, priced.bound)
        if not problem.given:
            search, lower = _deepened(problem, priced, lower, value)
            if search is not None:
                return by_count(problem, {count: v for count, (v, _) in search.found.items()}, search.stages)
    stages = levelled(problem, stages, tied(problem, value, 0.0))
    return Outcome(stages, value, len(stages), min(lower, value), proven=value <= tied(problem, lower, 0.0))


def _deepened(problem: Problem, priced: Prices, lower: float, value: float) -> tuple[Pruned | None, float]:
    """A search that is complete and found plans, else None, and the limit up to which there are none.

    The limit rises from the bound to the best value known: a smaller one leaves fewer states, and what it leaves out
    is proven even where the next one is too much.
    """
    parts = iter((1 / 4, 1 / 2) if problem.slack == 0 else ())
    left, search = problem.entries, None
    while search is None or (search.complete and not search.found):
        part = next(parts, None)
        limit = value * (1 + problem.slack) if part is None else lower + (value - lower) * part
        search = Pruned(problem, priced, limit, left)
        left = search.left
        if search.complete and not search.found:
            lower = max(lower, limit)
    return search if search.complete else None, min(lower, value)


def _priceable(problem: Problem) -> bool:
    """Whether the tables that prices need are within the budget."""
    kinds = len({id(lane) for lane in problem.lanes})
    return kinds * problem.chain.end**2 <= problem.entries // 16


def _improved(problem: Problem, lower: float) -> Stages | None:
    """The best of the first orders, then of orders near the best, as long as the budget lasts."""
    planned = _planner(problem, lower)
    best: tuple[float, Order, Stages] | None = None
    for order in _orders(problem):
        best = _better(problem, planned, order, best)
    if best is None:
        return None
    evaluations = _evaluations(problem)
    moved = True
    while moved and evaluations > 0 and best[0] > lower:
        moved = False
        for order in () if problem.given else _near(problem, best[1], best[2]):
            evaluations -= 1
            found = _better(problem, planned, order, best)
            if found is not best and found is not None:
                best, moved = found, True
                break
            if evaluations <= 0:
                break
    return best[2]


def _evaluations(problem: Problem) -> int:
    """How many orders the budget lets us plan."""
    nodes, end = len(problem.workers), problem.chain.end
    if problem.monotone and not problem.sums:
        return max(1, problem.entries // REACH // (nodes * (1 if problem.any_count else min(nodes, 16))))
    return max(1, problem.entries // 4 // max(1, _window(problem, end)))


def _window(problem: Problem, end: int) -> int:
    counted = not problem.any_count
    return len(problem.workers) * end * end // 2 * (max(problem.counts) if counted else 1)


Planned = Callable[[Problem, float], Stages | None]


def _planner(problem: Problem, lower: float) -> Planned:
    """How one order is planned: exactly where the budget lets, better than the value given or not at all."""

    def bottleneck(ordered: Problem, limit: float) -> Stages | None:
        below = math.nextafter(limit, 0.0) if limit < math.inf else limit
        if not given.probe(ordered, below)[0]:
            return None
        value = smallest(partial(given.probe, ordered), lower)
        return None if value is None else given.fewest(ordered, value)

    def swept(ordered: Problem, limit: float) -> Stages | None:  # noqa: ARG001  # a sweep has no use for a limit
        hop, counted = (ordered.hop_s if ordered.sums else 0.0), not ordered.any_count
        sweep = Sweep(ordered, counted=counted, fee=hop)
        count = min(ordered.counts, key=sweep.best) if counted else 0
        return sweep.stages(count) if sweep.best(count) < math.inf else None

    def fitting(ordered: Problem, limit: float) -> Stages | None:  # noqa: ARG001  # it takes what fits
        return given.fewest(replace(ordered, optimize="throughput"), math.inf)

    if problem.monotone and not problem.sums:
        return bottleneck
    return swept if _window(problem, problem.chain.end) <= problem.entries else fitting


def _better(
    problem: Problem, planned: Planned, order: Order, best: tuple[float, Order, Stages] | None
) -> tuple[float, Order, Stages] | None:
    stages = planned(_ordered(problem, order), best[0] if best else math.inf)
    if stages is None:
        return best
    named = _renamed(stages, order)
    value = problem.value(named)
    return (value, order, named) if best is None or value < best[0] else best


def _orders(problem: Problem) -> Iterator[Order]:
    """First orders: by speed, by budget, by both, rising and falling; pinned nodes at their ends."""
    everybody = range(len(problem.workers))
    if problem.given:
        yield tuple(everybody)
        return
    workers = problem.workers
    keys: tuple[Callable[[int], float], ...] = (
        lambda at: workers[at].flops_per_s,
        lambda at: workers[at].budget.budget_bytes,
        lambda at: min(workers[at].bytes_per_s, workers[at].flops_per_s),
        lambda at: workers[at].flops_per_s * workers[at].budget.budget_bytes,
    )
    for key in keys:
        yield _pinned(problem, sorted(everybody, key=key, reverse=True))
        yield _pinned(problem, sorted(everybody, key=key))


def _pinned(problem: Problem, order: Sequence[int]) -> Order:
    inner = [at for at in order if at not in (problem.first, problem.last)]
    first = () if problem.first is None else (problem.first,)
    last = () if problem.last is None else (problem.last,)
    return (*first, *inner, *last)


def _near(problem: Problem, order: Order, stages: Stages) -> Iterator[Order]:
    """The order with a node taken out and put elsewhere, or two nodes swapped; those in use first."""
    used = {worker for worker, _, _ in stages}
    places = sorted(range(len(order)), key=lambda place: order[place] not in used)
    for source in places:
        for target in range(len(order)):
            if source != target:
                rest = [*order[:source], *order[source + 1 :]]
                yield _pinned(problem, [*rest[:target], order[source], *rest[target:]])
                swapped = list(order)
                swapped[source], swapped[target] = swapped[target], swapped[source]
                yield _pinned(problem, swapped)


def _ordered(problem: Problem, order: Order) -> Problem:
    ordered = problem.among(
        [problem.workers[at] for at in order],
        given=True,
        first=None if problem.first is None else order.index(problem.first),
        last=None if problem.last is None else order.index(problem.last),
    )
    ordered.__dict__["lanes"] = [problem.lanes[at] for at in order]
    ordered.__dict__["monotone"] = problem.monotone
    return ordered


def _renamed(stages: Stages, order: Order) -> Stages:
    return tuple((order[worker], a, b) for worker, a, b in stages)
