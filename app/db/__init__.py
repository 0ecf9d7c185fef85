"""The store: SQLite through SQLAlchemy Core, owned by one writer thread."""

from app.db.engine import StoreError, open_sqlite
from app.db.journal import SqlJournal, open_journal

__all__ = ["SqlJournal", "StoreError", "open_journal", "open_sqlite"]
