"""What is promised, for how long, and what ends a promise; in bytes that a person can add up."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from app.deployments import (
    DeploymentConflictError,
    Quota,
    QuotaExceededError,
    StaleRevisionError,
    UnknownDeploymentError,
    WrongGenerationError,
)
from app.placement.errors import DoesNotFitError, InvalidFieldError, NoNodesError
from app.ports import Overrides, UnknownNodeError
from tests.deployments.town import Town, asked
from tests.placement.build import device
from tests.registry.doubles import at_once


@pytest.fixture
def town() -> Town:
    """One node with 100 bytes free of 200."""
    town = Town()
    town.beat("n")
    return town


def loaded(town: Town, layers: int = 40, **given: Any) -> None:
    town.deploy(asked("d", layers, **given))
    town.confirm("d")


def test_ten_of_twenty_four_leave_thirteen_in_all_three_phases() -> None:
    """The contract's example: 23.5 GiB free, 10 reserved, in halves of a GiB."""
    town = Town()
    town.beat("n", 47)
    town.deploy(asked("d", 20))
    assert town.budget("n") == 27
    town.confirm("d")
    assert town.budget("n") == 27
    town.beat("n", 27)
    assert town.budget("n") == 27
    town.release("d")
    assert town.budget("n") == 27
    town.beat("n", 47)
    assert town.budget("n") == 47


def test_what_was_loaded_and_released_between_two_beats_is_not_called_free(town: Town) -> None:
    loaded(town)
    town.release("d")
    assert town.budget("n") == 60
    town.beat("n", 60)
    assert town.budget("n") == 60
    town.beat("n", 100)
    assert town.budget("n") == 100


def test_what_was_never_loaded_is_free_at_once(town: Town) -> None:
    town.deploy(asked("d", 40))
    town.release("d")
    assert town.budget("n") == 100


def test_what_beats_say_is_resident_counts_instead_of_a_guess(town: Town) -> None:
    """A promise of 40, of which 30 are loaded."""
    town.deploy(asked("d", 40))
    town.beat("n", 70, resident={"d": 30})
    assert town.budget("n") == 60


def test_a_static_limit_counts_all_that_was_promised() -> None:
    town = Town()
    town.beat("n", 100, max_ram_gb=80e-9)
    loaded(town)
    town.beat("n", 60, max_ram_gb=80e-9)
    assert town.budget("n") == 40


def test_a_promise_is_kept_until_it_lapses(town: Town) -> None:
    town.deploy(asked("d", 40, ttl_s=60.0))
    town.live(59)
    assert town.budget("n") == 60
    town.live(1)
    assert (town.state_of("d"), town.budget("n")) == (("released", "not confirmed in time"), 100)


def test_what_is_confirmed_does_not_lapse(town: Town) -> None:
    loaded(town, ttl_s=1.0)
    town.live(5)
    assert town.state_of("d") == ("loaded", None)


def test_a_late_confirmation_is_refused(town: Town) -> None:
    made = town.deploy(asked("d", 40, ttl_s=1.0))
    town.live(2)
    with pytest.raises(WrongGenerationError) as refused:
        at_once(town.deployments.confirm("d", made.generation))
    assert refused.value.state == "released"


def test_a_confirmation_of_an_earlier_deployment_of_the_name_is_refused(town: Town) -> None:
    first = town.deploy(asked("d", 40))
    town.release("d")
    second = town.deploy(asked("d", 40))
    assert second.generation > first.generation
    with pytest.raises(WrongGenerationError):
        at_once(town.deployments.confirm("d", first.generation))


def test_the_same_confirmation_again_changes_nothing(town: Town) -> None:
    made = town.deploy(asked("d", 40))
    first = at_once(town.deployments.confirm("d", made.generation))
    again = at_once(town.deployments.confirm("d", made.generation))
    assert (again, first.generation > made.generation) == (first, True)


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ({"addr": "n2:9100", "instance_id": "i"}, "moved"),
        ({"device_index": 1, "instance_id": "i"}, "moved"),
        ({"boot_id": "second"}, "rebooted"),
        ({"role": "draining"}, "draining"),
        ({"resident": {"other": 1}}, "no longer resident"),
    ],
)
def test_a_node_that_is_not_what_it_was_degrades(report: dict[str, Any], why: str) -> None:
    before: dict[str, Any] = {"boot_id": "first", "instance_id": "i"}
    town = Town()
    town.beat("n", **before)
    loaded(town)
    town.beat("n", 60, **before, resident={"d": 40})
    town.beat("n", 60, **before | report)
    assert town.state_of("d") == ("degraded", f"n: {why}")


def test_an_agents_restart_degrades_nothing(town: Town) -> None:
    town.beat("n", boot_id="b", instance_id="i", resident={"d": 40})
    loaded(town)
    town.beat("n", 60, boot_id="b", instance_id="i", resident={"d": 40})
    town.beat("n", 60, boot_id="b", instance_id="j")
    assert (town.state_of("d"), town.budget("n")) == (("loaded", None), 60)


def test_a_node_that_expires_or_leaves_degrades(town: Town) -> None:
    loaded(town)
    town.live(31)
    assert town.state_of("d") == ("degraded", "n: expired")
    town.beat("n", 60)
    town.confirm("d")
    at_once(town.registry.remove("n"))
    assert town.state_of("d") == ("degraded", "n: gone")


def test_an_operator_who_drains_a_node_degrades_what_it_runs(town: Town) -> None:
    loaded(town)
    at_once(town.registry.override("n", lambda _: Overrides(role="draining")))
    assert town.state_of("d") == ("degraded", "n: draining")
    with pytest.raises(WrongGenerationError):
        town.confirm("d")
    at_once(town.registry.override("n", lambda _: Overrides()))
    assert town.confirm("d").state == "loaded"


def test_a_node_that_moved_or_left_is_no_place_to_confirm(town: Town) -> None:
    loaded(town)
    at_once(town.registry.remove("n"))
    with pytest.raises(WrongGenerationError):
        town.confirm("d")
    town.beat("n")
    town.live(31)
    with pytest.raises(WrongGenerationError):
        town.confirm("d")
    town.beat("n", addr="elsewhere:1")
    with pytest.raises(WrongGenerationError):
        town.confirm("d")


def test_after_a_reboot_the_promise_stands_and_nothing_is_loaded() -> None:
    town = Town()
    town.beat("n", boot_id="first")
    loaded(town)
    town.beat("n", 60, boot_id="first")
    town.beat("n", 100, boot_id="second")
    assert town.budget("n") == 60
    town.beat("n", 100, boot_id="second")
    assert town.budget("n") == 60


def test_a_degraded_promise_that_was_never_confirmed_lapses(town: Town) -> None:
    town.deploy(asked("d", 40, ttl_s=60.0))
    at_once(town.registry.remove("n"))
    assert town.state_of("d")[0] == "degraded"
    town.live(61)
    assert town.state_of("d")[0] == "released"


def test_neighbours_on_a_host_are_not_promised_its_memory_twice() -> None:
    """Two cards of one host, both bounded by its 100 bytes of RAM."""
    town = Town()
    town.beat("a", host_id="h")
    town.beat("b", host_id="h", addr="b:1")
    town.deploy(asked("d", 40, nodes=("a",)))
    assert (town.budget("a"), town.budget("b")) == (60, 60)
    with pytest.raises(DoesNotFitError):
        town.deploy(asked("e", 61, nodes=("b",)))


def test_a_node_of_another_host_has_no_part_in_its_memory() -> None:
    town = Town()
    town.beat("a", host_id="h")
    town.beat("b", host_id="h", addr="b:1")
    town.deploy(asked("d", 40, nodes=("a",)))
    town.beat("a", host_id="i")
    assert (town.budget("a"), town.budget("b")) == (60, 100)


def test_a_card_is_promised_and_not_the_hosts_memory() -> None:
    town = Town()
    card = device("cuda", 100)
    town.beat("a", host_id="h", device="cuda", devices=(card,), gpu_memory="dedicated", gpu_fraction=1.0)
    town.beat("b", host_id="h", addr="b:1")
    town.deploy(asked("d", 40, nodes=("a",)))
    assert (town.budget("a"), town.budget("b")) == (60, 100)


def test_the_same_request_again_is_answered_with_what_it_made(town: Town) -> None:
    made = town.deploy(asked("d", 40))
    assert town.deploy(asked("d", 40)) is made
    town.confirm("d")
    assert town.deploy(asked("d", 40)).state == "loaded"


def test_another_request_under_the_name_is_refused(town: Town) -> None:
    town.deploy(asked("d", 40))
    with pytest.raises(DeploymentConflictError):
        town.deploy(asked("d", 10))


def test_a_key_belongs_to_one_request_of_one_caller(town: Town) -> None:
    town.deploy(asked("d", 10, key="k"))
    with pytest.raises(DeploymentConflictError):
        town.deploy(asked("e", 10, key="k"))
    assert town.deploy(asked("e", 10, key="k", owner="you")).state == "pending"


def test_nobody_hoards() -> None:
    town = Town(Quota(per_caller=2, in_all=3))
    town.beat("n")
    for name in "ab":
        town.deploy(asked(name, 1))
    with pytest.raises(QuotaExceededError):
        town.deploy(asked("c", 1))
    town.deploy(asked("c", 1, owner="you"))
    with pytest.raises(QuotaExceededError):
        town.deploy(asked("d", 1, owner="they"))
    town.release("a")
    assert town.deploy(asked("e", 1)).state == "pending"


def test_a_deployment_is_never_over_its_budget(town: Town) -> None:
    with pytest.raises(InvalidFieldError):
        town.deploy(asked("d", 40, allow_over_budget=True))


def test_who_is_overtaken_plans_again_on_what_is_left(town: Town) -> None:
    """While 60 of 100 bytes were planned, another took 60."""

    def overtake() -> None:
        town.before_commit = lambda: None
        town.deploy(asked("fast", 60))

    town.before_commit = overtake
    with pytest.raises(DoesNotFitError):
        town.deploy(asked("slow", 60))
    assert town.budget("n") == 40


def low(town: Town) -> None:
    town.beat("n", 10, host_id="h")


def gone(town: Town) -> None:
    at_once(town.registry.remove("n"))


def drained(town: Town) -> None:
    town.beat("n", role="draining", host_id="h")


def crowded(town: Town) -> None:
    town.before_commit = lambda: None
    town.beat("m", addr="m:1", host_id="h")
    town.deploy(asked("other", 70, nodes=("m",)))


@pytest.mark.parametrize(
    ("change", "refusal"),
    [(low, DoesNotFitError), (gone, UnknownNodeError), (drained, NoNodesError), (crowded, DoesNotFitError)],
)
def test_a_plan_is_looked_at_again_before_it_is_promised(
    change: Callable[[Town], None], refusal: type[Exception]
) -> None:
    town = Town()
    town.beat("n", host_id="h")
    town.before_commit = lambda: change(town)
    with pytest.raises(refusal):
        town.deploy(asked("d", 60, nodes=("n",)))
    assert town.ledger.find("d") is None


def test_who_is_overtaken_every_time_is_told_so() -> None:
    """The node is somewhere else each time that its plan is ready."""
    town, places = Town(), count()
    town.beat("n", instance_id="i")
    town.before_commit = lambda: town.beat("n", instance_id="i", addr=f"n{next(places)}:1")
    with pytest.raises(StaleRevisionError):
        town.deploy(asked("d", 60))
    assert (town.ledger.find("d"), next(places)) == (None, 5)


def test_one_repeat_of_two_that_are_planned_at_once_makes_the_deployment(town: Town) -> None:
    def overtake() -> None:
        town.before_commit = lambda: None
        town.deploy(asked("d", 40))

    town.before_commit = overtake
    made = town.deploy(asked("d", 40))
    assert (made, town.budget("n")) == (town.ledger.get("d"), 60)


def test_what_was_promised_survives_a_crash(town: Town) -> None:
    loaded(town)
    town.beat("n", 60)
    town.journal.flush()
    town.deploy(asked("e", 20, ttl_s=60.0))
    town.live(10)
    town.beat("n", 60)
    town.journal.flush()
    town.restart()
    assert (town.budget("n"), town.state_of("d"), town.state_of("e")) == (40, ("loaded", None), ("pending", None))
    for _ in range(7):
        town.live(7)
        town.beat("n", 60)
    assert town.state_of("e")[0] == "pending"
    town.live(2)
    assert town.state_of("e")[0] == "released"


def test_a_crash_before_a_beat_was_noted_leaves_too_little_rather_than_too_much(town: Town) -> None:
    loaded(town)
    town.restart()
    assert town.budget("n") == 60
    town.release("d")
    town.restart()
    assert town.budget("n") == 60
    town.beat("n", 100)
    assert town.budget("n") == 100


def test_names_that_were_never_given_are_unknown(town: Town) -> None:
    with pytest.raises(UnknownDeploymentError):
        town.release("d")


def test_releasing_again_changes_nothing(town: Town) -> None:
    town.deploy(asked("d", 40))
    assert town.release("d") is town.release("d")


def test_released_ones_are_forgotten_beyond_a_number(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.deployments.ledger.MAX_RELEASED", 2)
    for name in "abc":
        town.deploy(asked(name, 1))
        town.clock.pass_s(0.1)
        town.release(name)
    assert [r.name for r in town.ledger.page(None, 10, None)[0]] == ["b", "c"]
    town.journal.flush()
    assert sorted(town.journal.deployments) == ["b", "c"]


def test_a_plan_is_found_by_its_deployment(town: Town) -> None:
    made = town.deploy(asked("d", 1))
    assert (town.ledger.of_plan(made.plan_id), town.ledger.of_plan("another")) == (made, None)


def test_pages_follow_names_and_states(town: Town) -> None:
    for name in "cab":
        town.deploy(asked(name, 1))
    town.release("b")
    first, more = town.ledger.page(None, 2, None)
    assert ([r.name for r in first], more) == (["a", "b"], True)
    assert [r.name for r in town.ledger.page("b", 2, None)[0]] == ["c"]
    assert [r.name for r in town.ledger.page(None, 2, "pending")[0]] == ["a", "c"]


def test_an_engine_that_ended_after_its_stage_was_lost_is_owed_its_memory_in_full(town: Town) -> None:
    """The node leaves, comes back as it was, and is booted anew: what is free by then is promised."""
    town.beat("n", 100, boot_id="first")
    loaded(town)
    town.beat("n", 60, boot_id="first")
    at_once(town.registry.remove("n"))
    town.beat("n", 60, boot_id="first")
    assert town.budget("n") == 60
    town.beat("n", 100, boot_id="second")
    assert town.budget("n") == 60


def test_what_a_draining_node_has_loaded_is_known_after_its_stage_was_lost(town: Town) -> None:
    loaded(town)
    town.beat("n", 60, role="draining")
    town.beat("n", 60)
    assert town.state_of("d") == ("degraded", "n: draining")
    assert town.budget("n") == 60


def test_a_deployment_in_the_place_of_a_released_one_does_not_forget_what_that_has_filled(town: Town) -> None:
    loaded(town)
    town.release("d")
    town.deploy(asked("d", 30))
    assert town.budget("n") == 30
    town.release("d")
    assert town.budget("n") == 60


def test_what_two_of_a_name_have_filled_one_after_the_other_adds_up(town: Town) -> None:
    loaded(town)
    town.release("d")
    loaded(town, 30)
    town.release("d")
    assert town.budget("n") == 30
    town.beat("n", 100)
    assert town.budget("n") == 100
