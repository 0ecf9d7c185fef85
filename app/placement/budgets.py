"""What a node may hold. ``limits`` is the one list that budgets, ledgers and refusals read.

The rules are the reference planner's (``resident``), plus the modes of ``config.gpu_memory``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from app.placement.engines import PLAIN, REFERENCE_FRACTION, Engine
from app.placement.nodes import KNOWN_DEVICES, Claim, Device, Node
from app.placement.units import INT_MAX, gigabytes, truncated

HOST_BOUND_BY_DEFAULT = frozenset({"cpu", "cuda"})
"""Kinds whose stages the reference bounds by host RAM alone (CUDA: managed memory that migrates over PCIe)."""

SUBJECT_TO_DEVICE_ALONE = frozenset({"dedicated", "pooled"})

OF_ONE_DEVICE = frozenset({"resident", "dedicated"})
"""Modes in which a stage stays on the largest device."""


@dataclass(frozen=True, slots=True)
class Limit:
    """An upper bound in bytes. ``live`` figures already leave out what runs there now, static ones don't.

    ``of`` says whose memory it bounds: the ``host``'s RAM, the ``node``'s share of that, or its ``device``.
    """

    name: str
    limit_bytes: int
    live: bool
    of: Literal["host", "node", "device"]

    def left(self, claims: Iterable[Claim]) -> int:
        """What the limit leaves after what was promised, negative where that is more than there is."""
        left = self.limit_bytes
        for claim in claims:
            if (claim.device if self.of == "device" else claim.ram) and (self.of == "host" or not claim.neighbour):
                left -= claim.live_bytes if self.live else claim.static_bytes
        return left


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

    def of(self, node: Node, engine: Engine = PLAIN) -> int:
        """Bytes to keep free on this node."""
        if self.asked_bytes is not None:
            return self.asked_bytes
        return 0 if bound_by_device_alone(node, engine) else self.default_bytes


def memory_mode(node: Node, engine: Engine = PLAIN) -> str:
    """``host``, ``resident``, ``dedicated`` or ``pooled``: what bounds this node's stages under the engine."""
    primary = node.primary_device
    if primary == "cpu":
        return "host"
    if node.config.gpu_memory != "auto":
        return node.config.gpu_memory
    return engine.gpu_memory or ("host" if primary in HOST_BOUND_BY_DEFAULT else "resident")


def bound_by_device_alone(node: Node, engine: Engine = PLAIN) -> bool:
    """Whether host RAM plays no part in the node's budget."""
    return memory_mode(node, engine) in SUBJECT_TO_DEVICE_ALONE and bool(_measured(_usable(node.primary_devices)))


def stage_devices(node: Node, engine: Engine = PLAIN) -> tuple[Device, ...]:
    """The devices whose memory a stage uses: one, in mode ``pooled`` several; none where host RAM alone decides."""
    mode = memory_mode(node, engine)
    if mode not in SUBJECT_TO_DEVICE_ALONE:
        return ()
    devices = _measured(_usable(node.primary_devices))
    if mode == "dedicated" and devices:
        return (max(devices, key=lambda device: (_share(node, device, engine), _mem_bytes(device))),)
    if engine.tensor_parallel is None:
        return devices
    return tuple(sorted(devices, key=_mem_bytes, reverse=True)[: engine.tensor_parallel])


def devices_used(node: Node, engine: Engine = PLAIN) -> int:
    """How many devices a stage of the node occupies; host RAM with its CPU or one card counts as one."""
    return max(1, len(stage_devices(node, engine)))


def usable_devices(node: Node) -> tuple[Device, ...]:
    """The devices of the primary kind that can run a stage, in the report's order."""
    return tuple(d for d in node.primary_devices if d.available) if node.devices else ()


def limits(node: Node, engine: Engine = PLAIN) -> tuple[Limit, ...]:
    """Every bound on a stage of this node, in a fixed order; never empty."""
    if not node.devices:
        return _ram_limits(node)
    devices = stage_devices(node, engine)
    if devices:
        return _device_limits(node, devices, engine)
    if memory_mode(node, engine) == "resident":
        return _ram_limits(node) + _resident_limits(node, engine)
    return _ram_limits(node)


def host_limit(node: Node, *, explicit: bool) -> Limit:
    """What the host's RAM allows: all of it where its owner said how much to use, else what is free now."""
    if explicit:
        return Limit("ram_total", node.ram_total, live=False, of="host")
    return Limit("ram_avail", node.ram_avail, live=True, of="host")


def budget(node: Node, reserve_bytes: int, engine: Engine = PLAIN) -> Budget:
    """What the tightest limit leaves, less the reserve, never below 0; of equal limits the first named binds."""
    tightest, *others = limits(node, engine)
    left = tightest.left(node.claims)
    for limit in others:
        if (other := limit.left(node.claims)) < left:
            tightest, left = limit, other
    return Budget(max(0, left - reserve_bytes), tightest.name)


def memories(node: Node, engine: Engine = PLAIN) -> tuple[bool, bool]:
    """Whether a stage of the node takes of the host's RAM, and whether of a device's memory."""
    kinds = {limit.of for limit in limits(node, engine)}
    return kinds != {"device"}, "device" in kinds


def exclusion(node: Node, engine: Engine = PLAIN) -> str | None:
    """Why the node can't take a stage whatever its memory, or None."""
    if node.config.role != "active":
        return node.config.role
    listed = node.primary_devices
    wanted = engine.tensor_parallel
    if wanted is not None and wanted > 1 and len(_usable(listed)) < wanted:
        return f"has {len(_usable(listed))} {node.primary_device} devices, tensor_parallel is {wanted}"
    if wanted is not None and wanted > 1 and memory_mode(node, engine) in OF_ONE_DEVICE:
        return f"gpu_memory {memory_mode(node, engine)} is one device, tensor_parallel is {wanted}"
    if not listed or _usable(listed, needs_memory=memory_mode(node, engine) != "host"):
        return None
    if not any(d.available for d in listed):
        return f"its {node.primary_device} device is not available"
    return f"the memory of its {node.primary_device} device is unknown"


def budget_warnings(node: Node, engine: Engine = PLAIN) -> tuple[str, ...]:
    """What an operator should know about how this node's budget came about."""
    primary = node.primary_device
    if primary == "cpu":
        return ()
    if not node.primary_devices:
        return (f"{node.node_id}: device {primary} is not among its devices; planned by host RAM",)
    cards = _measured(_usable(node.primary_devices))
    if primary == "cuda" and memory_mode(node, engine) == "host" and cards:
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
        return (host_limit(node, explicit=False),)
    return (Limit("max_ram_gb", gigabytes(cap_gb), live=False, of="node"), host_limit(node, explicit=True))


def _resident_limits(node: Node, engine: Engine) -> tuple[Limit, ...]:
    """The reference's rule: the largest device of any kind but CPU, where it is smaller than host RAM."""
    devices = _measured(_usable(tuple(d for d in node.devices if d.device != "cpu")))
    if not devices:
        return ()
    largest = max(devices, key=_mem_bytes)
    return _device_limits(node, (largest,), engine) if _mem_bytes(largest) < node.ram_total else ()


def _device_limits(node: Node, devices: tuple[Device, ...], engine: Engine) -> tuple[Limit, ...]:
    fraction = _fraction(node, engine)
    pool = min(INT_MAX, sum(truncated(_mem_bytes(d) * fraction) for d in devices))
    static = Limit("device_fraction", pool, live=False, of="device")
    if all(d.mem_avail is None for d in devices):
        return (static,)
    free = min(INT_MAX, sum(_share(node, d, engine) for d in devices))
    return (static, Limit("mem_avail", free, live=True, of="device"))


def _share(node: Node, device: Device, engine: Engine) -> int:
    """Bytes of the device that a stage may use now."""
    share = truncated(_mem_bytes(device) * _fraction(node, engine))
    return share if device.mem_avail is None else min(share, device.mem_avail)


def _fraction(node: Node, engine: Engine) -> float:
    """The node's own ``gpu_fraction``, else the engine's where its row decides, else the reference's."""
    if node.config.gpu_fraction is not None:
        return node.config.gpu_fraction
    by_engine = engine.gpu_memory is not None and node.config.gpu_memory == "auto"
    return engine.gpu_fraction if by_engine else REFERENCE_FRACTION


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
