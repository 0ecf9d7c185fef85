"""Policy auto and its neighbours at the level of a task: limits, refusals, ties, the gate, explanations."""

from dataclasses import replace
from typing import Literal

import pytest

from app.placement.budgets import Reserve, budget, exclusion, limits
from app.placement.check import violations
from app.placement.cost import Block, ModelCost
from app.placement.engines import Engine, engine
from app.placement.errors import DoesNotFitError, InvalidFieldError, OverBudgetError
from app.placement.explain import explain, summarise
from app.placement.nodes import Device, Node, NodeConfig
from app.placement.objective import Objective
from app.placement.planner import place
from app.placement.plans import Assignment, Placement, Proof
from app.placement.reference import Policy
from app.placement.suggest import suggestions
from app.placement.task import Task

GIB = 2**30


def node(name: str, gib: float, gflops: float = 1000.0, host: str | None = None, **config: object) -> Node:
    ram = int(gib * GIB)
    return Node(name, name, ram, ram, gflops=gflops, host_id=host, config=NodeConfig(**config))  # type: ignore[arg-type]  # a shorthand


def task(
    model: ModelCost,
    *nodes: Node,
    policy: Policy | Literal["auto"] = "auto",
    engine: Engine | None = None,
    **objective: object,
) -> Task:
    aim = Objective(**({"context": 0} | objective))  # type: ignore[arg-type]  # a shorthand
    plain = Task(model, nodes, policy, Reserve(0, 0), objective=aim)
    return plain if engine is None else replace(plain, engine=engine)


def layers(count: int, gib: int = 1, ends: int = 0) -> ModelCost:
    return ModelCost(count, gib * GIB, ends * GIB, ends * GIB, 1e9)


def ids(plan: Placement) -> list[str]:
    return [a.node.node_id for a in plan.assignments]


def sizes(plan: Placement) -> list[int]:
    return [a.end - a.start for a in plan.assignments]


def test_equal_stages_leave_equal_room() -> None:
    """Latency does not care how two equal nodes share; the fullest is given most room."""
    plan = place(task(layers(64), node("a", 50), node("b", 50), node("c", 50), optimize="latency"))
    assert (ids(plan), sizes(plan)) == (["a", "b"], [32, 32])


def test_given_order_keeps_the_list_and_may_skip() -> None:
    """The slow node in the middle is skipped, the order stays."""
    nodes = (node("z", 8), node("m", 8, 1.0), node("a", 8))
    plan = place(task(layers(10), *nodes, order="given"))
    assert (ids(plan), sizes(plan)) == (["z", "a"], [5, 5])
    assert [(i.node_id, i.reason) for i in plan.idle] == [("m", "the best plan leaves it out")]


def test_layers_that_stay_together_are_not_torn() -> None:
    """Two blocks of three side by side are two: a cut between them is allowed, one inside is not."""
    together = Block(3, GIB, 1e9, together=True)
    model = ModelCost(6, 0, 0, 0, layers=(together, together))
    plan = place(task(model, node("a", 4), node("b", 4), node("c", 4)))
    assert sizes(plan) == [3, 3]
    with pytest.raises(DoesNotFitError) as refusal:
        place(task(model, node("a", 2), node("b", 2), node("c", 2)))
    assert refusal.value.capacity_layers == 2


def test_sixteen_devices_are_the_most_that_llama_cpp_drives() -> None:
    """Twenty nodes of one layer each can't hold eighteen."""
    nodes = [node(f"n{i:02}", 1) for i in range(20)]
    cpp = engine("llama.cpp", {"overhead_bytes": 0})
    assert len(place(task(layers(16), *nodes, engine=cpp)).assignments) == 16
    with pytest.raises(DoesNotFitError) as refusal:
        place(task(layers(18), *nodes, engine=cpp))
    assert refusal.value.capacity_layers == 16


def test_pooled_cards_count_one_by_one_for_llama_cpp() -> None:
    """Ten nodes of two cards are twenty devices; eight hold the model all the same."""
    cards = (Device("cuda", mem_bytes=GIB), Device("cuda", mem_bytes=GIB))
    config = NodeConfig("cuda", gpu_memory="pooled", gpu_fraction=1.0)
    nodes = [Node(f"n{i}", f"n{i}", 64 * GIB, 64 * GIB, gflops=1.0, devices=cards, config=config) for i in range(10)]
    cpp = engine("llama.cpp", {"overhead_bytes": 0})
    plan = place(task(layers(16), *nodes, engine=cpp, optimize="throughput"))
    assert len(plan.assignments) == 8
    assert place(task(layers(10), *nodes, engine=cpp, optimize="throughput")).proof is not None
    assert violations(plan) == ()


def cards(*gib: int, **config: object) -> Node:
    devices = tuple(Device("cuda", mem_bytes=g * GIB, gflops=100.0, mem_gbps=10.0) for g in gib)
    return Node("n", "n", 512 * GIB, 512 * GIB, devices=devices, config=NodeConfig("cuda", **config))  # type: ignore[arg-type]  # a shorthand


def test_the_engine_decides_what_auto_means_for_a_card() -> None:
    """plain: host RAM, as the reference; llama.cpp the largest card, vllm all of them."""
    two = cards(16, 24)
    assert budget(two, 0).limit == "ram_avail"
    assert budget(two, 0, engine("llama.cpp")).budget_bytes == int(24 * GIB * 0.85)
    assert budget(two, 0, engine("vllm")).budget_bytes == int(16 * GIB * 0.92) + int(24 * GIB * 0.92)
    assert budget(two, 0, engine("sglang")).budget_bytes == int(16 * GIB * 0.88) + int(24 * GIB * 0.88)
    own = cards(16, 24, gpu_memory="pooled")
    assert budget(own, 0, engine("vllm")).budget_bytes == int(16 * GIB * 0.85) + int(24 * GIB * 0.85)
    assert budget(cards(16, gpu_fraction=1.0), 0, engine("vllm")).budget_bytes == 16 * GIB


def test_the_largest_card_is_the_one_with_most_to_give() -> None:
    """A big card that is nearly full is worth less than a smaller free one."""
    devices = (
        Device("cuda", mem_bytes=24 * GIB, mem_avail=2 * GIB),
        Device("cuda", mem_bytes=16 * GIB, mem_avail=12 * GIB),
    )
    full = replace(cards(16), devices=devices)
    assert [(limit.name, limit.limit_bytes) for limit in limits(full, engine("llama.cpp"))] == [
        ("device_fraction", int(16 * GIB * 0.85)),
        ("mem_avail", 12 * GIB),
    ]


def test_tensor_parallel_takes_so_many_cards_of_each_node() -> None:
    """Nodes with fewer are out; of more, the largest count. Without the option, nodes that differ are warned of."""
    four = engine("vllm", {"tensor_parallel": 4, "overhead_bytes": 0})
    assert exclusion(cards(16, 16), four) == "has 2 cuda devices, tensor_parallel is 4"
    two = engine("vllm", {"tensor_parallel": 2, "overhead_bytes": 0})
    assert budget(cards(16, 24, 24, gpu_fraction=1.0), 0, two).budget_bytes == 48 * GIB
    alone = cards(24, 24, gpu_memory="dedicated")
    assert exclusion(alone, two) == "gpu_memory dedicated is one device, tensor_parallel is 2"
    differ = [replace(cards(4, gpu_fraction=1.0), node_id="a"), replace(cards(2, 2, gpu_fraction=1.0), node_id="b")]
    plan = place(task(layers(8), *differ, engine=engine("vllm", {"overhead_bytes": 0})))
    assert [w for w in plan.warnings if "tensor_parallel" in w] == [
        "stages over 1, 2 devices: vllm wants the same tensor_parallel on every stage; set the option"
    ]


def test_pooled_cards_are_as_fast_as_all_of_them() -> None:
    """200 GFLOP/s of two; a stage on one card has the first one's 100."""
    model = ModelCost(2, 2**20, 0, 0, 100e9)
    assert place(task(model, cards(16, 16, gpu_memory="pooled"))).assignments[0].est_stage_s == 1.0
    assert place(task(model, cards(16, 16, gpu_memory="dedicated"))).assignments[0].est_stage_s == 2.0


def test_stages_of_one_host_do_not_take_its_memory_twice() -> None:
    """10 GiB of RAM behind two nodes are 10 layers, whatever the policy."""
    nodes = (node("a", 10, host="h"), node("b", 10, host="h"), node("c", 6, 1.0))
    plan = place(task(layers(12), *nodes))
    on_host = sum(size for who, size in zip(ids(plan), sizes(plan), strict=True) if who != "c")
    assert on_host <= 10
    assert violations(plan) == ()
    reference = place(task(layers(16), *nodes, policy="ram_balanced"))
    assert ids(reference) == ["a", "c"]
    assert reference.idle[0].reason == "shares the RAM of host h with others of the plan"
    with pytest.raises(DoesNotFitError) as refusal:
        place(task(layers(18), *nodes))
    assert not refusal.value.proven
    by_hand = (node("a", 10, host="h", layers="0:6"), node("b", 10, host="h", layers="6:12"))
    with pytest.raises(OverBudgetError) as over:
        place(task(layers(12), *by_hand, policy="manual"))
    assert [(n.node_id, n.excess_bytes) for n in over.value.nodes] == [("a", 2 * GIB), ("b", 2 * GIB)]


def test_max_ram_frees_a_host_up_to_its_total() -> None:
    """One explicit figure: the operator knows more than ram_avail."""
    free = [replace(node(who, 16, host="h", max_ram_gb=7.0), ram_avail=GIB) for who in ("a", "b")]
    assert sum(sizes(place(task(layers(12), *free)))) == 12


def test_reference_policies_count_caches_experts_and_overhead() -> None:
    """Equal layers of 1 GiB with 1 GiB of cache and 1 of experts each, beside 2e9 bytes: two fit in 8 GiB."""
    model = replace(layers(4), kv_bytes_per_layer_token=GIB // 16, expert_bytes_per_layer=GIB)
    nodes = (node("a", 8), node("b", 8))
    plan = place(task(model, *nodes, policy="ram_balanced", engine=engine("vllm"), context=16))
    assert [a.est_bytes for a in plan.assignments] == [6 * GIB + 2_000_000_000] * 2
    assert plan.assignments[0].est_kv_bytes == 2 * GIB
    assert violations(plan) == ()
    with pytest.raises(DoesNotFitError):
        place(task(replace(model, n_layers=5), *nodes, policy="throughput", engine=engine("vllm"), context=16))
    tiny = node("t", 1)
    plan = place(task(model, *nodes, tiny, policy="ram_balanced", engine=engine("vllm"), context=16))
    assert [i.reason for i in plan.idle] == ["cannot hold what the engine adds to a stage"]


def test_reference_policies_know_only_equal_layers_but_ranges_by_hand_know_all() -> None:
    """422 that points to auto; manual sums its ranges exactly."""
    model = ModelCost(3, 0, 0, 0, layers=(Block(1, GIB), Block(2, 2 * GIB)))
    policies: tuple[Policy, ...] = ("ram_balanced", "throughput")
    for policy in policies:
        with pytest.raises(InvalidFieldError, match="use auto"):
            place(task(model, node("a", 9), policy=policy))
    plan = place(task(model, node("a", 9, layers="0:2"), node("b", 9, layers="2:3"), policy="manual"))
    assert [a.est_bytes for a in plan.assignments] == [3 * GIB, 2 * GIB]
    assert violations(plan) == ()


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        (replace(task(layers(2), node("a", 9)), allow_over_budget=True), "/allow_over_budget"),
        (task(layers(2), node("a", 9), first_node="x"), "/objective/first_node"),
        (task(layers(2), node("a", 9), last_node="x"), "/objective/last_node"),
        (task(replace(layers(2), layers=(Block(3, 1),)), node("a", 9)), "/model/layers"),
        (task(layers(2, 2**33), node("a", 9)), "/model"),
        (task(replace(layers(2), kv_bytes_per_layer_token=2**40), node("a", 9), context=2**40), "/objective/context"),
        (task(replace(layers(2), per_layer_flops=1e308), node("a", 9)), "/model"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(wrong: Task, pointer: str) -> None:
    with pytest.raises(InvalidFieldError) as refusal:
        place(wrong)
    assert refusal.value.pointer == pointer


def test_a_pinned_node_that_is_out_is_a_refusal() -> None:
    with pytest.raises(DoesNotFitError):
        place(task(layers(2), node("a", 9), node("b", 9, role="draining"), last_node="b"))


def test_one_node_may_be_pinned_to_both_ends() -> None:
    plan = place(task(layers(4), node("a", 9), node("b", 9), first_node="b", last_node="b"))
    assert ids(plan) == ["b"]


SOUND = place(task(layers(6, ends=1), node("a", 6), node("b", 6, 500.0), node("c", 1, 1.0)))


def broken(at: int, **change: object) -> Placement:
    stages = list(SOUND.assignments)
    stages[at] = replace(stages[at], **change)  # type: ignore[arg-type]  # whatever the test breaks
    return replace(SOUND, assignments=tuple(stages))


def with_proof(**change: object) -> Placement:
    assert SOUND.proof is not None
    return replace(SOUND, proof=replace(SOUND.proof, **change))  # type: ignore[arg-type]  # whatever the test breaks


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        (broken(0, end=3), "does not continue at layer"),
        (broken(1, end=5), "the plan ends at layer 5 of 6"),
        (broken(0, first=False), "is not marked as the end that it is"),
        (broken(0, est_weight_bytes=1), "has a wrong estimate"),
        (broken(0, est_bytes=1), "parts that don't add up"),
        (broken(0, est_overhead_bytes=1), "doesn't carry what the engine adds"),
        (broken(0, budget_bytes=1), "has a wrong budget"),
        (broken(0, budget_bytes=1), "is over its budget"),
        (broken(0, est_stage_s=9.0), "a has a wrong stage time"),
        (broken(0, est_disk_bytes=1), "pages experts to a disk that can't hold them"),
        (broken(0, est_disk_bytes=1), "pages experts that fit in memory"),
        (broken(0, node=replace(node("a", 6), config=NodeConfig(role="standby"))), "should have no part in it"),
        (broken(0, node=SOUND.assignments[1].node), "stands twice"),
        (replace(SOUND, assignments=()), "nothing to run"),
        (replace(SOUND, objective=Objective(context=0, max_stages=1)), "2 stages are not allowed"),
        (replace(SOUND, objective=Objective(context=0, first_node="b")), "b is not first"),
        (replace(SOUND, objective=Objective(context=0, last_node="a")), "a is not last"),
        (with_proof(value=1.0), "doesn't have the value that it claims"),
        (with_proof(lower_bound=1.0), "better than its bound"),
        (replace(SOUND, model=replace(SOUND.model, layers=(Block(6, GIB, 1e9, together=True),))), "torn apart"),
    ],
)
def test_the_gate_finds_what_is_wrong_with_a_plan(plan: Placement, complaint: str) -> None:
    assert violations(SOUND) == ()
    assert any(complaint in found for found in violations(plan)), violations(plan)


def test_the_gate_finds_stages_of_nobody_and_out_of_order() -> None:
    """Policy auto may order the nodes unless the list's order is given; the reference never does."""
    first, second = (a.node for a in SOUND.assignments)
    assert violations(SOUND, nodes=(second, first)) == ()
    assert violations(SOUND, nodes=(first,)) == ("a stage is on a node that was not asked for",)
    given = replace(SOUND, objective=replace(SOUND.objective, order="given"))
    assert violations(given, nodes=(first, second)) == ()
    for plan in (given, replace(SOUND, proof=None)):
        assert violations(plan, nodes=(second, first)) == ("the stages leave the order of the list",)


def test_the_gate_finds_an_empty_stage_and_a_crowded_host() -> None:
    first, second = SOUND.assignments
    empty = replace(
        SOUND,
        assignments=(
            first,
            replace(second, start=6, first=False),
        ),
    )
    assert "a stage is empty" in violations(empty)
    shared = tuple(replace(a, node=replace(a.node, host_id="h")) for a in SOUND.assignments)
    assert "the stages on host h exceed its RAM together" in violations(replace(SOUND, assignments=shared))


def test_an_explanation_names_what_bound_each_node() -> None:
    """Budget, limit, capacity in the middle, and the reason of the idle."""
    nodes = (*(a.node for a in SOUND.assignments), node("c", 1, 1.0))
    facts = {fact.node_id: fact for fact in explain(SOUND, nodes)}
    assert (facts["a"].layer_cap, facts["a"].limit, facts["a"].layers) == (6, "ram_avail", (0, 4))
    assert (facts["c"].layer_cap, facts["c"].layers, facts["c"].reason) == (1, None, "the best plan leaves it out")


def test_a_summary_holds_the_optimum_beside_what_slack_made_of_it() -> None:
    """Three nodes are best, 2 layers each; for half as much again two of them do."""
    plan = place(task(layers(6), node("a", 9), node("b", 9), node("c", 9), slack=0.5))
    summary = summarise(plan)
    assert (summary.stages, summary.best_stages) == (2, 3)
    assert (summary.objective_value, summary.best_value) == (0.003, 0.002)
    assert summary.optimal
    assert summary.max_context is None
    assert summary.headroom_bytes == 6 * GIB


def test_the_largest_context_of_a_plan_is_where_one_more_token_does_not_fit() -> None:
    model = replace(layers(4), kv_bytes_per_layer_token=GIB // 1000)
    plan = place(task(model, node("a", 6), optimize="memory", context=1))
    top = summarise(plan).max_context
    assert top == 2 * GIB // (4 * (GIB // 1000))
    assert place(task(model, node("a", 6), context=top)).assignments
    with pytest.raises(DoesNotFitError):
        place(task(model, node("a", 6), context=top + 1))


def test_suggestions_are_plans_that_were_made() -> None:
    """Context, sequences, reserve and a node: each fits, and one step more does not."""
    model = replace(layers(6), kv_bytes_per_layer_token=GIB // 1024)
    asked = replace(task(model, node("a", 8), node("b", 4), context=4096, sequences=2), reserve=Reserve(GIB, 0))
    found = {s.change: s.value for s in suggestions(asked)}
    assert found.keys() == {"objective.context", "nodes"}
    context = int(found["objective.context"])
    assert place(replace(asked, objective=replace(asked.objective, context=context))).assignments
    with pytest.raises(DoesNotFitError):
        place(replace(asked, objective=replace(asked.objective, context=context + 1)))
    less = replace(asked, objective=replace(asked.objective, context=300, sequences=3))
    assert {s.change for s in suggestions(less)} == {
        "objective.context",
        "objective.sequences",
        "reserve_bytes",
        "nodes",
    }
    kept = replace(task(layers(10), node("a", 8), node("b", 4)), reserve=Reserve(2 * GIB, 0))
    assert {s.change: s.value for s in suggestions(kept)} == {"reserve_bytes": GIB, "nodes": 2 * GIB}
    assert suggestions(kept, plans=0) == ()


def test_a_plan_knows_its_slowest_and_its_fullest_stage() -> None:
    plan = place(task(layers(6), node("a", 20), node("b", 4, 10.0), optimize="memory"))
    assert (
        summarise(plan).bottleneck_node
        == max(plan.assignments, key=lambda a: a.est_bytes / a.budget_bytes).node.node_id
    )
    assert plan.bottleneck.node.node_id == "b"


def test_proofs_and_stages_are_values() -> None:
    """Equal input, equal answer, down to the proof."""
    assert place(task(layers(6, ends=1), node("a", 6), node("b", 6, 500.0), node("c", 1, 1.0))) == SOUND
    assert isinstance(SOUND.proof, Proof)
    assert all(isinstance(a, Assignment) for a in SOUND.assignments)
