"""The writer: one thread owns the database and commits in groups whatever was noted meanwhile.

Invariant: a note is in memory from the moment it was made until a commit that contains it (or a newer one of the same
thing) succeeded. So a failing store loses nothing while the server lives, and is tried again.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.db import records
from app.db.engine import StoreError, open_sqlite
from app.ports import Kind, NodeRecord, Record, Stored, StoreUnavailableError

FLUSH_S = 1.0
"""What isn't urgent is written within this time."""

PATIENCE_S = 5.0
"""A request that waits longer for a commit is told that the store is unavailable."""

log = structlog.get_logger("cleave.db")


@dataclass(slots=True)
class Batch:
    """Notes that wait for a commit: the last record of each thing, None where it is gone."""

    changes: dict[records.Key, Record | None] = field(default_factory=dict)
    revision: int = 0

    def under(self, newer: "Batch") -> "Batch":
        """These notes and newer ones."""
        return Batch({**self.changes, **newer.changes}, max(self.revision, newer.revision))


class SqlJournal:
    """The journal in a database. All but ``load`` and ``close`` is for the event loop's thread."""

    def __init__(self, engine: Engine) -> None:
        """Over an open and migrated database."""
        self._engine = engine
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._noted = Batch()
        self._durable_revision = 0
        self._ordinal = 0
        self.revision = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._thread = threading.Thread(target=self._write_until_closed, name="cleave-writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.healthy = True

    def load(self) -> Stored:
        """All that is stored. Raises StoreError where a record can't be read."""
        try:
            with self._engine.connect() as connection:
                stored = records.load(connection)
        except (LookupError, TypeError, ValueError) as error:
            raise StoreError(f"a record in the store can't be read: {error}") from None
        self._durable_revision, self._ordinal = stored.revision, stored.ordinal
        self.revision = stored.revision
        return stored

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to write; ``loop`` is where the callers of ``durable`` wait."""
        self._loop = loop
        self._thread.start()

    def close(self) -> None:
        """Write what was noted, and stop. Nothing was, where it never started."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(2 * PATIENCE_S)

    def advance(self) -> int:
        """The next revision."""
        self.revision += 1
        return self.revision

    def note(self, kind: Kind, key: str, record: Record | None, *, urgent: bool) -> None:
        """Remember a record as of now; see ``ports.Journal``."""
        with self._lock:
            self._noted.changes[kind, key] = record
            self._noted.revision = self.revision
        if urgent:
            self._wake.set()

    async def durable(self, revision: int) -> None:
        """Return once everything up to ``revision`` is committed. Raises StoreUnavailableError."""
        if revision <= self._durable_revision:
            return
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, done))
        self._wake.set()
        try:
            await asyncio.wait_for(done, PATIENCE_S)
        except TimeoutError:
            raise StoreUnavailableError from None

    def _write_until_closed(self) -> None:
        while not self._closing:
            self._wake.wait(FLUSH_S)
            self._wake.clear()
            self._commit()
        self._commit()

    def _commit(self) -> None:
        """Write all that was noted in one transaction, and tell who waits for it."""
        with self._lock:
            batch, self._noted = self._noted, Batch(revision=self._noted.revision)
        if not batch.changes:
            return
        ordinals = (record.ordinal for record in batch.changes.values() if isinstance(record, NodeRecord))
        self._ordinal = max(self._ordinal, *ordinals, 0)
        try:
            with self._engine.begin() as connection:
                records.save(connection, batch.revision, self._ordinal, batch.changes)
        except SQLAlchemyError as error:
            with self._lock:
                self._noted = batch.under(self._noted)
            if self.healthy:
                log.warning("store unavailable", reason=str(getattr(error, "orig", error)), pending=len(batch.changes))
            self.healthy = False
            self._tell(None)
        else:
            if not self.healthy:
                log.info("store available again", written=len(batch.changes))
            self.healthy = True
            self._tell(batch.revision)

    def _tell(self, revision: int | None) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle, revision)

    def _settle(self, revision: int | None) -> None:
        """Release who waits for revisions up to this one, or, with None, everybody with an error."""
        if revision is not None:
            self._durable_revision = max(self._durable_revision, revision)
        still: list[tuple[int, asyncio.Future[None]]] = []
        for wanted, done in self._waiting:
            if done.done():
                continue
            if revision is None:
                done.set_exception(StoreUnavailableError())
            elif wanted <= self._durable_revision:
                done.set_result(None)
            else:
                still.append((wanted, done))
        self._waiting = still


@contextmanager
def open_journal(database_url: str) -> Iterator[SqlJournal]:
    """The journal at this URL; on leaving, what was noted is written. Raises StoreError."""
    with open_sqlite(database_url) as engine:
        journal = SqlJournal(engine)
        try:
            yield journal
        finally:
            journal.close()
