"""Plans that keep the list's order, with figures that a person can check."""

import math
from dataclasses import replace
from typing import Any

import pytest

from app.placement.auto import given, levelling, line
from app.placement.auto.search import solve
from app.placement.cost import Block, ModelCost
from app.placement.engines import engine
from app.placement.errors import DoesNotFitError
from app.placement.nodes import Node
from app.placement.planner import place
from app.placement.plans import Idle
from tests.placement.build import auto, model, node, spans
from tests.placement.test_search import problem_for

SECOND = 1e9
"""FLOPs that take a second on a node of one GFLOP/s."""

FOUR = model(4, 10, flops=SECOND)


def fleet(*speeds: float, ram: int = 40) -> list[Node]:
    """Nodes a, b, c .. of these GFLOP/s."""
    return [node("abcdefgh"[at], ram, gflops=speed) for at, speed in enumerate(speeds)]


def planned(cost: ModelCost, *nodes: Node, **objective: Any) -> tuple[list[tuple[str, int, int]], Any]:
    """Who has what, and the proven value."""
    plan = place(auto(cost, *nodes, order="given", **objective))
    assert plan.proof is not None
    assert plan.proof.optimal
    return spans(plan), plan.proof.value


def refused(cost: ModelCost, *nodes: Node, **objective: Any) -> DoesNotFitError:
    with pytest.raises(DoesNotFitError) as refusal:
        place(auto(cost, *nodes, order="given", **objective))
    assert refusal.value.proven
    return refusal.value


@pytest.mark.parametrize("bounds", [{}, {"max_stages": 2}, {"stage_counts": (2,)}])
def test_a_pinned_last_node_gets_a_layer_though_the_first_could_take_all(bounds: dict[str, Any]) -> None:
    """Alone the fast node would need 0.4 s; the slow one must finish."""
    assert planned(FOUR, *fleet(10.0, 10.0, 1.0), last_node="c", max_stages=2) == ([("a", 0, 3), ("c", 3, 4)], 1.0)
    assert planned(FOUR, *fleet(10.0, 1.0), last_node="b", **bounds) == ([("a", 0, 3), ("b", 3, 4)], 1.0)


@pytest.mark.parametrize("bounds", [{}, {"max_stages": 2}, {"stage_counts": (1,)}])
def test_nobody_begins_in_place_of_a_pinned_first_node_that_holds_nothing(bounds: dict[str, Any]) -> None:
    tiny, big = node("tiny", 5), node("big", 40)
    assert spans(place(auto(FOUR, tiny, big, order="given"))) == [("big", 0, 4)]
    assert refused(FOUR, tiny, big, first_node="tiny", **bounds).capacity_layers == 0


def test_a_pinned_first_node_begins_where_the_number_of_stages_is_demanded() -> None:
    """Without the pin the two fast ones would do it."""
    nodes = fleet(10.0, 1.0, 10.0)
    assert planned(FOUR, *nodes, stage_counts=(2,)) == ([("a", 0, 2), ("c", 2, 4)], 0.2)
    assert planned(FOUR, *nodes, stage_counts=(2,), first_node="b") == ([("b", 0, 1), ("c", 1, 4)], 1.0)


def test_of_equal_plans_of_a_demanded_number_the_earliest_nodes_have_it() -> None:
    assert planned(FOUR, *fleet(1.0, 1.0, 1.0, 1.0), stage_counts=(2,)) == ([("a", 0, 2), ("b", 2, 4)], 2.0)


def test_of_several_demanded_numbers_the_best_is_taken() -> None:
    """One stage takes two seconds; of three one is a slow node's, a second."""
    nodes = fleet(2.0, 2.0, 1.0, 1.0)
    assert planned(FOUR, *nodes, stage_counts=(1, 3)) == ([("a", 0, 2), ("b", 2, 3), ("c", 3, 4)], 1.0)
    assert planned(FOUR, *nodes, stage_counts=(1,)) == ([("a", 0, 4)], 2.0)


@pytest.mark.parametrize("bounds", [{}, {"max_stages": 2}, {"stage_counts": (2, 3)}])
def test_a_limit_that_no_layer_meets_says_which_would_be_the_next(bounds: dict[str, Any]) -> None:
    """A layer takes the fast node half a second."""
    problem = problem_for(auto(FOUR, *fleet(2.0, 1.0, 1.0), order="given", **bounds))
    assert given.probe(problem, 0.25) == (False, 0.5)


def test_a_bounded_number_of_stages_takes_the_nodes_that_carry_most() -> None:
    """Two of three nodes: three layers on the fast one, one on the other, a second each."""
    assert planned(FOUR, *fleet(1.0, 3.0, 1.0), max_stages=2) == ([("a", 0, 1), ("b", 1, 4)], 1.0)


def test_what_does_not_fit_a_bounded_number_of_stages_is_refused() -> None:
    nodes = fleet(1.0, 1.0, 1.0, ram=19)
    assert refused(FOUR, *nodes, max_stages=2).capacity_layers == 2
    assert refused(FOUR, *nodes, stage_counts=(2, 3)).capacity_layers == 3


LATENCY: dict[str, Any] = {"optimize": "latency"}


def test_a_sum_fills_the_fast_node_as_far_as_it_holds() -> None:
    """Three layers at double speed and one at single."""
    nodes = [node("a", 40, gflops=1.0), node("b", 30, gflops=2.0), node("c", 40, gflops=1.0)]
    assert planned(FOUR, *nodes, **LATENCY) == ([("a", 0, 1), ("b", 1, 4)], 2.5)


def test_a_hop_that_costs_more_than_it_saves_is_not_taken() -> None:
    """Alone the slow node takes 4 s; with the fast one 2.5 s and the hop."""
    nodes = [node("a", 40, gflops=1.0), node("b", 30, gflops=2.0)]
    assert planned(FOUR, *nodes, hop_s=1.0, **LATENCY) == ([("a", 0, 1), ("b", 1, 4)], 3.5)
    assert planned(FOUR, *nodes, hop_s=2.0, **LATENCY) == ([("a", 0, 4)], 4.0)


def test_nodes_in_the_middle_of_a_sum_may_be_skipped() -> None:
    """Six layers of which a and d hold two each, the others one: c is the slowest by far."""
    figures = {"a": (20, 10.0), "b": (10, 5.0), "c": (10, 1.0), "d": (20, 10.0), "e": (10, 5.0)}
    nodes = [node(name, ram, gflops=speed) for name, (ram, speed) in figures.items()]
    best = [("a", 0, 2), ("b", 2, 3), ("d", 3, 5), ("e", 5, 6)]
    assert planned(model(6, 10, flops=SECOND), *nodes, **LATENCY) == (best, pytest.approx(0.8))


def test_pinned_ends_of_a_sum_have_a_layer_each() -> None:
    nodes = fleet(2.0, 4.0, 1.0)
    best = [("a", 0, 1), ("b", 1, 3), ("c", 3, 4)]
    assert planned(FOUR, *nodes, first_node="a", last_node="c", **LATENCY) == (best, 2.0)
    assert planned(FOUR, *nodes, first_node="a", last_node="b", **LATENCY) == ([("a", 0, 1), ("b", 1, 4)], 1.25)


def test_a_sum_that_does_not_fit_is_refused() -> None:
    assert refused(FOUR, *fleet(1.0, 1.0, ram=19), **LATENCY).capacity_layers == 2


def test_of_many_nodes_in_line_those_that_matter_are_found_from_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six layers on four nodes that hold two each: all but the slowest, whichever are looked at first."""
    nodes = fleet(2.0, 4.0, 1.0, 2.0, ram=20)
    best = ([("a", 0, 2), ("b", 2, 4), ("d", 4, 6)], 2.5)
    monkeypatch.setattr(line, "NEAR", 3)
    assert planned(model(6, 10, flops=SECOND), *nodes, **LATENCY) == best
    monkeypatch.setattr(line, "NEAR", 1)
    assert planned(model(6, 10, flops=SECOND), *nodes, **LATENCY) == best


def test_a_sum_of_few_stages_is_searched_by_number() -> None:
    """Of nodes that hold two layers each, two do."""
    nodes = fleet(1.0, 4.0, 2.0, ram=20)
    assert planned(FOUR, *nodes, max_stages=2, **LATENCY) == ([("b", 0, 2), ("c", 2, 4)], 1.5)
    assert refused(FOUR, *nodes, max_stages=1, **LATENCY).capacity_layers == 2


MIXED = ModelCost(4, 0, 0, 0, layers=(Block(1, 10, 3 * SECOND), Block(3, 10, SECOND)))
"""Layer 0 takes three seconds, the others one."""


def test_a_sum_over_layers_that_differ_puts_the_dear_one_where_it_is_fast() -> None:
    """The fast node holds two: layers 0 and 1, four seconds at double speed."""
    nodes = [node("a", 20, gflops=2.0), node("b", 40, gflops=1.0)]
    assert planned(MIXED, *nodes, **LATENCY) == ([("a", 0, 2), ("b", 2, 4)], 4.0)
    assert planned(MIXED, *nodes, first_node="b", last_node="b", **LATENCY) == ([("b", 0, 4)], 6.0)


def test_layers_that_differ_keep_pinned_ends() -> None:
    nodes = fleet(1.0, 2.0, 1.0)
    assert planned(MIXED, *nodes, first_node="b", last_node="c", **LATENCY) == ([("b", 0, 3), ("c", 3, 4)], 3.5)


def test_a_sum_over_layers_that_differ_is_refused_where_nothing_fits() -> None:
    assert refused(MIXED, *fleet(1.0, 1.0, ram=19), **LATENCY).capacity_layers == 2
    assert refused(MIXED, *fleet(1.0, 1.0, ram=19), max_stages=1, **LATENCY).capacity_layers == 1


def test_a_share_that_paging_lowers_is_swept_for_the_least_limit_and_the_fewest_stages() -> None:
    """Of 2 bytes and 4 of experts a layer, two paged layers hold 4 of 6 bytes, where one in memory fills it."""
    cost = ModelCost(4, 2, 0, 0, expert_bytes_per_layer=4)
    nodes = [node(name, 6, disk_free=20) for name in "abc"]
    assert planned(cost, *nodes, optimize="memory") == ([("a", 0, 2), ("b", 2, 4)], pytest.approx(4 / 6))


def test_a_programme_beyond_the_budget_leaves_a_plan_and_a_gap() -> None:
    """Five entries are too few for three nodes and four cuts; what fits is taken, the first node as far as it goes."""
    problem = problem_for(auto(MIXED, *fleet(1.0, 2.0, 1.0), order="given", **LATENCY))
    assert solve(problem).best_value == 3.0
    bounded = solve(replace(problem, entries=5))
    assert (bounded.stages, bounded.best_value, bounded.proven) == (((0, 0, 4),), 6.0, False)
    assert bounded.lower_bound == pytest.approx(3.0)


def test_levelling_leaves_the_fullest_most_room_as_long_as_it_has_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five layers here and one there, of nodes that hold six; each round moves one."""
    problem = problem_for(auto(model(6, 10), node("a", 60), node("b", 60), **LATENCY))
    lopsided = ((0, 0, 5), (1, 5, 6))
    assert levelling.levelled(problem, lopsided, math.inf) == ((0, 0, 3), (1, 3, 6))
    monkeypatch.setattr(levelling, "ROUNDS", 2)
    assert levelling.levelled(problem, lopsided, math.inf) == ((0, 0, 4), (1, 4, 6))


def test_levelling_a_bottleneck_searches_for_the_room() -> None:
    problem = problem_for(auto(model(6, 10), node("a", 60), node("b", 60)))
    assert levelling.levelled(problem, ((0, 0, 5), (1, 5, 6)), math.inf) == ((0, 0, 3), (1, 3, 6))


def test_levelling_leaves_a_single_stage_and_experts_alone() -> None:
    paged = ModelCost(6, 10, 0, 0, expert_bytes_per_layer=1)
    problem = problem_for(auto(paged, node("a", 99), node("b", 99), **LATENCY))
    assert levelling.levelled(problem, ((0, 0, 5), (1, 5, 6)), math.inf) == ((0, 0, 5), (1, 5, 6))
    assert levelling.levelled(problem, ((0, 0, 6),), math.inf) == ((0, 0, 6),)


def test_a_model_without_work_takes_no_time() -> None:
    assert planned(replace(FOUR, per_layer_flops=0.0), *fleet(1.0, 2.0)) == ([("a", 0, 4)], 0.0)


def test_a_node_that_cannot_hold_what_the_engine_adds_is_idle() -> None:
    """7 bytes on each stage: one node has 6, the other just enough for all."""
    plain = engine("plain", {"overhead_bytes": 7})
    plan = place(auto(MIXED, node("a", 6), node("b", 47), order="given", engine=plain, **LATENCY))
    assert spans(plan) == [("b", 0, 4)]
    assert plan.idle == (Idle("a", "cannot hold a layer"),)


@pytest.mark.parametrize("optimize", ["latency", "throughput"])
def test_a_table_that_both_ends_share_is_held_once_by_who_holds_all(optimize: str) -> None:
    """Four layers of 10, and 6 + 6 bytes of one table: 46 bytes on one node, 52 on two."""
    tied = replace(MIXED, embed_bytes=6, head_bytes=6, tied_embeddings=True)
    asked: dict[str, Any] = {"order": "given", "optimize": optimize}
    assert spans(place(auto(tied, node("a", 46), **asked))) == [("a", 0, 4)]
    with pytest.raises(DoesNotFitError):
        place(auto(tied, node("a", 45), **asked))


def test_a_small_node_is_passed_over_where_layers_are_dear() -> None:
    """Layers 1 and 2 weigh 30 bytes; the fast node of 20 can hold only the first or the last."""
    cost = ModelCost(4, 0, 0, 0, layers=(Block(1, 10, SECOND), Block(2, 30, SECOND), Block(1, 10, SECOND)))
    nodes = [node("a", 60, gflops=1.0), node("b", 20, gflops=4.0), node("c", 100, gflops=1.0)]
    assert planned(cost, *nodes, **LATENCY) == ([("b", 0, 1), ("c", 1, 4)], 3.25)
    assert planned(cost, *nodes, first_node="a", **LATENCY)[1] == 4.0
