"""What a plan or a refusal means, in figures that a person can check."""

from dataclasses import dataclass

from app.placement.budgets import budget
from app.placement.errors import InvalidFieldError
from app.placement.hosts import host_room, sharing
from app.placement.nodes import Node
from app.placement.plans import Assignment, Placement
from app.placement.stages import Stack, stack_of, worker_of

CONTEXT_MAX = 2**40
"""The largest context that a request may ask for."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A plan in one line.

    ``objective_value`` is by the plan's objective; ``lower_bound`` holds for all plans, None where nothing is proven.
    ``best_value`` and ``best_stages`` are those of the best plan, before slack was spent. ``max_context`` is the
    largest at which this very plan fits, None where nothing is cached. ``headroom_bytes`` is the smallest of all.
    """

    stages: int
    objective_value: float
    lower_bound: float | None
    optimal: bool
    best_value: float
    best_stages: int
    bottleneck_node: str
    max_context: int | None
    headroom_bytes: int


def summarise(placement: Placement) -> Summary:
    """The plan's figures. O(stages * log context)."""
    holding = [a for a in placement.assignments if a.end > a.start] or list(placement.assignments)
    value = objective_value(placement)
    proof = placement.proof
    return Summary(
        stages=len(holding),
        objective_value=value,
        lower_bound=proof.lower_bound if proof else None,
        optimal=bool(proof and proof.optimal),
        best_value=proof.best_value if proof else value,
        best_stages=proof.best_stages if proof else len(holding),
        bottleneck_node=_bottleneck(placement, holding).node.node_id,
        max_context=max_context(placement),
        headroom_bytes=min(a.headroom_bytes for a in placement.assignments if a.est_bytes or a in holding),
    )


def _bottleneck(placement: Placement, holding: list[Assignment]) -> Assignment:
    """The slowest stage, by objective ``memory`` the fullest; of equal ones the first."""
    if _optimize(placement) == "memory":
        return max(holding, key=_share)
    return max(holding, key=lambda a: a.est_stage_s)


def _optimize(placement: Placement) -> str:
    return placement.objective.optimize or placement.engine.optimize


def _share(stage: Assignment) -> float:
    return stage.est_bytes / stage.budget_bytes if stage.budget_bytes else 0.0


def objective_value(placement: Placement) -> float:
    """The largest stage time, the sum with hops, or the largest share, added left to right."""
    optimize, total = _optimize(placement), 0.0
    for a in placement.assignments:
        if optimize == "latency":
            total += a.est_stage_s
        else:
            total = max(total, a.est_stage_s if optimize == "throughput" else _share(a))
    return total + placement.objective.hop_s * (len(placement.assignments) - 1) if optimize == "latency" else total


def max_context(placement: Placement) -> int | None:
    """The largest context at which every stage still fits as it is, its experts where they are; None without caches.

    By halving: what is cached only grows with the context. At most ``CONTEXT_MAX``; 0 where even that is too much.
    """
    if not any(block.kv_bytes_per_token for block in placement.model.blocks):
        return None
    low, high = 0, CONTEXT_MAX + 1
    while low < high - 1:
        middle = (low + high) >> 1
        low, high = (middle, high) if _fits_at(placement, middle) else (low, middle)
    return low


def _fits_at(placement: Placement, context: int) -> bool:
    try:
        stack = stack_of(placement.model, placement.engine, context, placement.objective.sequences)
    except InvalidFieldError:
        return False
    held = {a.node.node_id: _held(stack, a) for a in placement.assignments}
    if any(held[a.node.node_id] > a.budget_bytes for a in placement.assignments):
        return False
    groups = sharing((a.node for a in placement.assignments if a.end > a.start), placement.engine).values()
    return all(
        sum(held[node.node_id] for node in group) <= host_room(group, placement.reserve, placement.engine)
        for group in groups
    )


def _held(stack: Stack, stage: Assignment) -> int:
    layers = stack.sums(stage.start, stage.end)
    experts = 0 if stage.experts_paged else layers.experts
    return layers.weights + layers.cache + experts + stack.end_bytes(first=stage.first, last=stage.last)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What one node could give and what it does in the plan.

    ``limit`` names what binds the budget; ``layer_cap`` counts layers in the middle of the pipeline; ``layers`` is its
    range, None where it is idle for ``reason``.
    """

    node_id: str
    budget_bytes: int
    limit: str
    layer_cap: int
    layers: tuple[int, int] | None
    headroom_bytes: int
    reason: str | None


def explain(placement: Placement, nodes: tuple[Node, ...]) -> tuple[NodeFacts, ...]:
    """The facts of every node that was considered, in its order. O(nodes * runs of layers)."""
    objective = placement.objective
    stack = stack_of(placement.model, placement.engine, objective.context, objective.sequences)
    stages = {a.node.node_id: a for a in placement.assignments}
    reasons = {idle.node_id: idle.reason for idle in placement.idle}
    return tuple(_facts(placement, stack, n, stages.get(n.node_id), reasons.get(n.node_id)) for n in nodes)


def _facts(placement: Placement, stack: Stack, node: Node, stage: Assignment | None, reason: str | None) -> NodeFacts:
    engine, reserve = placement.engine, placement.reserve
    room = budget(node, reserve.of(node, engine), engine)
    cap = layer_cap(stack, worker_of(node, room, engine).disk_bytes, room.budget_bytes)
    return NodeFacts(
        node_id=node.node_id,
        budget_bytes=room.budget_bytes,
        limit=room.limit,
        layer_cap=cap,
        layers=(stage.start, stage.end) if stage else None,
        headroom_bytes=stage.headroom_bytes if stage else room.budget_bytes,
        reason=reason,
    )


def layer_cap(stack: Stack, disk_bytes: int, budget_bytes: int) -> int:
    """The most layers in a row that fit between the ends, experts in memory or else paged. O(layers)."""
    room = budget_bytes - stack.overhead
    if room < 0:
        return 0
    bare = [w + c for w, c in zip(stack.prefix("weights"), stack.prefix("cache"), strict=True)]
    experts = stack.prefix("experts")
    full = [b + e for b, e in zip(bare, experts, strict=True)]
    best, resident, paged = 0, 0, 0
    for end in range(1, stack.n_layers + 1):
        while full[end] - full[resident] > room:
            resident += 1
        while bare[end] - bare[paged] > room or (experts[end] - experts[paged] > disk_bytes and paged < end):
            paged += 1
        best = max(best, end - resident, end - paged)
    return best
