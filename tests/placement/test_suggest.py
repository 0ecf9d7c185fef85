"""Suggestions whose figures a person can check."""

from dataclasses import replace

import pytest

from app.placement.budgets import Reserve
from app.placement.cost import Block
from app.placement.nodes import Node
from app.placement.suggest import Fitting, affordable_plans, suggestions
from app.placement.task import Task
from app.placement.units import INT_MAX
from tests.placement.build import auto, model, node, task


def found(asked: Task) -> dict[str, int | str]:
    return {s.change: s.value for s in suggestions(asked)}


def test_the_largest_context_that_fits_is_suggested() -> None:
    """A token takes a byte in each of four layers: two fit 50 bytes. With three, a layer of 13 needs another node."""
    cached = replace(model(4, 10), kv_bytes_per_layer_token=1)
    assert found(auto(cached, node("a", 50), context=3)) == {"objective.context": 2, "nodes": 13}
    assert found(auto(cached, node("a", 39), context=1)).keys() == {"nodes"}


def test_fewer_sequences_are_suggested_where_one_at_least_fits() -> None:
    """A sequence of two tokens takes 8 bytes beside the layers' 40."""
    cached = replace(model(4, 10), kv_bytes_per_layer_token=1)
    asked = auto(cached, node("a", 57), context=2, sequences=5)
    assert found(asked)["objective.sequences"] == 2
    assert "objective.sequences" not in found(replace(asked, nodes=(node("a", 47),)))


def test_the_widest_precision_that_fits_is_suggested() -> None:
    """40 bytes of 20 parameters are 16 bits each: layers of 10 take 6 at 8.5 bits and 5 at 8, of which four fit 20."""
    asked = auto(replace(model(4, 10), params=20), node("a", 20))
    assert found(asked)["objective.precision_ladder"] == "fp8"
    assert "objective.precision_ladder" not in found(replace(asked, nodes=(node("a", 11),)))
    assert "objective.precision_ladder" not in found(auto(model(4, 10), node("a", 20)))


def test_a_smaller_reserve_is_suggested_where_one_fits() -> None:
    asked = replace(auto(model(4, 10), node("a", 50)), reserve=Reserve(20, 0))
    assert found(asked) == {"reserve_bytes": 10, "nodes": 10}
    assert "reserve_bytes" not in found(replace(asked, nodes=(node("a", 39),)))


def test_a_task_that_is_wrong_with_any_node_does_not_fit() -> None:
    """Nobody to plan on, and figures beyond the integers, are no plans; nor is anything once the budget is spent."""
    fitting = Fitting(3)
    assert not fitting(task(model(4, 10), node("a", role="draining")))
    assert not fitting(auto(model(1, INT_MAX, embed=1), node("a")))
    assert fitting(auto(model(1, 10), node("a", 10)))
    assert not fitting(auto(model(1, 10), node("a", 10)))


@pytest.mark.parametrize(
    "asked",
    [
        task(model(4, 30), node("a", 10, layers="0:4"), policy="manual"),
        replace(auto(model(1, INT_MAX), node("a", 10)), reserve=Reserve(1, 0)),
    ],
)
def test_no_node_is_suggested_for_ranges_by_hand_or_beyond_the_integers(asked: Task) -> None:
    assert "nodes" not in found(asked)


def test_no_node_is_suggested_where_none_would_help() -> None:
    """The pinned last node is too small, whoever else comes."""
    assert found(auto(model(4, 10), node("a", 10), node("b", 9), last_node="b")) == {}


def test_layers_that_differ_in_any_order_afford_fewer_plans() -> None:
    """30,000 units: 10 nodes of equal layers are 120 plans, the most; as sets 2^10 * 10 / 14 units each, 41."""
    nodes: list[Node] = [node(f"n{at}") for at in range(10)]
    equal = auto(model(4, 10), *nodes)
    assert affordable_plans(equal) == 120
    assert affordable_plans(replace(equal, model=replace(equal.model, layers=(Block(1, 1), Block(3, 2))))) == 41
