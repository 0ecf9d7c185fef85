"""Plans that move little, against all plans there are."""

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.placement.check import violations
from app.placement.cost import ModelCost
from app.placement.errors import DoesNotFitError
from app.placement.explain import objective_value
from app.placement.moving import Move, Span, place_near
from app.placement.planner import place
from app.placement.task import Task
from tests.placement.brute import layers_of, plans
from tests.placement.build import auto, model, node, spans, task
from tests.placement.drawn import tasks

EXAMPLES = int(os.environ.get("EXAMPLES", "60"))


def weights_of(task: Task) -> list[int]:
    """Of each layer, the tables at the ends with theirs."""
    sizes = [block.bytes + block.expert_bytes for block in layers_of(task.model)]
    sizes[0] += task.model.embed_bytes if task.engine.embeds else 0
    sizes[-1] += task.model.head_bytes
    return sizes


def moved(task: Task, plan: list[tuple[str, int, int]], held: dict[str, Span]) -> int:
    """Bytes of layers that their nodes don't hold, layer by layer."""
    sizes = weights_of(task)
    return sum(
        sizes[layer]
        for name, start, end in plan
        for layer in range(start, end)
        if not (name in held and held[name][0] <= layer < held[name][1])
    )


@st.composite
def holdings(draw: st.DrawFn, task: Task) -> dict[str, Span]:
    """A plan that was loaded once, perhaps on a node that is gone by now."""
    names = draw(st.permutations([*(n.node_id for n in task.nodes), "gone"]))
    cuts = sorted(draw(st.sets(st.integers(0, task.model.n_layers), max_size=len(names))) | {0, task.model.n_layers})
    return {name: span for name, span in zip(names, zip(cuts, cuts[1:], strict=False), strict=False)}  # noqa: RUF007, C416


@pytest.mark.parametrize("optimize", ["throughput", "memory", "latency"])
@pytest.mark.parametrize("order", ["any", "given"])
@given(data=st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_no_plan_within_the_tolerance_moves_less(optimize: str, order: str, data: st.DataObject) -> None:
    task = data.draw(
        tasks(optimize=optimize, order=order, layered=data.draw(st.booleans()), experts=data.draw(st.booleans()))
    )
    held, tolerance = data.draw(holdings(task)), data.draw(st.sampled_from([0.0, 0.1, 1.0]))
    try:
        best = place(task)
    except DoesNotFitError:
        return
    found = place_near(task, held, tolerance)
    limit = objective_value(best) * (1 + tolerance)
    least = min(
        moved(task, [(who.node_id, start, end) for who, start, end in plan], held)
        for plan, value in plans(task)
        if value <= limit * (1 + 1e-12)
    )
    assert objective_value(found.placement) <= limit * (1 + 1e-9)
    assert violations(found.placement, nodes=task.nodes) == ()
    assert found.bytes == moved(task, spans(found.placement), held)
    assert found.least_bytes <= least <= found.bytes
    if optimize != "latency":
        assert found.bytes == least


FLEET = [node(name, 22, gflops=1000.0) for name in "abc"]
LLAMA = model(28, 1, flops=1e9)


def test_of_three_equal_nodes_one_leaves_and_only_its_layers_move() -> None:
    held = {"a": (0, 14), "b": (14, 28)}
    found = place_near(auto(LLAMA, *FLEET[1:], optimize="latency"), held, 0.1)
    assert spans(found.placement) == [("c", 0, 14), ("b", 14, 28)]
    assert found.moves == (Move(0, 14, "a", "c", 14),)
    assert (found.bytes, found.least_bytes) == (14, 14)


def test_nothing_moves_where_what_is_loaded_is_good_enough() -> None:
    """With 13 and 15 layers the slower stage takes 7 % longer than with 14 and 14."""
    held = {"a": (0, 13), "b": (13, 28)}
    found = place_near(auto(LLAMA, *FLEET[:2]), held, 0.1)
    assert (spans(found.placement), found.moves) == ([("a", 0, 13), ("b", 13, 28)], ())
    strict = place_near(auto(LLAMA, *FLEET[:2]), held, 0.0)
    assert (spans(strict.placement), strict.moves) == ([("a", 0, 14), ("b", 14, 28)], (Move(13, 14, "b", "a", 1),))


def test_layers_of_a_stage_come_from_several_nodes() -> None:
    """A node that takes all: its own part stays, tables go with the ends."""
    cost = ModelCost(6, 10, 3, 5)
    found = place_near(auto(cost, node("n", 100)), {"n": (2, 3), "x": (0, 2), "y": (3, 5)}, 0.1)
    assert found.moves == (Move(0, 2, "x", "n", 23), Move(3, 5, "y", "n", 20), Move(5, 6, None, "n", 15))


@pytest.mark.parametrize("policy", ["ram_balanced", "throughput"])
def test_policies_that_follow_the_list_move_little_in_its_order(policy: str) -> None:
    held = {"a": (0, 14), "c": (14, 28)}
    asked = replace(task(LLAMA, *FLEET, policy=policy), engine=auto(LLAMA).engine)  # type: ignore[arg-type]
    found = place_near(asked, held, 1.0)
    assert found.moves == ()
    assert spans(found.placement) == [("a", 0, 14), ("c", 14, 28)]


def test_ranges_given_by_hand_are_what_is_planned() -> None:
    by_hand = [
        replace(n, config=replace(n.config, layers=r)) for n, r in zip(FLEET, ("0:10", "10:20", "20:28"), strict=True)
    ]
    found = place_near(task(LLAMA, *by_hand, policy="manual"), {"a": (0, 14), "b": (14, 28)}, 1.0)
    assert spans(found.placement) == [("a", 0, 10), ("b", 10, 20), ("c", 20, 28)]
    assert found.bytes == 4 + 8


@pytest.mark.parametrize("optimize", ["throughput", "latency"])
@pytest.mark.parametrize("gone", [{"n03", "n11"}, {"n00"}, {"n19"}, set()])
def test_of_many_nodes_some_leave_and_only_their_layers_move(optimize: str, gone: set[str]) -> None:
    """Forty unlike nodes, twenty of which run three layers each: more sets of nodes than can be searched."""
    fleet = [node(f"n{at:02}", 4 + at % 3, gflops=1000.0 + at) for at in range(40)]
    held = {f"n{at:02}": (3 * at, 3 * at + 3) for at in range(20)}
    found = place_near(
        auto(model(60, 1, flops=1e9), *[n for n in fleet if n.node_id not in gone], optimize=optimize), held, 1.0
    )
    assert (found.bytes, found.least_bytes) == (3 * len(gone), 3 * len(gone))
    assert {(name, *span) for name, span in held.items() if name not in gone} <= set(spans(found.placement))


def test_beyond_the_budget_the_best_plan_is_taken() -> None:
    asked = auto(model(300, 1, flops=1e9), *[node(f"n{at:03}", 4) for at in range(100)], order="given")
    found = place_near(asked, {"n000": (0, 1), "n001": (1, 300)}, 0.1)
    assert found.placement == place(asked)
    assert (found.bytes, found.least_bytes) == (296, 0)


def test_a_plan_that_a_host_has_no_room_for_is_none() -> None:
    """What is loaded on the two nodes of a host is more than it has free by now."""
    pair = [node(name, 20, host_id="h", gflops=1000.0) for name in "ab"]
    asked = auto(LLAMA, *pair, node("c", 20, gflops=1000.0))
    found = place_near(asked, {"a": (0, 14), "b": (14, 28)}, 1.0)
    assert violations(found.placement, nodes=asked.nodes) == ()
    assert found.bytes >= 8
