"""How nodes, models and deployments look in the store: JSON by the names of the dataclasses' fields.

A key that is missing takes the field's default and one that is unknown is passed over, so that records written by an
older or a newer version can be read.
"""

from base64 import urlsafe_b64decode
from dataclasses import fields
from datetime import datetime
from functools import cache
from typing import Any

from pydantic_core import from_json, to_json

from app.placement.cost import Block, ModelCost
from app.placement.nodes import Device, Node, NodeConfig
from app.ports import BookedStage, DeploymentRecord, ModelRecord, NodeRecord, Overrides, Record


def dump_record(record: Record) -> str:
    """The record as text. About 5 us."""
    return to_json(record, bytes_mode="base64").decode()


def load_node(text: str) -> NodeRecord:
    """The node's record that was dumped."""
    raw = from_json(text)
    reported = raw["reported"]
    reported.pop("claims", None)
    reported["devices"] = tuple(_build(Device, device) for device in reported.get("devices", ()))
    reported["config"] = _build(NodeConfig, reported.get("config", {}))
    return NodeRecord(
        reported=_build(Node, reported),
        overrides=_build(Overrides, raw["overrides"]),
        ordinal=raw["ordinal"],
        revision=raw["revision"],
        registered_at=datetime.fromisoformat(raw["registered_at"]),
        seen_at=datetime.fromisoformat(raw["seen_at"]),
        expired=raw["expired"],
    )


def load_model(text: str) -> ModelRecord:
    """The model's record that was dumped."""
    raw = from_json(text)
    return ModelRecord(
        name=raw["name"],
        cost=_cost(raw["cost"]),
        version=raw["version"],
        created_at=datetime.fromisoformat(raw["created_at"]),
        updated_at=datetime.fromisoformat(raw["updated_at"]),
    )


def load_deployment(text: str) -> DeploymentRecord:
    """The deployment's record that was dumped."""
    raw = from_json(text)
    for stages in ("stages", "ghosts"):
        raw[stages] = tuple(_build(BookedStage, stage) for stage in raw.get(stages, ()))
    for moment in ("created_at", "updated_at", "expires_at"):
        raw[moment] = None if raw[moment] is None else datetime.fromisoformat(raw[moment])
    raw["cost"] = _cost(raw["cost"])
    raw["answer"] = urlsafe_b64decode(raw["answer"])
    record: DeploymentRecord = _build(DeploymentRecord, raw)
    return record


def _cost(raw: dict[str, Any]) -> ModelCost:
    raw["layers"] = tuple(_build(Block, block) for block in raw.get("layers", ()))
    cost: ModelCost = _build(ModelCost, raw)
    return cost


def _build(kind: type, raw: dict[str, Any]) -> Any:
    known = _names(kind)
    return kind(**{name: value for name, value in raw.items() if name in known})


@cache
def _names(kind: type) -> frozenset[str]:
    return frozenset(f.name for f in fields(kind) if f.init)
