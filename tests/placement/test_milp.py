"""Mid-size fleets in any order against a mixed-integer programme of stages, solved by HiGHS.

A variable per node and range of layers; every layer is covered once, every node used once at most.
"""

import math
import os
import random

import highspy
import pytest

from app.placement.budgets import Reserve
from app.placement.cost import Block, ModelCost
from app.placement.errors import DoesNotFitError
from app.placement.nodes import Device, Node
from app.placement.objective import Objective
from app.placement.planner import place
from app.placement.task import Task
from tests.placement.brute import stage

INSTANCES = int(os.environ.get("MILP_INSTANCES", "24"))


def fleet(rng: random.Random) -> tuple[Node, ...]:
    """Ten to fourteen different nodes, about half again of what is needed together."""
    found = []
    for at in range(rng.randint(10, 14)):
        bandwidth = rng.choice([None, rng.uniform(20.0, 900.0)])
        devices = () if bandwidth is None else (Device("cpu", mem_gbps=bandwidth),)
        ram = int(rng.uniform(1.0, 5.0) * 1e9)
        found.append(Node(f"n{at:02}", f"n{at:02}", ram, ram, gflops=rng.uniform(50.0, 4000.0), devices=devices))
    return tuple(found)


def model(rng: random.Random) -> ModelCost:
    """Twelve to eighteen layers of four kinds."""
    blocks = tuple(
        Block(
            rng.randint(3, 4),
            rng.randint(5 * 10**8, 15 * 10**8),
            rng.uniform(1e8, 3e9),
            rng.choice([0, 20_000]),
            rng.choice([None, 512]),
        )
        for _ in range(4)
    )
    return ModelCost(sum(b.count for b in blocks), 0, 5 * 10**8, 5 * 10**8, layers=blocks, head_flops=1e9)


def solved(task: Task) -> float:
    """The optimum, infinite where nothing fits."""
    n_layers, objective = task.model.n_layers, task.objective
    highs = highspy.Highs()  # type: ignore[no-untyped-call]  # the package types only its calls' results
    highs.setOptionValue("output_flag", False)  # the package's own signature
    highs.setOptionValue("mip_rel_gap", 0.0)
    covers: list[list[highspy.highs.highs_var]] = [[] for _ in range(n_layers)]
    total, largest = [], highs.addVariable(0.0)
    for node in task.nodes:
        own, times = [], []
        for start in range(n_layers):
            for end in range(start + 1, n_layers + 1):
                cost = stage(task, node, start, end)
                if cost is None:
                    break
                chosen = highs.addBinary()
                own.append(chosen)
                times.append(chosen * cost[1])
                total.append(chosen * (cost[1] + objective.hop_s))
                for layer in range(start, end):
                    covers[layer].append(chosen)
        if own:
            highs.addConstr(sum(own[1:], own[0]) <= 1)
            highs.addConstr(sum(times[1:], times[0]) <= largest)
    if not all(covers):
        return math.inf
    for cover in covers:
        highs.addConstr(sum(cover[1:], cover[0]) == 1)
    highs.minimize(sum(total[1:], total[0]) if objective.optimize == "latency" else largest)
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return math.inf
    value = highs.getObjectiveValue()
    return value - objective.hop_s if objective.optimize == "latency" else value


@pytest.mark.parametrize("seed", range(INSTANCES))
def test_ours_equals_the_mixed_integer_optimum_or_its_gap_is_true(seed: int) -> None:
    """Throughput and latency in turn; the bound is below the optimum, a proven value equals it."""
    rng = random.Random(seed)  # noqa: S311  # a repeatable instance, not a secret
    objective = Objective(("throughput", "latency")[seed % 2], 4096, 1, 0.002)
    task = Task(model(rng), fleet(rng), "auto", Reserve(0, 0), objective=objective)
    best = solved(task)
    try:
        proof = place(task).proof
    except DoesNotFitError as refusal:
        assert best == math.inf
        assert refusal.proven
        return
    assert proof is not None
    assert proof.lower_bound <= best * (1 + 1e-6)
    assert proof.value >= best * (1 - 1e-6)
    if proof.optimal:
        assert math.isclose(proof.value, best, rel_tol=1e-6)
