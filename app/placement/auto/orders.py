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

PROBES = 8
"""Limits that are tried in one order, about."""

FIRST = 8
"""The first orders; each may cost a part of the budget."""

Order = tuple[int, ...]

Found = tuple[float, Order, Stages]


def any_plan(problem: Problem) -> Stages | None:
    """The first plan that is found in one of the tried orders."""
    for order in _orders(problem):
        stages = _few(ordered(problem, order), math.inf)
        if stages is not None:
            return renamed(stages, order)
    return None


def best_effort(problem: Problem) -> Outcome:
    """The best plan found, and a bound on all plans; ``proven`` where they meet.

    Sums are searched to the end where the bound leaves few enough states.
    """
    lower = bounds.lower(problem)
    if lower == math.inf:
        return NOTHING
    found = _improved(problem, lower)
    if found is None:
        return Outcome(None, math.inf, 0, lower, proven=False)
    value, _, stages = found
    if problem.sums and _priceable(problem):
        priced = prices(problem, stages)
        lower = max(lower, priced.bound)
        if not problem.given:
            search, lower = _deepened(problem, priced, lower, value)
            if search is not None:
                return by_count(problem, {count: v for count, (v, _) in search.found.items()}, search.stages)
    best, limit = _fewer(problem, found, tied(problem, value, 0.0)), tied(problem, value, problem.slack)
    stages = levelled(problem, _fewer(problem, found, limit) if problem.slack else best, limit)
    return Outcome(stages, value, len(best), min(lower, value), proven=value <= tied(problem, lower, 0.0))


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


def _improved(problem: Problem, lower: float) -> Found | None:
    """The best of the first orders, then of orders near the best, as long as the budget lasts."""
    best: Found | None = None
    for order in _orders(problem):
        best = _better(problem, lower, order, best)
    if best is None:
        return None
    evaluations = _evaluations(problem)
    moved = True
    while moved and evaluations > 0 and best[0] > lower:
        moved = False
        for order in () if problem.given else _near(problem, best[1], best[2]):
            evaluations -= 1
            found = _better(problem, lower, order, best)
            if found is not best and found is not None:
                best, moved = found, True
                break
            if evaluations <= 0:
                break
    return best


def _fewer(problem: Problem, found: Found, limit: float) -> Stages:
    """Within the limit the fewest stages in the same order, as far as the budget lasts."""
    _, order, stages = found
    line = ordered(problem, order)
    if not problem.sums and problem.monotone:
        return renamed(_few(line, limit) or (), order) or stages
    if _window(line, len(order)) * len(stages) > problem.entries:
        return stages
    counts = [count for count in problem.counts if count < len(stages)]
    sweep = Sweep(replace(line, counts=counts), counted=True, fee=problem.hop_s * problem.sums)
    least = next((count for count in counts if sweep.best(count) <= limit), None)
    return stages if least is None else renamed(sweep.stages(least), order)


def _few(ordered: Problem, limit: float) -> Stages | None:
    return given.few(ordered, limit, ordered.entries // REACH // FIRST)


def _evaluations(problem: Problem) -> int:
    """How many orders the budget lets us plan."""
    nodes = _kept(problem)
    if problem.monotone and not problem.sums:
        return max(1, problem.entries // REACH // (nodes * (1 if problem.any_count else min(nodes, 16))))
    return max(1, problem.entries // 4 // max(1, _window(problem, nodes)))


def _window(problem: Problem, nodes: int) -> int:
    """Entries of the sweep in one order of so many nodes."""
    most = max(problem.counts)
    counted = not problem.any_count and nodes > most
    return nodes * problem.chain.end**2 // 2 * (most if counted else 1)


def _kept(problem: Problem) -> int:
    """How many nodes an order has: all, or no more than a plan can use where the budget doesn't last for all."""
    nodes, most = len(problem.workers), max(problem.counts)
    if problem.given or not isinstance(problem.counts, range):
        return nodes
    if problem.sums or not problem.monotone:
        cost = _window(problem, nodes)
    else:
        cost = REACH * nodes * (1 if problem.any_count else PROBES * most)
    return nodes if cost <= problem.entries // FIRST else min(nodes, most)


def _planned(ordered: Problem, lower: float, limit: float) -> Stages | None:
    """One order planned exactly where the budget lets, better than the limit or not at all."""
    if ordered.monotone and not ordered.sums:
        return _bottleneck(ordered, lower, limit)
    if _window(ordered, len(ordered.workers)) <= ordered.entries // FIRST:
        return _swept(ordered)
    return _few(replace(ordered, optimize="throughput"), math.inf)


def _bottleneck(ordered: Problem, lower: float, limit: float) -> Stages | None:
    below = math.nextafter(limit, 0.0) if limit < math.inf else limit
    found, level = given.probe(ordered, below)
    if not found:
        return None
    least = smallest(partial(given.probe, ordered), lower)
    value = level if least is None else least
    return given.far(ordered, value)[0] if ordered.any_count else given.fewest(ordered, value)


def _swept(ordered: Problem) -> Stages | None:
    hop, counted = (ordered.hop_s if ordered.sums else 0.0), not ordered.any_count
    sweep = Sweep(ordered, counted=counted, fee=hop)
    count = min(ordered.counts, key=sweep.best) if counted else 0
    return sweep.stages(count) if sweep.best(count) < math.inf else None


def _better(problem: Problem, lower: float, order: Order, best: Found | None) -> Found | None:
    stages = _planned(ordered(problem, order), lower, best[0] if best else math.inf)
    if stages is None:
        return best
    named = renamed(stages, order)
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
    pins = {problem.first, problem.last} - {None}
    inner, kept = [at for at in everybody if at not in pins], _kept(problem) - len(pins)
    for key in keys:
        largest = sorted(inner, key=key, reverse=True)[:kept]
        yield pinned(problem, largest)
        yield pinned(problem, sorted(largest, key=key))


def pinned(problem: Problem, order: Sequence[int]) -> Order:
    """The order with pinned nodes at their ends."""
    inner = [at for at in order if at not in (problem.first, problem.last)]
    first = () if problem.first is None else (problem.first,)
    last = () if problem.last is None else (problem.last,)
    return (*first, *inner, *last)


def _near(problem: Problem, order: Order, stages: Stages) -> Iterator[Order]:
    """The order with a node put elsewhere, swapped with another or with one outside of it; those in use first."""
    outside = sorted(set(range(len(problem.workers))) - set(order))
    used = {worker for worker, _, _ in stages}
    places = sorted(range(len(order)), key=lambda place: order[place] not in used)
    for source in places:
        for target in range(len(order)):
            if source != target:
                rest = [*order[:source], *order[source + 1 :]]
                yield pinned(problem, [*rest[:target], order[source], *rest[target:]])
                swapped = list(order)
                swapped[source], swapped[target] = swapped[target], swapped[source]
                yield pinned(problem, swapped)
        for other in outside if order[source] not in (problem.first, problem.last) else ():
            yield pinned(problem, [*order[:source], other, *order[source + 1 :]])


def ordered(problem: Problem, order: Order) -> Problem:
    """The problem on these nodes in this order; what is known of their lanes is shared."""
    found = problem.among(
        [problem.workers[at] for at in order],
        given=True,
        first=None if problem.first is None else order.index(problem.first),
        last=None if problem.last is None else order.index(problem.last),
    )
    found.__dict__["lanes"] = [problem.lanes[at] for at in order]
    found.__dict__["monotone"] = problem.monotone
    return found


def renamed(stages: Stages, order: Order) -> Stages:
    """Stages by the order's places as stages by the problem's."""
    return tuple((order[worker], a, b) for worker, a, b in stages)
