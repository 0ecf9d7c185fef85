"""The use cases of deployments: plan and promise in one step, confirm, release.

A plan is made on a snapshot beside the event loop and entered on it, after a second look at the nodes as they are by
then: between two awaits a call is atomic, so no byte has two owners. Whoever was overtaken plans again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol, TypeVar

from app.deployments.errors import (
    DeploymentConflictError,
    QuotaExceededError,
    StaleRevisionError,
    WrongGenerationError,
)
from app.deployments.ledger import REBOOTED, UNLOADED, Ledger, haunted
from app.placement.budgets import budget, exclusion, memories
from app.placement.errors import InvalidFieldError
from app.placement.hosts import crowded
from app.placement.moving import Moved
from app.placement.plans import Assignment, Placement
from app.planning import Plan, Planner, Request, Variant
from app.ports import BookedStage, Clock, DeploymentRecord, FleetView, Journal, Standing

ATTEMPTS = 5
"""So often is planned before the caller is told to ask again."""

GONE = frozenset({REBOOTED, UNLOADED, "gone", "expired", "not confirmed in time"})
"""Losses with which a stage's weights are no longer on its node, as far as anybody knows."""

T = TypeVar("T")


class Beside(Protocol):
    """Runs work beside the event loop."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]:
        """What the work returns or raises."""


@dataclass(frozen=True, slots=True)
class Quota:
    """How many deployments there may be, pending to degraded: of one caller, and of all."""

    per_caller: int = 100
    in_all: int = 1_000


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be deployed.

    ``text`` is the request as JSON, by which repeats are known; ``owner`` is who asks; ``ttl_s`` is how long the
    promise is kept without a confirmation.
    """

    name: str
    owner: str
    key: str | None
    text: str
    request: Request
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Aim:
    """How far from the best a new plan may be to move less, and whether it is only to be looked at."""

    tolerance: float = 0.10
    dry_run: bool = False


class Deployments:
    """The deployments of one server."""

    def __init__(
        self, ledger: Ledger, fleet: FleetView, planner: Planner, journal: Journal, clock: Clock, quota: Quota
    ) -> None:
        """The ledger is what ``fleet`` reads promises from."""
        self.ledger = ledger
        self._fleet = fleet
        self._planner = planner
        self._journal = journal
        self._clock = clock
        self._quota = quota

    async def create(self, ask: Ask, beside: Beside, write: Callable[[Plan], bytes]) -> tuple[DeploymentRecord, bool]:
        """Plan and reserve; durable when it returns, and whether it is new. ``write`` packs the plan's answer.

        A repeat of the same request is answered with the deployment that it made, as it is by now. Raises what planning
        raises, InvalidFieldError, DeploymentConflictError, QuotaExceededError, StaleRevisionError,
        StoreUnavailableError.
        """
        if ask.request.allow_over_budget:
            raise InvalidFieldError("a deployment is never over a budget", "/allow_over_budget")
        for _ in range(ATTEMPTS):
            known = self._known(ask)
            if known is not None:
                await self._journal.durable(self._journal.revision)
                return known, False
            self._check_quota(ask.owner)
            plan, answer = await beside(_written(self._planner.prepare(ask.request), write))
            if self._known(ask) is None and self._still_true(plan.placement):
                self._check_quota(ask.owner)
                record = self.ledger.change(self._record(ask, plan, answer))
                await self._journal.durable(record.generation)
                return record, True
        raise StaleRevisionError(ATTEMPTS)

    async def confirm(self, name: str, generation: int) -> DeploymentRecord:
        """The caller has loaded it; durable when it returns. The same again changes nothing.

        Raises UnknownDeploymentError, WrongGenerationError, StoreUnavailableError.
        """
        record = self.ledger.get(name)
        if not (record.state == "loaded" and generation in (record.generation, record.confirmed)):
            self._check_generation(record, generation)
            stages = tuple(self._loaded(record, stage) for stage in record.stages)
            loaded = replace(record, state="loaded", confirmed=generation, expires_at=None, reason=None, stages=stages)
            record = self.ledger.change(loaded)
        await self._journal.durable(self._journal.revision)
        return record

    async def release(self, name: str) -> DeploymentRecord:
        """Give the memory back; durable when it returns. Releasing again changes nothing.

        Raises UnknownDeploymentError, StoreUnavailableError.
        """
        record = self.ledger.get(name)
        if record.state != "released":
            record = self.ledger.release(record, "released by its owner")
        await self._journal.durable(self._journal.revision)
        return record

    async def replan(
        self, name: str, request: Request, aim: Aim, beside: Beside, write: Callable[[Plan], bytes]
    ) -> tuple[DeploymentRecord, Moved]:
        """Plan a deployment again, near what is loaded; durable when it returns, and what moves.

        ``request`` is the one that made it. Where nothing moves and nothing broke, nothing changes; else the new plan
        is to be confirmed. Raises UnknownDeploymentError, WrongGenerationError, StaleRevisionError,
        StoreUnavailableError, and what planning raises, after which the deployment is what it was.
        """
        for _ in range(ATTEMPTS):
            record = self.ledger.get(name)
            if record.state == "released":
                raise _wrong(record, f"{name} is released: {record.reason}")
            variant = Variant(record.cost, record.ref, record.version, record.precision)
            held = {s.node_id: (s.start, s.end) for s in record.stages if s.lost not in GONE}
            work = self._planner.prepare_anew(request, variant, name, held, aim.tolerance)
            (plan, moved), answer = await beside(_written(work, lambda made: write(made[0])))
            if self.ledger.find(name) is not record or not self._still_true(plan.placement, name):
                continue
            anew = self._anew(record, plan, answer)
            if aim.dry_run:
                return replace(anew, generation=record.generation), moved
            if moved.moves or record.state == "degraded":
                record = self.ledger.change(anew)
            await self._journal.durable(self._journal.revision)
            return record, moved
        raise StaleRevisionError(ATTEMPTS)

    def _anew(self, record: DeploymentRecord, plan: Plan, answer: bytes) -> DeploymentRecord:
        """The deployment by its new plan; what goes on where it was is not to be loaded again."""
        now, before = self._clock.now(), {stage.node_id: stage for stage in record.stages}
        stages = []
        for a in plan.placement.assignments:
            stage = _booked(a, plan.placement)
            old = before.pop(stage.node_id, None)
            if old is not None:
                same = (old.start, old.end, old.lost) == (stage.start, stage.end, None)
                stage = replace(
                    stage,
                    confirmed=same and old.confirmed,
                    filled_bytes=old.filled_bytes,
                    loaded_bytes=old.loaded_bytes,
                    named=old.named,
                )
            stages.append(stage)
        return replace(
            record,
            plan_id=plan.plan_id,
            answer=answer,
            stages=tuple(stages),
            ghosts=haunted(record.ghosts, before.values()),
            state="pending",
            expires_at=now + timedelta(seconds=record.ttl_s),
            reason=None,
        )

    def _known(self, ask: Ask) -> DeploymentRecord | None:
        """The deployment that this very request has made already. Raises DeploymentConflictError."""
        named = self.ledger.find(ask.name)
        if named is not None and named.state != "released":
            if named.request == ask.text:
                return named
            raise DeploymentConflictError(ask.name, f"another request made {ask.name}, which is {named.state}")
        keyed = (r for r in self.ledger.held() if ask.key is not None and (r.owner, r.key) == (ask.owner, ask.key))
        for record in keyed:
            raise DeploymentConflictError(record.name, f"the Idempotency-Key was used for {record.name}")
        return None

    def _check_quota(self, owner: str) -> None:
        held = [record.owner for record in self.ledger.held()]
        own = held.count(owner)
        if own >= self._quota.per_caller:
            raise QuotaExceededError(own, self._quota.per_caller, f"{owner} holds {own} deployments; release some")
        if len(held) >= self._quota.in_all:
            raise QuotaExceededError(len(held), self._quota.in_all, f"{len(held)} deployments are held; release some")

    def _check_generation(self, record: DeploymentRecord, generation: int) -> None:
        if record.state == "released":
            raise _wrong(record, f"{record.name} is released: {record.reason}")
        if generation != record.generation:
            raise _wrong(record, f"{record.name} is at generation {record.generation}, not {generation}")

    def _loaded(self, record: DeploymentRecord, stage: BookedStage) -> BookedStage:
        """The stage once it is loaded where it was planned. Raises WrongGenerationError where it can't be."""
        standing = self._fleet.standing(stage.node_id)
        why = _why_not(standing, stage)
        if standing is None or why is not None:
            raise _wrong(record, f"{stage.node_id} {why}: {record.name} has to be planned anew")
        return replace(stage, boot_id=standing.node.boot_id, confirmed=True, filled_bytes=stage.est_bytes, lost=None)

    def _still_true(self, placement: Placement, anew: str | None = None) -> bool:
        """Whether every stage fits its node as it is now, beside all that was promised meanwhile. O(stages)."""
        stages: list[Assignment] = []
        for a in placement.assignments:
            standing = self._fleet.standing(a.node.node_id, anew)
            if standing is None or standing.state == "expired" or exclusion(standing.node, placement.engine):
                return False
            now = standing.node
            if (now.addr, now.device_index) != (a.node.addr, a.node.device_index):
                return False
            room = budget(now, placement.reserve.of(now, placement.engine), placement.engine)
            stages.append(replace(a, node=now, budget_bytes=room.budget_bytes))
        fits = not any(stage.over_budget for stage in stages)
        return fits and crowded(stages, placement.reserve, placement.engine) is None

    def _record(self, ask: Ask, plan: Plan, answer: bytes) -> DeploymentRecord:
        now, before = self._clock.now(), self.ledger.find(ask.name)
        return DeploymentRecord(
            name=ask.name,
            owner=ask.owner,
            key=ask.key,
            request=ask.text,
            cost=plan.variant.cost,
            ref=plan.variant.ref,
            version=plan.variant.version,
            precision=plan.variant.precision,
            plan_id=plan.plan_id,
            answer=answer,
            stages=tuple(_booked(a, plan.placement) for a in plan.placement.assignments if a.end > a.start),
            ttl_s=ask.ttl_s,
            created_at=now,
            updated_at=now,
            expires_at=now + timedelta(seconds=ask.ttl_s),
            ghosts=() if before is None else before.ghosts,
        )


def _written(work: Callable[[], T], write: Callable[[T], bytes]) -> Callable[[], tuple[T, bytes]]:
    def both() -> tuple[T, bytes]:
        made = work()
        return made, write(made)

    return both


def _booked(stage: Assignment, placement: Placement) -> BookedStage:
    node = stage.node
    ram, device = memories(node, placement.engine)
    return BookedStage(
        node.node_id,
        node.addr,
        node.device_index,
        node.host_id,
        node.boot_id,
        stage.start,
        stage.end,
        stage.est_bytes,
        ram,
        device,
    )


def _why_not(standing: Standing | None, stage: BookedStage) -> str | None:
    if standing is None:
        return "is not registered"
    if standing.state == "expired":
        return "is expired"
    if (standing.node.addr, standing.node.device_index) != (stage.addr, stage.device_index):
        return "is at another address"
    return "is draining" if standing.node.config.role == "draining" else None


def _wrong(record: DeploymentRecord, detail: str) -> WrongGenerationError:
    return WrongGenerationError(record.name, record.generation, record.state, detail)
