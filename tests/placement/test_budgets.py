"""What a node may hold, with figures that a person can check."""

from dataclasses import replace
from typing import Any

import pytest

from app.placement.budgets import (
    Budget,
    Limit,
    Reserve,
    budget,
    budget_warnings,
    exclusion,
    limits,
    memories,
    memory_mode,
)
from app.placement.engines import PLAIN
from app.placement.hosts import host_room
from app.placement.nodes import Claim, NodeConfig
from tests.placement.build import device, node


def test_a_cpu_node_is_worth_what_is_available_less_the_reserve() -> None:
    assert budget(node("a", 100), 30) == Budget(70, "ram_avail")


def test_a_reserve_larger_than_what_is_free_leaves_nothing() -> None:
    assert budget(node("a", 100), 101) == Budget(0, "ram_avail")


def test_max_ram_overrides_a_pessimistic_figure() -> None:
    assert budget(node("a", 100, max_ram_gb=150e-9), 0) == Budget(150, "max_ram_gb")


def test_max_ram_stops_at_what_is_built_in() -> None:
    assert budget(node("a", 100, max_ram_gb=1.0), 0) == Budget(200, "ram_total")


def test_a_cuda_stage_is_bounded_by_host_ram_and_says_so() -> None:
    box = node("box", 100, device="cuda+cpu", devices=(device("cuda", 40),))
    assert budget(box, 0) == Budget(100, "ram_avail")
    assert "bounded by host RAM although the card has 40 bytes" in budget_warnings(box)[0]


def test_a_cuda_stage_on_a_card_larger_than_ram_warns_of_nothing() -> None:
    assert budget_warnings(node("box", 100, device="cuda", devices=(device("cuda", 400),))) == ()


def test_other_devices_are_resident_at_85_percent_of_the_largest() -> None:
    mac = node("mac", 100, device="metal", devices=(device("cpu", 999), device("metal", 40), device("vulkan", 60)))
    assert budget(mac, 0) == Budget(51, "device_fraction")


def test_a_device_as_large_as_ram_is_no_limit() -> None:
    mac = node("mac", 100, ram_total=100, device="metal", devices=(device("metal", 100),))
    assert budget(mac, 0) == Budget(100, "ram_avail")
    assert budget(replace(mac, ram_total=101), 0) == Budget(85, "device_fraction")


def test_the_device_binds_only_where_it_is_tighter_than_ram() -> None:
    assert budget(node("mac", 100, device="metal", devices=(device("metal", 190),)), 0) == Budget(100, "ram_avail")


def test_what_is_free_on_the_device_binds_live() -> None:
    mac = node("mac", 100, device="metal", devices=(device("metal", 100, mem_avail=30),))
    assert limits(mac) == (
        Limit("ram_avail", 100, live=True, of="host"),
        Limit("device_fraction", 85, live=False, of="device"),
        Limit("mem_avail", 30, live=True, of="device"),
    )
    assert budget(mac, 0) == Budget(30, "mem_avail")


def test_a_fraction_of_its_own_replaces_the_85_percent() -> None:
    apu = node("apu", 100, device="vulkan", gpu_fraction=1.0, devices=(device("vulkan", 90, mem_avail=95),))
    assert budget(apu, 0) == Budget(90, "device_fraction")


def test_dedicated_looks_at_the_largest_card_of_the_primary_kind_alone() -> None:
    cards = (device("cuda", 40), device("cuda", 100), device("rocm", 1_000))
    box = node("box", 10, device="cuda", gpu_memory="dedicated", devices=cards)
    assert budget(box, 0) == Budget(85, "device_fraction")


def test_pooled_adds_up_the_cards_each_by_what_is_free_on_it() -> None:
    cards = (device("cuda", 100), device("cuda", 100, mem_avail=20))
    box = node("box", 10, device="cuda", gpu_memory="pooled", devices=cards)
    assert budget(box, 0) == Budget(105, "mem_avail")
    idle = replace(box, devices=(device("cuda", 100, mem_avail=99), device("cuda", 100, mem_avail=20)))
    assert budget(idle, 0) == Budget(105, "mem_avail")  # 85, not 99: the driver's share isn't free


def test_host_mode_ignores_the_card() -> None:
    mac = node("mac", 100, device="metal", gpu_memory="host", devices=(device("metal", 10),))
    assert budget(mac, 0) == Budget(100, "ram_avail")


def test_a_cpu_stage_has_no_device_to_look_at() -> None:
    assert memory_mode(node("a", device="cpu", gpu_memory="dedicated")) == "host"


def test_resident_makes_a_cuda_node_stay_on_its_card() -> None:
    box = node("box", 100, device="cuda", gpu_memory="resident", devices=(device("cuda", 40),))
    assert budget(box, 0) == Budget(34, "device_fraction")


def test_a_card_without_a_ceiling_of_its_own_leaves_it_to_ram() -> None:
    box = node("box", 100, device="rocm", gpu_memory="dedicated", devices=(device("rocm", 0),))
    assert budget(box, 0) == Budget(100, "ram_avail")


def test_unknown_memory_of_a_unified_device_leaves_it_to_ram() -> None:
    mac = node("mac", 100, device="metal", devices=(device("metal", None, unified=True),))
    assert exclusion(mac) is None
    assert budget(mac, 0) == Budget(100, "ram_avail")


def test_unknown_memory_of_a_discrete_card_excludes_where_the_mode_looks_at_it() -> None:
    box = node("box", 100, device="rocm", devices=(device("rocm", None),))
    assert exclusion(box) == "the memory of its rocm device is unknown"
    assert exclusion(node("box", device="cuda", devices=(device("cuda", None),))) is None


def test_a_device_that_is_not_available_excludes_its_node() -> None:
    box = node("box", device="cuda", devices=(device("cuda", 40, available=False),))
    assert exclusion(box) == "its cuda device is not available"
    both = replace(box, devices=(*box.devices, device("cuda", 40)))
    assert exclusion(both) is None
    gone = device("rocm", 40, available=False)
    assert exclusion(node("box", device="rocm", devices=(gone,))) == "its rocm device is not available"
    assert exclusion(node("box", device="rocm", devices=(gone, device("rocm", 40)))) is None


def test_of_cards_that_are_away_and_cards_that_are_unknown_the_unknown_one_is_the_reason() -> None:
    cards = (device("rocm", 40, available=False), device("rocm", None))
    assert exclusion(node("box", device="rocm", devices=cards)) == "the memory of its rocm device is unknown"


def test_a_card_that_is_away_lends_no_memory() -> None:
    cards = (device("rocm", 40), device("rocm", 190, available=False))
    assert budget(node("box", 100, device="rocm", devices=cards), 0) == Budget(34, "device_fraction")


def test_a_cpu_node_s_devices_are_no_reason_for_a_warning() -> None:
    assert budget_warnings(node("a", device="cpu")) == ()
    assert budget_warnings(node("a", device="cpu", devices=(device("cuda", 40),))) == ()


@pytest.mark.parametrize("role", ["standby", "draining"])
def test_a_role_other_than_active_excludes(role: str) -> None:
    assert exclusion(node("a", role=role)) == role


def test_a_device_that_is_not_listed_is_planned_by_ram_with_a_warning() -> None:
    box = node("box", 100, device="rocm")
    assert exclusion(box) is None
    assert budget(box, 0) == Budget(100, "ram_avail")
    assert "rocm is not among its devices" in budget_warnings(box)[0]


def test_devices_of_unknown_kinds_are_kept_but_not_used() -> None:
    box = node("box", 100, device="metal", devices=(device("metal", 90), device("npu9000", 95)))
    assert budget(box, 0) == Budget(76, "device_fraction")


def test_the_default_reserve_holds_where_host_ram_bounds_and_nowhere_else() -> None:
    reserve = Reserve(None, 6)
    assert reserve.of(node("a")) == 6
    card = node("box", device="cuda", gpu_memory="dedicated", devices=(device("cuda", 40),))
    assert reserve.of(card) == 0
    assert reserve.of(replace(card, devices=())) == 6
    assert Reserve(7, 6).of(card) == 7
    assert Reserve(0, 6).of(node("a")) == 0


def promised(name: str, **asked: Any) -> Claim:
    """Ten bytes that are not loaded yet."""
    return Claim(name, **({"live_bytes": 10, "static_bytes": 10, "ram": True} | asked))


def test_what_was_promised_is_left_out_of_every_limit_that_it_counts_against() -> None:
    """Of 100 bytes, 50 of which the owner gives: what is loaded already is missing in what is free, not in the rest."""
    loaded = promised("loaded", live_bytes=0)
    assert budget(node("n", 100, claims=(promised("d"), loaded)), 5) == Budget(85, "ram_avail")
    owned = node("n", 100, max_ram_gb=50e-9, claims=(promised("d"), loaded))
    assert budget(owned, 5) == Budget(25, "max_ram_gb")


def test_a_promise_beyond_what_there_is_leaves_nothing() -> None:
    assert budget(node("n", 100, claims=(promised("d", live_bytes=101),)), 0) == Budget(0, "ram_avail")


def test_a_card_and_the_hosts_memory_are_promised_apart() -> None:
    card = device("cuda", 100)
    on_card = promised("d", ram=False, device=True)
    kept = node("n", 1_000, device="cuda", devices=(card,), gpu_memory="dedicated", claims=(on_card, promised("e")))
    assert budget(kept, 0) == Budget(75, "device_fraction")
    assert memories(kept) == (False, True)
    assert budget(replace(kept, config=NodeConfig()), 0) == Budget(990, "ram_avail")
    assert memories(node("n", 100)) == (True, False)


def test_neighbours_of_a_host_share_its_memory_but_not_what_an_owner_gives_of_it() -> None:
    """200 bytes of RAM, of which the neighbour was promised 10."""
    claims = (promised("d", neighbour=True),)
    assert budget(node("n", 100, claims=claims), 0) == Budget(90, "ram_avail")
    assert budget(node("n", 100, max_ram_gb=195e-9, claims=claims), 0) == Budget(190, "ram_total")
    assert budget(node("n", 100, max_ram_gb=150e-9, claims=claims), 0) == Budget(150, "max_ram_gb")


def test_a_host_has_no_room_for_what_was_promised() -> None:
    own, other = promised("d"), promised("d", neighbour=True)
    pair = [node("a", 100, host_id="h", claims=(own,)), node("b", 100, host_id="h", claims=(other,))]
    assert host_room(pair, Reserve(5, 5), PLAIN) == 85


def test_what_is_planned_anew_has_its_own_memory_back() -> None:
    assert budget(node("n", 100, claims=(promised("d", live_bytes=-40, static_bytes=0),)), 0) == Budget(
        140, "ram_avail"
    )
