"""The writer: group commits, nothing acknowledged that isn't kept, nothing lost while the disk is full."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from app.db import SqlJournal, StoreError, journal, open_journal, open_sqlite, records
from app.placement.nodes import Device, Node, NodeConfig
from app.ports import NodeRecord, Overrides, StoreUnavailableError
from app.schemas.stored import dump_record, load_node

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)


def record(name: str, ordinal: int = 1, **given: object) -> NodeRecord:
    reported = Node(name, f"{name}:1", 100, 50, **given)  # type: ignore[arg-type]  # as drawn
    return NodeRecord(reported, Overrides(), ordinal, ordinal, NOW, NOW, expired=False)


def change(store: SqlJournal, name: str, to: NodeRecord | None) -> int:
    """A change that lasts, noted; its revision."""
    revision = store.advance()
    store.note("node", name, to, urgent=True)
    return revision


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/x.db"


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlJournal]:
    with open_journal(url) as opened:
        opened.load()
        opened.start(asyncio.get_running_loop())
        yield opened


def stored(url: str) -> dict[str, NodeRecord]:
    with open_journal(url) as opened:
        return {r.reported.node_id: r for r in opened.load().nodes}


async def test_what_was_waited_for_is_there_for_the_next_server(url: str) -> None:
    with open_journal(url) as first:
        first.load()
        first.start(asyncio.get_running_loop())
        change(first, "a", record("a"))
        change(first, "b", record("b", 2))
        await first.durable(2)
        change(first, "b", None)
        await first.durable(3)
    with open_journal(url) as second:
        found = second.load()
    assert found.revision == 3
    assert found.ordinal == 2  # given once, although its node is gone
    assert found.nodes == (record("a"),)


async def test_what_is_not_urgent_is_written_within_a_second(store: SqlJournal, tmp_path: Path) -> None:
    store.note("node", "a", record("a"), urgent=False)
    async with asyncio.timeout(3):
        while b"a:1" not in (tmp_path / "x.db-wal").read_bytes():  # noqa: ASYNC110  # another thread's doing
            await asyncio.sleep(0.05)


async def test_closing_writes_what_was_noted(url: str) -> None:
    with open_journal(url) as opened:
        opened.load()
        opened.start(asyncio.get_running_loop())
        opened.note("node", "a", record("a"), urgent=False)
    assert list(stored(url)) == ["a"]


async def test_many_at_once_share_commits(url: str) -> None:
    commits = 0

    def count(_: object) -> None:
        nonlocal commits
        commits += 1

    with open_sqlite(url) as engine:
        event.listen(engine, "commit", count)
        opened = SqlJournal(engine)
        opened.load()
        opened.start(asyncio.get_running_loop())

        async def register(number: int) -> None:
            await opened.durable(change(opened, f"n{number}", record(f"n{number}", number)))

        await asyncio.gather(*(register(n) for n in range(1, 501)))
        opened.close()
    assert commits < 100
    assert len(stored(url)) == 500


@contextmanager
def full_disk(engine: Engine) -> Iterator[None]:
    """SQLite may not grow by a page, as on a full disk."""
    with engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")
    yield
    with engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")


async def test_a_full_disk_is_said_and_what_was_noted_is_written_when_there_is_room(url: str) -> None:
    big = {f"label{i}": "x" * 250 for i in range(32)}
    with open_sqlite(url) as engine:
        opened = SqlJournal(engine)
        opened.load()
        opened.start(asyncio.get_running_loop())
        with full_disk(engine):
            for number in range(1, 6):
                change(opened, f"n{number}", record(f"n{number}", number, labels=big))
                with pytest.raises(StoreUnavailableError):
                    await opened.durable(number)
                assert not opened.healthy
        await opened.durable(5)
        assert opened.healthy
        opened.close()
    assert len(stored(url)) == 5


async def test_a_newer_note_goes_before_one_that_failed(url: str) -> None:
    big = {f"label{i}": "x" * 250 for i in range(32)}
    with open_sqlite(url) as engine:
        opened = SqlJournal(engine)
        opened.load()
        opened.start(asyncio.get_running_loop())
        with full_disk(engine):
            change(opened, "a", record("a", labels=big))
            with pytest.raises(StoreUnavailableError):
                await opened.durable(1)
        change(opened, "a", record("a", gflops=2.0))
        await opened.durable(2)
        opened.close()
    assert stored(url)["a"].reported.gflops == 2.0


async def test_a_note_made_while_an_older_one_fails_is_the_one_that_is_written(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_journal(url) as opened:
        opened.load()
        save = records.save

        def fail_while_news_come_in(*_: object) -> None:
            monkeypatch.setattr(records, "save", save)
            opened.advance()
            opened.note("node", "a", record("a", gflops=2.0), urgent=False)
            raise OperationalError("INSERT", None, Exception("database or disk is full"))

        monkeypatch.setattr(records, "save", fail_while_news_come_in)
        opened.start(asyncio.get_running_loop())
        change(opened, "a", record("a", gflops=1.0))
        with pytest.raises(StoreUnavailableError):
            await opened.durable(1)
        await opened.durable(2)
    assert stored(url)["a"].reported.gflops == 2.0


async def test_a_store_that_hangs_does_not_hang_its_callers(store: SqlJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "PATIENCE_S", 0.05)
    monkeypatch.setattr(store, "_commit", lambda: None)
    change(store, "a", record("a"))
    with pytest.raises(StoreUnavailableError):
        await store.durable(1)


names = st.text("abc", min_size=1, max_size=3)
devices = st.builds(
    Device,
    device=st.sampled_from(["cpu", "cuda"]),
    name=st.text(max_size=3),
    mem_bytes=st.none() | st.integers(0, 2**63 - 1),
    gflops=st.none() | st.floats(0, 1e12),
    mem_avail=st.none() | st.integers(0, 9),
    available=st.booleans(),
)
nodes = st.builds(
    Node,
    node_id=names,
    addr=names,
    ram_total=st.integers(1, 2**63 - 1),
    ram_avail=st.integers(0, 9),
    devices=st.lists(devices, max_size=2).map(tuple),
    config=st.builds(NodeConfig, device=st.just("cuda+cpu"), max_ram_gb=st.none() | st.floats(0, 9), layers=names),
    labels=st.dictionaries(names, st.text(max_size=3), max_size=2),
    resident=st.none() | st.dictionaries(names, st.integers(0, 9), max_size=2),
)


@given(nodes, st.datetimes(timezones=st.just(UTC)), st.booleans())
def test_a_record_comes_back_as_it_was(reported: Node, at: datetime, expired: bool) -> None:  # noqa: FBT001  # drawn
    overrides = Overrides(role="draining", max_ram_gb=0.5, labels={"a": "b"})
    there = NodeRecord(reported, overrides, 3, 4, at, at, expired)
    assert load_node(dump_record(there)) == there


def test_records_of_other_versions_can_be_read() -> None:
    text = dump_record(record("a", devices=(Device("cpu"),)))
    newer = text.replace('"os":null', '"os":null,"colour":"red"').replace('"unified":false', '"unified":false,"x":1')
    older = text.replace('"device_index":0,', "")
    assert load_node(newer) == load_node(older) == load_node(text)
    assert replace(load_node(text).reported, devices=()) == record("a").reported


def test_a_record_that_cannot_be_read_is_said_in_words(url: str) -> None:
    with open_sqlite(url) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO nodes VALUES ('a', 1, 1, '{}')")
        with pytest.raises(StoreError, match="can't be read"):
            SqlJournal(engine).load()
