"""Policies held to the service's promise: no stage over its budget unless it was asked for.

The reference can return a first or last stage that can't hold the embedding or the head, and never checks ranges
given by hand. Here such a node is left out, and such ranges are refused.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from app.placement.budgets import Budget, Reserve, budget, budget_warnings, exclusion
from app.placement.cost import ModelCost
from app.placement.errors import (
    DoesNotFitError,
    Excess,
    InvalidFieldError,
    ManualRangesError,
    NodeVerdict,
    NoNodesError,
    OverBudgetError,
)
from app.placement.nodes import Node
from app.placement.plans import Assignment, Idle, Placement
from app.placement.reference import POLICIES, Policy, Seat, does_not_fit, layer_capacity, seats
from app.placement.units import INT_MAX


@dataclass(frozen=True, slots=True)
class Task:
    """What to place, on whom (in pipeline order), by which rule."""

    model: ModelCost
    nodes: tuple[Node, ...]
    policy: Policy
    reserve: Reserve
    allow_over_budget: bool = False


def place(task: Task) -> Placement:
    """The placement by the task's policy; every stage fits unless ``allow_over_budget``.

    O(n + l log n) for n nodes and l layers. Raises NoNodesError, DoesNotFitError, ManualRangesError,
    InvalidFieldError, OverBudgetError.
    """
    if task.model.total_bytes > INT_MAX:
        raise InvalidFieldError("layers, embedding and head together exceed 2^63-1 bytes", "/model")
    idle = {node.node_id: reason for node in task.nodes if (reason := exclusion(node))}
    eligible = [node for node in task.nodes if node.node_id not in idle]
    if not eligible:
        raise NoNodesError(excluded=idle)
    budgets = [budget(node, task.reserve.of(node)) for node in eligible]
    row = seats(eligible, budgets, task.model)
    try:
        if not task.allow_over_budget and task.policy != "manual":
            row = _without_ends_too_small(row, task.model, idle)
        assignments = POLICIES[task.policy](row, task.model)
    except DoesNotFitError as refusal:
        refusal.nodes = _verdicts(task, refusal.nodes, idle)
        raise
    _check_range(assignments)
    if task.policy == "manual" and not task.allow_over_budget:
        _check_tiling(assignments, task.model.n_layers)
        _check_budgets(assignments)
    warnings = (w for a in assignments for w in budget_warnings(a.node))
    return Placement(task.model, assignments, _in_order(task.nodes, idle), tuple(warnings))


def _without_ends_too_small(row: tuple[Seat, ...], model: ModelCost, idle: dict[str, str]) -> tuple[Seat, ...]:
    """The row less the first and last nodes that can't hold the embedding or the head, noted in ``idle``.

    Equals planning again without the nodes over budget, round by round, but O(n): the reference clips layers
    to what fits, so a stage is over budget exactly where the embedding and head alone don't fit. A row that can't
    hold the model is returned as it is, for the policy to refuse. Raises DoesNotFitError with nobody left.
    """
    inner = [min(model.n_layers, layer_capacity(s.budget.budget_bytes, model.per_layer_bytes, 0)) for s in row]
    before = list(accumulate(inner, initial=0))
    start, end = 0, len(row) - 1
    while start <= end:
        ends = _ends(row, start, end, model)
        capacity = sum(min(s.layer_cap, model.n_layers) for s in ends)
        capacity += before[end] - before[start + 1] if start < end else 0
        over = [s for s in ends if model.overhead_bytes(first=s.first, last=s.last) > s.budget.budget_bytes]
        if capacity < model.n_layers or not over:
            trimmed = row[start : end + 1]
            return (
                seats([s.node for s in trimmed], [s.budget for s in trimmed], model) if len(trimmed) < len(row) else row
            )
        idle |= {s.node.node_id: _too_small_for(s) for s in over}
        start += any(s.first for s in over)
        end -= any(s.last for s in over)
    raise does_not_fit(row, model)


def _ends(row: Sequence[Seat], start: int, end: int, model: ModelCost) -> tuple[Seat, ...]:
    """The two ends of ``row[start : end + 1]``, or the one that is both."""
    at = (start, end) if start < end else (start,)
    return seats([row[i].node for i in at], [row[i].budget for i in at], model)


def _too_small_for(seat: Seat) -> str:
    what = ["the embedding"] * seat.first + ["the head"] * seat.last
    return "cannot hold " + " and ".join(what)


def _check_range(assignments: Iterable[Assignment]) -> None:
    for a in assignments:
        if a.est_bytes > INT_MAX:
            raise InvalidFieldError(f"the layers of node {a.node.node_id} exceed 2^63-1 bytes", "/nodes")


def _check_tiling(assignments: Sequence[Assignment], n_layers: int) -> None:
    """Raise ManualRangesError unless the ranges tile ``[0, n_layers)`` in node order, none of them empty."""
    at, before = 0, None
    for a in assignments:
        who, span = a.node.node_id, f"{a.start}:{a.end}"
        if a.start == a.end:
            raise ManualRangesError(f"the range {span} of node {who} is empty", (who,))
        if a.start != at:
            fault = "overlap" if a.start < at else "gap"
            after = f"node {before} ends at layer {at}" if before else "the model starts at layer 0"
            raise ManualRangesError(
                f"{fault}: {after}, node {who} has layers {span}", (before, who) if before else (who,)
            )
        at, before = a.end, who
    if at != n_layers:
        fault = "beyond the model" if at > n_layers else "layers left over"
        raise ManualRangesError(
            f"{fault}: node {before} ends at layer {at}, the model has {n_layers} layers", (str(before),)
        )


def _check_budgets(assignments: Iterable[Assignment]) -> None:
    over = [a for a in assignments if a.over_budget]
    if over:
        excesses = (Excess(a.node.node_id, a.est_bytes, a.budget_bytes, a.est_bytes - a.budget_bytes) for a in over)
        raise OverBudgetError(tuple(excesses))


def _verdicts(task: Task, planned: Iterable[NodeVerdict], idle: dict[str, str]) -> tuple[NodeVerdict, ...]:
    """One verdict per node of the task, those left out included, in list order."""
    known = {v.node_id: v for v in planned if v.node_id not in idle}
    return tuple(known.get(n.node_id) or _left_out(n, task.reserve, idle[n.node_id]) for n in task.nodes)


def _left_out(node: Node, reserve: Reserve, reason: str) -> NodeVerdict:
    room: Budget = budget(node, reserve.of(node))
    return NodeVerdict(node.node_id, node.addr, room.budget_bytes, room.limit, 0, reason)


def _in_order(nodes: Iterable[Node], idle: dict[str, str]) -> tuple[Idle, ...]:
    return tuple(Idle(n.node_id, idle[n.node_id]) for n in nodes if n.node_id in idle)
