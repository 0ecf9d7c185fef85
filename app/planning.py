"""Planning: from a request and the fleet as it is to a plan that keeps its promises."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from app.placement.budgets import Reserve
from app.placement.check import violations
from app.placement.cost import ModelCost
from app.placement.engines import PLAIN, Engine
from app.placement.errors import CleaveError, DoesNotFitError, NoNodesError, OverBudgetError
from app.placement.explain import NodeFacts, explain
from app.placement.moving import Moved, Span, place_near
from app.placement.nodes import Node
from app.placement.objective import Objective
from app.placement.planner import can_place, listed, place
from app.placement.plans import Idle, Placement
from app.placement.precision import at_precision
from app.placement.reference import Policy
from app.placement.suggest import suggestions
from app.placement.task import Task
from app.ports import MAX_NAMED, FleetView, ModelView, Standing, UnknownNodeError

RECENT_PLANS = 1_000
RECENT_BYTES = 32 * 1024 * 1024
"""Bounds the memory of recent plans where each has thousands of stages; packed, a stage is about 30 bytes."""


class UnsoundPlanError(Exception):
    """A plan broke its own promises: a bug, never an answer."""


@dataclass(eq=False)
class UnknownPlanError(CleaveError):
    """A plan_id that no recent plan has."""

    plan_id: str
    detail: str = field(init=False)

    def __post_init__(self) -> None:
        """Where plans go."""
        self.detail = f"no recent plan {self.plan_id}; the last {RECENT_PLANS} are kept until the server restarts"


@dataclass(frozen=True, slots=True)
class Request:
    """What an orchestrator asks for.

    ``model`` is a cost, or the names of variants of one model, the best first. ``nodes`` are node_ids in pipeline
    order, None for everybody ready or suspect in order of first registration; ``selector`` are labels that a node must
    have.
    """

    model: ModelCost | tuple[str, ...]
    policy: Policy
    reserve_bytes: int | None = None
    nodes: tuple[str, ...] | None = None
    selector: tuple[tuple[str, str], ...] = ()
    exclude: frozenset[str] = frozenset()
    allow_over_budget: bool = False
    engine: Engine = PLAIN
    objective: Objective = Objective()
    precision_ladder: tuple[str, ...] = ()
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Variant:
    """A model's cost, by which name and in which version it was found (None: it stood in the request).

    ``precision`` is the one that its layers are scaled to, None where they are as they are.
    """

    cost: ModelCost
    ref: str | None = None
    version: int | None = None
    precision: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A placement, the policy that made it and the variant that it places; a simulation is no more than that.

    ``facts`` are there where the request wanted them explained.
    """

    policy: Policy
    placement: Placement
    variant: Variant
    facts: tuple[NodeFacts, ...] | None


@dataclass(frozen=True, slots=True)
class Plan(Outcome):
    """An outcome on the registry as it was at ``revision``."""

    plan_id: str
    created_at: datetime
    revision: int


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan as it was returned: what a list says of it, and its answer, packed by who gave it."""

    plan_id: str
    created_at: datetime
    revision: int
    policy: Policy
    model: str | None
    n_layers: int
    stages: int
    packed: bytes

    @staticmethod
    def of(plan: Plan, packed: bytes) -> "KeptPlan":
        """The plan with its answer. Nothing of its nodes is kept: each beat makes new ones, and old ones add up."""
        model = plan.placement.model
        stages = sum(a.end > a.start for a in plan.placement.assignments)
        name = plan.variant.ref or model.name
        return KeptPlan(plan.plan_id, plan.created_at, plan.revision, plan.policy, name, model.n_layers, stages, packed)


class RecentPlans:
    """The last plans as they were returned, oldest first; not durable."""

    def __init__(self) -> None:
        """Start without any."""
        self._plans: OrderedDict[str, KeptPlan] = OrderedDict()
        self._bytes = 0

    def keep(self, plan: KeptPlan) -> None:
        """Remember a plan and forget the oldest beyond ``RECENT_PLANS`` or ``RECENT_BYTES``."""
        self._plans[plan.plan_id] = plan
        self._bytes += len(plan.packed)
        while len(self._plans) > 1 and (len(self._plans) > RECENT_PLANS or self._bytes > RECENT_BYTES):
            _, oldest = self._plans.popitem(last=False)
            self._bytes -= len(oldest.packed)

    def get(self, plan_id: str) -> KeptPlan:
        """One plan. Raises UnknownPlanError."""
        try:
            return self._plans[plan_id]
        except KeyError:
            raise UnknownPlanError(plan_id) from None

    def page(self, after: str | None, limit: int) -> tuple[list[KeptPlan], bool]:
        """Up to ``limit`` plans older than plan_id ``after``, newest first, and whether there are more.

        Where ``after`` is forgotten, so is all that was older.
        """
        newest_first = list(reversed(self._plans))
        start = 0 if after is None else newest_first.index(after) + 1 if after in self._plans else len(newest_first)
        chosen = newest_first[start : start + limit]
        return [self._plans[plan_id] for plan_id in chosen], start + limit < len(newest_first)


class Planner:
    """Plans on a registry, and without one."""

    def __init__(
        self,
        fleet: FleetView,
        models: ModelView,
        default_reserve_bytes: int,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        """``new_id`` makes plan_ids."""
        self._fleet = fleet
        self._models = models
        self._default_reserve_bytes = default_reserve_bytes
        self._now = now
        self._new_id = new_id
        self.recent = RecentPlans()

    def prepare(self, request: Request) -> Callable[[], Plan]:
        """The work of planning on the registry as it is now; calling it touches nothing but its own snapshot.

        So it may run on another thread while beats come in. Raises UnknownNodeError, UnknownModelError.
        """
        fleet = self._fleet.fleet()
        candidates = _admitted(request, fleet.standings)
        variants = self._variants(request)
        plan_id, created_at = self._new_id(), self._now()

        def work() -> Plan:
            made = self._make(request, variants, candidates)
            return Plan(made.policy, made.placement, made.variant, made.facts, plan_id, created_at, fleet.revision)

        return work

    def prepare_anew(
        self, request: Request, variant: Variant, deployment: str, held: Mapping[str, Span], tolerance: float
    ) -> Callable[[], tuple[Plan, Moved]]:
        """The work of planning a deployment again, near what its nodes hold; its own memory is free to itself.

        Nodes that were asked for by name and are gone are no fault here. The model is what was deployed.
        """
        fleet = self._fleet.fleet(deployment)
        known = {s.node.node_id for s in fleet.standings}
        wanted = None if request.nodes is None else tuple(node_id for node_id in request.nodes if node_id in known)
        candidates = _admitted(replace(request, nodes=wanted), fleet.standings)
        cost = at_precision(variant.cost, variant.precision) if variant.precision else variant.cost
        plan_id, created_at = self._new_id(), self._now()

        def work() -> tuple[Plan, Moved]:
            found: list[Moved] = []

            def near(task: Task) -> Placement:
                found.append(place_near(task, held, tolerance))
                return found[-1].placement

            made = self._make(request, (Variant(cost),), candidates, near)
            plan = Plan(made.policy, made.placement, variant, made.facts, plan_id, created_at, fleet.revision)
            return plan, found[-1]

        return work

    def prepare_simulation(self, request: Request, nodes: Sequence[Node]) -> Callable[[], Outcome]:
        """The same for nodes that the request brings along; equal requests give equal plans.

        Raises UnknownModelError.
        """
        candidates = _admitted(request, [Standing(node, "ready") for node in nodes])
        variants = self._variants(request)

        return lambda: self._make(request, variants, candidates)

    def _variants(self, request: Request) -> tuple[Variant, ...]:
        """What the request's model may be, the best first; last come the precisions of its ladder, as estimates."""
        if isinstance(request.model, ModelCost):
            found = [Variant(request.model)]
        else:
            records = [self._models.get(name) for name in request.model]
            found = [Variant(r.cost, r.name, r.version) for r in records]
        ladder = request.precision_ladder if found[-1].cost.params else ()
        return (*found, *[replace(found[-1], precision=precision) for precision in ladder])

    def _make(
        self,
        request: Request,
        variants: Sequence[Variant],
        admitted: "Admitted",
        placing: Callable[[Task], Placement] = place,
    ) -> Outcome:
        """Plan on those candidates that are alive; who was asked for by name and has expired is idle."""
        candidates = admitted.standings
        gone = {s.node.node_id: s.state for s in candidates if s.state == "expired"}
        alive = tuple(s.node for s in candidates if s.state != "expired")
        reserve = Reserve(request.reserve_bytes, self._default_reserve_bytes)
        task = Task(
            variants[0].cost,
            alive,
            request.policy,
            reserve,
            request.allow_over_budget,
            request.engine,
            request.objective,
        )
        try:
            placed, variant = _first_that_fits(task, variants, placing)
        except NoNodesError as refusal:
            refusal.excluded = admitted.left_out | gone | refusal.excluded
            raise
        except DoesNotFitError as refusal:
            if request.precision_ladder and not variants[-1].precision:
                refusal.detail += " The precision_ladder was not tried: it needs the model's params."
            raise
        found = violations(placed, nodes=alive, allow_over_budget=request.allow_over_budget)
        if found:
            raise UnsoundPlanError("; ".join(found))
        suspects = tuple(f"{s.node.node_id}: suspect, its beats are late" for s in candidates if s.state == "suspect")
        facts = explain(placed, listed(task)) if request.explain else None
        reasons = {i.node_id: i.reason for i in placed.idle} | (gone if request.nodes is not None else {})
        everybody = listed(replace(task, nodes=tuple(s.node for s in candidates)))
        idle = tuple(Idle(n.node_id, reasons[n.node_id]) for n in everybody if n.node_id in reasons)
        placed = replace(placed, idle=idle, warnings=placed.warnings + suspects + admitted.warnings)
        return Outcome(request.policy, placed, variant, facts)


def _first_that_fits(
    task: Task, variants: Sequence[Variant], placing: Callable[[Task], Placement]
) -> tuple[Placement, Variant]:
    """The placement of the first variant that fits.

    Raises DoesNotFitError, with suggestions, or OverBudgetError, of the last one that isn't an estimate.
    """
    for variant in variants:
        cost = at_precision(variant.cost, variant.precision) if variant.precision else variant.cost
        tried = replace(task, model=cost)
        try:
            if not variant.precision or can_place(tried):
                return placing(tried), variant
        except (DoesNotFitError, OverBudgetError) as error:
            if not variant.precision:
                refused, refusal = tried, error
    names = [variant.ref for variant in variants if variant.ref and not variant.precision]
    if len(names) > 1:
        refusal.detail = f"none of {', '.join(names)} fits; of the last: {refusal.detail}"
    if isinstance(refusal, DoesNotFitError):
        refusal.suggestions = suggestions(refused)
    raise refusal


@dataclass(frozen=True, slots=True)
class Admitted:
    """Whom a request admits, expired or not, in pipeline order; whom it leaves out, and why; what is odd about that."""

    standings: tuple[Standing, ...]
    left_out: dict[str, str]
    warnings: tuple[str, ...]


def _admitted(request: Request, standings: Sequence[Standing]) -> Admitted:
    """The candidates. O(n). Raises UnknownNodeError."""
    known = {s.node.node_id: s for s in standings}
    chosen = list(standings)
    if request.nodes is not None:
        if unknown := tuple(n for n in request.nodes if n not in known):
            raise UnknownNodeError(unknown)
        chosen = [known[n] for n in request.nodes]
    reasons = {s.node.node_id: reason for s in chosen if (reason := _why_not(request, s.node))}
    admitted = tuple(s for s in chosen if s.node.node_id not in reasons)
    nobody = sorted(request.exclude - known.keys())
    warnings = (f"exclude: nobody is named {', '.join(nobody[:MAX_NAMED])}",) if nobody else ()
    return Admitted(admitted, reasons, warnings)


def _why_not(request: Request, node: Node) -> str | None:
    """Why the request leaves the node out, None where it doesn't."""
    if node.node_id in request.exclude:
        return "excluded by the request"
    matches = all(node.labels.get(key) == value for key, value in request.selector)
    return None if matches else "its labels don't match the selector"
