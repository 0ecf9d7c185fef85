"""All plans of a small task, by the contract's formulas and nothing of the planner's.

Every subset of the nodes in every order (or the list's), every way to cut: the oracle of the property tests. It reads
the request's figures only, and adds up layer by layer.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations

from app.placement.cost import Block, ModelCost
from app.placement.engines import Engine
from app.placement.nodes import Node
from app.placement.objective import Objective
from app.placement.task import Task

Plan = tuple[tuple[Node, int, int], ...]


def layers_of(model: ModelCost) -> list[Block]:
    """One block of figures per layer."""
    if model.layers:
        return [block for block in model.layers for _ in range(block.count)]
    scalar = Block(
        1,
        model.per_layer_bytes,
        model.per_layer_flops,
        model.kv_bytes_per_layer_token,
        expert_bytes=model.expert_bytes_per_layer,
        expert_active_bytes=model.expert_active_bytes_per_layer,
    )
    return [scalar] * model.n_layers


def forbidden_cuts(model: ModelCost) -> set[int]:
    """Places inside blocks that stay together."""
    inside, at = set(), 0
    for block in model.layers:
        if block.together:
            inside |= set(range(at + 1, at + block.count))
        at += block.count
    return inside


def tokens(engine: Engine, objective: Objective, window: int | None) -> int:
    """T of the contract's table, written out per engine."""
    context, sequences = objective.context, objective.sequences
    if engine.name == "llama.cpp":

        def pad(cells: int) -> int:
            return math.ceil(cells / engine.kv_pad) * engine.kv_pad

        if window is None:
            return pad(sequences * context) if engine.kv_unified else sequences * pad(context)
        if engine.kv_unified:
            return pad(min(sequences * context, sequences * window + engine.n_ubatch))
        return sequences * pad(min(context, window + engine.n_ubatch))
    if engine.name in ("vllm", "sglang"):
        blocks = math.ceil(context / 16)
        if window is not None:
            blocks = min(blocks, math.ceil((window - 1 + engine.max_batched_tokens) / 16) + 1)
        return sequences * 16 * blocks
    return sequences * (context if window is None else min(context, window))


def stage(task: Task, node: Node, start: int, end: int) -> tuple[int, float] | None:
    """Bytes and seconds of a stage on a CPU node, None where it doesn't fit."""
    model, engine, objective = task.model, task.engine, task.objective
    first, last = start == 0, end == model.n_layers
    layers = layers_of(model)[start:end]
    table = 0
    if model.tied_embeddings:
        table = min(model.embed_bytes, model.head_bytes)
        table = table if model.tied_bytes is None else min(table, model.tied_bytes)
    kv = sum(
        tokens(engine, objective, b.kv_window) * b.kv_bytes_per_token + objective.sequences * b.state_bytes
        for b in layers
    )
    mem = sum(b.bytes for b in layers) + kv + engine.overhead_bytes
    if engine.name == "llama.cpp":
        mem += model.head_bytes if last else 0
    else:
        mem += (
            (model.embed_bytes if first else 0) + (model.head_bytes if last else 0) - (table if first and last else 0)
        )
    budget = max(0, node.ram_avail - (task.reserve.asked_bytes or 0))
    experts = sum(b.expert_bytes for b in layers)
    active = sum(min(b.expert_bytes, objective.sequences * b.expert_active_bytes) for b in layers)
    paged = mem + experts > budget
    if paged and (mem > budget or node.disk_free is None or experts > int(0.90 * node.disk_free)):
        return None
    gflops = max((node.devices[0].gflops if node.devices else None) or node.gflops or 0.0, 1.0)
    work = objective.sequences * (sum(b.flops for b in layers) + (model.head_flops if last else 0.0))
    seconds = work / (gflops * 1e9)
    gbps = node.devices[0].mem_gbps if node.devices else None
    if gbps:
        read = sum(b.bytes for b in layers) + kv + (model.head_bytes if last else 0) + (0 if paged else active)
        seconds = max(seconds, read / (gbps * 1e9))
    if paged:
        return mem, seconds + active / (max(node.io_mbps or 0.0, 1.0) * 1e6)
    return mem + experts, seconds


def plans(task: Task) -> Iterator[tuple[Plan, float]]:
    """Every plan that the task allows, with its value."""
    objective, n_layers = task.objective, task.model.n_layers
    inside = forbidden_cuts(task.model)
    may_cut = [cut for cut in range(1, n_layers) if cut not in inside]
    for count in range(1, min(len(task.nodes), n_layers) + 1):
        if objective.max_stages is not None and count > objective.max_stages:
            continue
        if objective.stage_counts and count not in objective.stage_counts:
            continue
        rows = combinations(task.nodes, count) if objective.order == "given" else permutations(task.nodes, count)
        for row in rows:
            if objective.first_node not in (None, row[0].node_id) or objective.last_node not in (None, row[-1].node_id):
                continue
            for cuts in combinations(may_cut, count - 1):
                plan = tuple(zip(row, (0, *cuts), (*cuts, n_layers), strict=True))
                value = _value(task, plan)
                if value is not None:
                    yield plan, value


def _value(task: Task, plan: Plan) -> float | None:
    stages = [stage(task, *part) for part in plan]
    if any(s is None for s in stages):
        return None
    kept = [s for s in stages if s is not None]
    if not _hosts_hold(task, plan, [mem for mem, _ in kept]):
        return None
    optimize = task.objective.optimize or task.engine.optimize
    if optimize == "throughput":
        return max(seconds for _, seconds in kept)
    if optimize == "latency":
        return math.fsum(seconds for _, seconds in kept) + task.objective.hop_s * (len(kept) - 1)
    reserve = task.reserve.asked_bytes or 0
    rooms = [max(0, node.ram_avail - reserve) for node, _, _ in plan]
    return max(mem / room if room else 0.0 for (mem, _), room in zip(kept, rooms, strict=True))


def _hosts_hold(task: Task, plan: Plan, held: list[int]) -> bool:
    hosts = {node.host_id for node, _, _ in plan if node.host_id is not None}
    for host in hosts:
        on_it = [(node, mem) for (node, _, _), mem in zip(plan, held, strict=True) if node.host_id == host]
        room = max(0, min(node.ram_avail for node, _ in on_it) - (task.reserve.asked_bytes or 0))
        if len(on_it) > 1 and sum(mem for _, mem in on_it) > room:
            return False
    return True


def optimum(task: Task) -> tuple[float, int] | None:
    """The least value and the fewest stages that reach it (within rounding), None where nothing fits."""
    found = list(plans(task))
    if not found:
        return None
    best = min(value for _, value in found)
    return best, min(len(plan) for plan, value in found if value <= best * (1 + 1e-11))


def largest_model(task: Task) -> int:
    """How many of the first layers could be placed, fewer than all."""
    for n_layers in range(task.model.n_layers - 1, 0, -1):
        if any(True for _ in plans(_first_layers(task, n_layers))):
            return n_layers
    return 0


def _first_layers(task: Task, n_layers: int) -> Task:
    blocks, left = [], n_layers
    for block in task.model.layers:
        if left > 0:
            blocks.append(replace(block, count=min(block.count, left)))
        left -= block.count
    return replace(task, model=replace(task.model, n_layers=n_layers, layers=tuple(blocks)))
