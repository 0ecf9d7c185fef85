"""Engines that drive so many devices at most, with figures that a person can check, and against all plans."""

from dataclasses import replace
from itertools import combinations, pairwise, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.placement.auto.devices import Devices
from app.placement.check import violations
from app.placement.engines import engine
from app.placement.errors import DoesNotFitError, ManualRangesError
from app.placement.nodes import Node
from app.placement.planner import can_place, place
from app.placement.plans import Placement
from app.placement.task import Task
from tests.placement.build import auto, counts, device, model, node, spans, task

LLAMA = engine("llama.cpp", {"overhead_bytes": 0})
"""16 devices."""


def cards(name: str, count: int, each: int = 10, **config: Any) -> Node:
    """A node whose stage uses so many cards of so many bytes and 1 GFLOP/s each."""
    of = tuple(device("cuda", each, gflops=1.0) for _ in range(count))
    pooled: dict[str, Any] = {"device": "cuda", "gpu_memory": "pooled", "gpu_fraction": 1.0}
    return node(name, devices=of, **(pooled | config))


FLEET = tuple(cards(f"n{at}", 3 if at < 6 else 1) for at in range(8))
"""Six nodes of three cards and two of one: 20 cards of 10 layers, at most 16 of which can be driven."""


def used(plan: Placement, nodes: tuple[Node, ...] = FLEET) -> int:
    by_id = {n.node_id: len(n.devices) for n in nodes}
    return sum(by_id[a.node.node_id] for a in plan.assignments)


def test_a_plan_drives_no_more_devices_than_the_engine_can() -> None:
    """100 layers on five nodes of 30 and one of 10: 16 cards share them, so one has at least 7; 19 of three are 6.33.

    Two of ten would leave four of thirty: with 6 each the first have 12, the others 22 layers, 7.33 a card.
    """
    plan = place(auto(model(100, 1, flops=1e9), *FLEET, engine=LLAMA, optimize="throughput"))
    assert plan.proof is not None
    assert (used(plan), plan.proof.optimal) == (16, True)
    assert plan.proof.value == pytest.approx(19 / 3)
    assert violations(plan) == ()


def test_a_model_that_needs_all_drivable_devices_fits() -> None:
    """160 layers are 16 cards of 10; one more is one too many, as a suggestion's and a refusal's figures say."""
    full = place(auto(model(160, 1), *FLEET, engine=LLAMA))
    assert (used(full), sum(counts(full))) == (16, 160)
    beyond = auto(model(161, 1), *FLEET, engine=LLAMA)
    assert can_place(auto(model(160, 1), *FLEET, engine=LLAMA))
    assert not can_place(beyond)
    with pytest.raises(DoesNotFitError) as refused:
        place(beyond)
    assert (refused.value.capacity_layers, refused.value.usable_bytes, refused.value.proven) == (160, 200, True)


def test_slack_is_spent_on_fewer_stages_within_the_devices() -> None:
    """Three of the four nodes can be driven: 4 layers each on 3 cards. Twice the time will do with two."""
    nodes = tuple(cards(f"n{at}", 3) for at in range(4))
    nine = replace(LLAMA, max_devices=9)
    asked = auto(model(12, 1, flops=1e9), *nodes, engine=nine, optimize="throughput")
    assert counts(place(asked)) == [4, 4, 4]
    spent = place(replace(asked, objective=replace(asked.objective, slack=0.5)))
    assert counts(spent) == [6, 6]
    assert spent.proof is not None
    assert spent.proof.best_value == pytest.approx(4 / 3)
    assert spent.proof.best_stages == 3


def test_equal_values_are_had_with_the_fewest_stages_within_the_devices() -> None:
    """Without times all plans are equal: one node is enough, though the best plan without the limit took all."""
    nodes = (cards("a", 3), cards("b", 3), cards("c", 1))
    asked = auto(model(3, 1, flops=0.0), *nodes, engine=replace(LLAMA, max_devices=3), optimize="throughput")
    assert len(place(asked).assignments) == 1


def test_slack_is_not_spent_on_more_devices() -> None:
    """Two fast cards take 1 s each. Within 5 s one slow node would do alone, but it has three cards."""
    fast = tuple(node(n, device="cuda", devices=(device("cuda", 10, gflops=2.0),)) for n in "ab")
    slow = cards("c", 3, gpu_fraction=0.85)
    slow = replace(slow, devices=tuple(device("cuda", 10, gflops=1 / 3) for _ in range(3)))
    two = replace(LLAMA, max_devices=2)
    asked = auto(model(4, 4, flops=1e9), *fast, slow, engine=two, optimize="throughput", slack=4.0)
    assert spans(place(asked)) == [("a", 0, 2), ("b", 2, 4)]
    assert spans(place(replace(asked, engine=replace(LLAMA, max_devices=3)))) == [("c", 0, 4)]


def test_beyond_the_budget_of_node_sets_the_bound_stays_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes and one set of fewer are planned: what is found fits, and its bound is that of all nodes."""
    monkeypatch.setattr("app.placement.auto.devices.SOLVED", 1)
    with pytest.raises(DoesNotFitError) as refused:
        place(auto(model(161, 1), *FLEET, engine=LLAMA))
    assert not refused.value.proven
    monkeypatch.setattr("app.placement.auto.devices.SOLVED", 2)
    seventeen = replace(LLAMA, max_devices=17)
    plan = place(auto(model(100, 1, flops=1e9), *FLEET, engine=seventeen, optimize="throughput"))
    assert plan.proof is not None
    assert (used(plan), plan.proof.optimal, plan.proof.lower_bound) == (17, False, 16 / 3)


def test_a_pinned_node_is_never_left_out() -> None:
    """The slow single card must be first: beside it there is room for one of three cards only."""
    nodes = (cards("a", 3), cards("b", 3), replace(cards("c", 1), devices=(device("cuda", 10, gflops=0.5),)))
    four = replace(LLAMA, max_devices=4)
    plan = place(auto(model(10, 1, flops=1e9), *nodes, engine=four, first_node="c", optimize="throughput"))
    assert (spans(plan)[0][0], used(plan, nodes)) == ("c", 4)


def test_the_reference_policies_keep_the_nodes_with_the_largest_budgets() -> None:
    """Five of thirty bytes and the first of ten are 16 cards; the others are idle with the reason."""
    for policy in ("ram_balanced", "throughput"):
        plan = place(replace(task(model(96, 1), *FLEET, policy=policy), engine=LLAMA))
        assert [i.node_id for i in plan.idle] == ["n5", "n7"]
        assert {i.reason for i in plan.idle} == {"llama.cpp drives at most 16 devices"}
        assert violations(plan) == ()
    anyway = place(replace(task(model(96, 1), *FLEET, over=True), engine=LLAMA))
    assert len(anyway.assignments) == 8


def test_ranges_by_hand_on_too_many_devices_are_refused() -> None:
    nodes = tuple(replace(n, config=replace(n.config, layers=f"{at}:{at + 1}")) for at, n in enumerate(FLEET))
    with pytest.raises(ManualRangesError, match=r"on 20 devices: llama.cpp drives at most 16"):
        place(replace(task(model(8, 1), *nodes, policy="manual"), engine=LLAMA))


def test_the_limit_is_one_on_stages_where_each_uses_one_device() -> None:
    assert not Devices({"a": 1, "b": 1}, 16).binding
    many = tuple(cards(f"n{at:02}", 1) for at in range(20))
    plan = place(auto(model(160, 1, flops=1e9), *many, engine=LLAMA, optimize="throughput"))
    assert len(plan.assignments) == 16


nodes_drawn = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([2, 5, 9]), st.sampled_from([1.0, 2.0]), st.booleans()),
    min_size=1,
    max_size=4,
)


@given(
    rows=nodes_drawn,
    layers=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    equal=st.booleans(),
    most=st.integers(1, 5),
    optimize=st.sampled_from(["throughput", "latency", "memory"]),
    order=st.sampled_from(["any", "given"]),
    slack=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=150)
def test_the_devices_of_a_plan_against_all_plans(
    rows: list[tuple[int, int, float, bool]],
    layers: list[int],
    equal: bool,  # noqa: FBT001  # drawn by name
    most: int,
    optimize: str,
    order: str,
    slack: float,
) -> None:
    nodes = tuple(
        replace(
            cards(f"n{at}", count, size, gpu_memory="pooled" if pooled else "dedicated"),
            devices=tuple(device("cuda", size, gflops=speed) for _ in range(count)),
        )
        for at, (count, size, speed, pooled) in enumerate(rows)
    )
    sizes = [layers[0]] * len(layers) if equal else layers
    cost = replace(model(len(sizes), 0), layers=tuple(replace(b, bytes=size) for b, size in blocks(sizes)))
    asked = auto(
        cost, *nodes, engine=replace(LLAMA, max_devices=most), optimize=optimize, order=order, hop_s=0.5, slack=slack
    )
    best = least_by_stages(asked, rows, sizes, most)
    try:
        plan = place(asked)
    except DoesNotFitError as refused:
        assert (best, refused.proven) == ({}, True)
        return
    value = min(best.values())
    assert plan.proof is not None
    assert plan.proof.best_value == pytest.approx(value, rel=1e-9)
    assert plan.proof.optimal
    assert violations(plan, nodes=nodes) == ()
    assert len(plan.assignments) == min(c for c, v in best.items() if v <= value * (1 + slack) * (1 + 1e-9))


def blocks(sizes: list[int]) -> Any:
    one = model(1, 0).blocks[0]
    return [(replace(one, flops=1e9), size) for size in sizes]


def least_by_stages(
    asked: Task, rows: list[tuple[int, int, float, bool]], sizes: list[int], most: int
) -> dict[int, float]:
    """The least value of all plans that fit and drive few enough devices, by their number of stages."""
    best: dict[int, float] = {}
    pick = permutations if asked.objective.order == "any" else combinations
    for count in range(1, min(len(rows), len(sizes)) + 1):
        for chosen in pick(range(len(rows)), count):
            use = [rows[at][0] if rows[at][3] else 1 for at in chosen]
            if sum(use) > most:
                continue
            for inner in combinations(range(1, len(sizes)), count - 1):
                cuts = (0, *inner, len(sizes))
                parts = [sum(sizes[a:b]) for a, b in pairwise(cuts)]
                rooms = [n * rows[at][1] for n, at in zip(use, chosen, strict=True)]
                if any(part > room for part, room in zip(parts, rooms, strict=True)):
                    continue
                lengths = [b - a for a, b in pairwise(cuts)]
                times = [k / (n * rows[at][2]) for k, n, at in zip(lengths, use, chosen, strict=True)]
                shares = [part / room for part, room in zip(parts, rooms, strict=True)]
                value = {
                    "throughput": max(times),
                    "latency": sum(times) + 0.5 * (count - 1),
                    "memory": max(shares),
                }[str(asked.objective.optimize)]
                best[count] = min(best.get(count, value), value)
    return best


def test_engines_without_a_limit_take_all() -> None:
    plan = place(auto(model(200, 1), *FLEET, engine=replace(LLAMA, max_devices=None)))
    assert used(plan) == 20


def test_a_gate_counts_the_devices() -> None:
    plan = place(auto(model(200, 1), *FLEET, engine=replace(LLAMA, max_devices=None)))
    assert violations(replace(plan, engine=LLAMA)) == ("llama.cpp can't drive 20 devices",)
