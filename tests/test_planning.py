"""Who takes part in a plan, and what is kept of it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

import pytest

from app import planning
from app.placement.errors import DoesNotFitError, NoNodesError, OverBudgetError, Suggestion
from app.placement.plans import Idle
from app.placement.reference import Policy
from app.planning import (
    KeptPlan,
    Outcome,
    Plan,
    Planner,
    RecentPlans,
    Request,
    UnknownPlanError,
    UnsoundPlanError,
    Variant,
)
from app.ports import Fleet, ModelRecord, Standing, State, UnknownModelError, UnknownNodeError
from tests.placement.build import model, node

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class StandingFleet:
    """A registry that stands still until a test moves it on."""

    def __init__(self, *standings: Standing) -> None:
        self.standings = standings
        self.revision = 7

    def fleet(self, anew: str | None = None) -> Fleet:  # noqa: ARG002
        return Fleet(self.revision, self.standings)

    def standing(self, node_id: str, anew: str | None = None) -> Standing | None:  # noqa: ARG002
        return next((s for s in self.standings if s.node.node_id == node_id), None)


class NamedModels:
    """Models of ten bytes a layer and four layers, but for one that is twice as heavy."""

    def get(self, name: str) -> ModelRecord:
        if name not in {"large", "small"}:
            raise UnknownModelError(name)
        return ModelRecord(name, model(4, 20 if name == "large" else 10), 3, NOW, NOW)


def planner_of(fleet: StandingFleet, default_reserve_bytes: int = 0) -> Planner:
    numbers = count(1)
    return Planner(fleet, NamedModels(), default_reserve_bytes, lambda: NOW, lambda: f"plan-{next(numbers)}")


def planner(**states: State) -> Planner:
    standings = [Standing(node(n, labels={"zone": n[0]}), state) for n, state in states.items()]
    return planner_of(StandingFleet(*standings))


def ask(nodes: Sequence[str] | None = None, policy: Policy = "ram_balanced", **more: object) -> Request:
    return Request(model(4, 10), policy, nodes=None if nodes is None else tuple(nodes), **more)  # type: ignore[arg-type]  # as drawn


def of_names(*names: str, **more: object) -> Request:
    """The same of named models."""
    return replace(ask(**more), model=names)  # type: ignore[arg-type]  # as drawn


def stages(outcome: Outcome) -> list[str]:
    return [a.node.node_id for a in outcome.placement.assignments]


def test_ready_and_suspect_nodes_take_part_in_order_and_suspects_are_warned_of() -> None:
    plan = planner(b="ready", a="suspect", c="expired").prepare(ask())()
    assert stages(plan) == ["b", "a"]
    assert plan.placement.idle == ()
    assert plan.placement.warnings == ("a: suspect, its beats are late",)
    assert (plan.plan_id, plan.created_at, plan.revision) == ("plan-1", NOW, 7)


def test_named_nodes_keep_the_request_s_order_and_an_expired_one_is_idle() -> None:
    plan = planner(a="ready", b="ready", c="expired").prepare(ask(["b", "c", "a"]))()
    assert stages(plan) == ["b", "a"]
    assert plan.placement.idle == (Idle("c", "expired"),)


def test_who_is_idle_stands_in_the_list_s_order_whatever_the_reason() -> None:
    fleet = StandingFleet(
        Standing(node("gone"), "expired"),
        Standing(node("leaving", role="draining"), "ready"),
        Standing(node("b"), "ready"),
    )
    plan = planner_of(fleet).prepare(ask(["gone", "leaving", "b"]))()
    assert plan.placement.idle == (Idle("gone", "expired"), Idle("leaving", "draining"))


def test_who_is_idle_stands_by_name_where_the_order_is_free() -> None:
    plan = planner(b="expired", a="ready", c="expired").prepare(ask(["c", "b", "a"], policy="auto"))()
    assert plan.placement.idle == (Idle("b", "expired"), Idle("c", "expired"))


def test_a_name_that_nobody_has_is_an_error() -> None:
    with pytest.raises(UnknownNodeError, match="nobody, noone"):
        planner(a="ready").prepare(ask(["a", "nobody", "noone"]))


def test_labels_select_and_names_exclude() -> None:
    use = planner(a1="ready", a2="ready", b1="ready")
    assert stages(use.prepare(ask(selector=(("zone", "a"),)))()) == ["a1", "a2"]
    assert stages(use.prepare(ask(exclude=frozenset({"a1"})))()) == ["a2", "b1"]


@pytest.mark.parametrize("named", [None, ["a"]])
def test_nobody_alive_is_no_nodes_with_reasons(named: list[str] | None) -> None:
    with pytest.raises(NoNodesError) as refused:
        planner(a="expired").prepare(ask(named))()
    assert refused.value.excluded == {"a": "expired"}


def test_work_that_was_prepared_sees_nothing_of_what_the_registry_does_meanwhile() -> None:
    fleet = StandingFleet(Standing(node("a"), "ready"))
    work = planner_of(fleet).prepare(ask())
    fleet.standings, fleet.revision = (Standing(node("b"), "ready"),), 8
    assert stages(work()) == ["a"]
    assert work().revision == 7


@pytest.mark.parametrize(("asked", "budget_bytes"), [(None, 70), (0, 100), (20, 80)])
def test_the_service_s_reserve_holds_unless_the_request_has_its_own(asked: int | None, budget_bytes: int) -> None:
    use = planner_of(StandingFleet(Standing(node("a", 100), "ready")), default_reserve_bytes=30)
    for outcome in (
        use.prepare(ask(reserve_bytes=asked))(),
        use.prepare_simulation(ask(reserve_bytes=asked), [node("x", 100)])(),
    ):
        assert [a.budget_bytes for a in outcome.placement.assignments] == [budget_bytes]


def test_leave_to_exceed_budgets_is_passed_on() -> None:
    use = planner_of(StandingFleet(Standing(node("a", 5, layers="0:4"), "ready")))
    with pytest.raises(OverBudgetError):
        use.prepare(ask(policy="manual"))()
    assert stages(use.prepare(ask(policy="manual", allow_over_budget=True))()) == ["a"]


def test_what_is_odd_about_a_node_is_said_beside_that_it_is_late() -> None:
    plan = planner_of(StandingFleet(Standing(node("a", device="rocm"), "suspect"))).prepare(ask())()
    assert plan.placement.warnings == (
        "a: device rocm is not among its devices; planned by host RAM",
        "a: suspect, its beats are late",
    )


def test_a_simulation_is_no_more_than_its_placement() -> None:
    use = planner()
    simulate = use.prepare_simulation(ask(), [node("x"), node("y")])
    assert stages(simulate()) == ["x", "y"]
    assert not isinstance(simulate(), Plan)


def test_a_simulation_selects_and_excludes_as_a_plan_does() -> None:
    use, nodes = planner(), [node("x", labels={"zone": "a"}), node("y")]
    assert stages(use.prepare_simulation(ask(exclude=frozenset({"x"})), nodes)()) == ["y"]
    assert stages(use.prepare_simulation(ask(selector=(("zone", "a"),)), nodes)()) == ["x"]


def test_an_unsound_plan_is_a_bug_and_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "violations", lambda *_, **__: ("planted",))
    with pytest.raises(UnsoundPlanError, match="planted"):
        planner(a="ready").prepare(ask())()


def kept(number: int) -> tuple[RecentPlans, list[KeptPlan]]:
    use, recent = planner(a="ready"), RecentPlans()
    plans = [KeptPlan.of(use.prepare(ask())(), b"12345") for _ in range(number)]
    for plan in plans:
        recent.keep(plan)
    return recent, plans


def test_the_last_thousand_plans_are_kept() -> None:
    recent, plans = kept(planning.RECENT_PLANS + 1)
    assert recent.get(plans[-1].plan_id) is plans[-1]
    assert recent.get(plans[1].plan_id) is plans[1]
    with pytest.raises(UnknownPlanError, match="plan-1;"):
        recent.get("plan-1")


def test_fewer_are_kept_where_they_are_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "RECENT_BYTES", 10)
    recent, plans = kept(3)
    assert recent.page(None, 10) == ([plans[2], plans[1]], False)


def test_the_newest_plan_is_kept_at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "RECENT_BYTES", 4)
    recent, plans = kept(2)
    assert recent.page(None, 10) == ([plans[1]], False)


def test_plans_are_listed_newest_first_page_by_page() -> None:
    recent, plans = kept(4)
    page, more = recent.page(None, 2)
    assert (page, more) == ([plans[3], plans[2]], True)
    assert recent.page(page[-1].plan_id, 2) == ([plans[1], plans[0]], False)
    assert recent.page(plans[0].plan_id, 2) == ([], False)
    assert recent.page("forgotten", 2) == ([], False)


def test_the_first_variant_that_fits_is_planned_and_named() -> None:
    fits = planner(a="ready").prepare(of_names("large", "small"))()
    assert fits.variant.ref == "large"  # 80 of 100 bytes
    stepped = planner(a="ready").prepare(of_names("large", "small", reserve_bytes=60))()
    assert (stepped.variant.ref, stepped.variant.version, stepped.variant.precision) == ("small", 3, None)
    assert stepped.placement.assignments[0].est_bytes == 40
    assert KeptPlan.of(stepped, b"").model == "small"


def test_what_stands_in_the_request_has_no_name_and_no_version() -> None:
    assert planner(a="ready").prepare(ask())().variant == Variant(model(4, 10))


def test_where_no_variant_fits_all_are_named_and_the_last_one_s_figures_told() -> None:
    with pytest.raises(DoesNotFitError, match="none of large, small fits; of the last: model") as refused:
        planner(a="ready").prepare(of_names("large", "small", reserve_bytes=61))()
    assert refused.value.required_bytes == 40
    assert Suggestion("reserve_bytes", 60, "a reserve of 60 bytes (0.0 GB) on each node leaves enough") in (
        refused.value.suggestions
    )


def test_one_variant_that_does_not_fit_is_refused_as_a_cost_is() -> None:
    with pytest.raises(DoesNotFitError, match=r"^model"):
        planner(a="ready").prepare(of_names("small", reserve_bytes=61))()


def test_ranges_by_hand_go_on_to_the_next_variant_too() -> None:
    by_hand = Standing(node("a", 50, layers="0:4"), "ready")
    use = planner_of(StandingFleet(by_hand))
    assert use.prepare(of_names("large", "small", policy="manual"))().variant.ref == "small"
    with pytest.raises(OverBudgetError, match="none of large, small fits"):
        use.prepare(of_names("large", "small", policy="manual", reserve_bytes=11))()


def test_the_ladder_goes_on_from_the_last_variant() -> None:
    cost = replace(model(4, 10), params=40)
    use = planner(a="ready")
    ladder = replace(ask(reserve_bytes=61, precision_ladder=("fp8", "f4e2m1")), model=cost)
    assert use.prepare(ladder)().variant == Variant(cost, precision="f4e2m1")


def test_a_ladder_without_params_is_said_not_to_be_tried() -> None:
    use = planner(a="ready")
    ladder = replace(ask(reserve_bytes=61, precision_ladder=("fp8",)), model=model(4, 10))
    with pytest.raises(DoesNotFitError, match=r"precision_ladder was not tried: it needs the model's params\.$"):
        use.prepare(ladder)()
    with pytest.raises(DoesNotFitError, match=r"reserve\.$"):
        use.prepare(replace(ladder, model=replace(model(4, 10), params=40)))()


def test_a_model_that_has_no_name_is_an_error() -> None:
    with pytest.raises(UnknownModelError, match="PUT /models/nothing"):
        planner(a="ready").prepare(of_names("small", "nothing"))
    with pytest.raises(UnknownModelError):
        planner().prepare_simulation(of_names("nothing"), [node("x")])


def test_a_name_to_exclude_that_nobody_has_is_warned_of() -> None:
    plan = planner(a="ready").prepare(ask(exclude=frozenset({"nobody", "a-typo"})))()
    assert plan.placement.warnings == ("exclude: nobody is named a-typo, nobody",)


def test_where_those_who_are_admitted_can_t_run_a_stage_all_are_told_why() -> None:
    fleet = StandingFleet(
        Standing(node("gone"), "expired"),
        Standing(node("leaving", role="draining"), "ready"),
        Standing(node("other"), "ready"),
    )
    with pytest.raises(NoNodesError) as refused:
        planner_of(fleet).prepare(ask(exclude=frozenset({"other"})))()
    assert refused.value.excluded == {"gone": "expired", "leaving": "draining", "other": "excluded by the request"}


def test_where_nobody_is_admitted_each_is_told_why() -> None:
    use = planner(a="ready", b="ready", c="expired")
    with pytest.raises(NoNodesError) as refused:
        use.prepare(ask(exclude=frozenset({"a"}), selector=(("zone", "c"),)))()
    assert refused.value.excluded == {
        "a": "excluded by the request",
        "b": "its labels don't match the selector",
        "c": "expired",
    }
