"""What a node may hold. ``limits`` is the one list that budgets, ledgers and refusals read.

The rules are the reference planner's (``resident``), plus the modes of ``config.gpu_memory``.
"""

from dataclasses import dataclass

from app.placement.nodes import DEFAULT_GPU_FRACTION, KNOWN_DEVICES, Device, Node
from app.placement.units import gigabytes, truncated

HOST_BOUND_BY_DEFAULT = frozenset({"cpu", "cuda"})
"""Kinds whose stages the reference bounds by host RAM alone (CUDA: managed memory that migrates over PCIe)."""

SUBJECT_TO_DEVICE_ALONE = frozenset({"dedicated", "pooled"})


@dataclass(frozen=True, slots=True)
class Limit:
    """An upper bound in bytes. ``live`` figures already leave out what runs there now, static ones don't."""

    name: str
    limit_bytes: int
    live: bool


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes that a stage may occupy after every limit and the reserve, and the name of what binds."""

    budget_bytes: int
    limit: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Bytes kept free on each node.

    ``asked_bytes`` holds for every node; without it, ``default_bytes`` where host RAM bounds and 0 where only
    the device does, whose headroom is its fraction.
    """

    asked_bytes: int | None
    default_bytes: int

    def of(self, node: Node) -> int:
        """Bytes to keep free on this node."""
        if self.asked_bytes is not None:
            return self.asked_bytes
        return 0 if bound_by_device_alone(node) else self.default_bytes


def memory_mode(node: Node) -> str:
    """``host``, ``resident``, ``dedicated`` or ``pooled``: what bounds this node's stages."""
    primary = node.primary_device
    if primary == "cpu":
        return "host"
    if node.config.gpu_memory != "auto":
        return node.config.gpu_memory
    return "host" if primary in HOST_BOUND_BY_DEFAULT else "resident"


def bound_by_device_alone(node: Node) -> bool:
    """Whether host RAM plays no part in the node's budget."""
    return memory_mode(node) in SUBJECT_TO_DEVICE_ALONE and bool(_measured(_usable(node.primary_devices)))


def limits(node: Node) -> tuple[Limit, ...]:
    """Every bound on a stage of this node, in a fixed order; never empty."""
    mode = memory_mode(node)
    if mode in SUBJECT_TO_DEVICE_ALONE:
        devices = _measured(_usable(node.primary_devices))
        if devices:
            largest = devices if mode == "pooled" else (max(devices, key=_mem_bytes),)
            return _device_limits(node, largest)
    if mode == "resident":
        return _ram_limits(node) + _resident_limits(node)
    return _ram_limits(node)


def budget(node: Node, reserve_bytes: int) -> Budget:
    """The tightest limit less the reserve, never below 0; of equal limits the first named binds."""
    tightest = min(limits(node), key=lambda limit: limit.limit_bytes)
    return Budget(max(0, tightest.limit_bytes - reserve_bytes), tightest.name)


def exclusion(node: Node) -> str | None:
    """Why the node can't take a stage whatever its memory, or None."""
    if node.config.role != "active":
        return node.config.role
    listed = node.primary_devices
    if not listed or _usable(listed, needs_memory=memory_mode(node) != "host"):
        return None
    if not any(d.available for d in listed):
        return f"its {node.primary_device} device is not available"
    return f"the memory of its {node.primary_device} device is unknown"


def budget_warnings(node: Node) -> tuple[str, ...]:
    """What an operator should know about how this node's budget came about."""
    primary = node.primary_device
    if primary == "cpu":
        return ()
    if not node.primary_devices:
        return (f"{node.node_id}: device {primary} is not among its devices; planned by host RAM",)
    cards = _measured(_usable(node.primary_devices)) if primary == "cuda" and memory_mode(node) == "host" else ()
    if cards:
        card = max(cards, key=_mem_bytes)
        if _mem_bytes(card) < node.ram_total:
            warning = (
                f"{node.node_id}: its cuda stage is bounded by host RAM although the card has {card.mem_bytes} bytes; "
                "set config.gpu_memory to dedicated to stay on the card"
            )
            return (warning,)
    return ()


def _ram_limits(node: Node) -> tuple[Limit, ...]:
    """An explicit ``max_ram_gb`` overrides what is available now, which is often pessimistic."""
    cap_gb = node.config.max_ram_gb
    if cap_gb is None:
        return (Limit("ram_avail", node.ram_avail, live=True),)
    return (
        Limit("max_ram_gb", gigabytes(cap_gb), live=False),
        Limit("ram_total", node.ram_total, live=False),
    )


def _resident_limits(node: Node) -> tuple[Limit, ...]:
    """The reference's rule: the largest device of any kind but CPU, where it is smaller than host RAM."""
    devices = _measured(_usable(tuple(d for d in node.devices if d.device != "cpu")))
    if not devices:
        return ()
    largest = max(devices, key=_mem_bytes)
    return _device_limits(node, (largest,)) if _mem_bytes(largest) < node.ram_total else ()


def _device_limits(node: Node, devices: tuple[Device, ...]) -> tuple[Limit, ...]:
    fraction = DEFAULT_GPU_FRACTION if node.config.gpu_fraction is None else node.config.gpu_fraction
    shares = [truncated(_mem_bytes(d) * fraction) for d in devices]
    static = Limit("device_fraction", sum(shares), live=False)
    if all(d.mem_avail is None for d in devices):
        return (static,)
    free = sum(s if d.mem_avail is None else min(s, d.mem_avail) for s, d in zip(shares, devices, strict=True))
    return (static, Limit("mem_avail", free, live=True))


def _usable(devices: tuple[Device, ...], *, needs_memory: bool = True) -> tuple[Device, ...]:
    """Devices that are there, of a kind that we know, and whose memory is known (or is the host's)."""
    return tuple(
        d
        for d in devices
        if d.available and d.device in KNOWN_DEVICES and (d.mem_bytes is not None or d.unified or not needs_memory)
    )


def _measured(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Devices with a ceiling of their own."""
    return tuple(d for d in devices if d.mem_bytes)


def _mem_bytes(device: Device) -> int:
    return device.mem_bytes or 0
