"""Bounds, each against a figure that a person can work out."""

import math
from typing import Any

import pytest

from app.placement.auto import bounds
from app.placement.cost import ModelCost
from app.placement.nodes import Node
from tests.placement.build import auto, model, node
from tests.placement.test_search import problem_for

SECOND = 1e9
"""FLOPs that take a second on a node of one GFLOP/s."""


def bound(cost: ModelCost, *nodes: Node, **objective: Any) -> float:
    return bounds.lower(problem_for(auto(cost, *nodes, **objective)))


def test_work_shared_perfectly_takes_all_flops_over_all_speeds() -> None:
    """12 s of work on 3 + 3 + 2 GFLOP/s."""
    nodes = [node(name, 999, gflops=speed) for name, speed in (("a", 3.0), ("b", 3.0), ("c", 2.0))]
    assert bounds.work(problem_for(auto(model(12, 10, flops=SECOND), *nodes))) == pytest.approx(1.5)


def test_memory_shared_perfectly_is_all_bytes_over_all_budgets() -> None:
    """3 layers of 10, 5 and 7 at the ends, of which 2 are held once if one stage has all: 40 of 80 bytes."""
    cost = ModelCost(3, 10, 5, 7, tied_embeddings=True, tied_bytes=2)
    assert bounds.work(problem_for(auto(cost, node("a", 60), node("b", 20), optimize="memory"))) == pytest.approx(0.5)


def test_a_node_that_is_full_leaves_its_share_to_the_other() -> None:
    """Four layers of a second; one fits the small node, so three remain, where speed alone would say two."""
    assert bound(model(4, 10, flops=SECOND), node("a", 10, gflops=1.0), node("b", 40, gflops=1.0)) == pytest.approx(3.0)


def test_a_bound_that_would_take_too_many_steps_is_that_of_speed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it asked then whether anything fits at all."""
    monkeypatch.setattr(bounds, "STEP", 10_000_000 // 8)
    assert bound(model(4, 10, flops=SECOND), node("a", 10, gflops=1.0), node("b", 20, gflops=1.0)) == pytest.approx(2.0)
    assert bound(model(4, 10, flops=SECOND), node("a", 10, gflops=1.0), node("b", 40, gflops=1.0)) == pytest.approx(2.0)


def test_only_the_nodes_that_may_take_part_count() -> None:
    """Three equal nodes hold two layers each; two stages have room for four of five layers, three for all."""
    nodes = [node(name, 20, gflops=1.0) for name in "abc"]
    assert bound(model(5, 10, flops=SECOND), *nodes, max_stages=2) == math.inf
    assert bound(model(5, 10, flops=SECOND), *nodes) == pytest.approx(2.0)


def test_a_model_without_work_has_no_bound_above_zero() -> None:
    assert bound(model(4, 10, flops=0.0), node("a", 20), node("b", 20)) == 0.0


def test_where_paging_lowers_a_share_the_bound_is_that_of_perfect_sharing() -> None:
    """Two layers of 2 bytes and 4 of experts, which may be on disk: 4 of 8 bytes."""
    cost = ModelCost(2, 2, 0, 0, expert_bytes_per_layer=4)
    nodes = [node("a", 6, disk_free=20), node("b", 2, disk_free=20)]
    assert bound(cost, *nodes, optimize="memory") == pytest.approx(0.5)


def test_a_sum_is_all_work_on_the_fastest_and_the_hops_of_the_fewest_stages() -> None:
    """Four seconds at double speed, and one hop of half a second: two of three nodes hold everything."""
    nodes = [node("a", 20, gflops=2.0), node("b", 20, gflops=1.0), node("c", 20, gflops=1.0)]
    asked: dict[str, Any] = {"optimize": "latency", "hop_s": 0.5}
    assert bound(model(4, 10, flops=SECOND), *nodes, **asked) == pytest.approx(2.5)
    assert bound(model(4, 10, flops=SECOND), *nodes[:2], **asked) == pytest.approx(2.5)
    assert bound(model(4, 10, flops=SECOND), node("a", 20), node("b", 19), **asked) == math.inf
