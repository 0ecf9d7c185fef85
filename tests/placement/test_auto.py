"""Policy auto against every plan there is, on small numbers."""

import math
import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.placement.budgets import Reserve
from app.placement.check import violations
from app.placement.cost import Block, ModelCost
from app.placement.engines import PLAIN
from app.placement.errors import DoesNotFitError
from app.placement.planner import place
from app.placement.task import Task
from tests.placement.brute import largest_model, optimum, plans
from tests.placement.build import auto, node
from tests.placement.drawn import tasks

EXAMPLES = int(os.environ.get("EXAMPLES", "40"))
thorough = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

OBJECTIVES = ("throughput", "latency", "memory")
ORDERS = ("any", "given")
KINDS = ("uniform", "layered", "uniform experts", "layered experts")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("optimize", OBJECTIVES)
def test_the_plan_is_the_best_of_all_plans(optimize: str, order: str, kind: str) -> None:
    """The optimum and the fewest stages that reach it; where nothing fits, a proven refusal and how much would."""

    @thorough
    @given(st.data())
    def check(data: st.DataObject) -> None:
        task = data.draw(tasks(optimize=optimize, order=order, layered="layered" in kind, experts="experts" in kind))
        check_best(task)

    check()


def check_best(task: Task) -> None:
    best = optimum(task)
    try:
        plan = place(task)
    except DoesNotFitError as refusal:
        assert best is None
        assert refusal.proven
        assert refusal.capacity_layers == largest_model(task)
        return
    assert best is not None
    assert plan.proof is not None
    value, stages = best
    assert math.isclose(plan.proof.value, value, rel_tol=1e-9)
    assert len(plan.assignments) == stages
    assert plan.proof.optimal
    assert violations(plan) == ()


@thorough
@given(st.data())
def test_slack_buys_fewer_stages(data: st.DataObject) -> None:
    """The fewest stages among all plans within the slack of the best, and the best beside them."""
    optimize, order = (data.draw(st.sampled_from(OBJECTIVES)), data.draw(st.sampled_from(ORDERS)))
    task = data.draw(tasks(optimize=optimize, order=order, layered=data.draw(st.booleans()), experts=False))
    slack = data.draw(st.sampled_from([0.01, 0.25, 1.0]))
    task = replace(task, objective=replace(task.objective, slack=slack))
    found = list(plans(task))
    if not found:
        return
    best = min(value for _, value in found)
    within = [len(plan) for plan, value in found if value <= best * (1 + slack) * (1 + 1e-11)]
    plan = place(task)
    assert plan.proof is not None
    assert len(plan.assignments) == min(within)
    assert plan.proof.value <= best * (1 + slack) * (1 + 1e-9)
    assert math.isclose(plan.proof.best_value, best, rel_tol=1e-9)
    assert plan.proof.best_stages == min(len(p) for p, value in found if value <= best * (1 + 1e-11))
    assert violations(plan) == ()


@thorough
@given(st.data())
def test_stages_of_a_host_share_its_memory(data: st.DataObject) -> None:
    """A plan keeps every host within its RAM; what is claimed of it is true."""
    optimize, order = (data.draw(st.sampled_from(OBJECTIVES)), data.draw(st.sampled_from(ORDERS)))
    layered, experts = data.draw(st.booleans()), data.draw(st.booleans())
    task = data.draw(tasks(optimize=optimize, order=order, layered=layered, experts=experts, hosts=True))
    best = optimum(task)
    try:
        plan = place(task)
    except DoesNotFitError as refusal:
        assert best is None or not refusal.proven
        assert refusal.capacity_layers <= largest_model(task)
        return
    assert best is not None
    assert plan.proof is not None
    assert violations(plan) == ()
    assert plan.proof.lower_bound <= best[0] * (1 + 1e-9)
    assert plan.proof.value >= best[0] * (1 - 1e-9)
    if plan.proof.optimal:
        assert math.isclose(plan.proof.value, best[0], rel_tol=1e-9)


def value_of(task: Task) -> float:
    """The value of the best plan, infinite where nothing fits."""
    try:
        proof = place(task).proof
    except DoesNotFitError:
        return math.inf
    assert proof is not None
    return proof.best_value


@thorough
@given(st.data())
def test_more_memory_or_a_faster_node_or_one_more_never_worsens_a_time(data: st.DataObject) -> None:
    """Monotone: the best plan of the poorer fleet is still there."""
    optimize, order = (data.draw(st.sampled_from(("throughput", "latency"))), data.draw(st.sampled_from(ORDERS)))
    task = data.draw(tasks(optimize=optimize, order=order, layered=data.draw(st.booleans())))
    at = data.draw(st.integers(0, len(task.nodes) - 1))
    old = task.nodes[at]
    better = data.draw(
        st.sampled_from(
            [
                replace(old, ram_avail=old.ram_avail + 3, ram_total=old.ram_total + 3),
                replace(old, gflops=(old.gflops or 1.0) + 1.0, devices=()),
            ]
        )
    )
    richer = (*task.nodes[:at], better, *task.nodes[at + 1 :])
    more = (*task.nodes, replace(old, node_id="new", addr="new"))
    before = value_of(task)
    assert value_of(replace(task, nodes=richer)) <= before * (1 + 1e-9)
    assert value_of(replace(task, nodes=more)) <= before * (1 + 1e-9)


@thorough
@given(st.data())
def test_scale_changes_nothing_but_the_value(data: st.DataObject) -> None:
    """All bytes a thousandfold with all byte rates, and all speeds doubled with hops halved: the same stages."""
    optimize, order = (data.draw(st.sampled_from(OBJECTIVES)), data.draw(st.sampled_from(ORDERS)))
    task = data.draw(tasks(optimize=optimize, order=order, layered=data.draw(st.booleans())))
    task = replace(task, engine=PLAIN)
    before = value_of(task)
    assert math.isclose(value_of(heavier(task, 1024)), before, rel_tol=1e-9)
    halved = before if optimize == "memory" else before / 2
    assert math.isclose(value_of(faster(task)), halved, rel_tol=1e-9)


def heavier(task: Task, by: int) -> Task:
    model, reserve = task.model, task.reserve.asked_bytes or 0
    layers = tuple(
        replace(b, bytes=b.bytes * by, kv_bytes_per_token=b.kv_bytes_per_token * by, state_bytes=b.state_bytes * by)
        for b in model.layers
    )
    return replace(
        task,
        model=replace(
            model,
            layers=layers,
            per_layer_bytes=model.per_layer_bytes * by,
            embed_bytes=model.embed_bytes * by,
            head_bytes=model.head_bytes * by,
            kv_bytes_per_layer_token=model.kv_bytes_per_layer_token * by,
            tied_bytes=None if model.tied_bytes is None else model.tied_bytes * by,
        ),
        nodes=tuple(
            replace(
                n,
                ram_total=n.ram_total * by,
                ram_avail=n.ram_avail * by,
                devices=tuple(replace(d, mem_gbps=(d.mem_gbps or 0.0) * by) for d in n.devices),
            )
            for n in task.nodes
        ),
        reserve=Reserve(reserve * by, 0),
    )


def faster(task: Task) -> Task:
    nodes = tuple(
        replace(
            n,
            gflops=max(n.gflops or 0.0, 1.0) * 2,
            devices=tuple(replace(d, mem_gbps=(d.mem_gbps or 0.0) * 2) for d in n.devices),
        )
        for n in task.nodes
    )
    return replace(task, nodes=nodes, objective=replace(task.objective, hop_s=task.objective.hop_s / 2))


@thorough
@given(st.data())
def test_the_order_of_the_list_means_nothing_unless_it_is_given(data: st.DataObject) -> None:
    """Equal input in any order: the same stages, the same proof."""
    task = data.draw(
        tasks(optimize=data.draw(st.sampled_from(OBJECTIVES)), order="any", layered=data.draw(st.booleans()))
    )
    shuffled = replace(task, nodes=tuple(data.draw(st.permutations(task.nodes))))
    try:
        plan = place(task)
    except DoesNotFitError as refusal:
        with pytest.raises(DoesNotFitError) as again:
            place(shuffled)
        assert sorted(again.value.nodes, key=str) == sorted(refusal.nodes, key=str)
        return
    other = place(shuffled)
    assert other.assignments == plan.assignments
    assert other.proof == plan.proof


@pytest.mark.parametrize("order", ["any", "given"])
@pytest.mark.parametrize("layered", [False, True])
def test_layers_that_take_no_time_make_the_fewest_stages_too(order: str, *, layered: bool) -> None:
    """Two nodes of three hold six layers; the others would do in three or four stages."""
    layers = (Block(3, 10, 0.0), Block(3, 11, 0.0)) if layered else (Block(6, 10, 0.0),)
    nodes = [node(name, ram) for name, ram in (("a", 22), ("b", 33), ("c", 33), ("d", 22))]
    plan = place(auto(ModelCost(6, 0, 0, 0, layers=layers), *nodes, optimize="latency", order=order))
    assert len(plan.assignments) == 2
