"""Policy ``auto`` as a pure function: fleets and models like those of the design's goals."""

import random
from timeit import repeat

from app.placement.budgets import Reserve
from app.placement.cost import Block, ModelCost
from app.placement.nodes import Device, Node
from app.placement.objective import Objective
from app.placement.planner import place
from app.placement.task import Task

GB = 10**9


def uniform(layers: int) -> ModelCost:
    """Equal layers with a cache, between tables of two of them."""
    return ModelCost(layers, GB, 2 * GB, 2 * GB, 2e9, kv_bytes_per_layer_token=4096, head_flops=1e9)


def mixed(layers: int) -> ModelCost:
    """Runs of one to four equal layers, some with a window, some without a cache."""
    rng = random.Random(3)  # noqa: S311  # a repeatable model, not a secret
    blocks: list[Block] = []
    left = layers
    while left:
        count = min(left, rng.randint(1, 4))
        size, flops = rng.randint(GB // 2, 3 * GB // 2), rng.uniform(1e9, 3e9)
        blocks.append(Block(count, size, flops, rng.choice([0, 4096, 8192]), rng.choice([None, 1024])))
        left -= count
    return ModelCost(layers, 0, 2 * GB, 2 * GB, layers=tuple(blocks), head_flops=1e9)


def fleet(nodes: int, model: ModelCost) -> tuple[Node, ...]:
    """Unlike nodes that hold the model about twice, in large fleets more, since each holds some layers."""
    rng = random.Random(1)  # noqa: S311  # a repeatable fleet, not a secret
    each = max(model.total_bytes / nodes, 3 * GB)
    return tuple(
        Node(
            f"n{i:05}",
            f"n{i:05}",
            4 * int(each) + 1,
            int(each * rng.uniform(0.6, 3.4)),
            gflops=rng.uniform(50, 5_000),
            devices=(Device("cpu", mem_gbps=rng.uniform(30, 900)),),
        )
        for i in range(nodes)
    )


def bench_auto(*, quick: bool) -> None:
    """Best of a few, with what is proven of each plan."""
    print("\npolicy auto, pure function")
    sizes = [16, 100] if quick else [10, 16, 100, 1_000, 10_000]
    for optimize in ("throughput", "latency", "memory"):
        for nodes in sizes:
            layers = 80 if nodes == 16 else 96
            _line(f"{optimize} uniform any", uniform(layers), nodes, Objective(optimize, 4096))
        _line(f"{optimize} mixed given", mixed(96), 16, Objective(optimize, 4096, order="given"))
        _line(f"{optimize} mixed any", mixed(61), 12, Objective(optimize, 4096))


def _line(what: str, model: ModelCost, nodes: int, objective: Objective) -> None:
    task = Task(model, fleet(nodes, model), "auto", Reserve(0, 0), objective=objective)
    best_s = min(repeat(lambda: place(task), number=1, repeat=3 if nodes > 100 else 7))
    proof = place(task).proof
    gap = 0.0 if proof is None or not proof.lower_bound else proof.best_value / proof.lower_bound - 1
    proven = "optimal" if proof and proof.optimal else f"gap {gap:.2%}"
    print(f"  {what:24} {nodes:6} x {model.n_layers:3}: {best_s * 1e3:9.2f} ms  {proven}")
