"""Planned again: little moves, and what a deployment holds itself is free to itself."""

from dataclasses import replace

import pytest

from app.deployments import StaleRevisionError, WrongGenerationError
from app.placement.errors import DoesNotFitError
from app.placement.moving import Move
from app.ports import DeploymentRecord
from tests.deployments.town import Town, asked
from tests.registry.doubles import at_once

WHOLE = asked("d", 60, text="60")


@pytest.fixture
def town() -> Town:
    """Three nodes with 40 bytes free each, two of which run 30 layers each."""
    town = Town()
    for name in "abc":
        town.beat(name, 40)
    town.deploy(replace(WHOLE, request=replace(WHOLE.request, nodes=("a", "b"))))
    town.confirm("d")
    for name in "ab":
        town.beat(name, 10)
    return town


def ranges(record: DeploymentRecord) -> list[tuple[str, int, int]]:
    return [(s.node_id, s.start, s.end) for s in record.stages]


def test_nothing_changes_where_nothing_broke(town: Town) -> None:
    before = town.ledger.get("d")
    record, moved = town.replan("d", WHOLE, tolerance=1.0)
    assert (record, moved.moves) == (before, ())


def test_what_a_deployment_has_loaded_is_free_to_itself(town: Town) -> None:
    """Each node calls 10 bytes free, which are not enough for the 30 that run there."""
    assert [town.budget(name) for name in "abc"] == [10, 10, 40]
    nodes = replace(WHOLE.request, nodes=("a", "b"))
    _, moved = town.replan("d", replace(WHOLE, request=nodes))
    assert [a.budget_bytes for a in moved.placement.assignments] == [40, 40]


def test_what_others_were_promised_is_not(town: Town) -> None:
    town.deploy(asked("other", 8, nodes=("a",)))
    nodes = replace(WHOLE.request, nodes=("a", "b"))
    _, moved = town.replan("d", replace(WHOLE, request=nodes))
    assert [a.budget_bytes for a in moved.placement.assignments] == [32, 40]


def test_a_lost_range_moves_and_the_rest_stays(town: Town) -> None:
    at_once(town.registry.remove("a"))
    record, moved = town.replan("d", WHOLE, tolerance=1.0)
    assert moved.moves == (Move(0, 30, None, "c", 30),)
    assert ranges(record) == [("c", 0, 30), ("b", 30, 60)]
    assert (record.state, record.reason, record.expires_at is None) == ("pending", None, False)
    assert [(s.confirmed, s.loaded_bytes) for s in record.stages] == [(False, 0), (True, 30)]
    assert (town.budget("b"), town.budget("c")) == (10, 10)
    assert town.confirm("d").state == "loaded"


def test_a_node_that_was_asked_for_and_is_gone_is_no_fault(town: Town) -> None:
    at_once(town.registry.remove("a"))
    asked_for = replace(WHOLE, request=replace(WHOLE.request, nodes=("a", "b", "c")))
    assert ranges(town.replan("d", asked_for, tolerance=1.0)[0]) == [("c", 0, 30), ("b", 30, 60)]


def test_a_draining_node_hands_its_layers_over(town: Town) -> None:
    town.beat("a", 10, role="draining")
    record, moved = town.replan("d", WHOLE, tolerance=1.0)
    assert moved.moves == (Move(0, 30, "a", "c", 30),)
    assert ranges(record) == [("c", 0, 30), ("b", 30, 60)]


def test_without_a_replacement_it_stays_as_it_is(town: Town) -> None:
    at_once(town.registry.remove("a"))
    at_once(town.registry.remove("c"))
    before = town.ledger.get("d")
    with pytest.raises(DoesNotFitError):
        town.replan("d", WHOLE)
    assert town.ledger.get("d") is before


def test_a_look_changes_nothing(town: Town) -> None:
    at_once(town.registry.remove("a"))
    before = town.ledger.get("d")
    record, moved = town.replan("d", WHOLE, tolerance=1.0, dry_run=True)
    assert (moved.bytes, record.generation, ranges(record)[0]) == (30, before.generation, ("c", 0, 30))
    assert (town.ledger.get("d"), town.budget("c")) == (before, 40)


def test_a_new_plan_that_nobody_confirms_is_degraded_and_keeps_its_memory(town: Town) -> None:
    at_once(town.registry.remove("a"))
    town.replan("d", WHOLE, tolerance=1.0)
    for _ in range(7):
        town.live(10)
        town.beat("b", 10)
        town.beat("c", 40)
    record = town.ledger.get("d")
    assert (record.state, record.reason) == ("degraded", "not confirmed in time")
    assert [s.lost for s in record.stages] == ["not confirmed in time", None]
    assert (town.budget("b"), town.budget("c")) == (10, 10)
    assert town.confirm("d").state == "loaded"


def test_memory_that_is_given_up_before_a_beat_shows_it_is_not_called_free() -> None:
    """It was loaded on a and goes to b, before any beat of a has come."""
    town = Town()
    town.beat("a", 40)
    town.deploy(asked("d", 30))
    town.confirm("d")
    town.beat("b", 40)
    record = town.ledger.get("d")
    assert ranges(record) == [("a", 0, 30)]
    only_b = asked("d", 30, exclude=frozenset({"a"}))
    town.replan("d", only_b)
    assert (town.budget("a"), town.budget("b")) == (10, 10)
    town.beat("a", 40)
    assert town.budget("a") == 40


def test_a_released_one_is_not_planned_again(town: Town) -> None:
    town.release("d")
    with pytest.raises(WrongGenerationError):
        town.replan("d", WHOLE)


def test_who_is_overtaken_plans_again_and_is_told_where_that_never_ends(town: Town) -> None:
    at_once(town.registry.remove("a"))
    town.before_commit = lambda: town.ledger.change(town.ledger.get("d"))
    with pytest.raises(StaleRevisionError):
        town.replan("d", WHOLE)


def test_the_model_is_what_was_deployed(town: Town) -> None:
    """Whatever the request would find by now."""
    at_once(town.registry.remove("a"))
    other = replace(WHOLE, request=replace(WHOLE.request, model=("a name that is gone",)))
    assert ranges(town.replan("d", other, tolerance=1.0)[0]) == [("c", 0, 30), ("b", 30, 60)]


def test_a_restart_knows_what_moves(town: Town) -> None:
    town.journal.flush()
    town.restart()
    at_once(town.registry.remove("a"))
    assert ranges(town.replan("d", WHOLE, tolerance=1.0)[0]) == [("c", 0, 30), ("b", 30, 60)]


@pytest.fixture
def shrunk() -> Town:
    """40 layers were loaded on a; by a new plan 20 go to b, and no beat has come since."""
    town = Town()
    town.beat("a", 60)
    town.deploy(asked("d", 40))
    town.confirm("d")
    town.beat("b", 60)
    town.replan("d", asked("d", 40), tolerance=0.0)
    assert ranges(town.ledger.get("d")) == [("a", 0, 20), ("b", 20, 40)]
    return town


def test_a_stage_that_shrinks_in_place_is_counted_as_what_runs_there(shrunk: Town) -> None:
    assert (shrunk.budget("a"), shrunk.budget("b")) == (20, 40)


def test_a_stage_that_shrinks_in_place_is_credited_with_what_runs_there(shrunk: Town) -> None:
    shrunk.beat("a", 20)
    assert shrunk.budget("a") == 20
    shrunk.confirm("d")
    shrunk.beat("a", 40)
    assert shrunk.budget("a") == 40
