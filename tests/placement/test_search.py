"""The solvers beyond the exact ones, and their bounds, against every plan there is."""

import math
import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.placement.auto import bounds, orders
from app.placement.auto.equal import least_sum
from app.placement.auto.policy import problem_of
from app.placement.auto.prices import prices
from app.placement.auto.probing import smallest
from app.placement.auto.problem import Problem
from app.placement.auto.pruned import Pruned
from app.placement.auto.search import solve
from app.placement.auto.states import Costs, Reaches
from app.placement.auto.uniform import Uniform
from app.placement.budgets import Reserve, budget
from app.placement.check import violations
from app.placement.cost import Block, ModelCost
from app.placement.errors import DoesNotFitError
from app.placement.nodes import Node
from app.placement.objective import Objective
from app.placement.planner import place
from app.placement.stages import stack_of, worker_of
from app.placement.task import Task
from tests.placement.brute import optimum
from tests.placement.drawn import tasks

thorough = settings(
    max_examples=int(os.environ.get("EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def problem_for(task: Task) -> Problem:
    """The search's view of a task whose nodes are all able."""
    engine, objective = task.engine, task.objective
    stack = stack_of(task.model, engine, objective.context, objective.sequences)
    workers = [worker_of(n, budget(n, task.reserve.of(n, engine), engine), engine) for n in task.nodes]
    return problem_of(stack, workers, engine, objective)


def any_task(data: st.DataObject, optimize: tuple[str, ...] = ("throughput", "latency", "memory")) -> Task:
    """One of all kinds."""
    return data.draw(
        tasks(
            optimize=data.draw(st.sampled_from(optimize)),
            order=data.draw(st.sampled_from(("any", "given"))),
            layered=data.draw(st.booleans()),
            experts=data.draw(st.booleans()),
        )
    )


@thorough
@given(st.data())
def test_the_best_effort_never_claims_too_much(data: st.DataObject) -> None:
    """What it finds fits and is no better than the optimum; its bound is below; what it proves is true."""
    task = any_task(data)
    problem = problem_for(task)
    if not problem.counts:
        return
    problem = replace(problem, entries=data.draw(st.sampled_from([0, 300, 100_000])))
    best, found = optimum(task), orders.best_effort(problem)
    if best is None:
        assert found.stages is None
        return
    assert found.lower_bound <= best[0] * (1 + 1e-9)
    if found.stages is None:
        assert not found.proven
        return
    assert problem.value(found.stages) >= best[0] * (1 - 1e-9)
    if found.proven:
        assert math.isclose(found.best_value, best[0], rel_tol=1e-9)
        assert found.best_stages >= best[1]


@thorough
@given(st.data())
def test_bounds_are_below_every_plan(data: st.DataObject) -> None:
    """Without a plan in hand, and from the prices of one."""
    task = any_task(data)
    problem = problem_for(task)
    best = optimum(task)
    if best is None:
        return
    assert bounds.lower(problem) <= best[0] * (1 + 1e-9)
    if problem.sums:
        stages = solve(problem).stages
        assert stages is not None
        assert prices(problem, stages).bound <= best[0] * (1 + 1e-9)


@thorough
@given(st.data())
def test_the_pruned_search_is_exact_where_it_ends(data: st.DataObject) -> None:
    """Sums in any order by the search that drops what can't win."""
    task = any_task(data, ("latency",))
    problem = problem_for(task)
    if problem.given or not problem.counts:
        return
    best, found = optimum(task), orders.best_effort(problem)
    if best is None or found.stages is None:
        return
    assert found.proven
    assert math.isclose(found.best_value, best[0], rel_tol=1e-9)
    assert found.best_stages == best[1]


TIGHT = {
    "equal.CORE": 1,
    "line.NEAR": 1,
    "search.MOVES": 0,
    "refusal.MOVES": 0,
    "refusal.SCANNED": 0,
    "orders.REACH": 1_000_000,
    "levelling.ROUNDS": 4,
}


@thorough
@given(st.data())
def test_tight_budgets_never_lie(data: st.DataObject) -> None:
    """With next to no steps allowed, what is returned fits, and what is claimed of it is true."""
    task = any_task(data)
    task = replace(task, objective=replace(task.objective, slack=data.draw(st.sampled_from([0.0, 0.0, 0.5]))))
    best = optimum(task)
    names = data.draw(st.sets(st.sampled_from(sorted(TIGHT)), min_size=1))
    entries = data.draw(st.sampled_from([1, 2_000, 100_000]))
    with pytest.MonkeyPatch.context() as patched:
        for name in names:
            patched.setattr(f"app.placement.auto.{name}", TIGHT[name])
        patched.setattr("app.placement.auto.equal.ENTRIES", entries)
        try:
            plan = place(task)
        except DoesNotFitError as refusal:
            assert best is None or not refusal.proven
            return
    assert best is not None
    assert plan.proof is not None
    assert violations(plan) == ()
    assert plan.proof.lower_bound <= best[0] * (1 + 1e-9)
    assert plan.proof.best_value >= best[0] * (1 - 1e-9)
    if plan.proof.optimal:
        assert math.isclose(plan.proof.best_value, best[0], rel_tol=1e-9)


def wider(data: st.DataObject, optimize: tuple[str, ...], *, layered: bool) -> Task:
    """Up to eight nodes and twelve layers, too many for all plans, in any order."""
    drawn = tasks(
        optimize=data.draw(st.sampled_from(optimize)), order="any", layered=layered, most_nodes=8, most_layers=12
    )
    return data.draw(drawn)


def reached(problem: Problem) -> float | None:
    """The least bottleneck by the dynamic programme over states."""
    return smallest(Reaches(problem).probe, bounds.work(problem))


@thorough
@given(st.data())
def test_two_exact_solvers_agree_on_bottlenecks_of_equal_layers(data: st.DataObject) -> None:
    """The search over ends and events, and the one over states; the fewest stages too."""
    problem = problem_for(wider(data, ("throughput", "memory"), layered=False))
    if not problem.counts:
        return
    uniform, states = Uniform(problem), Reaches(problem)
    value = uniform.least()
    assert value == reached(problem)
    if value is not None:
        one, other = uniform.fewest(value), states.fewest(value)
        assert one is not None
        assert other is not None
        assert len(one) == len(other)


def least_cost(problem: Problem) -> tuple[float, int] | None:
    """The least sum by the dynamic programme over states, and the fewest stages that reach it."""
    best = {count: value for count, (value, _) in Costs(problem).best().items() if value < math.inf}
    if not best:
        return None
    value = min(best.values())
    return value, min(count for count, v in best.items() if v <= value * (1 + 1e-11))


@thorough
@given(st.data())
def test_two_exact_solvers_agree_on_sums_of_equal_layers(data: st.DataObject) -> None:
    """The knapsack on a core of any size, and the one over states."""
    problem = problem_for(wider(data, ("latency",), layered=False))
    if not problem.counts:
        return
    best = least_cost(problem)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("app.placement.auto.equal.CORE", data.draw(st.integers(1, 4)))
        found = least_sum(problem)
    assert found.proven
    assert (best is None) == (found.stages is None)
    if best is not None:
        assert math.isclose(found.best_value, best[0], rel_tol=1e-9)
        assert found.best_stages == best[1]
        assert found.stages is not None
        assert math.isclose(problem.value(found.stages), best[0], rel_tol=1e-9)


@thorough
@given(st.data())
def test_two_exact_solvers_agree_on_sums_of_different_layers(data: st.DataObject) -> None:
    """The pruned search from the best order, and the one over states."""
    problem = problem_for(wider(data, ("latency",), layered=True))
    if not problem.counts:
        return
    best, found = least_cost(problem), orders.best_effort(problem)
    if best is None or found.stages is None:
        assert found.stages is None
        return
    assert found.proven
    assert math.isclose(found.best_value, best[0], rel_tol=1e-9)
    assert found.best_stages == best[1]
    assert math.isclose(problem.value(found.stages), best[0], rel_tol=1e-9)


@thorough
@given(st.data())
def test_pruning_keeps_every_plan_within_the_limit(data: st.DataObject) -> None:
    """For each number of stages the best plan is still there, whatever the limit above it."""
    problem = problem_for(wider(data, ("latency",), layered=True))
    if not problem.counts:
        return
    best = {count: value for count, (value, _) in Costs(problem).best().items() if value < math.inf}
    if not best:
        return
    limit = min(best.values()) * data.draw(st.sampled_from([1.0, 1.1, 2.0, 10.0]))
    stages = solve(problem).stages
    assert stages is not None
    search = Pruned(problem, prices(problem, stages), limit, 10**7)
    assert search.complete
    for count, value in best.items():
        if value <= limit:
            assert math.isclose(search.found[count][0], value, rel_tol=1e-9)
            assert math.isclose(problem.value(search.stages(count)), value, rel_tol=1e-9)


def test_a_fast_node_that_comes_late_is_not_pruned() -> None:
    """The slow node must be first; what the fast one saves after it counts for every state before."""
    fast, middling, slow = (Node(who, who, 4, 4, gflops=speed) for who, speed in (("f", 100.0), ("m", 4.0), ("s", 1.0)))
    model = ModelCost(9, 0, 0, 0, layers=tuple(Block(1, 1, (5 + at) * 1e6) for at in range(9)))
    objective = Objective("latency", 0, 1, 0.0, first_node="s")
    problem = problem_for(Task(model, (fast, middling, slow), "auto", Reserve(0, 0), objective=objective))
    best = least_cost(problem)
    stages = solve(problem).stages
    assert best is not None
    assert stages is not None
    priced = prices(problem, stages)
    assert min(priced.excess) < 0
    assert math.isclose(Pruned(problem, priced, best[0], 10**6).found[3][0], best[0], rel_tol=1e-9)
