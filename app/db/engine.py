"""Opening the database: SQLite, one server at a time, migrated to the present schema."""

import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError

PRAGMAS = {
    "journal_mode": "WAL",
    # In WAL mode NORMAL survives a killed process at any moment; a power cut can lose the last commits, never the file.
    # FULL would survive that too, at twice the time of a commit (DECISIONS.md).
    "synchronous": "NORMAL",
    "busy_timeout": "2000",
    "foreign_keys": "ON",
}


class StoreError(Exception):
    """The store can't be opened; the message is for the operator who starts the server."""


@contextmanager
def open_sqlite(database_url: str) -> Iterator[Engine]:
    """The engine of a SQLite file, migrated, locked against other servers until the end.

    Raises StoreError.
    """
    path = _path_of(database_url)
    with _locked(path):
        engine = create_engine(database_url, connect_args={"check_same_thread": False})
        event.listen(engine, "connect", _prepare)
        try:
            _migrate(engine, path)
            yield engine
        finally:
            engine.dispose()


def migrate(connection: Connection) -> None:
    """Bring the schema up to date."""
    config = Config()
    config.set_main_option("script_location", "app.db:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _path_of(database_url: str) -> Path:
    try:
        url = make_url(database_url)
    except ArgumentError:
        raise StoreError("CLEAVE_DATABASE_URL is not a database URL; use sqlite:///cleave.db") from None
    if url.get_backend_name() != "sqlite":
        raise StoreError(
            f"CLEAVE_DATABASE_URL names {url.get_backend_name()}, but this version keeps its state in SQLite only; "
            "use sqlite:///cleave.db"
        )
    if not url.database or url.database == ":memory:":
        raise StoreError("CLEAVE_DATABASE_URL names no file, but the registry must survive a restart")
    return Path(url.database).resolve()  # one file is one lock, by whatever link it is reached


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file's lock; the registry lives in one server's memory, and two would overwrite one another."""
    lock = path.with_name(path.name + ".lock")
    try:
        file = lock.open("w")
    except OSError as error:
        raise StoreError(f"can't write beside the database {path}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(f"another server uses {path}; stop it, or set CLEAVE_DATABASE_URL") from None
        yield


def _migrate(engine: Engine, path: Path) -> None:
    try:
        with engine.begin() as connection:
            migrate(connection)
    except CommandError as error:
        raise StoreError(f"{path} was written by another version of Cleave: {error}") from None
    except DatabaseError as error:
        raise StoreError(f"can't use {path}: {error.orig}") from None


def _prepare(connection: sqlite3.Connection, _record: Any) -> None:
    for name, value in PRAGMAS.items():
        connection.execute(f"PRAGMA {name} = {value}").close()
