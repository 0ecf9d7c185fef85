"""Reading the contract's vectors."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.placement.budgets import Reserve
from app.placement.cost import ModelCost
from app.placement.nodes import Device, Node, NodeConfig
from app.placement.task import Task


def read(path: Path) -> Iterator[dict[str, Any]]:
    """One vector a line."""
    with gzip.open(path, "rt") as lines:
        for line in lines:
            yield json.loads(line)


def to_task(request: dict[str, Any], *, allow_over_budget: bool) -> Task:
    """The task of a vector's request, read without the service's own schemas."""
    nodes = []
    for raw in request["nodes"]:
        own = {k: v for k, v in raw.items() if k not in {"devices", "config"}}
        devices = tuple(Device(**d) for d in raw["devices"])
        nodes.append(Node(node_id=raw["addr"], devices=devices, config=NodeConfig(**raw["config"]), **own))
    reserve = Reserve(request["reserve_bytes"], 0)
    return Task(ModelCost(**request["model"]), tuple(nodes), request["policy"], reserve, allow_over_budget)
