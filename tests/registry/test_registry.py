"""Identity, what lasts and what moves, and the operator's word."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.ports import Overrides, UnknownNodeError
from app.registry import NodeConflictError, NodeView, RegistryFullError, Rules
from app.registry.service import NOTHING_LEFT
from tests.placement.build import device, node
from tests.registry.doubles import START, World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world() -> World:
    return World()


def ids(world: World) -> list[str]:
    return [s.node.node_id for s in world.registry.fleet().standings]


async def test_the_first_report_creates_and_the_next_is_a_beat(world: World) -> None:
    first = await world.registry.register(node("a"))
    second = await world.registry.register(node("a"))
    assert (first.created, second.created) == (True, False)
    assert first.registered_at == second.registered_at


async def test_figures_that_move_raise_no_revision_and_wait_for_no_store(world: World) -> None:
    box = node("a", devices=(device("cuda", 50, mem_avail=40),))
    await world.registry.register(box)
    moved = replace(box, ram_avail=1, disk_free=2, resident={"x": 3}, devices=(device("cuda", 50, mem_avail=30),))
    view = await world.registry.register(moved)
    assert view.registry_revision == 1
    assert view.node == moved
    assert world.journal.urgent_notes == 1


@pytest.mark.parametrize(
    "change",
    [
        {"gflops": 7.0},
        {"labels": {"zone": "b"}},
        {"ram_total": 999},
        {"instance_id": "i2"},
        {"devices": ()},
        {"devices": (device("cuda", 51),)},
        {"config": replace(node("a").config, layers="0:3")},
    ],
)
async def test_whatever_else_changes_is_a_durable_change(world: World, change: dict[str, object]) -> None:
    box = node("a", devices=(device("cuda", 50),))
    await world.registry.register(box)
    view = await world.registry.register(replace(box, **change))  # type: ignore[arg-type]  # drawn above
    assert (view.registry_revision, view.revision) == (2, 2)
    assert world.journal.durable_revision == 2


async def test_a_restart_with_another_instance_at_the_same_address_is_welcome(world: World) -> None:
    await world.registry.register(node("a", instance_id="i1"))
    assert (await world.registry.register(node("a", instance_id="i2"))).state == "ready"


async def test_a_second_live_machine_with_the_same_id_is_refused_and_changes_nothing(world: World) -> None:
    await world.registry.register(node("a", instance_id="i1"))
    with pytest.raises(NodeConflictError) as refused:
        await world.registry.register(node("a", addr="elsewhere:1", instance_id="i2"))
    assert refused.value.registered_addr == "a:9100"
    assert "elsewhere:1" in str(refused.value)
    assert "a:9100" in str(refused.value)
    assert world.registry.get("a").node.addr == "a:9100"
    assert world.registry.revision == 1


async def test_an_instance_that_is_left_out_is_another_one(world: World) -> None:
    await world.registry.register(node("a"))
    with pytest.raises(NodeConflictError):
        await world.registry.register(node("a", addr="elsewhere:1"))


async def test_the_same_instance_has_moved_and_keeps_its_place(world: World) -> None:
    await world.registry.register(node("a", instance_id="i1"))
    await world.registry.register(node("b"))
    await world.registry.register(node("a", addr="elsewhere:1", instance_id="i1"))
    assert world.registry.get("a").node.addr == "elsewhere:1"
    assert ids(world) == ["a", "b"]


async def test_another_instance_takes_over_from_one_that_is_suspect(world: World) -> None:
    await world.registry.register(node("a"))
    world.live(16)
    await world.registry.register(node("a", addr="elsewhere:1"))
    assert world.registry.get("a").node.addr == "elsewhere:1"
    # the old address is free again for anybody, and nobody is superseded by it
    await world.registry.register(node("b", addr="a:9100"))
    assert ids(world) == ["a", "b"]


async def test_another_id_at_the_same_address_supersedes_the_ghost_at_once(world: World) -> None:
    await world.registry.register(node("old", addr="x:1"))
    await world.registry.register(node("new", addr="x:1"))
    assert ids(world) == ["new"]
    world.restart()
    assert ids(world) == ["new"]


async def test_devices_behind_one_address_are_nodes_of_their_own(world: World) -> None:
    await world.registry.register(node("c0", addr="x:1"))
    await world.registry.register(node("c1", addr="x:1", device_index=1))
    assert ids(world) == ["c0", "c1"]
    await world.registry.register(node("c1b", addr="x:1", device_index=1))
    assert ids(world) == ["c0", "c1b"]


async def test_a_node_that_moves_to_a_ghost_s_address_supersedes_it(world: World) -> None:
    await world.registry.register(node("a", instance_id="i"))
    await world.registry.register(node("b", addr="x:1"))
    await world.registry.register(node("a", addr="x:1", instance_id="i"))
    assert ids(world) == ["a"]


async def test_the_same_instance_may_move_to_another_device(world: World) -> None:
    await world.registry.register(node("a", instance_id="i"))
    moved = await world.registry.register(node("a", instance_id="i", device_index=1))
    assert (moved.node.device_index, moved.registry_revision) == (1, 2)


async def test_one_id_for_two_devices_is_a_conflict_not_a_flapping_node(world: World) -> None:
    await world.registry.register(node("x:1", addr="x:1"))
    with pytest.raises(NodeConflictError):
        await world.registry.register(node("x:1", addr="x:1", device_index=1))


async def test_a_small_beat_moves_what_moves(world: World) -> None:
    await world.registry.register(node("a", 100), ("odd",))
    view = await world.registry.beat("a", lambda n: (replace(n, ram_avail=7), ("now",)))
    assert view.budget_bytes == 0
    assert view.node.ram_avail == 7
    assert view.warnings == ("odd", NOTHING_LEFT, "now")
    assert world.registry.get("a").warnings == ("odd", NOTHING_LEFT)


async def test_what_was_odd_about_one_small_beat_is_said_once() -> None:
    world = World(Rules(default_reserve_bytes=0))
    await world.registry.register(node("a"), ("odd",))
    assert (await world.registry.beat("a", lambda n: (n, ("too much",)))).warnings == ("odd", "too much")
    assert (await world.registry.beat("a", lambda n: (n, ()))).warnings == ("odd",)


async def test_a_beat_says_when_it_was_received_and_until_when_it_holds(world: World) -> None:
    first = await world.registry.register(node("a"))
    world.live(4)
    beat = await world.registry.beat("a", lambda n: (n, ()))
    assert (first.seen_at, beat.seen_at, beat.registered_at) == (START, START + timedelta(seconds=4), START)
    world.live(2)
    assert world.registry.get("a").seen_at == beat.seen_at
    assert world.registry.get("a").expires_at == beat.expires_at == START + timedelta(seconds=34)


async def test_the_budget_that_is_told_leaves_the_default_reserve() -> None:
    world = World(Rules(default_reserve_bytes=30))
    view = await world.registry.register(node("a", 100))
    assert (view.budget_bytes, view.limit) == (70, "ram_avail")


async def test_a_small_beat_of_nobody_is_told_to_register(world: World) -> None:
    with pytest.raises(UnknownNodeError, match="POST /nodes/register"):
        await world.registry.beat("ghost", lambda n: (n, ()))


def draining(overrides: Overrides) -> Overrides:
    return replace(overrides, role="draining", max_ram_gb=2e-8, labels={"zone": "op"})


async def test_an_operator_s_word_outlives_beats_and_restarts(world: World) -> None:
    await world.registry.register(node("a", labels={"zone": "agent", "rack": "7"}))
    await world.registry.override("a", draining)
    await world.registry.register(node("a", labels={"zone": "agent", "rack": "8"}))
    for _ in range(2):
        seen = world.registry.get("a").node
        assert (seen.config.role, seen.config.max_ram_gb) == ("draining", 2e-8)
        assert seen.labels == {"zone": "op", "rack": "8"}
        world.restart()


async def test_lifting_gives_the_agent_s_own_word_back(world: World) -> None:
    await world.registry.register(node("a", role="standby"))
    await world.registry.override("a", draining)
    view = await world.registry.override("a", lambda _: Overrides())
    assert view.node.config.role == "standby"
    assert view.revision == 3


async def test_deciding_the_same_again_changes_nothing(world: World) -> None:
    await world.registry.register(node("a"))
    await world.registry.override("a", draining)
    assert (await world.registry.override("a", draining)).registry_revision == 2


async def test_an_override_of_one_thing_leaves_the_agent_s_word_on_the_others(world: World) -> None:
    await world.registry.register(node("a", role="standby", max_ram_gb=3e-8))
    seen = (await world.registry.override("a", lambda o: replace(o, labels={"zone": "op"}))).node
    assert (seen.config.role, seen.config.max_ram_gb, seen.labels) == ("standby", 3e-8, {"zone": "op"})


async def test_what_an_agent_reported_is_stored_as_reported(world: World) -> None:
    await world.registry.register(node("a", role="standby"))
    await world.registry.override("a", draining)
    world.restart()
    assert (await world.registry.override("a", lambda _: Overrides())).node.config.role == "standby"


async def test_who_leaves_is_gone_for_good_until_the_next_whole_report(world: World) -> None:
    await world.registry.register(node("a"))
    await world.registry.register(node("b"))
    await world.registry.remove("a")
    world.restart()
    with pytest.raises(UnknownNodeError):
        world.registry.get("a")
    assert (await world.registry.register(node("a"))).created
    assert ids(world) == ["b", "a"]


async def test_ordinals_are_not_given_twice_even_if_the_newest_left(world: World) -> None:
    await world.registry.register(node("a"))
    await world.registry.register(node("b"))
    await world.registry.remove("b")
    world.restart()
    await world.registry.register(node("c"))
    assert world.journal.kept["c"].ordinal == 3


async def test_a_full_registry_refuses_and_makes_room_for_who_supersedes() -> None:
    world = World(Rules(max_nodes=1))
    await world.registry.register(node("a", addr="x:1"))
    with pytest.raises(RegistryFullError, match="CLEAVE_MAX_NODES"):
        await world.registry.register(node("b"))
    await world.registry.register(node("b", addr="x:1"))
    assert ids(world) == ["b"]
    assert (await world.registry.register(node("b", addr="x:1", gflops=2.0))).state == "ready"
    await world.registry.remove("b")
    await world.registry.register(node("c"))
    assert ids(world) == ["c"]


async def test_a_full_registry_refuses_one_report_of_a_batch_and_takes_the_others() -> None:
    world = World(Rules(max_nodes=1))
    results = await world.registry.register_many([(node("a"), ()), (node("b"), ()), (node("a"), ())])
    assert isinstance(results[1], RegistryFullError)
    assert ids(world) == ["a"]


async def test_each_report_of_a_batch_stands_on_its_own(world: World) -> None:
    await world.registry.register(node("a"))
    results = await world.registry.register_many([(node("a", addr="y:1"), ()), (node("b"), ("odd",)), (node("b"), ())])
    assert isinstance(results[0], NodeConflictError)
    assert [r.created for r in results[1:] if isinstance(r, NodeView)] == [True, False]
    assert (world.journal.durable_revision, world.journal.writes) == (2, 2)


async def test_plans_see_nodes_in_order_of_first_registration_with_their_states(world: World) -> None:
    await world.registry.register(node("b"))
    world.live(16)
    await world.registry.register(node("a"))
    fleet = world.registry.fleet()
    assert [(s.node.node_id, s.state) for s in fleet.standings] == [("b", "suspect"), ("a", "ready")]
    assert fleet.revision == 2
