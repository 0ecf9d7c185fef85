"""The planner against a slow and literal second reading of the contract, on small numbers."""

from dataclasses import replace
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from app.placement.check import violations
from app.placement.cost import ModelCost
from app.placement.errors import CleaveError, ManualRangesError, OverBudgetError
from app.placement.nodes import Node
from app.placement.planner import place
from tests.placement import oracle
from tests.placement.build import device, node, task
from tests.placement.oracle import Stage

models = st.builds(
    ModelCost,
    n_layers=st.integers(1, 12),
    per_layer_bytes=st.integers(0, 4),
    embed_bytes=st.integers(0, 9),
    head_bytes=st.integers(0, 9),
    per_layer_flops=st.sampled_from([0.0, 1.0, 2.5]),
)

CARDS = [
    (),
    (("metal", 10),),
    (("metal", 70),),
    (("cuda", 20), ("cpu", 9)),
    (("cuda", 5), ("metal", 12)),
    (("gpu", 0),),
]

figures = st.tuples(
    st.sampled_from([0, 2, 5, 8, 20, 40, 40, 60]),
    st.sampled_from(["cpu", "cuda", "metal", "vulkan+cpu"]),
    st.sampled_from([0.0, 1.0, 3.0]),
    st.sampled_from(CARDS),
    st.sampled_from([None, None, 1.1e-8]),
    st.sampled_from(["active", "active", "active", "draining"]),
)


def cluster(rows: list[tuple[Any, ...]]) -> list[Node]:
    """Nodes whose figures often tie."""
    nodes = []
    for at, (ram, kind, gflops, cards, cap, role) in enumerate(rows):
        devices = tuple(device(*card) for card in cards)
        drawn = node(f"n{at}", ram, device=kind, gflops=gflops, devices=devices, max_ram_gb=cap, role=role)
        nodes.append(replace(drawn, ram_total=max(1, drawn.ram_total)))
    return nodes


clusters = st.lists(figures, min_size=1, max_size=6).map(cluster)
policies = st.sampled_from(["ram_balanced", "throughput"])


def active(nodes: list[Node]) -> list[Node]:
    return [n for n in nodes if n.config.role == "active"]


def ours(model: ModelCost, nodes: list[Node], policy: Any, reserve: int, *, over: bool) -> Any:
    """Our outcome in the oracle's words: the stages, and who is idle why, in list order."""
    try:
        placed = place(task(model, *nodes, policy=policy, reserve=reserve, over=over))
    except CleaveError as error:
        return str(error)
    if not over:
        assert violations(placed) == ()
    stages = [Stage(a.node.node_id, a.start, a.end, a.est_bytes, a.budget_bytes) for a in placed.assignments]
    return stages, [(i.node_id, i.reason) for i in placed.idle]


def in_list_order(nodes: list[Node], idle: dict[str, str]) -> list[tuple[str, str]]:
    idle = {n.node_id: n.config.role for n in nodes if n.config.role != "active"} | idle
    return [(n.node_id, idle[n.node_id]) for n in nodes if n.node_id in idle]


@settings(max_examples=100, deadline=None)
@given(models, clusters, policies, st.integers(0, 4))
def test_the_reference_is_what_its_words_say(model: ModelCost, nodes: list[Node], policy: str, reserve: int) -> None:
    try:
        want: Any = oracle.reference(model, active(nodes), policy, reserve), in_list_order(nodes, {})
    except oracle.Refused as refused:
        want = str(refused)
    assert ours(model, nodes, policy, reserve, over=True) == want


@settings(max_examples=200, deadline=None)
@given(models, clusters, policies, st.integers(0, 4))
def test_nodes_are_left_out_as_if_planned_again_round_by_round(
    model: ModelCost, nodes: list[Node], policy: str, reserve: int
) -> None:
    try:
        stages, idle = oracle.service(model, active(nodes), policy, reserve)
        want: Any = stages, in_list_order(nodes, idle)
        event(f"{len(idle)} left out")
    except oracle.Refused as refused:
        want = str(refused)
        event("refused")
    assert ours(model, nodes, policy, reserve, over=False) == want


@st.composite
def by_hand(draw: st.DrawFn) -> tuple[ModelCost, list[Node]]:
    """Ranges that tile the model but for a figure or two."""
    model = ModelCost(draw(st.integers(1, 6)), 3, 2, 2)
    cuts = sorted(draw(st.lists(st.integers(0, model.n_layers), max_size=3)))
    edges = list(zip([0, *cuts], [*cuts, model.n_layers], strict=True))
    slips = draw(st.lists(st.sampled_from([0, 0, 0, 0, 0, 1, -1]), min_size=2 * len(edges), max_size=2 * len(edges)))
    ranges = [(max(0, a + slips[2 * i]), max(0, b + slips[2 * i + 1])) for i, (a, b) in enumerate(edges)]
    return model, [node(f"n{i}", draw(st.sampled_from([9, 40])), layers=f"{a}:{b}") for i, (a, b) in enumerate(ranges)]


def by_hand_outcome(model: ModelCost, nodes: list[Node]) -> Any:
    """The contract's words: who has no range, else ranges that don't tile, else stages that don't fit, else a plan."""
    try:
        stages = oracle.reference(model, nodes, "manual", 0)
    except oracle.Refused as refused:
        return str(refused)
    if not oracle.tiles(model, stages):
        return ManualRangesError
    return [stage.node_id for stage in stages if not stage.fits] or (stages, [])


@settings(max_examples=100, deadline=None)
@given(by_hand())
def test_ranges_given_by_hand_are_taken_or_refused_never_mended(drawn: tuple[ModelCost, list[Node]]) -> None:
    model, nodes = drawn
    got: Any
    try:
        place(task(model, *nodes, policy="manual"))
        got = ours(model, nodes, "manual", 0, over=False)
    except ManualRangesError as error:
        got = str(error) if "manual policy" in str(error) else ManualRangesError
    except OverBudgetError as error:
        got = [n.node_id for n in error.nodes]
    assert got == by_hand_outcome(model, nodes)
    if not isinstance(got, str):
        assert ours(model, nodes, "manual", 0, over=True) == (oracle.reference(model, nodes, "manual", 0), [])
