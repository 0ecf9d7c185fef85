"""What is said beside a plan whose figures are guesses, or were given in vain."""

from dataclasses import replace

import pytest

from app.placement.cost import ModelCost
from app.placement.explain import summarise
from app.placement.objective import Objective
from app.placement.planner import place
from app.placement.task import Task
from tests.placement.build import device, model, node, task

COSTLY = model(4, 10, flops=1e9)


def asked(cost: ModelCost, known: int, unknown: int, objective: Objective | None = None) -> Task:
    """Policy auto on nodes that know how fast their memory is and others that don't."""
    fast = [node(f"k{at}", devices=(device("cpu", mem_gbps=10.0),)) for at in range(known)]
    dark = [node(f"u{at}") for at in range(unknown)]
    return replace(task(cost, *fast, *dark, policy="auto"), objective=objective or Objective())


def test_a_model_without_flops_has_times_of_memory_alone() -> None:
    (warning,) = place(asked(model(4, 10), 1, 0)).warnings
    assert warning.startswith("the model's FLOPs are not given")
    assert place(asked(COSTLY, 1, 0)).warnings == ()
    assert place(asked(model(4, 10), 1, 0, Objective("memory"))).warnings == ()


def test_a_stage_on_a_node_that_hides_its_bandwidth_beside_others_that_do_not_is_named() -> None:
    plan = place(asked(COSTLY, 1, 1))
    assert [a.node.node_id for a in plan.assignments] == ["k0", "u0"]
    assert plan.warnings == (
        "u0: mem_gbps is not reported, so reading weights counts nothing there; decoding is mostly that",
    )
    assert place(asked(COSTLY, 0, 2)).warnings == ()  # alike, so nobody is favoured


def test_many_such_nodes_are_counted() -> None:
    plan = place(asked(model(8, 100, flops=1e9), 1, 7))
    assert plan.warnings[0].startswith("u0, u1, u2, u3, u4 and 2 more: mem_gbps")


@pytest.mark.parametrize(
    ("objective", "warnings"),
    [
        (Objective(context=7, sequences=2), ()),
        (Objective("latency"), ("objective.optimize: only policy auto goes by it",)),
        (
            Objective(order="given", max_stages=1),
            ("objective.order, objective.max_stages: only policy auto goes by it",),
        ),
    ],
)
def test_an_aim_that_the_policy_does_not_know_is_said(objective: Objective, warnings: tuple[str, ...]) -> None:
    assert place(replace(task(COSTLY, node("a")), objective=objective)).warnings == warnings


def test_the_least_headroom_is_that_of_any_stage_that_holds_something() -> None:
    """A first node carries the embedding without layers, 10 bytes over its budget."""
    plan = place(task(model(1, 40, embed=60), node("a", 50), node("b", 100), policy="throughput", over=True))
    assert [(a.end - a.start, a.headroom_bytes) for a in plan.assignments] == [(0, -10), (1, 60)]
    assert summarise(plan).headroom_bytes == -10
