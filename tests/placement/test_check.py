"""The gate in front of every answer finds each kind of broken promise."""

from dataclasses import replace
from typing import Any

import pytest

from app.placement.check import violations
from app.placement.cost import Block, ModelCost
from app.placement.objective import Objective
from app.placement.planner import place
from app.placement.plans import Idle, Placement
from tests.placement.build import auto, counts, model, node, task


@pytest.fixture
def sound() -> Placement:
    return place(task(model(10, 10, embed=5, head=7), node("a", 80), node("b", 80), node("c", 80)))


def broken(sound: Placement, at: int, **changes: Any) -> Placement:
    stages = list(sound.assignments)
    stages[at] = replace(stages[at], **changes)
    return replace(sound, assignments=tuple(stages))


def test_a_sound_plan_has_none(sound: Placement) -> None:
    assert violations(sound) == ()


@pytest.mark.parametrize(
    ("at", "changes", "words"),
    [
        (1, {"est_bytes": 1}, "b has parts that don't add up"),
        (1, {"est_bytes": 1, "est_weight_bytes": 1}, "b has a wrong estimate"),
        (0, {"first": False}, "a is not marked as the end that it is"),
        (2, {"last": False}, "c is not marked as the end that it is"),
        (1, {"budget_bytes": 1}, "b is over its budget"),
        (1, {"est_bytes": 79}, "b has parts that don't add up"),
        (1, {"start": 9}, "b does not continue at layer 3"),
        (1, {"end": 2}, "b does not continue at layer 3"),
        (2, {"end": 9}, "the plan ends at layer 9 of 10"),
        (1, {"node": node("a")}, "a node stands twice in the plan"),
    ],
)
def test_each_planted_fault_is_named(sound: Placement, at: int, changes: dict[str, Any], words: str) -> None:
    assert words in violations(broken(sound, at, **changes))


def test_a_node_cannot_work_and_idle(sound: Placement) -> None:
    assert "a node stands twice in the plan" in violations(replace(sound, idle=(Idle("a", "x"),)))


def test_an_empty_plan_runs_nothing(sound: Placement) -> None:
    assert "there is nothing to run" in violations(replace(sound, assignments=()))


def test_a_model_without_layers_runs_nothing() -> None:
    assert violations(place(task(model(0), node("a")))) == ("there is nothing to run",)


def test_leave_to_exceed_budgets_is_no_leave_for_wrong_figures(sound: Placement) -> None:
    over = broken(sound, 1, budget_bytes=1)
    assert "b is over its budget" not in violations(over, allow_over_budget=True)
    assert "a has parts that don't add up" in violations(broken(over, 0, est_bytes=1), allow_over_budget=True)


PAGED = ModelCost(4, 2, 0, 0, expert_bytes_per_layer=4, expert_active_bytes_per_layer=1)
"""Of which a node of six bytes holds two layers with their experts on disk, or one with them in memory."""


def paged(**objective: str) -> Placement:
    return place(auto(PAGED, node("a", 6, disk_free=20), node("b", 6, disk_free=20), **objective))


def test_a_plan_that_pages_what_does_not_fit_is_sound() -> None:
    plan = paged(optimize="memory")
    assert [(a.est_bytes, a.est_disk_bytes) for a in plan.assignments] == [(4, 8), (4, 8)]
    assert violations(plan) == ()


def test_the_disk_must_hold_what_is_paged() -> None:
    """8 bytes of experts on a disk of 8, of which nine tenths may be filled; and on one that nobody knows."""
    plan = paged(optimize="memory")
    for free in (8, None):
        full = broken(plan, 0, node=replace(plan.assignments[0].node, disk_free=free))
        assert violations(full) == ("a pages experts to a disk that can't hold them",)
    roomy = replace(plan.assignments[0].node, ram_avail=12)
    assert "a pages experts that fit in memory" in violations(broken(plan, 0, node=roomy, budget_bytes=12))


def test_values_are_checked_by_each_objective() -> None:
    """Sums, times and shares that a plan claims: 4 of 6 bytes, say."""
    for optimize in ("throughput", "latency", "memory"):
        plan = paged(optimize=optimize)
        assert violations(plan) == ()
        assert plan.proof is not None
        wrong = replace(plan, proof=replace(plan.proof, value=plan.proof.value * 1.01))
        assert violations(wrong) == ("the plan doesn't have the value that it claims",)


def test_ranges_by_hand_beyond_the_model_are_weighed_as_if_it_went_on() -> None:
    """Five layers of 10 bytes where the model has two, with caches of a byte per token and layer."""
    cost = replace(model(2, 10), kv_bytes_per_layer_token=1)
    asked = task(cost, node("a", 100, layers="0:5"), policy="manual", over=True)
    plan = place(replace(asked, objective=Objective(context=3)))
    assert (plan.assignments[0].est_weight_bytes, plan.assignments[0].est_kv_bytes) == (50, 15)
    assert violations(plan, allow_over_budget=True) == ()


def test_stages_of_a_host_may_fill_its_memory() -> None:
    """Two stages of 20 on a host of 40; one byte less is too little."""
    plan = place(task(model(4, 10), node("a", 40, host_id="h"), node("b", 40, host_id="h")))
    assert violations(plan) == ()
    less = tuple(replace(a, node=replace(a.node, ram_avail=39), budget_bytes=39) for a in plan.assignments)
    assert violations(replace(plan, assignments=less)) == ("the stages on host h exceed its RAM together",)


def test_a_block_that_stays_together_may_end_where_a_stage_does() -> None:
    cost = ModelCost(4, 0, 0, 0, layers=(Block(2, 10, together=True), Block(2, 10)))
    plan = place(auto(cost, node("a", 20), node("b", 20)))
    assert counts(plan) == [2, 2]
    assert violations(plan) == ()
    torn = replace(plan, model=replace(cost, layers=(Block(1, 10), Block(3, 10, together=True))))
    assert violations(torn) == ("layers 1 to 4 are torn apart",)
