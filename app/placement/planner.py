"""Policies held to the service's promise: no stage over its budget unless it was asked for.

The reference can return a first or last stage that can't hold the embedding or the head, and never checks ranges
given by hand. Here such a node is left out, and such ranges are refused.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from app.placement.auto.policy import best_plan, feasible
from app.placement.budgets import budget, budget_warnings, devices_used, exclusion
from app.placement.cautions import cautions
from app.placement.cost import check_cost
from app.placement.engines import Engine
from app.placement.errors import (
    DoesNotFitError,
    Excess,
    InvalidFieldError,
    ManualRangesError,
    NodeVerdict,
    NoNodesError,
    OverBudgetError,
)
from app.placement.hosts import crowded, tensor_parallel_warnings
from app.placement.nodes import Node
from app.placement.objective import check_objective
from app.placement.plans import Assignment, Idle, Placement
from app.placement.reference import POLICIES, Policy, Seat, does_not_fit, layer_capacity, seats, verdict
from app.placement.stages import Stack, Worker, stack_of, worker_of
from app.placement.task import Task
from app.placement.units import INT_MAX

SHARES = "shares the RAM of host "
TOO_SMALL = "cannot hold what the engine adds to a stage"


def place(task: Task) -> Placement:
    """The placement by the task's policy; every stage fits unless ``allow_over_budget``.

    O(n + l log n) for n nodes and l layers by the reference policies; ``auto`` is bounded by its step budgets. Raises
    NoNodesError, DoesNotFitError, ManualRangesError, InvalidFieldError, OverBudgetError.
    """
    stack, workers, idle = considered(task)
    if not workers:
        raise NoNodesError(excluded=idle)
    proof = None
    try:
        if task.policy == "auto":
            _check_auto(task)
            assignments, proof = best_plan(task, stack, workers, idle)
        else:
            assignments = _by_reference(task, task.policy, stack, workers, idle)
    except DoesNotFitError as refusal:
        refusal.nodes = _verdicts(task, refusal.nodes, idle)
        refusal.proven = refusal.proven and not any(reason.startswith(SHARES) for reason in idle.values())
        raise
    return Placement(
        model=task.model,
        assignments=assignments,
        idle=_in_order(listed(task), idle),
        warnings=(*_warnings(assignments, task.engine), *cautions(task, workers, assignments)),
        engine=task.engine,
        objective=task.objective,
        reserve=task.reserve,
        proof=proof,
    )


def considered(task: Task) -> tuple[Stack, list[Worker], dict[str, str]]:
    """What there is to place, who may take part, and why the others may not. Raises InvalidFieldError."""
    check_cost(task.model)
    stack = stack_of(task.model, task.engine, task.objective.context, task.objective.sequences)
    idle = {node.node_id: reason for node in task.nodes if (reason := exclusion(node, task.engine))}
    return stack, [_worker(node, task) for node in task.nodes if node.node_id not in idle], idle


def listed(task: Task) -> tuple[Node, ...]:
    """The nodes in the list's order, by node_id where the order is no part of the question."""
    free = task.policy == "auto" and task.objective.order == "any"
    return tuple(sorted(task.nodes, key=lambda node: node.node_id)) if free else task.nodes


def can_place(task: Task) -> bool:
    """Whether ``place`` would find a plan, without looking for the best one.

    Raises NoNodesError, ManualRangesError, InvalidFieldError, OverBudgetError as ``place`` does.
    """
    if task.policy != "auto":
        try:
            place(task)
        except DoesNotFitError:
            return False
        return True
    stack, workers, _ = considered(task)
    return bool(workers) and feasible(task, stack, workers)


def _worker(node: Node, task: Task) -> Worker:
    return worker_of(node, budget(node, task.reserve.of(node, task.engine), task.engine), task.engine)


def _check_auto(task: Task) -> None:
    if task.allow_over_budget:
        raise InvalidFieldError("policy auto never exceeds a budget", "/allow_over_budget")
    check_objective(task.objective, {node.node_id for node in task.nodes})


def _warnings(assignments: Sequence[Assignment], engine: Engine) -> tuple[str, ...]:
    found = [w for a in assignments for w in budget_warnings(a.node, engine)]
    return (*found, *tensor_parallel_warnings([a.node for a in assignments], engine))


def _by_reference(
    task: Task, policy: Policy, stack: Stack, workers: list[Worker], idle: dict[str, str]
) -> tuple[Assignment, ...]:
    """The reference's plan, again without the nodes that would break a promise, noted in ``idle``."""
    by_hand = policy == "manual"
    if not by_hand and not stack.uniform:
        raise InvalidFieldError(f"policy {policy} knows only equal layers; use auto", "/policy")
    if not by_hand and not task.allow_over_budget:
        workers = _within_devices(workers, task.engine, idle)
    while True:
        trusted = task.allow_over_budget or by_hand
        row = seats(workers, stack) if trusted else _without_ends_too_small(workers, stack, idle)
        assignments = POLICIES[policy](row, stack)
        _check_range(assignments)
        if task.allow_over_budget:
            return assignments
        if by_hand:
            _check_tiling(assignments, stack.n_layers)
            _check_devices(assignments, task.engine)
            _check_budgets(assignments)
        over = crowded(assignments, task.reserve, task.engine)
        if over is None:
            return assignments
        if by_hand:
            raise OverBudgetError(over.excesses)
        idle[over.smallest.node_id] = f"{SHARES}{over.host_id} with others of the plan"
        workers = [w for w in workers if w.node.node_id not in idle]


def _within_devices(workers: list[Worker], engine: Engine, idle: dict[str, str]) -> list[Worker]:
    """The workers without the smallest budgets that are beyond what the engine can drive, noted in ``idle``.

    Of equal budgets the first stay.
    """
    if engine.max_devices is None:
        return workers
    left, kept = engine.max_devices, set[str]()
    for worker in sorted(workers, key=lambda worker: -worker.budget.budget_bytes):
        used = devices_used(worker.node, engine)
        if used <= left:
            left -= used
            kept.add(worker.node.node_id)
        else:
            idle[worker.node.node_id] = _too_many(engine)
    return [worker for worker in workers if worker.node.node_id in kept]


def _too_many(engine: Engine) -> str:
    return f"{engine.name} drives at most {engine.max_devices} devices"


def _check_devices(assignments: Iterable[Assignment], engine: Engine) -> None:
    used = sum(devices_used(a.node, engine) for a in assignments)
    if engine.max_devices is not None and used > engine.max_devices:
        raise ManualRangesError(f"the ranges are on {used} devices: {_too_many(engine)}")


def _without_ends_too_small(everybody: list[Worker], stack: Stack, idle: dict[str, str]) -> tuple[Seat, ...]:
    """The seats without the first and last nodes that can't hold the embedding or the head, noted in ``idle``.

    Equals planning again without the nodes over budget, round by round, but O(n): the reference clips layers
    to what fits, so a stage is over budget exactly where what it carries beside its layers doesn't fit. A row that
    can't hold the model is returned as it is, for the policy to refuse. Raises DoesNotFitError with nobody left.
    """
    small = {w.node.node_id: TOO_SMALL for w in everybody if w.budget.budget_bytes < stack.overhead}
    idle |= small
    workers = [w for w in everybody if w.node.node_id not in small] if small else everybody
    row = seats(workers, stack)
    before = list(accumulate(_inner(row, stack), initial=0))
    start, end = 0, len(workers) - 1
    while start <= end:
        ends = seats([workers[start], workers[end]] if start < end else [workers[start]], stack)
        capacity = sum(min(s.layer_cap, stack.n_layers) for s in ends)
        capacity += before[end] - before[start + 1] if start < end else 0
        over = [s for s in ends if stack.end_bytes(first=s.first, last=s.last) > s.worker.budget.budget_bytes]
        if capacity < stack.n_layers or not over:
            return row if len(row) == end - start + 1 else seats(workers[start : end + 1], stack)
        idle |= {s.worker.node.node_id: _too_small_for(s) for s in over}
        start += any(s.first for s in over)
        end -= any(s.last for s in over)
    raise does_not_fit(seats(everybody, stack), stack)


def _inner(row: Iterable[Seat], stack: Stack) -> list[int]:
    """The layers that fit each worker between the ends, at most all."""
    each, beside = stack.resident_layer_bytes, stack.overhead
    return [min(stack.n_layers, layer_capacity(s.worker.budget.budget_bytes, each, beside)) for s in row]


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
    return tuple(known.get(n.node_id) or _left_out(n, task, idle[n.node_id]) for n in listed(task))


def _left_out(node: Node, task: Task, reason: str) -> NodeVerdict:
    out = verdict(_worker(node, task), 0)
    limit = "host" if reason.startswith(SHARES) else out.limit
    return NodeVerdict(out.node_id, out.addr, out.budget_bytes, limit, 0, reason)


def _in_order(nodes: Iterable[Node], idle: dict[str, str]) -> tuple[Idle, ...]:
    return tuple(Idle(n.node_id, idle[n.node_id]) for n in nodes if n.node_id in idle)
