"""Nodes that share a machine: their RAM-bounded stages together stay within what it has."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.placement.budgets import Reserve, bound_by_device_alone, devices_used, host_limit
from app.placement.engines import Engine
from app.placement.errors import Excess
from app.placement.nodes import Node
from app.placement.plans import Assignment


@dataclass(frozen=True, slots=True)
class Crowd:
    """The stages of a host that together exceed its RAM."""

    host_id: str
    assignments: tuple[Assignment, ...]
    room_bytes: int

    @property
    def smallest(self) -> Node:
        """The node with the smallest budget; of equal ones the last."""
        return min(reversed(self.assignments), key=lambda a: a.budget_bytes).node

    @property
    def excesses(self) -> tuple[Excess, ...]:
        """Each stage, and by how much all of them together exceed the host's room."""
        excess = sum(a.est_bytes for a in self.assignments) - self.room_bytes
        return tuple(Excess(a.node.node_id, a.est_bytes, self.room_bytes, excess) for a in self.assignments)


def sharing(nodes: Iterable[Node], engine: Engine) -> dict[str, list[Node]]:
    """The nodes bounded by host RAM, by host, where two or more are on one."""
    hosts: dict[str, list[Node]] = {}
    for node in nodes:
        if node.host_id is not None and not bound_by_device_alone(node, engine):
            hosts.setdefault(node.host_id, []).append(node)
    return {host: group for host, group in hosts.items() if len(group) > 1}


def host_room(nodes: Iterable[Node], reserve: Reserve, engine: Engine) -> int:
    """Bytes that stages of these nodes of one host may hold together, never below 0.

    The smallest ``ram_avail`` among them, or ``ram_total`` where one sets ``max_ram_gb``, less what was promised and
    one reserve.
    """
    group = list(nodes)
    explicit = any(node.config.max_ram_gb is not None for node in group)
    limits = ((node, host_limit(node, explicit=explicit)) for node in group)
    ram = min(limit.left(node.claims) for node, limit in limits)
    return max(0, ram - max(reserve.of(node, engine) for node in group))


def crowded(assignments: Sequence[Assignment], reserve: Reserve, engine: Engine) -> Crowd | None:
    """The first host whose stages exceed its room, None where there is none."""
    if all(a.node.host_id is None for a in assignments):
        return None
    holding = {a.node.node_id: a for a in assignments if a.end > a.start}
    for host_id, nodes in sharing((a.node for a in holding.values()), engine).items():
        room = host_room(nodes, reserve, engine)
        stages = tuple(holding[node.node_id] for node in nodes)
        if sum(a.est_bytes for a in stages) > room:
            return Crowd(host_id, stages, room)
    return None


def tensor_parallel_warnings(nodes: Sequence[Node], engine: Engine) -> tuple[str, ...]:
    """A warning where an engine needs the same number of devices on every stage and the nodes differ."""
    if "tensor_parallel" not in engine.options or engine.tensor_parallel is not None:
        return ()
    counts = {devices_used(node, engine) for node in nodes}
    if len(counts) <= 1:
        return ()
    seen = ", ".join(map(str, sorted(counts)))
    return (f"stages over {seen} devices: {engine.name} wants the same tensor_parallel on every stage; set the option",)
