"""What a plan or a refusal means, in figures that a person can check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.placement.budgets import budget
from app.placement.caps import Caps
from app.placement.cost import Block
from app.placement.hosts import host_room, sharing
from app.placement.nodes import Node
from app.placement.plans import Assignment, Placement
from app.placement.stages import stack_of, worker_of
from app.placement.units import INT_MAX

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
    growing = _Growing(placement)
    low, high = 0, CONTEXT_MAX + 1
    while low < high - 1:
        middle = (low + high) >> 1
        low, high = (middle, high) if growing.fits(middle) else (low, middle)
    return low


class _Growing:
    """The stages of a plan at any context: bytes that stay, and bytes per cached token by attention window."""

    def __init__(self, placement: Placement) -> None:
        """O(stages * runs of layers)."""
        stages, model, now = placement.assignments, placement.model, placement.objective.context
        stack = stack_of(model, placement.engine, now, placement.objective.sequences)
        blocks, total = model.blocks, stack.total
        self.placement = placement
        self.caches = [_per_token(blocks, a.start, a.end) for a in stages]
        self.fixed = [a.est_bytes - self._cached(cache, now) for a, cache in zip(stages, self.caches, strict=True)]
        self.whole = _per_token(blocks, 0, model.n_layers)
        weights = total.weights + total.experts + stack.overhead + model.embed_bytes + model.head_bytes
        self.whole_fixed = weights + total.cache - self._cached(self.whole, now)
        places = {a.node.node_id: at for at, a in enumerate(stages) if a.end > a.start}
        groups = sharing((stages[at].node for at in places.values()), placement.engine).values()
        self.hosts = [
            ([places[node.node_id] for node in group], host_room(group, placement.reserve, placement.engine))
            for group in groups
        ]

    def fits(self, context: int) -> bool:
        """Whether every stage and every host has room, and the sums stay figures. O(stages * windows)."""
        if self.whole_fixed + self._cached(self.whole, context) > INT_MAX:
            return False
        held = [fixed + self._cached(cache, context) for fixed, cache in zip(self.fixed, self.caches, strict=True)]
        if any(size > a.budget_bytes for size, a in zip(held, self.placement.assignments, strict=True)):
            return False
        return all(sum(held[at] for at in group) <= room for group, room in self.hosts)

    def _cached(self, per_token: Mapping[int | None, int], context: int) -> int:
        engine, sequences = self.placement.engine, self.placement.objective.sequences
        return sum(engine.cached_tokens(context, sequences, window) * size for window, size in per_token.items())


def _per_token(blocks: Sequence[Block], start: int, end: int) -> dict[int | None, int]:
    """Bytes that layers ``[start, end)`` cache per token, by window; a single block goes on beyond its end."""
    found: dict[int | None, int] = {}
    at = 0
    for block in blocks:
        layers = end - start if len(blocks) == 1 else min(end, at + block.count) - max(start, at)
        at += block.count
        if layers > 0 and block.kv_bytes_per_token:
            found[block.kv_window] = found.get(block.kv_window, 0) + layers * block.kv_bytes_per_token
    return found


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
    """The facts of every node that was considered, in its order. O(nodes * log layers), and ``Caps``."""
    objective, engine, reserve = placement.objective, placement.engine, placement.reserve
    caps = Caps(stack_of(placement.model, engine, objective.context, objective.sequences))
    stages = {a.node.node_id: a for a in placement.assignments}
    reasons = {idle.node_id: idle.reason for idle in placement.idle}
    facts = []
    for node in nodes:
        room, stage = budget(node, reserve.of(node, engine), engine), stages.get(node.node_id)
        facts.append(
            NodeFacts(
                node_id=node.node_id,
                budget_bytes=room.budget_bytes,
                limit=room.limit,
                layer_cap=caps.of(worker_of(node, room, engine)),
                layers=(stage.start, stage.end) if stage else None,
                headroom_bytes=stage.headroom_bytes if stage else room.budget_bytes,
                reason=reasons.get(node.node_id),
            )
        )
    return tuple(facts)
