"""What the use cases need from outside, and the values that cross over."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from app.placement.cost import ModelCost
from app.placement.errors import CleaveError
from app.placement.nodes import Claim, Node


@dataclass(frozen=True, slots=True)
class Overrides:
    """What an operator decided about a node; it outlives the agent's reports. None and missing labels: nothing."""

    role: str | None = None
    max_ram_gb: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


NO_OVERRIDES = Overrides()


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as it is stored.

    ``ordinal`` grows with each first registration; ``revision`` is the registry's at the node's last durable
    change; ``seen_at`` is when its last beat was received; ``expired`` whether it had been given up by then.
    """

    reported: Node
    overrides: Overrides
    ordinal: int
    revision: int
    registered_at: datetime
    seen_at: datetime
    expired: bool


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A named cost as it is stored. ``version`` is the store's revision at its last change."""

    name: str
    cost: ModelCost
    version: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class BookedStage:
    """A stage of a deployment, layers ``[start, end)``, and what its node was then. Bytes.

    ``ram``, ``device``: of which memory it is. ``confirmed``: it was loaded. ``filled_bytes``: what the deployment's
    engine fills there, by what was last confirmed, the range may have been another; ``loaded_bytes``: what of that is
    missing in what the node calls free, all of it once a beat has come since. ``named``: a beat has named the
    deployment as resident. ``lost`` says why it can't be relied on any more.
    """

    node_id: str
    addr: str
    device_index: int
    host_id: str | None
    boot_id: str | None
    start: int
    end: int
    est_bytes: int
    ram: bool
    device: bool
    confirmed: bool = False
    filled_bytes: int = 0
    loaded_bytes: int = 0
    named: bool = False
    lost: str | None = None


DeploymentState = Literal["pending", "loaded", "degraded", "released"]


@dataclass(frozen=True, slots=True)
class DeploymentRecord:
    """A deployment as it is stored.

    ``request`` is the request as JSON, ``cost`` what it found under the model's name ``ref`` in its ``version``, to be
    scaled to ``precision``; ``answer`` the plan as it was answered, packed by who gave it. Each change
    raises ``generation``, to the store's revision; ``confirmed`` is the one that was last confirmed; a deployment that
    isn't lapses at ``expires_at``.
    ``ghosts`` are stages that were given up and may still fill memory that the last beats called free.
    """

    name: str
    owner: str
    key: str | None
    request: str
    cost: ModelCost
    ref: str | None
    version: int | None
    precision: str | None
    plan_id: str
    answer: bytes
    stages: tuple[BookedStage, ...]
    ttl_s: float
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    state: DeploymentState = "pending"
    generation: int = 0
    confirmed: int | None = None
    reason: str | None = None
    ghosts: tuple[BookedStage, ...] = ()


Record = NodeRecord | ModelRecord | DeploymentRecord
Kind = Literal["node", "model", "deployment"]


@dataclass(frozen=True, slots=True)
class Stored:
    """All that a store holds: its revision, the last ordinal given, the nodes by ordinal, models and deployments."""

    revision: int
    ordinal: int
    nodes: tuple[NodeRecord, ...]
    models: tuple[ModelRecord, ...] = ()
    deployments: tuple[DeploymentRecord, ...] = ()


MAX_NAMED = 20
"""So many unknown nodes are named; a request may hold thousands."""


@dataclass(eq=False)
class UnknownNodeError(CleaveError):
    """Nodes that are not registered, or no longer."""

    nodes: tuple[str, ...]
    detail: str = field(init=False)

    def __post_init__(self) -> None:
        """Who is unknown, and what to do about it."""
        names = ", ".join(self.nodes[:MAX_NAMED])
        if len(self.nodes) > MAX_NAMED:
            names += f" and {len(self.nodes) - MAX_NAMED} more"
            self.nodes = self.nodes[:MAX_NAMED]
        self.detail = f"not registered: {names}. Register with a full report: POST /nodes/register"


@dataclass(eq=False)
class StoreUnavailableError(CleaveError):
    """What must be durable could not be written. It is kept in memory and tried again; ask again later."""

    detail: str = "the store can't be written now; the change is kept in memory and will be tried again"


State = Literal["ready", "suspect", "expired"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A registered node as plans see it, overrides applied."""

    node: Node
    state: State


@dataclass(frozen=True, slots=True)
class Fleet:
    """The registered nodes in order of first registration, as of ``revision``."""

    revision: int
    standings: tuple[Standing, ...]


class FleetView(Protocol):
    """What planning reads of the registry."""

    def fleet(self, anew: str | None = None) -> Fleet:
        """The nodes as they stand now, what was promised of them included. O(n).

        ``anew``: as they are for this deployment, whose own memory is free to itself.
        """

    def standing(self, node_id: str, anew: str | None = None) -> Standing | None:
        """One node as it stands now, None where there is none."""


class Promises(Protocol):
    """What was promised of the nodes, and who wants to know what becomes of them."""

    def claims(self, node: Node, anew: str | None = None) -> tuple[Claim, ...]:
        """What counts against the node's limits, for a deployment that is planned anew. O(claims on its host)."""

    def seen(self, node: Node, *, beat: bool) -> None:
        """The node is now like this: it has beaten, or its operator decided about it."""

    def lost(self, node_id: str, why: str) -> None:
        """The node can't be relied on any more."""


class NothingPromised:
    """Nobody was promised anything."""

    def claims(self, node: Node, anew: str | None = None) -> tuple[Claim, ...]:  # noqa: ARG002
        """None."""
        return ()

    def seen(self, node: Node, *, beat: bool) -> None:
        """Nobody asked."""

    def lost(self, node_id: str, why: str) -> None:
        """Nobody asked."""


@dataclass(eq=False)
class UnknownModelError(CleaveError):
    """A name that no model has."""

    name: str
    detail: str = field(init=False)

    def __post_init__(self) -> None:
        """What to do about it."""
        self.detail = f"no model is named {self.name}. Name its cost first: PUT /models/{self.name}"


class ModelView(Protocol):
    """What planning reads of the named models."""

    def get(self, name: str) -> ModelRecord:
        """The model of this name. Raises UnknownModelError."""


class Clock(Protocol):
    """Time, as the server sees it."""

    def monotonic(self) -> float:
        """Seconds since some moment; never set, never steps back."""

    def now(self) -> datetime:
        """The wall clock, aware, UTC; it may step."""


class Journal(Protocol):
    """Keeps whatever must last, in the order in which it was noted; one number counts all changes."""

    @property
    def revision(self) -> int:
        """The number of changes so far, written or not."""

    def advance(self) -> int:
        """The next revision, for a change that is about to be noted."""

    def note(self, kind: Kind, key: str, record: Record | None, *, urgent: bool) -> None:
        """Remember a record as of now (None: it is gone); returns at once.

        Urgent ones are written as soon as the writer is free, the others within a second.
        """

    async def durable(self, revision: int) -> None:
        """Return once everything up to ``revision`` would survive a crash. Raises StoreUnavailableError."""

    @property
    def healthy(self) -> bool:
        """Whether the last write succeeded."""
