"""Plans of an exact number of stages, where going as far as one can is not best."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.placement.auto.spread import Spread
from app.placement.cost import Block, ModelCost
from app.placement.objective import Objective
from app.placement.planner import place
from tests.placement.build import node, task
from tests.placement.drawn import tasks
from tests.placement.test_auto import check_best, thorough
from tests.placement.test_search import problem_for

HOLE = ModelCost(6, 0, 0, 0, layers=(Block(3, 0), Block(2, 1), Block(1, 0)))
"""Layers 3 and 4 weigh a byte each, the others nothing."""


@pytest.mark.parametrize(("order", "last_node"), [("given", None), ("given", "c"), ("any", "c")])
def test_a_node_leaves_a_layer_to_the_next_where_each_must_have_one(order: str, last_node: str | None) -> None:
    """Two nodes can hold no more than the three empty layers; the first could take all of them and leaves one."""
    asked = Objective(order=order, stage_counts=(3,), last_node=last_node)
    nodes = (node("a", 0), node("b", 0), node("c", 2))
    plan = place(replace(task(HOLE, *nodes, policy="auto"), objective=asked))
    assert [(a.node.node_id, a.start, a.end) for a in plan.assignments] == [("a", 0, 2), ("b", 2, 3), ("c", 3, 6)]
    assert plan.proof is not None
    assert plan.proof.optimal


@thorough
@given(st.data())
def test_the_best_of_plans_of_a_demanded_number_of_stages_is_found(data: st.DataObject) -> None:
    optimize, order = data.draw(st.sampled_from(["throughput", "memory"])), data.draw(st.sampled_from(["any", "given"]))
    drawn = data.draw(tasks(optimize=optimize, order=order, layered=True, most_nodes=5))
    counts = data.draw(st.sampled_from([(2,), (3,), (4,), (2, 4)]))
    nodes = tuple(replace(n, ram_avail=n.ram_avail % 6) for n in drawn.nodes)
    check_best(replace(drawn, nodes=nodes, objective=replace(drawn.objective, stage_counts=counts, max_stages=None)))


@thorough
@given(st.data())
def test_a_set_of_starts_opens_the_ends_of_each_and_tells_the_limit_that_opens_more(data: st.DataObject) -> None:
    drawn = data.draw(tasks(optimize="throughput", order="given", layered=True, most_nodes=1))
    problem = problem_for(drawn)
    lane, end = problem.lanes[0], problem.chain.end
    starts = data.draw(st.integers(0, (2 << end) - 1))
    every = sorted({lane.value(a, b) for a in range(end) for b in range(a + 1, end + 1) if b <= lane.span(a)[1]})
    limit = data.draw(st.sampled_from([0.0, *every, math.inf]))

    def opened(limit: float) -> int:
        return sum({1 << b for a in range(end) if starts >> a & 1 for b in range(a + 1, lane.reach(a, limit) + 1)})

    ends, following = Spread(lane, limit).after(starts)
    assert ends == opened(limit)
    assert all(opened(value) == ends for value in every if limit < value < following)
    for b in range(1, end + 1):
        can = [a for a in range(b) if starts >> a & 1 and lane.reach(a, limit) >= b]
        assert Spread(lane, limit).start(starts, b) == (can[-1] if can else None)
