"""Records in the database. One SQL code path for SQLite and PostgreSQL."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from app.db import tables
from app.ports import DeploymentRecord, Kind, ModelRecord, Record, Stored
from app.schemas.stored import dump_record, load_deployment, load_model, load_node

Key = tuple[Kind, str]
Row = dict[str, Any]

TABLES: dict[Kind, Table] = {"node": tables.nodes, "model": tables.models, "deployment": tables.deployments}

_INSERT: dict[str, Callable[..., Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def load(connection: Connection) -> Stored:
    """All that is stored, nodes in order of first registration. About 30 us a record."""
    counters = {row.name: row.value for row in connection.execute(select(tables.registry))}
    nodes = connection.scalars(select(tables.nodes.c.record).order_by(tables.nodes.c.ordinal))
    models = connection.scalars(select(tables.models.c.record).order_by(tables.models.c.name))
    deployments = connection.scalars(select(tables.deployments.c.record).order_by(tables.deployments.c.name))
    return Stored(
        counters.get("revision", 0),
        counters.get("ordinal", 0),
        tuple(map(load_node, nodes)),
        tuple(map(load_model, models)),
        tuple(map(load_deployment, deployments)),
    )


def save(connection: Connection, revision: int, ordinal: int, changes: Mapping[Key, Record | None]) -> None:
    """Write what changed, None where something is gone; and the counters."""
    dialect = connection.dialect.name
    for kind, table in TABLES.items():
        of_kind = [(key, record) for (its_kind, key), record in changes.items() if its_kind == kind]
        if gone := [{"gone": key} for key, record in of_kind if record is None]:
            connection.execute(_deletion(table), gone)
        if kept := [_row(record) for _, record in of_kind if record is not None]:
            connection.execute(_upsert(dialect, table), kept)
    counters = [{"name": "revision", "value": revision}, {"name": "ordinal", "value": ordinal}]
    connection.execute(_upsert(dialect, tables.registry), counters)


def _row(record: Record) -> Row:
    text = dump_record(record)
    if isinstance(record, ModelRecord):
        return {"name": record.name, "revision": record.version, "record": text}
    if isinstance(record, DeploymentRecord):
        return {"name": record.name, "generation": record.generation, "record": text}
    return {
        "node_id": record.reported.node_id,
        "ordinal": record.ordinal,
        "revision": record.revision,
        "record": text,
    }


@cache
def _deletion(table: Table) -> Any:
    (key,) = _keys(table)
    return delete(table).where(table.c[key] == bindparam("gone"))


@cache
def _upsert(dialect: str, table: Table) -> Any:
    """Insert, or replace the row that is there. Kept: building it takes longer than running it."""
    statement, keys = _INSERT[dialect](table), _keys(table)
    changed = {column.name: statement.excluded[column.name] for column in table.c if column.name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


def _keys(table: Table) -> list[str]:
    columns: Iterable[Any] = table.primary_key
    return [column.name for column in columns]
