"""A registered node: what it reported, what the operator decided, and what follows from both."""

from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from operator import attrgetter

from app.placement.nodes import Device, Node
from app.ports import NO_OVERRIDES, NodeRecord, Overrides, State
from app.registry.liveness import Pulse

MOVING = frozenset({"ram_avail", "disk_free", "resident", "devices", "claims"})
"""What changes with every beat and is not worth a revision; of the devices only ``mem_avail``."""

_lasting = attrgetter(*(f.name for f in fields(Node) if f.name not in MOVING))
_lasting_of_device = attrgetter(*(f.name for f in fields(Device) if f.name != "mem_avail"))


@dataclass(slots=True)
class Member:
    """A node's entry. ``node`` is the report with the overrides applied; ``warnings`` are the last report's."""

    reported: Node
    overrides: Overrides
    ordinal: int
    revision: int
    registered_at: datetime
    seen_at: datetime
    pulse: Pulse
    warnings: tuple[str, ...] = ()
    node: Node = field(init=False)
    lasting: tuple[object, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.accept(self.reported, lasting_part(self.reported), self.warnings)

    @property
    def endpoint(self) -> tuple[str, int]:
        """Where the worker listens, and which of the devices there it is."""
        return self.reported.addr, self.reported.device_index

    def accept(self, report: Node, lasting: tuple[object, ...], warnings: tuple[str, ...]) -> None:
        """Take over a report; ``lasting`` is what it says that lasts."""
        self.reported, self.lasting, self.warnings = report, lasting, warnings
        self.node = with_overrides(report, self.overrides)

    def decide(self, overrides: Overrides) -> None:
        """Take over an operator's decisions."""
        self.overrides = overrides
        self.node = with_overrides(self.reported, overrides)

    def record(self) -> NodeRecord:
        """The entry as it is stored."""
        return NodeRecord(
            self.reported,
            self.overrides,
            self.ordinal,
            self.revision,
            self.registered_at,
            self.seen_at,
            self.pulse.expired,
        )


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as others see it at one moment. ``registry_revision`` is the registry's, ``revision`` the node's own."""

    node: Node
    overrides: Overrides
    state: State
    revision: int
    registry_revision: int
    registered_at: datetime
    seen_at: datetime
    expires_at: datetime
    heartbeat_interval_s: float
    ttl_s: float
    budget_bytes: int
    limit: str
    warnings: tuple[str, ...]
    created: bool = False


def lasting_part(node: Node) -> tuple[object, ...]:
    """What a report says beside the figures that move with every beat; a difference is a durable change."""
    return (*_lasting(node), *[_lasting_of_device(device) for device in node.devices])


def with_overrides(node: Node, overrides: Overrides) -> Node:
    """The node as its operator wants it used."""
    if overrides is NO_OVERRIDES or overrides == NO_OVERRIDES:
        return node
    config = replace(
        node.config,
        role=overrides.role or node.config.role,
        max_ram_gb=node.config.max_ram_gb if overrides.max_ram_gb is None else overrides.max_ram_gb,
    )
    return replace(node, config=config, labels={**node.labels, **overrides.labels})
