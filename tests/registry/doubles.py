"""The world outside of the registry, as far as a test wants to have it in hand: time, and a store that obeys."""

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from app.deployments import Ledger
from app.ports import DeploymentRecord, Kind, ModelRecord, NodeRecord, Record, Stored, StoreUnavailableError
from app.registry import Registry, Rules

START = datetime(2026, 1, 1, tzinfo=UTC)

T = TypeVar("T")


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that has nothing to wait for, without an event loop."""
    try:
        call.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the journal in memory never waits")


class FakeClock:
    """Two clocks that move when told, together or apart."""

    def __init__(self) -> None:
        self.mono = 1_000.0
        self.wall = START

    def monotonic(self) -> float:
        return self.mono

    def now(self) -> datetime:
        return self.wall

    def pass_s(self, seconds: float) -> None:
        self.mono += seconds
        self.wall += timedelta(seconds=seconds)

    def step_wall_s(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)


class MemoryJournal:
    """A store in memory: what was noted is kept when somebody waits for it, or when flushed; a crash loses the rest."""

    def __init__(self) -> None:
        self.kept: dict[str, NodeRecord] = {}
        self.models: dict[str, ModelRecord] = {}
        self.deployments: dict[str, DeploymentRecord] = {}
        self.noted: dict[tuple[Kind, str], Record | None] = {}
        self.revision = 0
        self.durable_revision = 0
        self.ordinal = 0
        self.failing = False
        self.healthy = True
        self.urgent_notes = 0
        self.writes = 0

    def advance(self) -> int:
        self.revision += 1
        return self.revision

    def note(self, kind: Kind, key: str, record: Record | None, *, urgent: bool) -> None:
        self.noted[kind, key] = record
        self.urgent_notes += urgent

    async def durable(self, revision: int) -> None:
        if revision > self.durable_revision:
            self.flush()

    def flush(self) -> None:
        """What the writer does by itself within a second, and tries again until it succeeds."""
        self.healthy = not self.failing
        if self.failing:
            raise StoreUnavailableError
        self.writes += 1
        for (kind, key), record in self.noted.items():
            kinds: dict[Kind, dict[str, Any]] = {
                "node": self.kept,
                "model": self.models,
                "deployment": self.deployments,
            }
            kept = kinds[kind]
            if record is None:
                kept.pop(key, None)
            else:
                kept[key] = record
            if isinstance(record, NodeRecord):
                self.ordinal = max(self.ordinal, record.ordinal)
        self.noted = {}
        self.durable_revision = self.revision

    def crash(self) -> Stored:
        self.noted = {}
        self.revision = self.durable_revision
        nodes = sorted(self.kept.values(), key=lambda record: record.ordinal)
        return Stored(
            self.revision, self.ordinal, tuple(nodes), tuple(self.models.values()), tuple(self.deployments.values())
        )


class World:
    """A registry and its ledger, with their clock and journal."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.clock = FakeClock()
        self.journal = MemoryJournal()
        self.start(Stored(0, 0, ()))

    def start(self, stored: Stored) -> None:
        """What a server does with what was stored."""
        self.ledger = Ledger(self.journal, self.clock, stored.deployments)
        self.registry = Registry(self.rules, self.clock, self.journal, stored, self.ledger)

    def restart(self) -> None:
        self.start(self.journal.crash())

    def live(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time pass as a healthy server does, tick by tick."""
        for _ in range(round(seconds / step_s)):
            self.clock.pass_s(step_s)
            self.registry.tick()
            self.ledger.lapse()

    def state(self, node_id: str) -> str:
        return self.registry.get(node_id).state
