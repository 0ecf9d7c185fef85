"""Opening the database: what an operator is told when it can't be."""

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from app.db import StoreError, open_sqlite
from app.db.tables import metadata


def test_the_migrated_schema_is_the_tables_schema(tmp_path: Path) -> None:
    with open_sqlite(f"sqlite:///{tmp_path}/x.db") as engine, engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_migrating_twice_changes_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        with open_sqlite(f"sqlite:///{tmp_path}/x.db"):
            pass


def test_commits_survive_a_killed_process(tmp_path: Path) -> None:
    with open_sqlite(f"sqlite:///{tmp_path}/x.db") as engine, engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1


def test_a_second_server_on_the_same_file_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with open_sqlite(url), pytest.raises(StoreError, match="another server uses"), open_sqlite(url):
        pass
    with open_sqlite(url):
        pass


def test_a_link_to_the_file_is_the_file(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "x.db")
    real, link = (f"sqlite:///{tmp_path}/{name}.db" for name in ("x", "link"))
    with open_sqlite(real), pytest.raises(StoreError, match="another server uses"), open_sqlite(link):
        pass


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql+psycopg://db/cleave", "names postgresql"),
        ("nonsense", "is not a database URL"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:////nowhere/at/all/x.db", "can't write beside the database"),
    ],
)
def test_a_url_that_cannot_work_is_refused_in_words(url: str, words: str) -> None:
    with pytest.raises(StoreError, match=words), open_sqlite(url):
        pass


def test_a_file_that_is_no_database_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"not a database, but a letter to my aunt " * 30)
    with pytest.raises(StoreError, match="file is not a database"), open_sqlite(f"sqlite:///{tmp_path}/x.db"):
        pass


def test_a_database_of_a_newer_version_is_refused_in_words(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with open_sqlite(url):
        pass
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(StoreError, match="another version of Cleave"), open_sqlite(url):
        pass
