"""Why nothing fits, in figures."""

import math
from collections.abc import Callable
from dataclasses import replace

from app.placement.auto import given, orders
from app.placement.auto.outcome import NOTHING, Outcome, Solver
from app.placement.auto.problem import Problem
from app.placement.auto.states import Reaches, kinds_of, size
from app.placement.auto.uniform import Uniform
from app.placement.caps import Caps
from app.placement.errors import DoesNotFitError, NodeVerdict
from app.placement.units import GB, INT_MAX

MOVES = 500_000
"""Steps of the exact feasibility test at most; beyond it orders are tried."""

SCANNED = 400_000
"""Steps for which every number of layers is tried; beyond, the search halves, as if what fits with more layers fits
with fewer."""

TRIED = 20
"""Plans that a limit on several stages together takes, about."""


def any_plan(problem: Problem) -> Outcome:
    """Some plan of few stages, whatever its value: much cheaper than the best one.

    Exact for equal layers, in given order, and for few nodes. ``best_value`` is no more than a bound here.
    """
    if not problem.counts:
        return NOTHING
    exact = True
    if problem.given:
        stages = given.far(problem, math.inf)[0] if problem.any_count else given.fewest(problem, math.inf)
    elif problem.stack.uniform:
        stages = Uniform(problem).fewest(math.inf)
    elif _states(problem) <= MOVES:
        stages = Reaches(problem).fewest(math.inf)
    else:
        stages, exact = orders.any_plan(problem), False
    if stages is None:
        return replace(NOTHING, proven=exact)
    return Outcome(stages, 0.0, len(stages), 0.0, proven=exact)


def fits(problem: Problem, finder: Solver = any_plan) -> bool:
    """Whether ``finder``, ``any_plan`` within the limits that bind several stages together, finds one."""
    return finder(replace(problem, optimize="throughput", slack=0.0)).stages is not None


def refused(problem: Problem, outcome: Outcome, finder: Solver = any_plan) -> DoesNotFitError:
    """The refusal with its figures; ``finder`` as for ``fits``."""
    stack = problem.stack
    alone = finder is any_plan
    pages = stack.has_experts and any(worker.disk_bytes > 0 for worker in problem.workers)
    required = stack.required_bytes(paged=pages)
    if alone and stack.uniform and not problem.given:
        capacity = Uniform(problem).capacity()
    elif alone and problem.given and problem.any_count:
        capacity = given.capacity(problem)
    else:
        capacity = _largest(problem, lambda m: fits(first_layers(problem, m), finder), 1 if alone else TRIED)
    return DoesNotFitError(
        f"model ({stack.n_layers} layers, {required / GB:.1f} GB) does not fit these nodes "
        f"(capacity {capacity} layers). Lower precision, add a node, raise max_ram, or reduce reserve.",
        required_bytes=required,
        usable_bytes=min(INT_MAX, sum(worker.budget.budget_bytes for worker in problem.workers)),
        capacity_layers=capacity,
        nodes=verdicts(problem),
        proven=outcome.proven,
    )


def verdicts(problem: Problem) -> tuple[NodeVerdict, ...]:
    """What each node could have given: its budget, and the most layers in the middle of the pipeline."""
    caps = Caps(problem.stack)
    return tuple(
        NodeVerdict(w.node.node_id, w.node.addr, w.budget.budget_bytes, w.budget.limit, caps.of(w), None)
        for w in problem.workers
    )


def first_layers(problem: Problem, n_layers: int) -> Problem:
    """The same problem for the model's first layers with embedding and head."""
    counts = tuple(count for count in problem.counts if count <= n_layers)
    if isinstance(problem.counts, range):
        return replace(problem, stack=problem.stack.truncated(n_layers), counts=range(1, len(counts) + 1))
    return replace(problem, stack=problem.stack.truncated(n_layers), counts=counts)


def _states(problem: Problem) -> int:
    kinds = kinds_of(problem)
    return size(kinds) * len(kinds)


def _largest(problem: Problem, holds: Callable[[int], bool], plans: int) -> int:
    """The largest number of layers short of all that holds, 0 where none does; ``holds`` costs so many plans."""
    n_layers = problem.stack.n_layers
    kinds = 1 if problem.given else size(kinds_of(problem))
    if plans * kinds * len(problem.workers) * n_layers <= SCANNED:
        return next(filter(holds, range(n_layers - 1, 0, -1)), 0)
    low, high = 0, n_layers
    while low < high - 1:
        middle = (low + high) >> 1
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
