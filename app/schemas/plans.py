"""Plan requests and plans."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.placement.errors import InvalidFieldError
from app.placement.explain import NodeFacts, summarise
from app.placement.nodes import Node
from app.placement.plans import Assignment, Placement
from app.placement.reference import Policy
from app.placement.units import INT_MAX, gigabytes
from app.planning import KeptPlan, Outcome, Plan, Request
from app.schemas.fields import MAX_NODES, Bytes, Gigabytes, Labels, NodeId
from app.schemas.models import ModelIn, ModelOut, model_of
from app.schemas.objectives import EngineIn, EngineOptionsIn, ObjectiveIn, ObjectiveOut
from app.schemas.parsing import Out, Strict
from app.schemas.reports import ReportIn


class _Ask(Strict):
    """What both ways to plan have in common."""

    model: ModelIn
    policy: Policy | None = Field(None, description="The server's default policy where left out")
    reserve_bytes: Bytes | None = Field(None, description="Bytes kept free on each node; the server's default if null")
    reserve_ram_gb: Gigabytes | None = Field(None, description="The same in decimal gigabytes; give one of the two")
    selector: Labels = Field({}, description="Only nodes that have all these labels")
    exclude: Annotated[list[NodeId], Field(fail_fast=True, max_length=MAX_NODES)] = Field(
        [], description="Not these nodes"
    )
    engine: EngineIn = EngineOptionsIn()
    objective: ObjectiveIn = ObjectiveIn()
    explain: bool = Field(False, description="Say of every node what it could give and why it does what it does")
    allow_over_budget: bool = Field(
        False,
        description="Return the reference planner's result or refusal verbatim, stages over budget marked",
    )

    @model_validator(mode="after")
    def _one_reserve(self) -> Self:
        if self.reserve_bytes is not None and self.reserve_ram_gb is not None:
            raise ValueError("give reserve_bytes or reserve_ram_gb, not both")
        return self

    def _request(self, default_policy: Policy, nodes: tuple[str, ...] | None) -> Request:
        from_gb = None if self.reserve_ram_gb is None else min(INT_MAX, gigabytes(self.reserve_ram_gb))
        return Request(
            model=model_of(self.model),
            policy=self.policy or default_policy,
            reserve_bytes=self.reserve_bytes if from_gb is None else from_gb,
            nodes=nodes,
            selector=tuple(self.selector.items()),
            exclude=frozenset(self.exclude),
            allow_over_budget=self.allow_over_budget,
            engine=self.engine.to_engine(),
            objective=self.objective.to_objective(),
            precision_ladder=tuple(self.objective.precision_ladder or ()),
            explain=self.explain,
        )


class PlanIn(_Ask):
    """A model to place on registered nodes.

    ``nodes`` gives node_ids in pipeline order; without it, all ready and suspect nodes in order of first registration.
    """

    nodes: (
        Annotated[list[NodeId], Field(fail_fast=True, max_length=MAX_NODES, json_schema_extra={"uniqueItems": True})]
        | None
    ) = None

    def to_request(self, default_policy: Policy) -> Request:
        """The request as planning takes it. Raises InvalidFieldError for a node named twice."""
        if self.nodes is not None:
            _check_distinct(self.nodes, "")
        return self._request(default_policy, None if self.nodes is None else tuple(self.nodes))


class SimulateIn(_Ask):
    """A model to place on nodes whose reports stand in the request, in pipeline order.

    The reports are read liberally, the rest strictly.
    """

    nodes: Annotated[list[ReportIn], Field(fail_fast=True, max_length=MAX_NODES)]

    def to_request(self, default_policy: Policy) -> Request:
        """The request as planning takes it."""
        return self._request(default_policy, None)

    def to_nodes(self) -> tuple[tuple[Node, ...], tuple[str, ...]]:
        """The nodes, and what is odd about their reports.

        Raises InvalidFieldError for a node_id that stands there twice, and for memory that adds up beyond 2^63-1.
        """
        read = [report.to_node() for report in self.nodes]
        nodes = tuple(node for node, _ in read)
        _check_distinct([node.node_id for node in nodes], "/node_id")
        if sum(node.ram_total for node in nodes) > INT_MAX:
            raise InvalidFieldError("the nodes' ram_total together exceed 2^63-1 bytes", "/nodes")
        return nodes, tuple(f"{node.node_id}: {warning}" for node, warnings in read for warning in warnings)


def _check_distinct(node_ids: list[str], field: str) -> None:
    seen: set[str] = set()
    for at, node_id in enumerate(node_ids):
        if node_id in seen:
            raise InvalidFieldError("the node is named twice", f"/nodes/{at}{field}")
        seen.add(node_id)


class LayersOut(Out):
    """Layers ``[start, end)``."""

    start: int
    end: int


class AssignmentOut(Out):
    """One node's stage. Bytes; ``est_bytes`` is the sum of weights, KV cache and overhead.

    ``est_stage_s`` are seconds of one decode step, only as good as ``per_layer_flops`` and the nodes' speeds.
    """

    node_id: str
    addr: str
    ssh: str | None
    device: str
    layers: LayersOut
    first: bool
    last: bool
    est_bytes: int
    est_weight_bytes: int
    est_kv_bytes: int
    est_overhead_bytes: int
    est_disk_bytes: int
    experts_paged: bool
    est_stage_s: float
    budget_bytes: int
    over_budget: bool
    role: str
    backs: str | None

    @staticmethod
    def of(stage: Assignment) -> "AssignmentOut":
        """The stage as it is answered."""
        node = stage.node
        return AssignmentOut(
            node_id=node.node_id,
            addr=node.addr,
            ssh=node.config.ssh,
            device=node.primary_device,
            layers=LayersOut(start=stage.start, end=stage.end),
            first=stage.first,
            last=stage.last,
            est_bytes=stage.est_bytes,
            est_weight_bytes=stage.est_weight_bytes,
            est_kv_bytes=stage.est_kv_bytes,
            est_overhead_bytes=stage.est_overhead_bytes,
            est_disk_bytes=stage.est_disk_bytes,
            experts_paged=stage.experts_paged,
            est_stage_s=stage.est_stage_s,
            budget_bytes=stage.budget_bytes,
            over_budget=stage.over_budget,
            role=node.config.role,
            backs=node.config.standby_for,
        )


class IdleOut(Out):
    """A node without a stage, and why."""

    node_id: str
    reason: str


class SummaryOut(Out):
    """The plan at a glance.

    ``objective_value``: the largest stage time, the sum with hops, or the largest share, by the objective.
    ``lower_bound``: no plan is below it; null for policies that prove nothing. ``optimal``: proven to be the best, and
    ``best_value`` and ``best_stages`` are the best plan's where ``slack`` gave some of it up. ``max_context``: the
    largest at which this very plan fits, null where nothing is cached. ``headroom_bytes``: the smallest of all stages.
    ``precision``: the one stepped down to, null where the model fits as it is.
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
    precision: str | None

    @staticmethod
    def of(placement: Placement, precision: str | None) -> "SummaryOut":
        """The placement at a glance."""
        return SummaryOut(**asdict(summarise(placement)), precision=precision)


class NodeFactsOut(Out):
    """What one node could give and what it does in the plan. Bytes.

    ``limit`` names what bounds the budget, ``layer_cap`` counts layers that fit in the middle of the pipeline;
    ``layers`` is null for an idle node, which has a ``reason``.
    """

    node_id: str
    budget_bytes: int
    limit: str
    layer_cap: int
    layers: LayersOut | None
    headroom_bytes: int
    reason: str | None

    @staticmethod
    def of(facts: NodeFacts) -> "NodeFactsOut":
        """The facts as they are answered."""
        layers = LayersOut(start=facts.layers[0], end=facts.layers[1]) if facts.layers else None
        own = {field: getattr(facts, field) for field in NodeFactsOut.model_fields if field != "layers"}
        return NodeFactsOut(**own, layers=layers)


class PlanOut(Out):
    """Which node runs which layers. ``plan_id``, ``created_at`` and ``revision`` are null for a simulation."""

    plan_id: str | None
    created_at: datetime | None
    revision: int | None
    policy: Policy
    engine: str
    objective: ObjectiveOut
    model: ModelOut
    assignments: list[AssignmentOut]
    idle: list[IdleOut]
    summary: SummaryOut
    explain: list[NodeFactsOut] | None
    warnings: list[str]

    @staticmethod
    def of(plan: Outcome, warnings: tuple[str, ...] = ()) -> "PlanOut":
        """The plan as it is answered; ``warnings`` are the edge's own."""
        placed, stamp = plan.placement, plan if isinstance(plan, Plan) else None
        return PlanOut(
            plan_id=stamp.plan_id if stamp else None,
            created_at=stamp.created_at if stamp else None,
            revision=stamp.revision if stamp else None,
            policy=plan.policy,
            engine=placed.engine.name,
            objective=ObjectiveOut.of(placed.objective, placed.engine),
            model=ModelOut.of(placed.model, plan.variant),
            assignments=[AssignmentOut.of(a) for a in placed.assignments],
            idle=[IdleOut(node_id=i.node_id, reason=i.reason) for i in placed.idle],
            summary=SummaryOut.of(placed, plan.variant.precision),
            explain=None if plan.facts is None else [NodeFactsOut.of(f) for f in plan.facts],
            warnings=[*warnings, *placed.warnings],
        )


class PlanItemOut(Out):
    """A recent plan in a list."""

    plan_id: str
    created_at: datetime
    revision: int
    policy: Policy
    model: str | None
    n_layers: int
    stages: int

    @staticmethod
    def of(plan: KeptPlan) -> "PlanItemOut":
        """The plan in one line."""
        return PlanItemOut(**{field: getattr(plan, field) for field in PlanItemOut.model_fields})


class PlansOut(Out):
    """Recent plans, newest first; ``next_cursor`` is null on the last page."""

    plans: list[PlanItemOut]
    next_cursor: str | None


PlanIdPath = Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9-]+$", description="The plan's plan_id")]


class PlansQuery(BaseModel):
    """Which plans to list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    cursor: Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9-]+$")] | None = Field(
        None, description="next_cursor of the page before"
    )
