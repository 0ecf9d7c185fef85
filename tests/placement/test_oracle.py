"""The planner against a slow and literal second reading of the contract, on small numbers."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.placement.check import violations
from app.placement.cost import ModelCost
from app.placement.errors import CleaveError
from app.placement.nodes import Node
from app.placement.planner import place
from tests.placement import oracle
from tests.placement.build import device, node, task

models = st.builds(
    ModelCost,
    n_layers=st.integers(1, 12),
    per_layer_bytes=st.integers(0, 5),
    embed_bytes=st.integers(0, 9),
    head_bytes=st.integers(0, 9),
    per_layer_flops=st.sampled_from([0.0, 1.0, 2.5]),
)


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    """Up to six nodes whose figures often tie."""
    drawn: list[Node] = []
    for at in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["cpu", "cuda", "metal", "vulkan+cpu"]))
        cards = draw(st.lists(st.tuples(st.sampled_from(["metal", "cuda", "cpu"]), st.integers(0, 30)), max_size=2))
        built = node(
            f"n{at}",
            draw(st.integers(0, 20)),
            device=kind,
            gflops=draw(st.sampled_from([0.0, 1.0, 3.0])),
            devices=tuple(device(k, m) for k, m in cards),
            max_ram_gb=draw(st.sampled_from([None, None, 1.1e-8])),
        )
        drawn.append(replace(built, ram_total=max(1, built.ram_total)))
    return drawn


def ours(model: ModelCost, nodes: list[Node], policy: Any, reserve: int, *, over: bool) -> Any:
    """Our outcome in the oracle's words."""
    try:
        placed = place(task(model, *nodes, policy=policy, reserve=reserve, over=over))
    except CleaveError as error:
        return str(error)
    if not over:
        assert violations(placed) == ()
    stages = [
        {"node": a.node.node_id, "start": a.start, "end": a.end, "est": a.est_bytes, "budget": a.budget_bytes}
        for a in placed.assignments
    ]
    return stages, {i.node_id: i.reason for i in placed.idle}


policies = st.sampled_from(["ram_balanced", "throughput"])


@settings(max_examples=200, deadline=None)
@given(models, clusters(), policies, st.integers(0, 4))
def test_the_reference_is_what_its_words_say(model: ModelCost, nodes: list[Node], policy: str, reserve: int) -> None:
    try:
        want: Any = oracle.reference(model, nodes, policy, reserve), {}
    except oracle.Refused as refused:
        want = str(refused)
    assert ours(model, nodes, policy, reserve, over=True) == want


@settings(max_examples=300, deadline=None)
@given(models, clusters(), policies, st.integers(0, 4))
def test_nodes_are_left_out_as_if_planned_again_round_by_round(
    model: ModelCost, nodes: list[Node], policy: str, reserve: int
) -> None:
    try:
        want: Any = oracle.service(model, nodes, policy, reserve)
    except oracle.Refused as refused:
        want = str(refused)
    assert ours(model, nodes, policy, reserve, over=False) == want
