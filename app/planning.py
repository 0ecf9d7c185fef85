"""Planning: from a request and the fleet as it is to a plan that keeps its promises."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from app.placement.budgets import Reserve
from app.placement.check import violations
from app.placement.cost import ModelCost
from app.placement.errors import CleaveError, NoNodesError
from app.placement.nodes import Node
from app.placement.planner import Task, place
from app.placement.plans import Idle, Placement
from app.placement.reference import Policy
from app.ports import FleetView, Standing, UnknownNodeError

RECENT_PLANS = 1_000
RECENT_STAGES = 200_000
"""Bounds the memory of recent plans (about 60 MB) where each has thousands of stages."""


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

    ``nodes`` are node_ids in pipeline order, None for everybody ready or suspect in order of first
    registration; ``selector`` are labels that a node must have.
    """

    model: ModelCost
    policy: Policy
    reserve_bytes: int | None = None
    nodes: tuple[str, ...] | None = None
    selector: tuple[tuple[str, str], ...] = ()
    exclude: frozenset[str] = frozenset()
    allow_over_budget: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """A placement and the policy that made it; a simulation is no more than that."""

    policy: Policy
    placement: Placement


@dataclass(frozen=True, slots=True)
class Plan(Outcome):
    """An outcome on the registry as it was at ``revision``."""

    plan_id: str
    created_at: datetime
    revision: int


class RecentPlans:
    """The last plans as they were returned, oldest first; not durable."""

    def __init__(self) -> None:
        """Start without any."""
        self._plans: OrderedDict[str, Plan] = OrderedDict()
        self._stages = 0

    def keep(self, plan: Plan) -> None:
        """Remember a plan and forget the oldest beyond ``RECENT_PLANS`` or ``RECENT_STAGES``."""
        self._plans[plan.plan_id] = plan
        self._stages += _size(plan)
        while len(self._plans) > 1 and (len(self._plans) > RECENT_PLANS or self._stages > RECENT_STAGES):
            _, oldest = self._plans.popitem(last=False)
            self._stages -= _size(oldest)

    def get(self, plan_id: str) -> Plan:
        """One plan. Raises UnknownPlanError."""
        try:
            return self._plans[plan_id]
        except KeyError:
            raise UnknownPlanError(plan_id) from None

    def page(self, after: str | None, limit: int) -> tuple[list[Plan], bool]:
        """Up to ``limit`` plans older than plan_id ``after``, newest first, and whether there are more.

        Where ``after`` is forgotten, so is all that was older.
        """
        newest_first = list(reversed(self._plans))
        start = 0 if after is None else newest_first.index(after) + 1 if after in self._plans else len(newest_first)
        chosen = newest_first[start : start + limit]
        return [self._plans[plan_id] for plan_id in chosen], start + limit < len(newest_first)


def _size(plan: Plan) -> int:
    return len(plan.placement.assignments) + len(plan.placement.idle)


class Planner:
    """Plans on a registry, and without one."""

    def __init__(
        self, fleet: FleetView, default_reserve_bytes: int, now: Callable[[], datetime], new_id: Callable[[], str]
    ) -> None:
        """``new_id`` makes plan_ids."""
        self._fleet = fleet
        self._default_reserve_bytes = default_reserve_bytes
        self._now = now
        self._new_id = new_id
        self.recent = RecentPlans()

    def prepare(self, request: Request) -> Callable[[], Plan]:
        """The work of planning on the registry as it is now; calling it touches nothing but its own snapshot.

        So it may run on another thread while beats come in. Raises UnknownNodeError.
        """
        fleet = self._fleet.fleet()
        candidates = _candidates(request, fleet.standings)
        plan_id, created_at = self._new_id(), self._now()

        def work() -> Plan:
            placement = self._place(request, candidates)
            return Plan(request.policy, placement, plan_id, created_at, fleet.revision)

        return work

    def prepare_simulation(self, request: Request, nodes: Sequence[Node]) -> Callable[[], Outcome]:
        """The same for nodes that the request brings along; equal requests give equal plans."""
        candidates = [Standing(node, "ready") for node in nodes]

        def work() -> Outcome:
            return Outcome(request.policy, self._place(request, candidates))

        return work

    def _place(self, request: Request, candidates: Sequence[Standing]) -> Placement:
        """Plan on those candidates that are alive; who was asked for by name and has expired is idle."""
        gone = tuple(Idle(s.node.node_id, s.state) for s in candidates if s.state == "expired")
        alive = tuple(s.node for s in candidates if s.state != "expired")
        reserve = Reserve(request.reserve_bytes, self._default_reserve_bytes)
        if not alive:
            raise NoNodesError(excluded={i.node_id: i.reason for i in gone})
        placed = place(Task(request.model, alive, request.policy, reserve, request.allow_over_budget))
        found = violations(placed, allow_over_budget=request.allow_over_budget)
        if found:
            raise UnsoundPlanError("; ".join(found))
        suspects = tuple(f"{s.node.node_id}: suspect, its beats are late" for s in candidates if s.state == "suspect")
        idle = placed.idle if request.nodes is None else placed.idle + gone
        return Placement(placed.model, placed.assignments, idle, placed.warnings + suspects)


def _candidates(request: Request, standings: Sequence[Standing]) -> list[Standing]:
    """Whom the request admits, expired or not, in pipeline order. Raises UnknownNodeError."""
    chosen = list(standings)
    if request.nodes is not None:
        known = {s.node.node_id: s for s in standings}
        if unknown := tuple(n for n in request.nodes if n not in known):
            raise UnknownNodeError(unknown)
        chosen = [known[n] for n in request.nodes]
    return [
        s
        for s in chosen
        if s.node.node_id not in request.exclude
        and all(s.node.labels.get(key) == value for key, value in request.selector)
    ]
