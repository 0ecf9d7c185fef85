"""Plans whose order is free, with figures that a person can check: equal layers, then layers that differ."""

from dataclasses import replace
from typing import Any

import pytest

from app.placement.auto import equal
from app.placement.auto.choice import Choice, Pick
from app.placement.cost import Block, ModelCost
from app.placement.errors import DoesNotFitError
from app.placement.nodes import Node
from app.placement.planner import place
from tests.placement.build import auto, device, model, node, spans

SECOND = 1e9
"""FLOPs that take a second on a node of one GFLOP/s."""

FOUR = model(4, 10, flops=SECOND)
LATENCY: dict[str, Any] = {"optimize": "latency"}
MEMORY: dict[str, Any] = {"optimize": "memory"}


def fleet(*speeds: float, ram: int = 40) -> list[Node]:
    """Nodes a, b, c .. of these GFLOP/s."""
    return [node("abcdefgh"[at], ram, gflops=speed) for at, speed in enumerate(speeds)]


def planned(cost: ModelCost, *nodes: Node, **objective: Any) -> tuple[list[tuple[str, int, int]], Any]:
    """Who has what, and the proven value."""
    plan = place(auto(cost, *nodes, **objective))
    assert plan.proof is not None
    assert plan.proof.optimal
    return spans(plan), plan.proof.value


def refused(cost: ModelCost, *nodes: Node, **objective: Any) -> DoesNotFitError:
    with pytest.raises(DoesNotFitError) as refusal:
        place(auto(cost, *nodes, **objective))
    assert refusal.value.proven
    return refusal.value


def test_ends_that_are_pinned_beyond_the_largest_are_no_choice_among_them() -> None:
    """Of nodes that carry 3, 2 and 1 layers, two with the last as first: 1 and 3."""
    rows = {at: [carries] * 3 for at, carries in enumerate((3, 2, 1))}
    choice = Choice([0, 1, 2], rows, 2, None)
    assert choice.carried((2,)) == 4
    assert choice.fewest((2,), 4) == Pick(2, 0, ())
    assert Choice([0, 1, 2], rows, 2, 2).carried((2,)) is None


def test_a_node_s_layers_within_a_limit_stop_before_the_limit_is_passed() -> None:
    """Five layers at 3 and 2 GFLOP/s: three in a second, and two in a second."""
    assert planned(model(5, 10, flops=SECOND), *fleet(3.0, 2.0, ram=50))[1] == 1.0


def test_a_node_that_is_bound_by_memory_as_a_middle_and_by_work_as_the_last() -> None:
    """The head takes two seconds; a layer has 0.1 s of work and streams for 1: three hide the head, one does not."""
    slow = (device("cpu", mem_gbps=1e-6, gflops=10.0),)
    nodes = [node("a", 1_000, gflops=1.0), node("b", 3_000, devices=slow)]
    cost = replace(model(4, 1_000, flops=0.1 * 10 * SECOND), head_flops=20 * SECOND)
    assert planned(cost, *nodes, last_node="b", **LATENCY) == ([("a", 0, 1), ("b", 1, 4)], 1.0 + 3.0)
    two = planned(replace(cost, n_layers=2), *nodes, last_node="b", first_node="a", **LATENCY)
    assert two == ([("a", 0, 1), ("b", 1, 2)], pytest.approx(1.0 + 2.1))


def test_a_sum_of_equal_layers_fills_the_fast_nodes() -> None:
    nodes = fleet(1.0, 4.0, 2.0, ram=20)
    assert planned(FOUR, *nodes, **LATENCY) == ([("c", 0, 2), ("b", 2, 4)], 1.5)
    assert planned(FOUR, *nodes, max_stages=2, first_node="a", **LATENCY) == ([("a", 0, 2), ("b", 2, 4)], 2.5)


def test_a_sum_of_equal_layers_that_does_not_fit_is_refused() -> None:
    assert refused(FOUR, *fleet(1.0, 2.0, ram=19), **LATENCY).capacity_layers == 2
    assert refused(FOUR, *fleet(1.0, 2.0, 1.0, ram=19), max_stages=2, **LATENCY).capacity_layers == 2


def test_a_core_grows_until_no_node_beyond_it_could_be_in_a_better_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers each: the fastest alone holds half, the two fastest all, and the third would only slow them down."""
    monkeypatch.setattr(equal, "CORE", 1)
    assert planned(FOUR, *fleet(1.0, 4.0, 2.0, ram=20), **LATENCY) == ([("c", 0, 2), ("b", 2, 4)], 1.5)


def test_a_core_that_its_budget_halves_may_be_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four nodes two are looked at, 2 * 5 * 8 entries: they hold everything, and the others are no faster."""
    monkeypatch.setattr(equal, "ENTRIES", 80)
    nodes = fleet(1.0, 4.0, 2.0, 1.0, ram=20)
    assert planned(FOUR, *nodes, **LATENCY) == ([("c", 0, 2), ("b", 2, 4)], 1.5)


def test_a_plan_of_a_core_that_may_not_grow_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two slow nodes pinned to the ends are the core; the fast one between them is beyond its budget."""
    nodes = fleet(1.0, 1.0, 4.0)
    pins: dict[str, Any] = {"first_node": "a", "last_node": "b", "hop_s": 0.125}
    assert planned(FOUR, *nodes, **pins, **LATENCY) == ([("a", 0, 1), ("c", 1, 3), ("b", 3, 4)], 2.75)
    monkeypatch.setattr(equal, "ENTRIES", 80)
    plan = place(auto(FOUR, *nodes, **pins, **LATENCY))
    assert plan.proof is not None
    assert spans(plan) == [("a", 0, 2), ("b", 2, 4)]
    assert plan.proof.value == 4.125
    assert not plan.proof.optimal
    assert plan.proof.lower_bound <= 2.75


@pytest.mark.parametrize("bounds", [{}, {"slack": 0.1}, {"stage_counts": (4,)}])
def test_a_core_too_small_for_any_plan_is_no_reason_to_refuse(
    monkeypatch: pytest.MonkeyPatch, bounds: dict[str, Any]
) -> None:
    """Four layers on four nodes of one each, of which the budget lets one or two be looked at."""
    monkeypatch.setattr(equal, "ENTRIES", 80)
    plan = place(auto(FOUR, *fleet(1.0, 2.0, 4.0, 8.0, ram=10), **bounds, **LATENCY))
    assert plan.proof is not None
    assert [a.end - a.start for a in plan.assignments] == [1, 1, 1, 1]
    assert plan.proof.value == 1.875
    assert not plan.proof.optimal


def test_a_core_too_small_for_any_plan_is_a_refusal_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five nodes of one layer hold the four, but none holds the head beside it."""
    monkeypatch.setattr(equal, "ENTRIES", 80)
    cost = model(4, 10, head=5, flops=SECOND)
    assert refused(cost, *fleet(1.0, 2.0, 4.0, 8.0, 1.0, ram=10), **LATENCY).capacity_layers == 0


PAGED = ModelCost(4, 2, 0, 0, expert_bytes_per_layer=4)
"""One layer with its experts fills a node of six bytes; two whose experts are on disk leave a third."""


def pagers(*disks: int) -> list[Node]:
    return [node("abcdefgh"[at], 6, disk_free=disk) for at, disk in enumerate(disks)]


@pytest.mark.parametrize("bounds", [{}, {"stage_counts": (1, 2)}, {"slack": 0.1}])
def test_a_share_that_paging_lowers_is_searched_limit_by_limit(bounds: dict[str, Any]) -> None:
    nodes = pagers(20, 20, 20, 20, 20)
    assert planned(PAGED, *nodes, **bounds, **MEMORY) == ([("a", 0, 2), ("b", 2, 4)], pytest.approx(2 / 3))


def test_one_node_that_pages_all_needs_no_other() -> None:
    two = replace(PAGED, n_layers=2)
    assert planned(two, *pagers(20, 20), **MEMORY) == ([("a", 0, 2)], pytest.approx(2 / 3))


def test_a_node_without_a_disk_holds_its_experts_or_nothing() -> None:
    """A layer fills it; the other pages three, which fills that one too."""
    assert planned(PAGED, *pagers(0, 20), **MEMORY)[1] == 1.0
    assert planned(PAGED, node("a", 5, disk_free=0), *pagers(20, 20)[1:], node("c", 6, disk_free=20), **MEMORY)[1] == (
        pytest.approx(2 / 3)
    )


def test_a_share_is_refused_where_disks_are_too_small() -> None:
    """A node holds a layer; a disk of nine bytes, of which nine tenths may be filled, two layers' experts."""
    assert refused(PAGED, *pagers(9), **MEMORY).capacity_layers == 2
    assert refused(PAGED, *pagers(0, 0, 0), **MEMORY).capacity_layers == 3


def test_paging_takes_the_disk_s_time() -> None:
    """Three layers of 2 bytes and 4 MB of experts each, all on a disk of 8 MB/s: a second and a half."""
    cost = ModelCost(3, 2, 0, 0, 1.0, expert_bytes_per_layer=4_000_000, expert_active_bytes_per_layer=4_000_000)
    nodes = [node("a", 8, disk_free=20_000_000, io_mbps=8.0)]
    assert planned(cost, *nodes)[1] == pytest.approx(1.5)
    assert planned(
        replace(cost, layers=(Block(1, 2, 1.0, 0, None, 0, 4_000_000, 4_000_000), Block(2, 3, 1.0))), *nodes
    )[1] == pytest.approx(0.5)


MIXED = ModelCost(4, 0, 0, 0, layers=(Block(1, 10, 3 * SECOND), Block(3, 10, SECOND)))
"""Layer 0 takes three seconds, the others one."""


def test_layers_that_differ_are_levelled_by_time() -> None:
    """Three seconds against three."""
    assert planned(MIXED, *fleet(1.0, 1.0)) == ([("a", 0, 1), ("b", 1, 4)], 3.0)
    assert planned(MIXED, *fleet(2.0, 1.0, 1.0), last_node="b") == ([("a", 0, 2), ("b", 2, 4)], 2.0)
    assert planned(MIXED, *fleet(1.0, 3.0, 1.0), first_node="b", last_node="a") == (
        [("b", 0, 2), ("c", 2, 3), ("a", 3, 4)],
        4 / 3,
    )


def test_layers_that_differ_may_be_wanted_in_so_many_stages() -> None:
    nodes = fleet(1.0, 3.0, 1.0)
    assert planned(MIXED, *nodes, stage_counts=(3,)) == ([("b", 0, 2), ("a", 2, 3), ("c", 3, 4)], 4 / 3)
    assert planned(MIXED, *nodes, stage_counts=(1,), first_node="b") == ([("b", 0, 4)], 2.0)
    assert planned(MIXED, *nodes, stage_counts=(2,), first_node="a", last_node="b")[0] == [("a", 0, 1), ("b", 1, 4)]
    assert refused(MIXED, *fleet(1.0, 1.0, ram=10), stage_counts=(2,)).capacity_layers == 2


def test_a_sum_over_layers_that_differ_puts_the_dear_one_where_it_is_fast() -> None:
    """The fast node holds two: layers 0 and 1, four seconds at double speed."""
    nodes = [node("a", 40, gflops=1.0), node("b", 20, gflops=2.0)]
    assert planned(MIXED, *nodes, **LATENCY) == ([("b", 0, 2), ("a", 2, 4)], 4.0)
    assert planned(MIXED, *nodes, last_node="b", **LATENCY) == ([("a", 0, 2), ("b", 2, 4)], 5.0)
    assert planned(MIXED, *nodes, first_node="a", max_stages=1, **LATENCY) == ([("a", 0, 4)], 6.0)
    assert refused(MIXED, *fleet(1.0, 1.0, ram=19), **LATENCY).capacity_layers == 2


def test_a_sum_of_equal_nodes_counts_them_as_one_kind() -> None:
    """Two of three equal nodes and the fast one, whichever comes first."""
    nodes = [*fleet(1.0, 1.0, 1.0, ram=10), node("f", 20, gflops=2.0)]
    assert planned(MIXED, *nodes, **LATENCY) == ([("f", 0, 2), ("a", 2, 3), ("b", 3, 4)], 4.0)
