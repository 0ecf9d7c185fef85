"""Who is alive, and when a silent fleet is rather the server's own fault."""

import pytest

from app.registry import Rules
from tests.placement.build import node
from tests.registry.doubles import World

pytestmark = pytest.mark.anyio


async def fleet(*names: str, rules: Rules | None = None) -> World:
    world = World(rules)
    for name in names:
        await world.registry.register(node(name))
    return world


async def test_a_node_is_suspect_after_a_beat_and_a_half_and_expires_after_its_ttl() -> None:
    world = await fleet("a")
    world.live(15)
    assert world.state("a") == "ready"
    world.live(1)
    assert world.state("a") == "suspect"
    world.live(13)
    assert world.state("a") == "suspect"
    world.live(1)
    assert world.state("a") == "expired"


async def test_a_beat_makes_ready_again_whoever_was_suspect_or_expired() -> None:
    world = await fleet("a")
    for silence_s in (20, 40):
        world.live(silence_s)
        assert (await world.registry.register(node("a"))).state == "ready"


async def test_a_start_gives_everybody_one_whole_ttl() -> None:
    world = await fleet("a")
    world.live(29)
    world.restart()
    world.live(29)
    assert world.state("a") == "suspect"
    world.live(1)
    assert world.state("a") == "expired"


async def test_who_had_expired_before_a_restart_stays_so_and_is_forgotten_in_time() -> None:
    world = await fleet("a", rules=Rules(retention_s=100))
    world.live(31)
    world.journal.flush()
    world.restart()
    assert world.state("a") == "expired"
    world.live(98)
    assert world.state("a") == "expired"
    world.live(1)
    assert list(world.registry.fleet().standings) == []


@pytest.mark.parametrize("deaf_s", [11, 300])
async def test_a_stalled_server_gives_everybody_one_whole_ttl(deaf_s: float) -> None:
    world = await fleet("a", "b")
    world.live(25)
    world.clock.pass_s(deaf_s)
    assert world.state("a") == "ready"
    world.live(29)
    assert world.state("a") == "suspect"
    world.live(1)
    assert world.state("a") == "expired"


async def test_a_suspended_machine_whose_monotonic_clock_stood_still_counts_as_stalled() -> None:
    world = await fleet("a")
    world.live(29)
    world.clock.step_wall_s(3_600)
    world.live(29)
    assert world.state("a") == "suspect"


@pytest.mark.parametrize("step_s", [86_400, -86_400])
async def test_a_step_of_the_wall_clock_ends_nobody(step_s: float) -> None:
    world = await fleet("a")
    world.live(29)
    world.clock.step_wall_s(step_s)
    world.live(29)
    assert world.state("a") == "suspect"


@pytest.mark.parametrize(("passing_s", "step_s"), [(300, 0), (0, 3_600), (0, -3_600)])
async def test_nothing_but_a_beat_raises_who_had_expired_before(passing_s: float, step_s: float) -> None:
    world = await fleet("a")
    world.live(31)
    world.clock.pass_s(passing_s)
    world.clock.step_wall_s(step_s)
    assert world.state("a") == "expired"
    assert (await world.registry.beat("a", lambda n: (n, ()))).state == "ready"


async def test_who_was_silent_for_a_ttl_before_a_stall_is_not_raised_by_it_even_between_ticks() -> None:
    world = await fleet("a")
    world.live(29)
    world.clock.pass_s(1)
    assert world.state("a") == "expired"
    world.clock.pass_s(300)
    world.registry.tick()
    assert world.state("a") == "expired"


async def test_after_the_retention_a_node_is_forgotten_and_its_place_is_free() -> None:
    world = await fleet("a", rules=Rules(retention_s=100))
    world.live(129)
    assert world.state("a") == "expired"
    world.live(1)
    assert list(world.registry.fleet().standings) == []
    assert (await world.registry.register(node("b", addr="a:9100"))).created
    world.restart()
    assert [s.node.node_id for s in world.registry.fleet().standings] == ["b"]


async def test_a_short_deafness_is_not_counted_against_anybody() -> None:
    world = await fleet("a")
    world.live(22)
    world.clock.pass_s(9)
    world.live(8)
    assert world.state("a") == "suspect"
    world.live(1)
    assert world.state("a") == "expired"  # 30 s in which it could have been heard, 40 in all


async def test_many_short_suspends_do_not_add_up_to_a_life() -> None:
    world = await fleet("a")
    for _ in range(10):
        world.clock.pass_s(9.5)
        world.registry.tick()
    assert world.state("a") == "ready"


async def test_a_tick_that_is_a_second_late_is_no_deafness() -> None:
    world = await fleet("a")
    world.live(28)
    world.clock.pass_s(2)
    assert world.state("a") == "expired"


async def test_more_than_half_of_three_suspect_at_once_get_one_more_ttl_and_only_one() -> None:
    world = await fleet("a", "b", "c")
    for _ in range(2):
        world.live(10)
        await world.registry.register(node("c"))
    assert world.registry.mass_expiry_suspected
    assert world.registry.checks()["liveness"] == "mass-expiry-suspected"
    world.live(9)
    await world.registry.register(node("c"))
    world.live(1)
    assert world.state("a") == "suspect"  # 30 s without a beat
    for _ in range(2):
        world.live(10)
        await world.registry.register(node("c"))
    world.live(9)
    assert world.state("a") == "suspect"
    world.live(1)
    assert world.state("a") == "expired"
    assert not world.registry.mass_expiry_suspected


async def test_a_beat_earns_the_next_grant() -> None:
    world = await fleet("a", "b", "c")
    world.live(20)
    for name in "abc":
        await world.registry.register(node(name))
    world.live(1)
    assert not world.registry.mass_expiry_suspected
    world.live(30)
    assert world.state("a") == "suspect"
    world.live(29)
    assert world.state("a") == "expired"


async def test_exactly_half_is_not_more_than_half() -> None:
    world = await fleet("a", "b", "c", "d")
    for _ in range(3):
        world.live(10)
        await world.registry.register(node("c"))
        await world.registry.register(node("d"))
    assert not world.registry.mass_expiry_suspected
    assert world.state("a") == "expired"


async def test_who_has_expired_counts_for_no_mass() -> None:
    world = await fleet("a", "b", "c")
    for _ in range(3):
        world.live(10)
        for name in "bc":
            await world.registry.register(node(name))
    assert world.state("a") == "expired"
    world.live(29)
    assert not world.registry.mass_expiry_suspected
    world.live(1)
    assert world.state("b") == "expired"


async def test_only_who_is_suspect_is_granted_more_time() -> None:
    world = await fleet("a", "b", "c")
    world.live(10)
    await world.registry.register(node("c"))
    world.live(7)
    assert world.registry.mass_expiry_suspected
    for seconds in (0, 10, 10):
        world.live(seconds)
        for name in "ab":
            await world.registry.register(node(name))
    world.live(2)
    assert world.state("c") == "suspect"  # silent for 29 s
    world.live(1)
    assert world.state("c") == "expired"


async def test_two_nodes_are_no_mass() -> None:
    world = await fleet("a", "b")
    world.live(30)
    assert world.state("a") == "expired"


def test_beats_stay_within_500_a_second_and_lives_grow_along() -> None:
    rules = Rules()
    assert (rules.interval_for(5_000), rules.ttl_for(10)) == (10, 30)
    assert rules.interval_for(7_500) == 15
    assert rules.ttl_for(15) == 45


async def test_a_node_is_held_to_the_interval_that_it_was_told() -> None:
    world = World(Rules(heartbeat_interval_s=0.001, ttl_s=0.003))
    told = [await world.registry.register(node(f"n{i}")) for i in range(2)]
    assert [view.heartbeat_interval_s for view in told] == [0.002, 0.004]
    assert [view.ttl_s for view in told] == [0.006, 0.012]


async def test_time_passes_in_ticks_of_a_second_or_a_quarter_interval() -> None:
    assert World().registry.tick_interval_s == 1.0
    assert World(Rules(heartbeat_interval_s=1.0, ttl_s=3.0)).registry.tick_interval_s == 0.25
