"""The registry under everything that happens to a fleet, against a model that is too simple to be wrong."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app.ports import Overrides, StoreUnavailableError, UnknownNodeError
from app.registry import NodeConflictError, NodeView, Rules
from tests.placement.build import node
from tests.registry.doubles import World, at_once

NAMES = st.sampled_from("abcd")
TTL_S, INTERVAL_S = 30.0, 10.0
NEARLY_S = 1e-6


@dataclass(frozen=True)
class Known:
    """What a node was last heard to say, and since when the server could have heard it (None: it had expired)."""

    addr: str
    gflops: float
    instance: str | None
    role: str | None
    audible_since: float | None


class Fleet(RuleBasedStateMachine):
    """The model: what is in memory, in order of first registration, and what of it would survive a crash."""

    @initialize()
    def start(self) -> None:
        self.world = World(Rules(heartbeat_interval_s=INTERVAL_S, ttl_s=TTL_S, retention_s=1e9))
        self.known: dict[str, Known] = {}
        self.saved: dict[str, Known] = {}
        self.unsaved: set[str] = set()
        self.revision = self.saved_revision = 0

    @rule(
        name=NAMES,
        addr=st.sampled_from(["x:1", "y:1", "z:1"]),
        gflops=st.sampled_from([1.0, 2.0]),
        instance=st.sampled_from([None, "i", "j"]),
    )
    def report(self, name: str, addr: str, gflops: float, instance: str | None) -> None:
        old = self.known.get(name)
        told = Known(addr, gflops, instance, old.role if old else None, self.world.clock.mono)
        lasting = old is None or replace(told, audible_since=old.audible_since) != old
        call = self.world.registry.register(node(name, addr=addr, gflops=gflops, instance_id=instance))
        if self.is_another_machine(name, addr, instance):
            with pytest.raises(NodeConflictError):
                at_once(call)
            return
        view = self.acknowledged(name, call, lasting=lasting)
        assert view is None or (view.state, view.created) == ("ready", old is None)
        for ghost in [n for n, k in self.known.items() if k.addr == addr and n != name]:
            del self.known[ghost]
        self.known[name] = told
        self.save_if(view is not None and lasting)

    def is_another_machine(self, name: str, addr: str, instance: str | None) -> bool:
        old = self.known.get(name)
        if old is None or old.addr == addr or self.world.state(name) != "ready":
            return False
        return instance is None or instance != old.instance

    @rule(name=NAMES, ram=st.integers(0, 200))
    def beat(self, name: str, ram: int) -> None:
        call = self.world.registry.beat(name, lambda n: (replace(n, ram_avail=ram), ()))
        if name not in self.known:
            with pytest.raises(UnknownNodeError):
                at_once(call)
            return
        view = self.acknowledged(name, call, lasting=False)
        assert view is None or (view.state, view.node.ram_avail) == ("ready", ram)
        self.known[name] = replace(self.known[name], audible_since=self.world.clock.mono)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), role=st.sampled_from(["draining", "standby", None]))
    def decide(self, data: st.DataObject, role: str | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.known)))
        lasting = role != self.known[name].role
        call = self.world.registry.override(name, lambda _: Overrides(role=role))
        view = self.acknowledged(name, call, lasting=lasting)
        self.known[name] = replace(self.known[name], role=role)
        self.save_if(view is not None and lasting)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.known)))
        failing = self.world.journal.failing
        self.acknowledged(name, self.world.registry.remove(name), lasting=True)
        del self.known[name]
        self.save_if(not failing)

    @rule(seconds=st.integers(1, 40))
    def live(self, seconds: int) -> None:
        self.world.live(seconds)

    @rule(seconds=st.floats(INTERVAL_S + 0.1, 1_000))
    def stall(self, seconds: float) -> None:
        self.hear_again(lambda: self.world.clock.pass_s(seconds))

    @rule(seconds=st.integers(3, int(INTERVAL_S)))
    def be_deaf_for_a_moment(self, seconds: int) -> None:
        """That is not counted against anybody who was alive before."""
        alive = [n for n in self.known if self.world.state(n) != "expired"]
        self.world.clock.pass_s(seconds)
        for name, known in self.known.items():
            since = known.audible_since if name in alive else None
            self.known[name] = replace(known, audible_since=None if since is None else since + seconds)

    @rule(seconds=st.sampled_from([-4_000.0, 4_000.0]))
    def step_the_wall_clock(self, seconds: float) -> None:
        self.hear_again(lambda: self.world.clock.step_wall_s(seconds))

    @rule(failing=st.booleans())
    def the_store_fails_or_recovers(self, failing: bool) -> None:  # noqa: FBT001  # drawn by name
        self.world.journal.failing = failing
        self.flush_unless_failing()

    @rule(flushed=st.booleans())
    def crash_and_restart(self, flushed: bool) -> None:  # noqa: FBT001  # drawn by name
        """Who was stored as expired stays so: a beat's news of life may take a second to reach the store."""
        if flushed:
            self.flush_unless_failing()
        self.known, self.revision = self.saved, self.saved_revision
        self.unsaved = set()
        self.world.restart()
        kept, now = self.world.journal.kept, self.world.clock.mono
        self.known = {n: replace(k, audible_since=None if kept[n].expired else now) for n, k in self.known.items()}

    def flush_unless_failing(self) -> None:
        if not self.world.journal.failing:
            self.world.journal.flush()
            self.save_if(True)

    def acknowledged(self, name: str, call: Coroutine[Any, Any, NodeView | None], *, lasting: bool) -> NodeView | None:
        """The registry's answer; None, and rightly so, where the store must be written and can't be."""
        refused = self.world.journal.failing and (lasting or name in self.unsaved)
        if not refused:
            return at_once(call)
        with pytest.raises(StoreUnavailableError):
            at_once(call)
        self.unsaved.add(name)
        return None

    def save_if(self, acknowledged: bool) -> None:  # noqa: FBT001  # the name says it
        if acknowledged:
            self.saved, self.saved_revision, self.unsaved = dict(self.known), self.world.registry.revision, set()

    def hear_again(self, event: Callable[[], None]) -> None:
        """Whoever hadn't expired before has one whole TTL from after the event, and nobody else."""
        alive = [n for n in self.known if self.world.state(n) != "expired"]
        event()
        now = self.world.clock.mono
        self.known = {n: replace(k, audible_since=now if n in alive else None) for n, k in self.known.items()}

    @invariant()
    def nobody_expires_before_a_whole_ttl_and_everybody_after_two(self) -> None:
        """Two, since the guard against mass expiry grants one more."""
        for name, known in self.known.items():
            silent_s = 1e9 if known.audible_since is None else self.world.clock.mono - known.audible_since
            if silent_s < TTL_S - NEARLY_S:
                assert self.world.state(name) != "expired"
            if silent_s > 2 * TTL_S + NEARLY_S:
                assert self.world.state(name) == "expired"

    @invariant()
    def memory_is_what_was_said_in_order_of_first_registration(self) -> None:
        there = [s.node for s in self.world.registry.fleet().standings]
        assert [(n.node_id, n.addr, n.gflops, n.instance_id, n.config.role) for n in there] == [
            (name, k.addr, k.gflops, k.instance, k.role or "active") for name, k in self.known.items()
        ]
        assert len({n.addr for n in there}) == len(there)

    @invariant()
    def the_store_holds_what_was_acknowledged(self) -> None:
        stored = sorted(self.world.journal.kept.values(), key=lambda record: record.ordinal)
        assert [(r.reported.node_id, r.reported.addr, r.reported.gflops, r.overrides.role) for r in stored] == [
            (name, k.addr, k.gflops, k.role) for name, k in self.saved.items()
        ]

    @invariant()
    def the_revision_never_goes_back(self) -> None:
        assert self.world.registry.revision >= self.revision
        self.revision = self.world.registry.revision


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
