"""Short ways to nodes and models with round figures."""

from dataclasses import fields, replace
from typing import Any

from app.placement.budgets import Reserve
from app.placement.cost import ModelCost
from app.placement.engines import PLAIN
from app.placement.nodes import Device, Node, NodeConfig
from app.placement.objective import Objective
from app.placement.reference import Policy
from app.placement.task import Task

CONFIG_FIELDS = {f.name for f in fields(NodeConfig) if f.init}


def node(name: str, ram: int = 100, **given: Any) -> Node:
    """A CPU node with so many bytes free of twice as many; ``given`` may be of the node or of its config."""
    config = NodeConfig(**{k: given.pop(k) for k in list(given) if k in CONFIG_FIELDS})
    return replace(Node(name, f"{name}:9100", ram_total=2 * ram, ram_avail=ram, config=config), **given)


def device(kind: str, mem_bytes: int | None = 0, **given: Any) -> Device:
    """A device."""
    return Device(kind, mem_bytes=mem_bytes, **given)


def model(layers: int = 10, layer: int = 10, embed: int = 0, head: int = 0, flops: float = 1.0) -> ModelCost:
    """A model in bytes."""
    return ModelCost(layers, layer, embed, head, flops)


def task(cost: ModelCost, *nodes: Node, policy: Policy = "ram_balanced", reserve: int = 0, over: bool = False) -> Task:
    """What to plan, without a reserve."""
    return Task(cost, nodes, policy, Reserve(reserve, 0), over)


def auto(cost: ModelCost, *nodes: Node, **asked: Any) -> Task:
    """What policy auto is asked: of the ``engine`` and the objective, without caches and hops unless said."""
    engine = asked.pop("engine", PLAIN)
    aim = Objective(**({"context": 0, "hop_s": 0.0} | asked))
    return Task(cost, nodes, "auto", Reserve(0, 0), engine=engine, objective=aim)


def spans(placement: Any) -> list[tuple[str, int, int]]:
    """Who has which layers."""
    return [(a.node.node_id, a.start, a.end) for a in placement.assignments]


def counts(placement: Any) -> list[int]:
    """Layers of each stage."""
    return [a.end - a.start for a in placement.assignments]
