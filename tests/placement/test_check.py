"""The gate in front of every answer finds each kind of broken promise."""

from dataclasses import replace
from typing import Any

import pytest

from app.placement.check import violations
from app.placement.planner import place
from app.placement.plans import Idle, Placement
from tests.placement.build import model, node, task


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
        (1, {"start": 9}, "b does not continue at layer 3"),
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


def test_leave_to_exceed_budgets_is_no_leave_for_wrong_figures(sound: Placement) -> None:
    over = broken(sound, 1, budget_bytes=1)
    assert "b is over its budget" not in violations(over, allow_over_budget=True)
    assert "a has parts that don't add up" in violations(broken(over, 0, est_bytes=1), allow_over_budget=True)
