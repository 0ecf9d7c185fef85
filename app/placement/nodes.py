"""A node as a planner sees it: what its report says, with the operator's overrides applied."""

from collections.abc import Mapping
from dataclasses import dataclass, field

KNOWN_DEVICES = frozenset({"cpu", "metal", "mlx", "ane", "cuda", "rocm", "vulkan", "gpu", "tpu", "xdna"})


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a node.

    ``mem_bytes`` is None where unknown and 0 where the device has no ceiling of its own. ``mem_avail`` are
    the bytes free on it now. ``gflops`` is 1e9 FLOP/s, ``mem_gbps`` 1e9 bytes/s.
    """

    device: str
    name: str = ""
    mem_bytes: int | None = 0
    unified: bool = False
    gflops: float | None = None
    mem_gbps: float | None = None
    mem_avail: int | None = None
    available: bool = True


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """How a node's owner wants it used.

    ``device`` lists the primary device and then spill targets (``"metal+cpu"``); ``max_ram_gb`` is in decimal
    gigabytes; ``layers`` is the range for policy ``manual``, ``"a:b"``.
    """

    device: str = "cpu"
    max_ram_gb: float | None = None
    layers: str | None = None
    ssh: str | None = None
    ckpt_dir: str | None = None
    precision: str | None = None
    kv_cache: str | None = None
    rng_seed: int | None = None
    gpu_memory: str = "auto"
    gpu_fraction: float | None = None
    role: str = "active"
    standby_for: str | None = None
    primary_device: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """The first name of ``device`` runs the stage."""
        object.__setattr__(self, "primary_device", self.device.partition("+")[0])


@dataclass(frozen=True, slots=True)
class Claim:
    """Memory that a deployment was promised on a node, of its RAM, its devices, or both. Bytes.

    ``live_bytes`` count against figures of what is free now, in which what is loaded is missing already,
    ``static_bytes`` against figures of what there is. Of a deployment that is planned anew the first are negative: what
    it has loaded is free to itself. ``neighbour``: it is on another node of the same host.
    """

    deployment: str
    live_bytes: int
    static_bytes: int
    ram: bool
    device: bool = False
    neighbour: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One worker. Bytes; None is unknown.

    ``ram_avail``, ``disk_free``, ``resident`` and the devices' ``mem_avail`` move with each beat; ``claims`` are what
    was promised of the node so far.
    """

    node_id: str
    addr: str
    ram_total: int
    ram_avail: int
    device_index: int = 0
    host_id: str | None = None
    instance_id: str | None = None
    boot_id: str | None = None
    os: str | None = None
    cores: int | None = None
    disk_free: int | None = None
    gflops: float | None = None
    io_mbps: float | None = None
    devices: tuple[Device, ...] = ()
    config: NodeConfig = NodeConfig()
    labels: Mapping[str, str] = field(default_factory=dict)
    resident: Mapping[str, int] | None = None
    claims: tuple[Claim, ...] = ()

    @property
    def primary_device(self) -> str:
        """The device that runs the stage: the first name of ``config.device``."""
        return self.config.primary_device

    @property
    def primary_devices(self) -> tuple[Device, ...]:
        """The reported devices of the primary kind, in the report's order."""
        primary = self.primary_device
        return tuple(d for d in self.devices if d.device == primary)
