"""Deployments: what is asked for, and what was promised."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.placement.moving import Moved
from app.ports import DeploymentRecord, DeploymentState
from app.schemas.fields import CURSOR, WHOLE, ModelName
from app.schemas.parsing import Out, Strict
from app.schemas.plans import LayersOut, PlanIn, PlanOut

DeploymentName = ModelName


class DeployIn(PlanIn):
    """A plan request under a name; what it plans is reserved at once."""

    name: DeploymentName
    ttl_s: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] = Field(
        600.0, description="Seconds for which the memory is kept without a confirmation"
    )


class ConfirmIn(Strict):
    """The deployment's owner has loaded it; ``generation`` is the one that was loaded."""

    state: Literal["loaded"]
    generation: Annotated[int, Field(ge=1, le=2**63 - 1), WHOLE]


class ReplanIn(Strict):
    """How much of the objective may be given up to move less, and whether the plan is only to be looked at."""

    tolerance: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.10
    dry_run: bool = False


class MoveOut(Out):
    """Layers that a node has to load: ``from`` has them now, null where nobody has. Bytes of weights."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True, populate_by_name=True)

    layers: LayersOut
    source: str | None = Field(alias="from")
    target: str = Field(alias="to")
    bytes: int


class LostOut(Out):
    """A stage that can't be relied on any more, and why."""

    node_id: str
    layers: LayersOut
    reason: str


class DeploymentOut(PlanOut):
    """A deployment: its plan as it was made, and what has become of it.

    ``generation`` rises with every change and is the ETag; ``expires_at`` is null once it is loaded; ``reason`` says
    why it is degraded or released; ``lost`` are the stages that it lacks.
    """

    name: str
    state: DeploymentState
    generation: int
    expires_at: datetime | None
    ttl_s: float
    reason: str | None
    updated_at: datetime
    lost: list[LostOut]

    @staticmethod
    def made(record: DeploymentRecord, plan: PlanOut) -> "DeploymentOut":
        """The deployment as it is answered."""
        own = {f: getattr(record, f) for f in DeploymentItemOut.model_fields if f not in {"stages", "model"}}
        lost = [
            LostOut(node_id=s.node_id, layers=LayersOut(start=s.start, end=s.end), reason=s.lost)
            for s in record.stages
            if s.lost is not None
        ]
        return DeploymentOut(**plan.__dict__ | own, ttl_s=record.ttl_s, lost=lost)


class ReplanOut(DeploymentOut):
    """A deployment planned again, and what moves. ``moved_least_bytes``: no plan within the tolerance moves less."""

    dry_run: bool
    moves: list[MoveOut]
    moved_bytes: int
    moved_least_bytes: int

    @staticmethod
    def near(record: DeploymentRecord, plan: PlanOut, moved: Moved, *, dry_run: bool) -> "ReplanOut":
        """The deployment by its new plan."""
        moves = [
            MoveOut(layers=LayersOut(start=m.start, end=m.end), source=m.source, target=m.target, bytes=m.bytes)
            for m in moved.moves
        ]
        made = DeploymentOut.made(record, plan).__dict__
        return ReplanOut(
            **made, dry_run=dry_run, moves=moves, moved_bytes=moved.bytes, moved_least_bytes=moved.least_bytes
        )


class DeploymentItemOut(Out):
    """A deployment in a list."""

    name: str
    state: DeploymentState
    generation: int
    plan_id: str
    stages: int
    expires_at: datetime | None
    reason: str | None
    updated_at: datetime

    @staticmethod
    def of(record: DeploymentRecord) -> "DeploymentItemOut":
        """The deployment in one line."""
        own = {f: getattr(record, f) for f in DeploymentItemOut.model_fields if f != "stages"}
        return DeploymentItemOut(**own, stages=len(record.stages))


class DeploymentsOut(Out):
    """A page of deployments, in order of names; ``next_cursor`` is null on the last page."""

    deployments: list[DeploymentItemOut]
    next_cursor: str | None


DeploymentNamePath = Annotated[DeploymentName, Field(description="The deployment's name")]


class DeploymentsQuery(BaseModel):
    """Which deployments to list."""

    model_config = ConfigDict(extra="forbid")

    state: DeploymentState | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    cursor: Annotated[str, Field(max_length=400, pattern=CURSOR)] | None = Field(
        None, description="next_cursor of the page before"
    )
