"""How a node looks in the store: JSON by the names of the dataclasses' fields.

A key that is missing takes the field's default and one that is unknown is passed over, so that records written by an
older or a newer version can be read.
"""

from dataclasses import fields
from datetime import datetime
from functools import cache
from typing import Any

from pydantic_core import from_json, to_json

from app.placement.nodes import Device, Node, NodeConfig
from app.ports import NodeRecord, Overrides


def dump_record(record: NodeRecord) -> str:
    """The record as text. About 5 us."""
    return to_json(record).decode()


def load_record(text: str) -> NodeRecord:
    """The record that was dumped."""
    raw = from_json(text)
    reported = raw["reported"]
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


def _build(kind: type, raw: dict[str, Any]) -> Any:
    known = _names(kind)
    return kind(**{name: value for name, value in raw.items() if name in known})


@cache
def _names(kind: type) -> frozenset[str]:
    return frozenset(f.name for f in fields(kind) if f.init)
