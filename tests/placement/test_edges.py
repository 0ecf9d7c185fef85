"""Where a budget of steps ends, a bound doesn't pay, a figure overflows: what rarely happens, made to happen."""

import math
from dataclasses import replace

import pytest

from app.placement.auto import bounds, equal, levelling, line, orders, refusal, search
from app.placement.auto.problem import Problem
from app.placement.auto.search import solve
from app.placement.budgets import Reserve
from app.placement.check import violations
from app.placement.cost import Block, ModelCost
from app.placement.engines import PLAIN, engine
from app.placement.errors import InvalidFieldError
from app.placement.explain import layer_cap, summarise
from app.placement.hosts import crowded
from app.placement.objective import Objective
from app.placement.planner import can_place, place
from app.placement.precision import at_precision
from app.placement.stages import stack_of
from app.placement.suggest import Fitting, affordable_plans, suggestions
from app.placement.units import INT_MAX
from tests.placement.build import model, node, task
from tests.placement.test_search import problem_for

LAYERED = ModelCost(6, 0, 0, 0, layers=(Block(2, 1, 2e9), Block(3, 2, 1e9), Block(1, 3, 5e9)))
SPEEDS = (3.0, 2.0, 5.0, 1.0)


def asked(cost: ModelCost, objective: Objective, *rams: int) -> Problem:
    """The problem of nodes with so much memory, as fast as ``SPEEDS`` says, round and round."""
    nodes = [node(f"n{at}", ram, gflops=SPEEDS[at % 4]) for at, ram in enumerate(rams)]
    return problem_for(replace(task(cost, *nodes, policy="auto"), objective=objective))


def value_of(problem: Problem) -> float:
    outcome = solve(problem)
    assert outcome.stages is not None
    return outcome.best_value


@pytest.mark.parametrize("steps", [1, 500_000])
def test_a_bottleneck_s_bound_is_below_the_optimum_with_steps_and_without(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """12 GFLOP on 3 + 3 + 2 GFLOP/s take 1.5 s if they could be shared out evenly."""
    monkeypatch.setattr(bounds, "STEPS", steps)
    nodes = [node("a", 9, gflops=3.0), node("b", 9, gflops=3.0), node("c", 9, gflops=2.0)]
    problem = problem_for(replace(task(LAYERED, *nodes, policy="auto"), objective=Objective()))
    assert bounds.work(problem) == pytest.approx(12 / 8)
    assert bounds.work(problem) <= bounds.lower(problem) <= value_of(problem)


def test_a_core_that_the_budget_makes_small_still_plans_and_says_what_it_did_not_look_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four nodes of which the sums of two may be tried; the best of all is known from a run without a bound."""
    problem = asked(model(8, 10, flops=1e9), Objective("latency", hop_s=0.001, max_stages=3), 40, 40, 40, 40)
    whole = solve(problem)
    monkeypatch.setattr(equal, "ENTRIES", 2 * 3 * 9 * 8)
    bounded = solve(problem)
    assert whole.proven
    assert bounded.stages is not None
    assert bounded.lower_bound <= whole.best_value <= bounded.best_value
    assert len({worker for worker, _, _ in bounded.stages}) <= 2


def test_a_larger_core_that_the_budget_does_not_let_be_tried_leaves_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four equal nodes of which two are tried: the bound, as if layers could be split, is below what they reach."""
    cost = replace(model(7, 10, flops=1e9), head_flops=3e9)
    nodes = [node(f"n{at}", 40, gflops=2.0) for at in range(4)]
    problem = problem_for(
        replace(task(cost, *nodes, policy="auto"), objective=Objective("latency", hop_s=0.3, max_stages=3))
    )
    whole = solve(problem)
    monkeypatch.setattr(equal, "ENTRIES", 2 * 3 * 8 * 8)
    bounded = solve(problem)
    assert bounded.best_value == whole.best_value
    assert bounded.lower_bound <= whole.best_value
    assert not bounded.proven


def test_nodes_that_are_alike_are_looked_at_once_where_shares_are_levelled() -> None:
    """Experts that may be paged make shares jump, so limits are tried; two of three nodes are equal."""
    cost = ModelCost(4, 2, 0, 0, 1e9, expert_bytes_per_layer=3, expert_active_bytes_per_layer=1)
    nodes = [
        node(name, ram, disk_free=disk, io_mbps=1.0) for name, ram, disk in (("a", 9, 20), ("b", 9, 20), ("c", 5, 0))
    ]
    plan = place(replace(task(cost, *nodes, policy="auto"), objective=Objective("memory")))
    assert plan.proof is not None
    assert plan.proof.optimal
    assert violations(plan) == ()


def test_a_bottleneck_s_stages_are_levelled_as_far_as_the_limit_lets() -> None:
    """Five layers and one become three and three; a headroom of four layers' worth can't be had."""
    problem = asked(model(6, 10), Objective(), 60, 60)
    assert levelling.levelled(problem, ((0, 0, 5), (1, 5, 6)), math.inf) == ((0, 0, 3), (1, 3, 6))


def test_levelling_ends_with_its_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five layers on one node and one on the other: each round moves one, the value being free."""
    problem = asked(model(6, 10), Objective("latency"), 60, 60)
    lopsided = ((0, 0, 5), (1, 5, 6))
    assert levelling.levelled(problem, lopsided, math.inf) == ((0, 0, 3), (1, 3, 6))
    monkeypatch.setattr(levelling, "ROUNDS", 2)
    assert levelling.levelled(problem, lopsided, math.inf) == ((0, 0, 4), (1, 4, 6))


def test_of_many_nodes_in_line_those_near_the_relaxed_optimum_tell_which_others_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = asked(model(9, 10, flops=1e9), Objective("latency", order="given", hop_s=0.01), 30, 20, 40, 30, 20, 40)
    exact = value_of(problem)
    monkeypatch.setattr(line, "NEAR", 2)
    assert value_of(problem) == exact


def test_an_order_in_which_everything_fits_is_any_plan() -> None:
    problem = asked(LAYERED, Objective(), 6, 6, 6)
    stages = orders.any_plan(problem)
    assert stages is not None
    assert stages[0][1] == 0
    assert stages[-1][2] == problem.chain.end
    assert orders.any_plan(asked(LAYERED, Objective(), 2, 2)) is None


@pytest.mark.parametrize("entries", [2_000, 20_000])
def test_a_search_that_its_budget_ends_leaves_a_plan_and_an_honest_gap(entries: int) -> None:
    cost = ModelCost(8, 0, 0, 0, layers=tuple(Block(1, 1 + at % 3, (1 + at % 4) * 1e9) for at in range(8)))
    problem = asked(cost, Objective("latency", hop_s=0.1), *(4 + at % 3 for at in range(9)))
    best = value_of(problem)
    bounded = solve(replace(problem, entries=entries))
    assert bounded.stages is not None
    assert bounded.lower_bound <= best * (1 + 1e-9)
    assert bounded.best_value >= best * (1 - 1e-9)


def test_improving_ends_with_its_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = ModelCost(8, 0, 0, 0, layers=tuple(Block(1, 1 + at % 3, (1 + at % 4) * 1e9) for at in range(8)))
    problem = asked(cost, Objective(), *(4 + at % 3 for at in range(9)))
    monkeypatch.setattr(orders, "PROBES", 0)
    monkeypatch.setattr(search, "MOVES", 1)
    once = solve(problem)
    assert once.stages is not None
    monkeypatch.undo()
    assert once.lower_bound <= value_of(problem) <= once.best_value


def test_in_given_order_sums_are_bounded_by_prices_where_all_can_t_be_computed() -> None:
    """140 nodes in a row are more than 2,304 entries of six cuts let be swept; four kinds of them can be priced."""
    problem = asked(LAYERED, Objective("latency", order="given"), *[9] * 140)
    best = value_of(problem)
    bounded = solve(replace(problem, entries=4 * 36 * 16))
    assert bounded.stages is not None
    assert bounded.lower_bound <= best <= bounded.best_value


def test_nothing_that_fits_is_an_infinite_bound() -> None:
    """Six layers weigh 11 bytes; each fits a node of 5 alone, and all of them no two."""
    problem = asked(LAYERED, Objective(), 5, 5)
    assert bounds.lower(problem) == math.inf
    assert orders.best_effort(problem).stages is None


@pytest.mark.parametrize(("order", "moves"), [("given", 1), ("any", 500_000), ("any", 1)])
def test_whether_it_fits_is_told_without_the_best_plan(monkeypatch: pytest.MonkeyPatch, order: str, moves: int) -> None:
    monkeypatch.setattr(refusal, "MOVES", moves)
    for rams, fits in (((6, 6), True), ((5, 5), False)):
        nodes = [node(f"n{at}", ram) for at, ram in enumerate(rams)]
        asked_for = replace(task(LAYERED, *nodes, policy="auto"), objective=Objective(order=order))
        assert can_place(asked_for) == fits


def test_equal_neighbours_are_one_run() -> None:
    assert ModelCost(5, 0, 0, 0, layers=(Block(2, 1), Block(3, 1))).blocks == (Block(5, 1),)


def test_in_given_order_too_a_budget_bounds_what_is_computed() -> None:
    problem = asked(LAYERED, Objective("latency", order="given"), 9, 9, 9)
    best = value_of(problem)
    bounded = solve(replace(problem, entries=1))
    assert bounded.stages is not None
    assert bounded.lower_bound <= best <= bounded.best_value


def test_a_host_that_a_plan_does_not_use_leaves_nothing() -> None:
    """Seven layers of 10; each host has 40 for two nodes. Two hosts are needed, and the third is slow."""
    nodes = [
        node(f"{host}{at}", 40, host_id=host, gflops=speed)
        for host, speed in (("h", 9.0), ("k", 8.0), ("z", 1.0))
        for at in range(2)
    ]
    plan = place(replace(task(model(7, 10, flops=1e9), *nodes, policy="auto"), objective=Objective("latency")))
    assert {a.node.host_id for a in plan.assignments} == {"h", "k"}
    assert summarise(plan).objective_value == pytest.approx(sum(a.est_stage_s for a in plan.assignments) + 0.002)
    assert violations(plan) == ()


def test_a_range_by_hand_beyond_the_model_is_weighed_as_the_reference_does() -> None:
    plan = place(task(model(2, 10), node("a", layers="0:5"), policy="manual", over=True))
    assert plan.assignments[0].est_bytes == 50
    assert violations(plan, allow_over_budget=True) == ()


def test_a_node_that_cannot_hold_an_engine_s_overhead_takes_no_layer() -> None:
    stack = stack_of(model(4, 10), engine("plain", {"overhead_bytes": 7}), 0, 1)
    assert [layer_cap(stack, -1, room) for room in (6, 7, 17, 100)] == [0, 0, 1, 4]


def test_a_host_with_room_for_its_stages_is_not_crowded() -> None:
    nodes = [node(name, ram, host_id=host) for name, ram, host in (("a", 40, "h"), ("b", 40, "h"), ("c", 40, "k"))]
    plan = place(task(model(3, 10), *nodes))
    assert crowded(plan.assignments, Reserve(0, 0), PLAIN) is None


def test_other_precisions_scale_blocks_and_must_have_names() -> None:
    layered = replace(LAYERED, params=11)  # 8 bits a parameter
    assert [b.bytes for b in at_precision(layered, "f4e2m1").layers] == [1, 1, 2]
    with pytest.raises(InvalidFieldError, match="there is no precision q4"):
        at_precision(layered, "q4")
    with pytest.raises(InvalidFieldError, match="need the number of parameters"):
        at_precision(LAYERED, "f4e2m1")


def test_sums_beyond_the_integers_are_named_with_what_the_engine_adds() -> None:
    with pytest.raises(InvalidFieldError, match="together exceed"):
        place(task(ModelCost(1, INT_MAX, 1, 0), node("a")))
    whole = ModelCost(1, INT_MAX - 5, 0, 0)
    with pytest.raises(InvalidFieldError, match="together exceed"):
        stack_of(whole, engine("plain", {"overhead_bytes": 7}), 0, 1)


def test_a_change_that_cannot_be_planned_at_all_does_not_fit() -> None:
    huge = replace(task(ModelCost(1, INT_MAX, 1, 0), node("a"), policy="auto"), objective=Objective())
    assert not Fitting(1)(huge)
    assert not Fitting(0)(task(model(1), node("a")))


def test_unlike_layers_in_any_order_cost_suggestions_as_many_orders_as_there_are() -> None:
    """Ten nodes: 2^10 sets of ten, a 14th of a unit each, of 30,000 units."""
    nodes = [node(f"n{at}") for at in range(10)]
    assert affordable_plans(task(LAYERED, *nodes, policy="auto")) == 30_000 // (2**10 * 10 // 14)
    assert affordable_plans(task(model(), *nodes, policy="auto")) == 120


def test_a_context_is_suggested_where_any_is_better_than_none() -> None:
    """A token takes a byte in each of two layers of 10 bytes; a node of 25 holds two tokens of them."""
    cached = replace(model(2, 10), kv_bytes_per_layer_token=1)
    asked_for = replace(task(cached, node("a", 25), policy="auto"), objective=Objective(context=100))
    assert suggestions(asked_for)[0].value == 2
    assert "objective.context" not in {s.change for s in suggestions(replace(asked_for, nodes=(node("a", 5),)))}


def test_the_largest_context_of_a_plan_stays_within_the_integers() -> None:
    """A token takes 2^40 bytes, so that 2^24 of them would be beyond them; the node holds three."""
    cached = replace(model(1, 10), kv_bytes_per_layer_token=2**40)
    plan = place(replace(task(cached, node("a", 2**42), policy="auto"), objective=Objective(context=1)))
    assert summarise(plan).max_context == 3
    assert summarise(place(task(model(1, 10), node("a")))).max_context is None


def test_ranges_by_hand_are_not_helped_by_one_more_node() -> None:
    by_hand = task(model(4, 30), node("a", layers="0:4"), policy="manual")
    assert [s for s in suggestions(by_hand) if s.change == "nodes"] == []
