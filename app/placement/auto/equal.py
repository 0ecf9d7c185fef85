"""Equal layers in any order where the bottleneck solver doesn't apply: sums, and values that paging lowers.

Sums: a node's stage of k layers costs at least ``hop + rate * k``. For a price per layer the nodes that cost less than
they bring give a lower bound (a Lagrangian; the best price is where a greedy by cost per layer has placed all layers),
and a node's distance from that price bounds every plan that uses it. So the knapsack runs on the nearest nodes, a core,
and is exact as soon as no other node can be in a better plan.
"""

import math
from dataclasses import dataclass, replace

from app.placement.auto.knapsack import Item, Knapsack, Piece, priced, within
from app.placement.auto.loads import BOTH, FIRST, LAST, MIDDLE, Load, alone, loads_of
from app.placement.auto.outcome import NOTHING, Outcome, chosen
from app.placement.auto.probing import smallest
from app.placement.auto.problem import Problem, Stages
from app.placement.auto.sweep import TIE
from app.placement.auto.uniform import Uniform

CORE = 16
"""Nodes of the first core; it doubles until it is proven enough."""

ENTRIES = 1_500_000
"""Entries of the knapsack that are computed at most, at about 0.25 us each."""


def roles_of(problem: Problem, worker: int) -> tuple[bool, bool, bool]:
    """Whether the worker may be in the middle, first, last: pinned ones only there."""
    first, last = problem.first, problem.last
    return worker not in (first, last), first in (None, worker), last in (None, worker)


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The lower bound without ends, and how much more any plan costs that uses a node."""

    bound: float
    excess: list[float]


def relaxed(problem: Problem, loads: list[Load]) -> Relaxation:
    """The best price per layer by a greedy over cost per layer at full load. O(n log n)."""
    hop, wanted = problem.hop_s, problem.stack.n_layers
    rates = [_rate(load) for load in loads]
    sizes = [max(load.most[MIDDLE], load.most[BOTH]) for load in loads]
    unit = sorted((rate + hop / size, size) for rate, size in zip(rates, sizes, strict=True) if size)
    price, left = math.inf, wanted
    for cost, size in unit:
        left -= size
        if left <= 0:
            price = cost
            break
    if price == math.inf:
        return Relaxation(math.inf, [0.0] * len(loads))
    excess = [
        hop + (rate - price) * (size if rate < price else 1) if size else math.inf
        for rate, size in zip(rates, sizes, strict=True)
    ]
    bound = price * wanted - hop + min(_head(load) for load in loads if load.most[MIDDLE])
    for value in excess:
        bound += min(0.0, value)
    return Relaxation(bound * (1 - 1e-12) if bound > 0 else 0.0, [max(0.0, value) for value in excess])


def _rate(load: Load) -> float:
    """Seconds per layer that no stage of the node goes below."""
    worker, layer = load.worker, load.stack.layer
    compute = layer.work / (worker.flops_per_s * load.stack.unit)
    bare = layer.weights + layer.cache
    resident = max(compute, (bare + layer.active) / worker.bytes_per_s)
    return min(resident, max(compute, bare / worker.bytes_per_s) + layer.active / worker.disk_bytes_per_s)


def _head(load: Load) -> float:
    """Seconds that the head adds to a stage of the node at least."""
    stack, worker = load.stack, load.worker
    compute = stack.head_work / (worker.flops_per_s * stack.unit)
    return compute if worker.bytes_per_s == math.inf else min(compute, stack.head / worker.bytes_per_s)


def least_sum(problem: Problem) -> Outcome:
    """The least sum over equal layers in any order. Exact where the core is proven enough within the budget."""
    loads = loads_of(problem)
    relaxation = relaxed(problem, loads)
    order = _nearest(problem, loads, relaxation)
    best = Outcome(None, math.inf, 0, relaxation.bound, proven=False)
    n_layers, size = problem.stack.n_layers, min(CORE, len(order))
    counted = not problem.any_count or problem.slack > 0

    def most(size: int) -> int:
        return min(max(problem.counts), size, n_layers) if counted else 0

    def affordable(size: int) -> bool:
        return size * (most(size) + 1) * (n_layers + 1) * 8 <= ENTRIES

    while size > 1 and not affordable(size):
        size = size // 2
    while True:
        best = _solved(problem, loads, order[:size], most(size), relaxation.bound)
        beyond = relaxation.bound + relaxation.excess[order[size]] if size < len(order) else math.inf
        if best.best_value <= beyond:
            return best if best.stages is not None else NOTHING
        best = replace(best, lower_bound=min(best.best_value, beyond), proven=False)
        following = sum(relaxation.bound + relaxation.excess[at] < best.best_value for at in order)
        larger = min(len(order), max(2 * size, following if following < 4 * size else 0))
        if not affordable(larger):
            return best if best.stages is not None else _fitting(problem, beyond)
        size = larger


def _fitting(problem: Problem, lower: float) -> Outcome:
    """The fewest stages that hold all layers: a plan where there is one, though the core was too small for any."""
    stages = Uniform(problem).fewest(math.inf)
    if stages is None:
        return NOTHING
    return Outcome(stages, problem.value(stages), len(stages), lower, proven=False)


def _nearest(problem: Problem, loads: list[Load], relaxation: Relaxation) -> list[int]:
    """Workers that can hold a layer, pinned ones first, then by what they cost beyond the bound.

    Of equal ones no more than there are layers.
    """
    seen: dict[int, int] = {}
    order = []
    for at in range(len(loads)):
        kind = id(loads[at])
        seen[kind] = seen.get(kind, 0) + 1
        if loads[at].most[MIDDLE] and (seen[kind] <= problem.stack.n_layers or at in (problem.first, problem.last)):
            order.append(at)
    return sorted(order, key=lambda at: (at not in (problem.first, problem.last), relaxation.excess[at], at))


def _solved(problem: Problem, loads: list[Load], core: list[int], most: int, bound: float) -> Outcome:
    """The knapsack on some of the workers; fewer stages are preferred by a price far below what is told apart."""
    single = alone(problem, loads)
    fee = problem.hop_s + (0.0 if most else TIE * bound)
    items = [_item(problem, loads[at], at, fee) for at in sorted(core)]
    found: dict[int, Stages] = {1: single} if single else {}
    sack = Knapsack(items, problem.stack.n_layers, most, -fee)
    for count in problem.counts if most else (0,):
        if sack.best(count) < math.inf:
            found[count or -1] = sack.stages(count)
    if not found:
        return Outcome(None, math.inf, 0, math.inf, proven=False)
    best = chosen(problem, list(found.values()))
    if bound == 0 and not most:
        return _solved(problem, loads, core, most, best.best_value or 1.0)
    return best


def _item(problem: Problem, load: Load, at: int, fee: float) -> Item:
    roles = zip((MIDDLE, FIRST, LAST), roles_of(problem, at), strict=True)
    return Item(at, tuple(priced(load, role, fee) if may else () for role, may in roles))


def least_limit(problem: Problem) -> Outcome:
    """The least bottleneck over equal layers in any order where values aren't monotone.

    Each probe is a knapsack at the price of one per stage.
    """
    loads = loads_of(problem)
    value = smallest(lambda limit: _probe(problem, loads, limit), 0.0)
    least = None if value is None else _few(problem, loads, value)[0]
    if value is None or least is None:
        return NOTHING
    stages = least if problem.slack == 0 else _few(problem, loads, value * (1 + problem.slack))[0] or least
    return Outcome(stages, value, len(least), value, proven=True)


def _probe(problem: Problem, loads: list[Load], limit: float) -> tuple[bool, float]:
    stages, following = _few(problem, loads, limit)
    return (False, following) if stages is None else (True, problem.value(stages))


def _few(problem: Problem, loads: list[Load], limit: float) -> tuple[Stages | None, float]:
    """The fewest stages of an allowed number within the limit, or None and the next limit."""
    single = alone(problem, loads, limit)
    if single is not None:
        return single, limit
    counted = not isinstance(problem.counts, range)
    items, following = _allowed(problem, loads, limit)
    most = min(max(problem.counts), problem.stack.n_layers) if counted else 0
    sack = Knapsack(items, problem.stack.n_layers, most, 0.0)
    for count in problem.counts if counted else (0,):
        if sack.best(count) <= problem.counts[-1]:
            return sack.stages(count), limit
    return None, following


def _allowed(problem: Problem, loads: list[Load], limit: float) -> tuple[list[Item], float]:
    """Who may carry how many layers in which place, at most as many alike as there are layers, and the next limit."""
    pieces: dict[int, list[tuple[Piece, ...]]] = {}
    following = math.inf
    alike: dict[object, int] = {}
    items = []
    for at, load in enumerate(loads):
        if id(load) not in pieces:
            pieces[id(load)] = [within(load, role, limit) for role in (MIDDLE, FIRST, LAST)]
            following = min(following, _next_value(load, limit))
        allowed = tuple(p if may else () for p, may in zip(pieces[id(load)], roles_of(problem, at), strict=True))
        alike[allowed] = alike.get(allowed, 0) + 1
        if any(allowed) and alike[allowed] <= problem.stack.n_layers:
            items.append(Item(at, allowed))
    return items, following


def _next_value(load: Load, limit: float) -> float:
    """The least value beyond the limit that the node's stages take."""
    values = (load.value(role, k) for role in range(4) for k in range(1, load.most[role] + 1))
    return min((value for value in values if value > limit), default=math.inf)
