"""Nodes as the registry answers about them, and the operator's overrides."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.placement.errors import InvalidFieldError
from app.placement.nodes import Node
from app.ports import Overrides, State
from app.registry import NodeView
from app.schemas.fields import CURSOR, MAX_LABELS, PLAIN, Gigabytes, LabelKey, NodeId, Text, at_most
from app.schemas.parsing import Out, Strict
from app.schemas.problems import ProblemOut

Role = Literal["active", "standby", "draining"]
NodeIdPath = Annotated[NodeId, Field(description="The node's node_id")]


class BeatOut(Out):
    """The answer to a beat: who you are here, how long that lasts, and what you are worth to a plan.

    ``budget_bytes`` is for engine ``plain`` with the default reserve.
    """

    node_id: str
    addr: str
    state: State
    revision: int
    registered_at: datetime
    expires_at: datetime
    heartbeat_interval_s: float
    ttl_s: float
    budget_bytes: int
    warnings: list[str]

    @staticmethod
    def of(view: NodeView) -> "BeatOut":
        """The answer about this node."""
        return BeatOut(
            node_id=view.node.node_id,
            addr=view.node.addr,
            state=view.state,
            revision=view.registry_revision,
            registered_at=view.registered_at,
            expires_at=view.expires_at,
            heartbeat_interval_s=view.heartbeat_interval_s,
            ttl_s=view.ttl_s,
            budget_bytes=view.budget_bytes,
            warnings=list(view.warnings),
        )


class BatchBeatOut(BeatOut):
    """One accepted report of a batch: ``status`` 201 the first time, 200 after, and the answer to its beat."""

    status: int

    @staticmethod
    def of(view: NodeView) -> "BatchBeatOut":
        """The answer about this node, in a batch."""
        beat = BeatOut.of(view)
        return BatchBeatOut(status=201 if view.created else 200, **beat.__dict__)


class DeviceOut(Out):
    """A device as it was reported."""

    device: str
    name: str
    mem_bytes: int | None
    unified: bool
    gflops: float | None
    mem_gbps: float | None
    mem_avail: int | None
    available: bool


class ConfigOut(Out):
    """A node's configuration, the operator's overrides applied."""

    device: str
    max_ram_gb: float | None
    layers: str | None
    ssh: str | None
    ckpt_dir: str | None
    precision: str | None
    kv_cache: str | None
    rng_seed: int | None
    gpu_memory: str
    gpu_fraction: float | None
    role: Role
    standby_for: str | None


class OverridesOut(Out):
    """What the operator decided; null and missing labels are the agent's own."""

    role: Role | None
    max_ram_gb: float | None
    labels: dict[str, str]


class NodeOut(Out):
    """A registered node: its report with the overrides applied, its state, and its budget.

    ``revision`` is that of the node's last durable change, and its ETag; ``limit`` names what bounds the budget.
    """

    node_id: str
    addr: str
    device_index: int
    host_id: str | None
    instance_id: str | None
    boot_id: str | None
    state: State
    revision: int
    registered_at: datetime
    seen_at: datetime
    expires_at: datetime
    heartbeat_interval_s: float
    ttl_s: float
    budget_bytes: int
    limit: str
    os: str | None
    cores: int | None
    ram_total: int
    ram_avail: int
    disk_free: int | None
    gflops: float | None
    io_mbps: float | None
    devices: list[DeviceOut]
    config: ConfigOut
    labels: dict[str, str]
    resident: dict[str, int] | None
    overrides: OverridesOut
    warnings: list[str]

    @staticmethod
    def of(view: NodeView) -> "NodeOut":
        """The node as it stands."""
        node = view.node
        own = {name: getattr(node, name) for name in _SHARED_WITH_NODE}
        seen = {name: getattr(view, name) for name in _SHARED_WITH_VIEW}
        return NodeOut(
            **own,
            **seen,
            devices=[DeviceOut(**{f: getattr(d, f) for f in DeviceOut.model_fields}) for d in node.devices],
            config=ConfigOut(**{f: getattr(node.config, f) for f in ConfigOut.model_fields}),
            labels=dict(node.labels),
            resident=None if node.resident is None else dict(node.resident),
            overrides=OverridesOut(
                role=view.overrides.role,
                max_ram_gb=view.overrides.max_ram_gb,
                labels=dict(view.overrides.labels),
            ),
            warnings=list(view.warnings),
        )


_BUILT = {"devices", "config", "labels", "resident", "overrides", "warnings"}
_SHARED_WITH_NODE = [f for f in NodeOut.model_fields if f in Node.__dataclass_fields__ and f not in _BUILT]
_SHARED_WITH_VIEW = [f for f in NodeOut.model_fields if f not in _BUILT and f not in _SHARED_WITH_NODE]


class NodesOut(Out):
    """A page of nodes in order of node_id; ``next_cursor`` is null on the last page."""

    nodes: list[NodeOut]
    next_cursor: str | None


class OverridesIn(Strict):
    """What to decide about a node. A field left out stays as it is, null lifts the override.

    ``labels`` are merged: one with null is lifted, ``"labels": null`` lifts all.
    """

    role: Role | None = None
    max_ram_gb: Gigabytes | None = None
    labels: Annotated[dict[LabelKey, Text | None], Field(max_length=MAX_LABELS), at_most(MAX_LABELS)] | None = None

    def apply(self, overrides: Overrides) -> Overrides:
        """The overrides as they are after this request. Raises InvalidFieldError beyond the labels' bound."""
        sent = self.model_fields_set
        labels = dict(overrides.labels) if self.labels is not None or "labels" not in sent else {}
        merged = {**labels, **(self.labels or {})}
        kept = {key: value for key, value in merged.items() if value is not None}
        if len(kept) > MAX_LABELS:
            raise InvalidFieldError(f"makes {len(kept)} labels in all, {MAX_LABELS} are allowed", "/labels")
        return Overrides(
            role=self.role if "role" in sent else overrides.role,
            max_ram_gb=self.max_ram_gb if "max_ram_gb" in sent else overrides.max_ram_gb,
            labels=kept,
        )


class BatchOut(Out):
    """What became of each report of a batch, in order: the answer to its beat, or the problem that it met."""

    results: list[BatchBeatOut | ProblemOut]


class NodesQuery(BaseModel):
    """Which nodes to list."""

    model_config = ConfigDict(extra="forbid")

    state: State | None = None
    label: Annotated[str, Field(max_length=320, pattern=PLAIN)] | None = Field(None, description="key, or key=value")
    device: Annotated[str, Field(max_length=63, pattern=PLAIN)] | None = Field(None, description="Primary device")
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    cursor: Annotated[str, Field(max_length=400, pattern=CURSOR)] | None = Field(
        None, description="next_cursor of the page before"
    )
