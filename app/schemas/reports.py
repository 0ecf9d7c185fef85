"""Reports: what node agents send. Read liberally; what isn't understood is named in a warning."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, WrapValidator

from app.placement.errors import InvalidFieldError
from app.placement.nodes import KNOWN_DEVICES, Device, Node, NodeConfig
from app.placement.units import INT_MAX, MIB
from app.schemas.fields import (
    DEVICES,
    LAYERS,
    MAX_BATCH,
    MAX_DEVICES,
    WHOLE,
    Addr,
    Bytes,
    Count,
    Fraction,
    Gigabytes,
    Labels,
    NodeId,
    Path,
    Rate,
    Text,
    at_most,
)
from app.schemas.parsing import Fault, Liberal, Strict, faults

SUSPICIOUSLY_SMALL_BYTES = 64 * MIB
MAX_UNKNOWN_NAMED = 10
MAX_RESIDENT = 1_000

Resident = Annotated[dict[NodeId, Bytes], Field(max_length=MAX_RESIDENT), at_most(MAX_RESIDENT)]


@lru_cache(maxsize=32_768)
def _host(addr: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address without its port where it is an IP address, else None."""
    host = addr[1:].partition("]")[0] if addr.startswith("[") else addr
    if host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


@lru_cache(maxsize=32_768)
def _is_link_local(addr: str) -> bool:
    host = _host(addr)
    return host is not None and host.is_link_local


@lru_cache(maxsize=32_768)
def _is_loopback(addr: str) -> bool:
    host = _host(addr)
    return addr.partition(":")[0] == "localhost" or (host is not None and host.is_loopback)


def _reachable(addr: str) -> str:
    host = _host(addr)
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    if addr.partition(":")[0] == "0" or any(ip is not None and ip.is_unspecified for ip in (host, mapped)):
        raise ValueError("is the unspecified address; report one that others can reach")
    if addr.startswith(":") or not any(character.isalnum() for character in addr):
        raise ValueError("names no host")
    return addr


class DeviceIn(Liberal):
    """One device. ``mem_bytes`` null is unknown, 0 is no ceiling of its own; ``mem_avail`` is what is free now."""

    device: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9._-]+$")]
    name: Text | None = None
    mem_bytes: Bytes | None = None
    unified: bool = False
    gflops: Rate | None = Field(None, description="1e9 FLOP/s")
    mem_gbps: Rate | None = Field(None, description="1e9 bytes/s that the device reads from its memory")
    mem_avail: Bytes | None = None
    available: bool = True

    def to_device(self) -> Device:
        """The device as planners see it."""
        return Device(
            self.device,
            self.name or "",
            self.mem_bytes,
            self.unified,
            self.gflops,
            self.mem_gbps,
            self.mem_avail,
            self.available,
        )


def _within_range(devices: list[DeviceIn]) -> list[DeviceIn]:
    if sum(device.mem_bytes or 0 for device in devices) > INT_MAX:
        raise ValueError("have more than 2^63-1 mem_bytes together")
    return devices


class ConfigIn(Liberal):
    """How the node's owner wants it used. The first name of ``device`` runs the stage, the others take spill."""

    device: Annotated[str, Field(max_length=64, pattern=DEVICES)] = "cpu"
    max_ram_gb: Gigabytes | None = Field(None, description="Decimal gigabytes; overrides what is available now")
    layers: Annotated[str, Field(pattern=LAYERS)] | None = Field(None, description="Range a:b for policy manual")
    ssh: Text | None = None
    ckpt_dir: Path | None = None
    precision: Text | None = None
    kv_cache: Text | None = None
    rng_seed: Annotated[int, Field(ge=-INT_MAX - 1, le=INT_MAX), WHOLE] | None = None
    gpu_memory: Literal["auto", "host", "resident", "dedicated", "pooled"] = "auto"
    gpu_fraction: Fraction | None = None
    role: Literal["active", "standby", "draining"] = "active"
    standby_for: NodeId | None = None

    def to_config(self) -> NodeConfig:
        """The configuration as planners see it."""
        return NodeConfig(
            self.device,
            self.max_ram_gb,
            self.layers,
            self.ssh,
            self.ckpt_dir,
            self.precision,
            self.kv_cache,
            self.rng_seed,
            self.gpu_memory,
            self.gpu_fraction,
            self.role,
            self.standby_for,
        )


class ReportIn(Liberal):
    """What a node says of itself, whole: every beat of ``POST /nodes/register`` replaces the last.

    Bytes throughout. ``node_id`` is the ``addr`` where it is left out.
    """

    addr: Annotated[Addr, AfterValidator(_reachable)]
    ram_total: Annotated[int, Field(ge=1, le=INT_MAX), WHOLE]
    ram_avail: Bytes
    node_id: NodeId | None = None
    host_id: Text | None = None
    device_index: Annotated[int, Field(ge=0, le=65_535), WHOLE] | None = None
    instance_id: Text | None = None
    boot_id: Text | None = None
    os: Text | None = None
    cores: Count | None = None
    disk_free: Bytes | None = None
    gflops: Rate | None = Field(None, description="1e9 FLOP/s")
    io_mbps: Rate | None = Field(None, description="1e6 bytes/s from disk")
    devices: (
        Annotated[list[DeviceIn], Field(fail_fast=True, max_length=MAX_DEVICES), AfterValidator(_within_range)] | None
    ) = None
    config: ConfigIn | None = None
    labels: Labels | None = None
    resident: Resident | None = None

    def to_node(self) -> tuple[Node, tuple[str, ...]]:
        """The node as planners see it, and what is odd about its report."""
        node = Node(
            self.node_id or self.addr,
            self.addr,
            self.ram_total,
            min(self.ram_avail, self.ram_total),
            self.device_index or 0,
            self.host_id,
            self.instance_id,
            self.boot_id,
            self.os,
            self.cores,
            self.disk_free,
            self.gflops,
            self.io_mbps,
            tuple([d.to_device() for d in self.devices or ()]),
            self.config.to_config() if self.config else NodeConfig(),
            self.labels or {},
            self.resident,
        )
        return node, tuple(self._oddities())

    def _oddities(self) -> Iterator[str]:
        yield from _odd_memory(self.ram_total, self.ram_avail)
        if _is_link_local(self.addr):
            yield "addr is link-local; others can reach it on the same link only"
        for device in self.devices or ():
            if device.device not in KNOWN_DEVICES:
                yield f"device {device.device} is not known; it is kept and not used"
        yield from _ignored(list(self._unknown()))

    def _unknown(self) -> Iterator[str]:
        yield from _names("", self.model_extra)
        if self.config is not None:
            yield from _names("config.", self.config.model_extra)
        for at, device in enumerate(self.devices or ()):
            yield from _names(f"devices[{at}].", device.model_extra)


def _odd_memory(ram_total: int, ram_avail: int) -> Iterator[str]:
    if ram_avail > ram_total:
        yield "ram_avail is above ram_total and counts as ram_total"
    figures = {"ram_total": ram_total, "ram_avail": ram_avail}
    small = [name for name, size in figures.items() if size < SUSPICIOUSLY_SMALL_BYTES]
    if small:
        yield f"{' and '.join(small)} under 64 MiB; are these MiB? Report bytes"


def _ignored(unknown: list[str]) -> Iterator[str]:
    if unknown:
        more = f" and {len(unknown) - MAX_UNKNOWN_NAMED} more" if len(unknown) > MAX_UNKNOWN_NAMED else ""
        yield f"unknown fields ignored: {', '.join(unknown[:MAX_UNKNOWN_NAMED])}{more}"


def _names(prefix: str, extra: Mapping[str, Any] | None) -> Iterator[str]:
    """Unknown names as a person can read them, whatever is in them."""
    for name in extra or ():
        yield prefix + ascii(name)[1:-1][:64]


def loopback_warning(node: Node, peer: str | None) -> tuple[str, ...]:
    """A warning where a node calls from elsewhere but says that it is at home on loopback."""
    if peer is not None and _is_loopback(node.addr) and not _is_loopback(peer):
        return ("addr is a loopback address, but the report came from another machine",)
    return ()


class RefusedReport(Strict):
    """A report of a batch that can't be accepted; the others of the batch are none the worse."""

    errors: list[Fault]


def _each_on_its_own(value: Any, read: Callable[[Any], ReportIn]) -> ReportIn | RefusedReport:
    try:
        return read(value)
    except ValidationError as error:
        return RefusedReport(errors=list(faults(error.errors(include_url=False, include_input=False))))


class BatchIn(Strict):
    """Reports of many nodes; each is accepted or refused on its own."""

    nodes: Annotated[
        list[Annotated[ReportIn, WrapValidator(_each_on_its_own)]], Field(min_length=1, max_length=MAX_BATCH)
    ]

    @property
    def entries(self) -> Sequence[ReportIn | RefusedReport]:
        """What became of each report; the field's type is what clients send."""
        return self.nodes


class MovedDeviceIn(Liberal):
    """What moved on one device; it is the n-th of its kind, as in the report. ``name`` is only for the reader."""

    device: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9._-]+$")]
    name: Text | None = None
    mem_avail: Bytes | None


class HeartbeatIn(Liberal):
    """A small beat: the figures that move. What is left out stays as it was."""

    ram_avail: Bytes | None = None
    disk_free: Bytes | None = None
    devices: Annotated[list[MovedDeviceIn], Field(fail_fast=True, max_length=MAX_DEVICES)] | None = None
    resident: Resident | None = None

    def apply(self, node: Node) -> tuple[Node, tuple[str, ...]]:
        """The report with its moving figures replaced. Raises InvalidFieldError where the devices don't match."""
        sent = self.model_fields_set
        ram_avail = node.ram_avail if self.ram_avail is None else self.ram_avail
        moved = replace(
            node,
            ram_avail=min(ram_avail, node.ram_total),
            disk_free=self.disk_free if "disk_free" in sent else node.disk_free,
            resident=self.resident if "resident" in sent else node.resident,
            devices=node.devices if self.devices is None else self._moved_devices(node, self.devices),
        )
        return moved, tuple(self._oddities(node))

    def _oddities(self, node: Node) -> Iterator[str]:
        if self.ram_avail is not None:
            yield from _odd_memory(node.ram_total, self.ram_avail)
        extras = [
            ("", self.model_extra),
            *((f"devices[{at}].", d.model_extra) for at, d in enumerate(self.devices or ())),
        ]
        yield from _ignored([name for prefix, extra in extras for name in _names(prefix, extra)])

    @staticmethod
    def _moved_devices(node: Node, moved: list[MovedDeviceIn]) -> tuple[Device, ...]:
        """Devices match by position among those of the same kind; kinds that aren't mentioned stay."""
        queues = {kind: [m for m in moved if m.device == kind] for kind in {m.device for m in moved}}
        for kind, queue in queues.items():
            have = sum(d.device == kind for d in node.devices)
            if have != len(queue):
                raise InvalidFieldError(f"names {len(queue)} {kind} devices, the report had {have}", "/devices")
        positions = {kind: iter(queue) for kind, queue in queues.items()}
        return tuple(
            replace(d, mem_avail=next(positions[d.device]).mem_avail) if d.device in positions else d
            for d in node.devices
        )
