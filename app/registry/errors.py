"""What the registry refuses."""

from dataclasses import dataclass, field

from app.placement.errors import CleaveError


@dataclass(eq=False)
class NodeConflictError(CleaveError):
    """Two live machines claim one node_id."""

    node_id: str
    addr: str
    registered_addr: str
    device_index: int
    registered_device_index: int
    detail: str = field(init=False)

    def __post_init__(self) -> None:
        """Both claimants, and what either can do."""
        self.detail = (
            f"node {self.node_id} is alive at {self.registered_addr} (device_index {self.registered_device_index}) and "
            f"can't also be at {self.addr} (device_index {self.device_index}). Give one of them a node_id of its own, "
            "send the same instance_id if it moved, or wait until the other is suspect"
        )


@dataclass(eq=False)
class RegistryFullError(CleaveError):
    """As many nodes are registered as the settings allow."""

    max_nodes: int
    detail: str = field(init=False)

    def __post_init__(self) -> None:
        """The bound, and the setting that moves it."""
        self.detail = f"{self.max_nodes} nodes are registered, which is the bound (CLEAVE_MAX_NODES)"
