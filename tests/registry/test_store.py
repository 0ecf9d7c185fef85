"""What the registry does while the store can't be written, and after a crash."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from app.ports import Overrides, StoreUnavailableError
from tests.placement.build import node
from tests.registry.doubles import World

pytestmark = pytest.mark.anyio

Change = Callable[[World], Awaitable[object]]

CHANGES: dict[str, Change] = {
    "a new node": lambda w: w.registry.register(node("new")),
    "a changed report": lambda w: w.registry.register(node("a", gflops=2.0)),
    "a batch": lambda w: w.registry.register_many([(node("b"), ())]),
    "an override": lambda w: w.registry.override("a", lambda _: Overrides(role="draining")),
    "a leave": lambda w: w.registry.remove("a"),
}


@pytest.fixture
async def world() -> World:
    """A registry with one node that is safely stored."""
    world = World()
    await world.registry.register(node("a"))
    return world


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_what_lasts_is_not_acknowledged_while_the_store_fails(world: World, change: Change) -> None:
    before = world.journal.crash()
    world.journal.failing = True
    with pytest.raises(StoreUnavailableError):
        await change(world)
    assert world.registry.checks()["store"] == "store-unavailable"
    assert world.journal.crash() == before


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_what_lasts_survives_a_crash_once_it_is_acknowledged(world: World, change: Change) -> None:
    await change(world)
    acknowledged = [s.node for s in world.registry.fleet().standings]
    revision = world.registry.revision
    world.restart()
    assert [s.node for s in world.registry.fleet().standings] == acknowledged
    assert world.registry.revision == revision == 2


async def test_a_repeat_of_what_is_not_durable_is_not_acknowledged_either(world: World) -> None:
    world.journal.failing = True
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await world.registry.register(node("new"))
    with pytest.raises(StoreUnavailableError):
        await world.registry.beat("new", lambda n: (n, ()))
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await world.registry.override("a", lambda _: Overrides(role="draining"))


async def test_beats_and_plans_go_on_while_the_store_fails(world: World) -> None:
    world.journal.failing = True
    with pytest.raises(StoreUnavailableError):
        await world.registry.register(node("new"))
    world.live(20)
    assert (await world.registry.register(node("a"))).state == "ready"
    assert (await world.registry.beat("a", lambda n: (replace(n, ram_avail=7), ()))).node.ram_avail == 7
    await world.registry.settled(world.registry.revision)
    assert len(world.registry.fleet().standings) == 2


async def test_a_plan_waits_for_its_revision_and_takes_no_harm_from_a_store_that_fails_meanwhile(world: World) -> None:
    world.journal.note("node", "nobody", None, urgent=True)
    revision = world.journal.advance()
    world.journal.failing = True
    await world.registry.settled(revision)
    assert world.journal.durable_revision == 1
    world.journal.failing, world.journal.healthy = False, True
    await world.registry.settled(revision)
    assert world.journal.durable_revision == revision == 2


async def test_nothing_is_forgotten_when_the_store_recovers(world: World) -> None:
    world.journal.failing = True
    with pytest.raises(StoreUnavailableError):
        await world.registry.register(node("new"))
    world.journal.failing = False
    world.journal.flush()
    assert (await world.registry.register(node("new"))).registry_revision == 2
    assert world.registry.checks()["store"] == "ok"
    world.restart()
    assert [s.node.node_id for s in world.registry.fleet().standings] == ["a", "new"]


async def test_a_beat_that_only_moves_figures_is_lost_by_a_crash_and_kept_by_the_next_flush(world: World) -> None:
    for flushed, ram_avail in ((False, 100), (True, 7)):
        await world.registry.beat("a", lambda n: (replace(n, ram_avail=7), ()))
        if flushed:
            world.journal.flush()
        world.restart()
        assert world.registry.get("a").node.ram_avail == ram_avail


async def test_an_expiry_reaches_the_store_and_raises_no_revision(world: World) -> None:
    world.live(31)
    before = world.journal.kept["a"]
    world.journal.flush()
    assert (before.expired, world.journal.kept["a"].expired) == (False, True)
    assert world.registry.revision == 1
