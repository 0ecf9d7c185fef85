"""The service's promises, and what it says when it can't keep them."""

import math
from dataclasses import replace

import pytest

from app.placement.budgets import budget
from app.placement.engines import PLAIN, engine
from app.placement.errors import (
    DoesNotFitError,
    Excess,
    InvalidFieldError,
    ManualRangesError,
    NoNodesError,
    OverBudgetError,
)
from app.placement.planner import can_place, place
from app.placement.plans import Idle
from app.placement.stages import worker_of
from app.placement.units import INT_MAX
from tests.placement.build import counts, device, model, node, task


def test_memory_is_shared_out_in_proportion() -> None:
    placed = place(task(model(10, 10), node("a", 300), node("b", 100)))
    assert counts(placed) == [7, 3]  # 7.5 and 2.5 become 8 and 3; the fullest gives one back


def test_speed_is_shared_out_in_proportion_as_far_as_it_fits() -> None:
    fast, slow = node("fast", 40, gflops=9.0), node("slow", 100, gflops=1.0)
    assert counts(place(task(model(10, 10), fast, slow, policy="throughput"))) == [4, 6]


def test_a_missing_layer_goes_to_the_last_of_equal_nodes() -> None:
    nodes = [node(n, 100) for n in "abc"]
    assert counts(place(task(model(10, 10), *nodes))) == [3, 3, 4]


def test_a_surplus_layer_comes_off_the_last_of_equal_nodes() -> None:
    nodes = [node(n, 100) for n in "abcdef"]
    assert counts(place(task(model(9, 10), *nodes))) == [2, 2, 2, 1, 1, 1]  # 1.5 each rounds up to 2: 3 too many


def test_a_speed_that_is_unknown_counts_as_one_gflops() -> None:
    assert counts(place(task(model(10, 10), node("a", gflops=None), node("b", gflops=4.0), policy="throughput"))) == [
        2,
        8,
    ]


def test_whether_a_policy_of_the_reference_finds_a_plan_is_known_by_planning() -> None:
    assert can_place(task(model(10, 10), node("a", 100)))
    assert not can_place(task(model(11, 10), node("a", 100)))


def test_weights_that_are_all_zero_leave_it_to_the_room() -> None:
    assert counts(place(task(model(3, 0), node("a", 0), node("b", 0)))) == [1, 2]
    assert counts(place(task(model(1, 0), node("a", 0), node("b", 0)))) == [0, 1]


def test_the_primary_device_s_speed_goes_before_the_node_s() -> None:
    card = node("a", gflops=1.0, device="cuda", devices=(device("cuda", 0, gflops=9.0),))
    assert counts(place(task(model(10, 10), card, node("b", gflops=1.0), policy="throughput"))) == [9, 1]


def test_of_several_devices_of_the_kind_the_first_that_is_there_counts_known_or_not() -> None:
    """The fast one has 9 GFLOP/s and 5 GB/s, the node itself 4 GFLOP/s."""
    away, unknown = device("cuda", 0, gflops=99.0, available=False), device("cuda", 0)
    fast, slow = device("cuda", 0, gflops=9.0, mem_gbps=5.0), device("cuda", 0, gflops=2.0, mem_gbps=3.0)
    boxes = [node("a", gflops=4.0, device="cuda", devices=cards) for cards in ((away, fast, slow), (unknown, fast))]
    workers = [worker_of(box, budget(box, 0), PLAIN) for box in boxes]
    assert [(w.gflops, w.bytes_per_s) for w in workers] == [(9.0, 5e9), (4.0, math.inf)]


def test_a_first_node_that_cannot_hold_the_embedding_is_left_out() -> None:
    placed = place(task(model(4, 10, embed=50), node("tiny", 40), node("roomy", 200)))
    assert [a.node.node_id for a in placed.assignments] == ["roomy"]
    assert placed.idle == (Idle("tiny", "cannot hold the embedding"),)


def test_a_last_node_that_cannot_hold_the_head_is_left_out() -> None:
    placed = place(task(model(4, 10, head=50), node("roomy", 200), node("tiny", 40)))
    assert placed.idle == (Idle("tiny", "cannot hold the head"),)


def test_leaving_out_goes_on_until_every_stage_fits_and_keeps_the_list_s_order() -> None:
    nodes = [node("a", 1), node("b", 2), node("c", 200), node("d", 3), node("e", 4)]
    placed = place(task(model(4, 10, embed=20, head=20), *nodes))
    assert [i.node_id for i in placed.idle] == ["a", "b", "d", "e"]
    assert counts(placed) == [4]


def test_a_refusal_speaks_of_the_last_round_and_names_who_was_left_out() -> None:
    with pytest.raises(DoesNotFitError) as refused:
        place(task(model(4, 10, embed=50), node("tiny", 40), node("small", 70)))
    error = refused.value
    assert "(capacity 2 layers)" in str(error)
    assert (error.required_bytes, error.usable_bytes, error.shortfall_bytes) == (90, 70, 20)
    assert [(v.node_id, v.layer_cap, v.excluded) for v in error.nodes] == [
        ("tiny", 0, "cannot hold the embedding"),
        ("small", 2, None),
    ]


def test_with_nobody_left_the_refusal_speaks_of_the_first_round() -> None:
    with pytest.raises(DoesNotFitError) as refused:
        place(task(model(4, 0, embed=50), node("a", 40), node("b", 40)))
    assert "(capacity 8 layers)" in str(refused.value)
    assert [v.excluded for v in refused.value.nodes] == [
        "cannot hold the embedding",
        "cannot hold the embedding and the head",
    ]


def test_a_model_that_fits_only_as_fragments_has_no_shortfall() -> None:
    with pytest.raises(DoesNotFitError) as refused:
        place(task(model(2, 60), node("a", 50), node("b", 110)))
    assert (refused.value.required_bytes, refused.value.usable_bytes, refused.value.shortfall_bytes) == (120, 160, 0)
    assert refused.value.capacity_layers == 1


def test_what_is_usable_stays_within_the_integers() -> None:
    with pytest.raises(DoesNotFitError) as refused:
        place(task(model(1, 2**62 + 1), *[node(n, 2**62) for n in "abc"]))
    assert refused.value.usable_bytes == INT_MAX


def test_excluded_nodes_are_idle_and_the_others_plan() -> None:
    placed = place(task(model(2, 10), node("a", role="draining"), node("b")))
    assert placed.idle == (Idle("a", "draining"),)
    assert counts(placed) == [2]


def test_nobody_eligible_is_no_nodes_with_reasons() -> None:
    with pytest.raises(NoNodesError) as refused:
        place(task(model(), node("a", role="standby")))
    assert refused.value.excluded == {"a": "standby"}
    assert str(refused.value) == "no nodes"


def test_reference_verbatim_is_over_budget_and_marked() -> None:
    placed = place(task(model(4, 10, embed=50), node("tiny", 40), node("roomy", 200), over=True))
    assert [a.over_budget for a in placed.assignments] == [True, False]


def manual(*ranges: str | None, layers: int = 10, ram: int = 1_000, over: bool = False) -> object:
    nodes = [node(f"n{i}", ram, layers=r) for i, r in enumerate(ranges)]
    return place(task(model(layers, 10), *nodes, policy="manual", over=over))


def test_ranges_given_by_hand_are_taken_as_they_stand() -> None:
    assert counts(manual("0:3", "3:10")) == [3, 7]


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        (("0:3", "4:10"), "gap: node n0 ends at layer 3, node n1 has layers 4:10"),
        (("1:10",), "gap: the model starts at layer 0, node n0 has layers 1:10"),
        (("0:5", "4:10"), "overlap: node n0 ends at layer 5, node n1 has layers 4:10"),
        (("0:5", "5:5", "5:10"), "the range 5:5 of node n1 is empty"),
        (("0:5", "5:9"), "layers left over: node n1 ends at layer 9, the model has 10 layers"),
        (("0:5", "5:11"), "beyond the model: node n1 ends at layer 11, the model has 10 layers"),
        (("0:5", None), "node n1:9100 has no `layers` for manual policy"),
        (("0:5", "7:5"), "node n1:9100 has no `layers` for manual policy"),
        (("0:5", "five"), "node n1:9100 has no `layers` for manual policy"),
    ],
)
def test_ranges_that_do_not_tile_the_model_are_refused_by_name(ranges: tuple[str | None, ...], words: str) -> None:
    with pytest.raises(ManualRangesError) as refused:
        manual(*ranges)
    assert str(refused.value) == words
    assert refused.value.nodes


def test_ranges_that_do_not_fit_are_refused_with_the_excess() -> None:
    with pytest.raises(OverBudgetError) as refused:
        manual("0:3", "3:10", ram=50)
    assert refused.value.nodes == (Excess("n1", 70, 50, 20),)
    assert str(refused.value) == "stages over their budget: n1 needs 70 of 50 bytes"


def test_with_leave_any_ranges_go_verbatim() -> None:
    assert counts(manual("0:3", "9:99", over=True)) == [3, 90]


def test_a_range_whose_bytes_leave_the_integers_is_the_request_s_fault() -> None:
    with pytest.raises(InvalidFieldError):
        place(task(model(1, 2**60), node("a", 10, layers="0:999"), policy="manual", over=True))


def test_a_model_whose_bytes_leave_the_integers_is_the_request_s_fault() -> None:
    with pytest.raises(InvalidFieldError) as refused:
        place(task(model(2, 2**62, head=INT_MAX), node("a", 10)))
    assert refused.value.pointer == "/model"


def test_what_the_engine_adds_counts_where_bytes_leave_the_integers() -> None:
    """2^63 - 5 bytes of a layer and 5 of the engine."""
    near = replace(task(model(1, INT_MAX - 4), node("a", 10)), engine=engine("plain", {"overhead_bytes": 5}))
    with pytest.raises(InvalidFieldError) as refused:
        place(near)
    assert refused.value.pointer == "/model"


def test_warnings_of_the_nodes_that_take_part_come_along() -> None:
    placed = place(task(model(2, 10), node("a", device="rocm"), node("b", device="rocm", role="draining")))
    assert len(placed.warnings) == 1
    assert placed.warnings[0].startswith("a: ")


def test_a_stage_takes_as_long_as_it_computes_or_streams() -> None:
    slow_memory = device("cpu", 0, mem_gbps=1e-6)
    nodes = node("a", 9_999, gflops=1.0), node("b", 9_999, gflops=1.0, devices=(slow_memory,))
    placed = place(task(model(10, 10, head=100, flops=1e9), *nodes))
    assert [a.est_stage_s for a in placed.assignments] == [5.0, 5.0]
    roomy = (replace(n, ram_avail=99_999, ram_total=99_999) for n in nodes)
    placed = place(task(model(10, 2_000, head=100, flops=1e9), *roomy))
    assert [a.est_stage_s for a in placed.assignments] == [5.0, (5 * 2_000 + 100) / 1e3]
    assert placed.bottleneck.node.node_id == "b"


def test_the_bottleneck_is_the_slowest_stage_and_of_equal_ones_the_first() -> None:
    assert place(task(model(4, 10), node("a"), node("b"))).bottleneck.node.node_id == "a"
    assert place(task(model(10, 10), node("a"), node("b"), node("c"))).bottleneck.node.node_id == "c"  # 3, 3 and 4


def test_nobody_at_all_is_no_nodes() -> None:
    with pytest.raises(NoNodesError):
        place(task(model()))


def test_a_refusal_after_leaving_nodes_of_a_crowded_host_out_proves_nothing_and_names_the_host() -> None:
    """Three nodes share 95 GB and could hold 9 layers of 10 GB together; the one that is left out takes 4 along."""
    gb = 10**9
    speeds = {"a": 1.0, "b": 1.0, "c": 4.0}
    host = [node(n, 90 * gb, ram_total=95 * gb, max_ram_gb=40.0, host_id="h", gflops=g) for n, g in speeds.items()]
    cost = model(12, 10 * gb)
    with pytest.raises(DoesNotFitError) as refused:
        place(task(cost, *host, node("d", 30 * gb, gflops=1.0), policy="throughput"))
    assert not refused.value.proven
    assert "host" in {verdict.limit for verdict in refused.value.nodes}
