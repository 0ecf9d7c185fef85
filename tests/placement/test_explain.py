"""What a plan says of itself, with figures that a person can check."""

from dataclasses import replace

from app.placement.cost import ModelCost
from app.placement.engines import engine
from app.placement.explain import CONTEXT_MAX, layer_cap, max_context, objective_value, summarise
from app.placement.planner import place
from app.placement.stages import stack_of
from tests.placement.build import auto, model, node, task

CACHED = replace(model(4, 10), kv_bytes_per_layer_token=1)


def test_a_sum_counts_its_hops() -> None:
    """Two seconds on each of two nodes, and half a second between."""
    plan = place(auto(model(4, 10, flops=1e9), *(node(n, 20, gflops=1.0) for n in "ab"), optimize="latency", hop_s=0.5))
    assert objective_value(plan) == 4.5
    assert summarise(plan).objective_value == 4.5


def test_the_largest_context_is_bounded_by_the_integers_and_by_what_may_be_asked() -> None:
    """A byte per token and layer on a node of 2^62 bytes: 2^40 tokens fit; 2^24 bytes each leave the integers first."""
    big = node("a", 2**62)
    assert max_context(place(auto(CACHED, big))) == CONTEXT_MAX
    dear = replace(CACHED, n_layers=1, kv_bytes_per_layer_token=2**24)
    assert max_context(place(auto(dear, big))) == 2**38 - 1
    assert max_context(place(auto(replace(dear, kv_bytes_per_layer_token=2**30), big))) == 2**32 - 1


def test_the_largest_context_of_a_shared_host_is_that_of_its_stages_together() -> None:
    """48 bytes for 40 of layers: two tokens, though each stage alone has room for more."""
    plan = place(auto(CACHED, node("a", 48, host_id="h"), node("b", 48, host_id="h"), stage_counts=(2,)))
    assert max_context(plan) == 2


def test_a_plan_by_hand_over_its_budget_has_no_context_left() -> None:
    over = place(task(CACHED, node("a", 39, layers="0:4"), policy="manual", over=True))
    assert max_context(over) == 0


def test_nobody_holds_a_layer_without_room_for_what_the_engine_adds() -> None:
    stack = stack_of(model(4, 10), engine("plain", {"overhead_bytes": 7}), 0, 1)
    assert [layer_cap(stack, -1, room) for room in (6, 7, 16, 17, 46, 99)] == [0, 0, 0, 1, 3, 4]


def test_a_cap_counts_layers_whose_experts_fit_the_disk() -> None:
    """6 bytes hold one layer of 2 + 4, or three of 2 with 12 bytes of experts on disk."""
    stack = stack_of(ModelCost(4, 2, 0, 0, expert_bytes_per_layer=4), engine("plain", {}), 0, 1)
    assert [layer_cap(stack, disk, 6) for disk in (-1, 7, 8, 11, 12, 99)] == [1, 1, 2, 2, 3, 3]
