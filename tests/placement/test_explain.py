"""What a plan says of itself, with figures that a person can check."""

from dataclasses import replace

from app.placement.cost import Block, ModelCost
from app.placement.explain import CONTEXT_MAX, max_context, objective_value, summarise
from app.placement.planner import place
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


def test_the_largest_context_counts_the_layers_that_cache() -> None:
    """Of 4 layers of 10 bytes the second alone caches: 45 bytes hold 5 tokens, whoever holds the others."""
    blocks = (Block(1, 10), Block(1, 10, kv_bytes_per_token=1), Block(2, 10))
    plan = place(auto(ModelCost(4, 0, 0, 0, layers=blocks), node("a", 45)))
    assert max_context(plan) == 5
