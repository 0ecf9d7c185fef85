"""The registry under everything that happens to a fleet, against a model that is too simple to be wrong."""

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app.ports import Overrides
from app.registry import NodeConflictError, Rules
from tests.placement.build import node
from tests.registry.doubles import World

NAMES = st.sampled_from("abcd")
ADDRS = st.sampled_from(["x:1", "y:1", "z:1"])
TTL_S, INTERVAL_S = 30.0, 10.0


def run(call: Any) -> Any:
    """The registry's coroutines never really wait here."""
    return asyncio.run(call)


class Fleet(RuleBasedStateMachine):
    """The model: what was acknowledged, and since when the server could have heard each node."""

    @initialize()
    def start(self) -> None:
        self.world = World(Rules(heartbeat_interval_s=INTERVAL_S, ttl_s=TTL_S, retention_s=1e9))
        self.addr: dict[str, str] = {}
        self.gflops: dict[str, float] = {}
        self.roles: dict[str, str] = {}
        self.audible_since: dict[str, float] = {}
        self.revision = 0

    @rule(name=NAMES, addr=ADDRS, gflops=st.sampled_from([1.0, 2.0]), instance=st.sampled_from([None, "i"]))
    def report(self, name: str, addr: str, gflops: float, instance: str | None) -> None:
        try:
            view = run(self.world.registry.register(node(name, addr=addr, gflops=gflops, instance_id=instance)))
        except NodeConflictError:
            assert self.addr[name] != addr
            return
        for ghost in [n for n, a in self.addr.items() if a == addr and n != name]:
            self.forget(ghost)
        assert view.state == "ready"
        assert view.created == (name not in self.addr)
        self.addr[name], self.gflops[name] = addr, gflops
        self.audible_since[name] = self.world.clock.mono

    @rule(name=NAMES, ram=st.integers(0, 200))
    def beat(self, name: str, ram: int) -> None:
        if name in self.addr:
            run(self.world.registry.beat(name, lambda n: (replace(n, ram_avail=ram), ())))
            self.audible_since[name] = self.world.clock.mono

    @rule(seconds=st.integers(1, 40))
    def live(self, seconds: int) -> None:
        self.world.live(seconds)

    @rule(seconds=st.floats(INTERVAL_S + 0.1, 1_000))
    def stall(self, seconds: float) -> None:
        self.hear_again(lambda: self.world.clock.pass_s(seconds))

    @rule(seconds=st.sampled_from([-4_000.0, 4_000.0]))
    def step_the_wall_clock(self, seconds: float) -> None:
        self.hear_again(lambda: self.world.clock.step_wall_s(seconds))

    @rule(flushed=st.booleans())
    def crash_and_restart(self, flushed: bool) -> None:  # noqa: FBT001  # drawn by name
        if flushed:
            self.world.journal.flush()
        self.hear_again(self.world.restart)

    @precondition(lambda self: self.addr)
    @rule(data=st.data(), role=st.sampled_from(["draining", "standby"]))
    def decide(self, data: st.DataObject, role: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.addr)))
        run(self.world.registry.override(name, lambda _: Overrides(role=role)))
        self.roles[name] = role

    @precondition(lambda self: self.addr)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.addr)))
        run(self.world.registry.remove(name))
        self.forget(name)

    def forget(self, name: str) -> None:
        for known in (self.addr, self.gflops, self.roles, self.audible_since):
            known.pop(name, None)

    def hear_again(self, event: Any) -> None:
        """Whoever hadn't expired before has one whole TTL from after the event."""
        alive = [n for n in self.addr if self.world.registry.get(n).state != "expired"]
        event()
        self.audible_since |= dict.fromkeys(alive, self.world.clock.mono)

    @invariant()
    def nobody_expires_before_a_whole_ttl(self) -> None:
        for name, since in self.audible_since.items():
            if self.world.clock.mono - since < TTL_S - 1e-6:
                assert self.world.registry.get(name).state != "expired"

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        there = {s.node.node_id: s.node for s in self.world.registry.fleet().standings}
        assert {n: (x.addr, x.gflops) for n, x in there.items()} == {
            n: (self.addr[n], self.gflops[n]) for n in self.addr
        }
        assert {n: there[n].config.role for n in self.roles} == self.roles
        assert len({x.addr for x in there.values()}) == len(there)

    @invariant()
    def the_store_has_it_too(self) -> None:
        assert self.world.journal.kept.keys() == self.addr.keys()

    @invariant()
    def the_revision_never_goes_back(self) -> None:
        assert self.world.registry.revision >= self.revision
        self.revision = self.world.registry.revision

    @invariant()
    def ordinals_keep_the_order_of_first_registration(self) -> None:
        ordinals = [self.world.journal.kept[s.node.node_id].ordinal for s in self.world.registry.fleet().standings]
        assert ordinals == sorted(set(ordinals))


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
