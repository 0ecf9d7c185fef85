"""Layers that differ in any order where a budget of steps ends the exact search; figures that a person can check."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.placement.auto import refusal, search
from app.placement.auto.orders import best_effort
from app.placement.auto.outcome import NOTHING, Outcome
from app.placement.auto.prices import prices
from app.placement.auto.problem import Problem
from app.placement.auto.pruned import Pruned
from app.placement.auto.search import solve
from app.placement.cost import Block, ModelCost
from app.placement.errors import DoesNotFitError
from app.placement.nodes import Node
from app.placement.planner import can_place, place
from tests.placement.build import auto, node, spans
from tests.placement.test_search import problem_for

SECOND = 1e9
"""FLOPs that take a second on a node of one GFLOP/s."""

MIXED = ModelCost(4, 0, 0, 0, layers=(Block(1, 10, 3 * SECOND), Block(3, 10, SECOND)))
"""Layer 0 takes three seconds, the others one."""

LATENCY: dict[str, Any] = {"optimize": "latency"}


def fleet(*speeds: float, rams: Sequence[int] = (40,) * 8) -> list[Node]:
    """Nodes a, b, c .. of these GFLOP/s."""
    return [node("abcdefgh"[at], rams[at], gflops=speed) for at, speed in enumerate(speeds)]


def named(problem: Problem, outcome: Outcome) -> list[tuple[str, int, int]]:
    assert outcome.stages is not None
    return [(problem.workers[w].node.node_id, a, b) for w, a, b in outcome.stages]


@pytest.fixture
def without_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """No set of nodes may be laid out."""
    monkeypatch.setattr(search, "MOVES", 0)
    monkeypatch.setattr(refusal, "MOVES", 0)


@pytest.mark.usefixtures("without_states")
def test_a_bottleneck_is_found_without_all_sets_of_nodes_and_its_bound_is_near() -> None:
    """Three nodes at 2, 1 and 3 GFLOP/s have a second's work each."""
    problem = problem_for(auto(MIXED, *fleet(2.0, 1.0, 3.0, rams=(20, 10, 10))))
    found = solve(problem)
    assert (named(problem, found), found.best_value) == ([("c", 0, 1), ("a", 1, 3), ("b", 3, 4)], 1.0)
    assert found.lower_bound == pytest.approx(1.0)


@pytest.mark.usefixtures("without_states")
def test_improving_moves_nodes_while_that_helps_and_ends_with_its_budget() -> None:
    """No order by speed or size puts a before b before c, where no stage takes more than 1.5 s."""
    cost = ModelCost(4, 0, 0, 0, layers=tuple(Block(1, 10, s * SECOND) for s in (4.0, 1.0, 1.0, 2.0)))
    problem = problem_for(auto(cost, *fleet(3.0, 1.0, 2.0, rams=(20, 10, 20))))
    found = solve(problem)
    assert (named(problem, found), found.best_value) == ([("a", 0, 1), ("b", 1, 2), ("c", 2, 4)], 1.5)
    once = solve(replace(problem, entries=0))
    assert (named(problem, once), once.proven) == ([("a", 0, 2), ("c", 2, 4)], False)


@pytest.mark.usefixtures("without_states")
def test_improving_goes_on_from_what_it_has_found() -> None:
    """From 4/3 s over 5/4 to one: 4, 1 + 2, 3 and 4 seconds on nodes of 4, 3, 3 and 4 GFLOP/s."""
    cost = ModelCost(5, 0, 0, 0, layers=tuple(Block(1, 10, s * SECOND) for s in (4.0, 1.0, 2.0, 3.0, 4.0)))
    found = solve(problem_for(auto(cost, *fleet(3.0, 3.0, 4.0, 4.0, rams=(10, 20, 20, 20)))))
    assert (found.stages, found.best_value) == (((3, 0, 1), (1, 1, 3), (0, 3, 4), (2, 4, 5)), 1.0)


@pytest.mark.usefixtures("without_states")
def test_nothing_fits_in_any_order_and_the_bound_knows() -> None:
    """Two nodes of one layer each."""
    assert solve(problem_for(auto(MIXED, *fleet(1.0, 1.0, rams=(10, 10))))) == NOTHING


@pytest.mark.parametrize("optimize", ["throughput", "latency"])
@pytest.mark.usefixtures("without_states")
def test_what_no_tried_order_holds_is_not_proven_to_fit_nowhere(optimize: str) -> None:
    """Layers of 20, 20, 30 and 30 bytes on two nodes of 50: as many bytes, and two layers each, but no cut."""
    cost = ModelCost(4, 0, 0, 0, layers=(Block(2, 20, SECOND), Block(2, 30, SECOND)))
    problem = problem_for(auto(cost, *fleet(1.0, 2.0, rams=(50, 50)), optimize=optimize))
    found = best_effort(problem)
    assert (found.stages, found.proven) == (None, False)
    assert not refusal.fits(problem)


@pytest.mark.usefixtures("without_states")
def test_whether_something_fits_is_asked_of_orders() -> None:
    """The large node must come last, whatever its speed."""
    big_last = ModelCost(3, 0, 0, 0, layers=(Block(2, 10, SECOND), Block(1, 30, SECOND)))
    assert can_place(auto(big_last, *fleet(1.0, 2.0, rams=(30, 20))))
    assert not can_place(auto(big_last, *fleet(1.0, 2.0, rams=(20, 29))))


@pytest.mark.usefixtures("without_states")
def test_pinned_nodes_stay_at_their_ends_in_every_order() -> None:
    """The fast node may only be in the middle; with two stages it has no place."""
    nodes = fleet(1.0, 3.0, 3.0)
    pins: dict[str, Any] = {"first_node": "c", "last_node": "a"}
    assert spans(place(auto(MIXED, *nodes, **pins))) == [("c", 0, 1), ("b", 1, 3), ("a", 3, 4)]
    assert spans(place(auto(MIXED, *nodes, max_stages=2, **pins))) == [("c", 0, 3), ("a", 3, 4)]


RAMS = (10, 10, 10, 20, 10, 10, 10)
SEVEN = fleet(1.0, 1.25, 1.5, 2.0, 1.75, 1.6, 1.1, rams=RAMS)
"""128 sets. Node d is the fastest and holds two layers, the others one each."""


def seven(**objective: Any) -> Problem:
    return problem_for(auto(MIXED, *SEVEN, hop_s=0.5, **({"optimize": "latency"} | objective)))


def test_a_sum_beyond_the_budget_of_states_is_searched_by_price_to_its_end() -> None:
    """Node d with four seconds' work, then the two fastest others, and two hops."""
    found = solve(replace(seven(), entries=3_500))
    assert {worker for worker, _, _ in found.stages or ()} == {3, 4, 5}
    assert found.best_value == pytest.approx(4 / 2 + 1 / 1.75 + 1 / 1.6 + 1.0)
    assert (found.best_stages, found.proven) == (3, True)


def test_a_search_by_price_keeps_pinned_ends() -> None:
    """Node a begins with three seconds, g ends with one at 1.1; d has the two between."""
    found = best_effort(seven(first_node="a", last_node="g"))
    assert (found.stages, found.proven) == (((0, 0, 1), (3, 1, 3), (6, 3, 4)), True)
    assert found.best_value == pytest.approx(3 + 2 / 2 + 1 / 1.1 + 1.0)


def test_a_search_by_price_keeps_to_the_numbers_that_are_allowed() -> None:
    found = best_effort(seven(stage_counts=(4,)))
    assert (found.best_stages, found.proven) == (4, True)
    assert found.best_value == pytest.approx(3 / 2 + 1 / 1.75 + 1 / 1.6 + 1 / 1.5 + 1.5)


def test_a_search_by_price_spends_slack_on_fewer_stages() -> None:
    """Two nodes of all: the fast one alone holds everything and takes 3 s, with the other it would be 2.5."""
    nodes = fleet(2.0, 4.0, rams=(40, 20))
    problem = problem_for(auto(MIXED, *nodes, slack=0.5, **LATENCY))
    found = best_effort(problem)
    assert (named(problem, found), found.best_value, found.best_stages) == ([("a", 0, 4)], 2.0, 2)


def test_a_search_by_price_that_its_budget_ends_leaves_a_plan_and_a_gap() -> None:
    """1,900 entries are enough for prices and to rule out the lower half of the gap, but not for the rest."""
    found = solve(replace(seven(), entries=1_900))
    best = 4 / 2 + 1 / 1.75 + 1 / 1.6 + 1.0
    assert found.best_value == pytest.approx(best)
    assert not found.proven
    priced = prices(seven(), found.stages or ()).bound
    assert found.lower_bound == pytest.approx(priced + (best - priced) * (1 / 4 + 3 / 4 / 2))


def test_a_search_without_entries_left_finds_nothing_and_says_that_it_is_not_complete() -> None:
    problem = seven()
    priced = prices(problem, solve(problem).stages or ())
    assert Pruned(problem, priced, math.inf, 10_000).complete
    assert not Pruned(problem, priced, math.inf, 0).complete


def test_prices_of_a_slow_plan_tell_at_once_what_the_fast_node_saves() -> None:
    """Four layers of a second, by the slow node; at double speed they save two, and no layer is left to price anew."""
    cost = ModelCost(4, 0, 0, 0, layers=(Block(1, 10, SECOND), Block(3, 11, SECOND)))
    problem = problem_for(auto(cost, *fleet(1.0, 2.0, rams=(50, 50)), **LATENCY))
    priced = prices(problem, ((0, 0, 4),))
    assert priced.bound == pytest.approx(2.0)
    assert priced.excess == [0.0, -2.0]
    assert priced.upto == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_sum_in_order_beyond_the_budget_is_bounded_by_prices_too() -> None:
    """Forty equal nodes: two take six seconds and a hop, and no two do better."""
    nodes = [node(f"n{at:02}", 20, gflops=1.0) for at in range(40)]
    problem = problem_for(auto(MIXED, *nodes, order="given", hop_s=0.5, **LATENCY))
    found = solve(replace(problem, entries=300))
    assert (found.stages, found.best_value, found.proven) == (((0, 0, 2), (1, 2, 4)), 6.5, True)


def test_nothing_is_priced_where_the_tables_would_be_beyond_the_budget() -> None:
    """Seven kinds by 4^2 are a sixteenth of 1,792. Six seconds at double speed and two hops are the bound."""
    found = solve(replace(seven(), entries=1_791))
    assert found.lower_bound == pytest.approx(3.0 + 1.0)


def test_prices_bound_a_sum_in_order_without_changing_the_order() -> None:
    """Four seconds at single speed and two at double; the other way round it would be four in all."""
    problem = problem_for(auto(MIXED, *fleet(1.0, 2.0, rams=(20, 20)), order="given", **LATENCY))
    found = best_effort(problem)
    assert (named(problem, found), found.best_value) == ([("a", 0, 2), ("b", 2, 4)], 5.0)


def test_a_capacity_is_halved_where_trying_every_number_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes of one layer each, whatever the way of counting."""
    asked = auto(MIXED, *fleet(1.0, 2.0, rams=(10, 10)))
    for scanned in (400_000, 0):
        monkeypatch.setattr(refusal, "SCANNED", scanned)
        with pytest.raises(DoesNotFitError) as refused:
            place(asked)
        assert refused.value.capacity_layers == 2


def test_a_capacity_of_three_is_found_by_halving_from_below_and_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal, "SCANNED", 0)
    for rams, capacity in (((5, 5), 0), ((10, 9), 1), ((20, 10), 3)):
        with pytest.raises(DoesNotFitError) as refused:
            place(auto(MIXED, *fleet(1.0, 2.0, rams=rams)))
        assert refused.value.capacity_layers == capacity


def test_nothing_fits_a_number_of_stages_that_there_are_no_nodes_for() -> None:
    assert can_place(auto(MIXED, *fleet(1.0, 1.0), stage_counts=(2,)))
    assert not can_place(auto(MIXED, *fleet(1.0, 1.0), stage_counts=(3,)))


CROWD = [
    node("a", 10, gflops=8.0),
    node("b", 10, gflops=8.0),
    node("c", 400, gflops=1.0),
    node("d", 400, gflops=1.0),
    node("e", 30, gflops=4.0),
]
"""The two fastest are too small for MIXED, the two largest slow."""


@pytest.mark.usefixtures("without_states")
@pytest.mark.parametrize(
    ("entries", "value"),
    [
        pytest.param(10_000_000, 0.75, id="all orders of all nodes"),
        pytest.param(40_000, 1.25, id="the two largest, then one of them for another, as long as that helps"),
        pytest.param(160, 3.0, id="the two largest"),
    ],
)
def test_of_more_nodes_than_the_budget_lasts_for_the_largest_and_fastest_are_tried(entries: int, value: float) -> None:
    problem = replace(problem_for(auto(MIXED, *CROWD, max_stages=2)), entries=entries)
    assert solve(problem).best_value == value


@pytest.mark.usefixtures("without_states")
@pytest.mark.parametrize("optimize", ["throughput", "latency"])
@pytest.mark.parametrize(("slack", "stages"), [(0.0, 2), (2.0, 1)])
def test_slack_buys_fewer_stages_beyond_the_exact_solvers_too(optimize: str, slack: float, stages: int) -> None:
    """One node alone takes 6 s; with a faster one 2 s, or 3.5 s in sum."""
    nodes = [*fleet(1.0, 2.0, rams=(40, 30))]
    problem = problem_for(auto(MIXED, *nodes, optimize=optimize, slack=slack))
    found = best_effort(problem)
    assert found.stages is not None
    assert (len(found.stages), found.best_stages) == (stages, 2)
