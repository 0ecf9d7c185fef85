"""Nodes in the database. One SQL code path for SQLite and PostgreSQL."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from app.db import tables
from app.ports import NodeRecord, Stored
from app.schemas.stored import dump_record, load_record

_INSERT: dict[str, Callable[..., Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_DELETE_NODE = delete(tables.nodes).where(tables.nodes.c.node_id == bindparam("gone"))


def load(connection: Connection) -> Stored:
    """All that is stored, nodes in order of first registration. About 30 us a node."""
    counters = {row.name: row.value for row in connection.execute(select(tables.registry))}
    records = connection.scalars(select(tables.nodes.c.record).order_by(tables.nodes.c.ordinal))
    nodes = tuple(load_record(text) for text in records)
    return Stored(counters.get("revision", 0), counters.get("ordinal", 0), nodes)


def save(connection: Connection, revision: int, ordinal: int, changes: Mapping[str, NodeRecord | None]) -> None:
    """Write what changed: records by node_id, None for a node that is gone; and the counters."""
    dialect = connection.dialect.name
    gone = [{"gone": node_id} for node_id, record in changes.items() if record is None]
    if gone:
        connection.execute(_DELETE_NODE, gone)
    kept = [_row(node_id, record) for node_id, record in changes.items() if record is not None]
    if kept:
        connection.execute(_upsert(dialect, tables.nodes, "node_id"), kept)
    counters = [{"name": "revision", "value": revision}, {"name": "ordinal", "value": ordinal}]
    connection.execute(_upsert(dialect, tables.registry, "name"), counters)


def _row(node_id: str, record: NodeRecord) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "ordinal": record.ordinal,
        "revision": record.revision,
        "record": dump_record(record),
    }


@cache
def _upsert(dialect: str, table: Table, key: str) -> Any:
    """Insert, or replace the row that is there. Kept: building it takes longer than running it."""
    statement = _INSERT[dialect](table)
    changed = {column.name: statement.excluded[column.name] for column in table.c if column.name != key}
    return statement.on_conflict_do_update(index_elements=[key], set_=changed)
