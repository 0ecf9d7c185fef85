"""An independent reading of a finished plan: the gate before an answer, and an oracle for tests.

It shares no arithmetic with the planner: layers are added up one by one, by the contract's formulas.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from app.placement.budgets import Budget, budget, devices_used, exclusion
from app.placement.cost import Block, ModelCost
from app.placement.hosts import host_room, sharing
from app.placement.nodes import Node
from app.placement.plans import Assignment, Placement
from app.placement.stages import worker_of

CLOSE = 1e-9
"""Relative distance within which two ways of adding floats agree."""

Part = tuple[int, Block]
"""So many layers of a run."""


def violations(placement: Placement, *, nodes: Sequence[Node] = (), allow_over_budget: bool = False) -> tuple[str, ...]:
    """What the plan promises and doesn't keep, in words; empty for a sound plan. O(nodes + layers).

    ``nodes`` are those that were to be planned on, in their order. A plan that was allowed to exceed budgets is the
    reference's verbatim: only its figures are checked then.
    """
    found = list(_wrong_figures(placement))
    found += _out_of_order(placement, nodes)
    if not allow_over_budget:
        found += _untiled(placement)
        found += [f"{a.node.node_id} is over its budget" for a in placement.assignments if a.over_budget]
        found += _overcommitted(placement)
        found += _apart(placement)
        found += _too_many_devices(placement)
    if placement.proof is not None:
        found += _unproven(placement)
    return tuple(found)


def _wrong_figures(placement: Placement) -> Iterator[str]:
    stages = placement.assignments
    ids = [a.node.node_id for a in stages] + [i.node_id for i in placement.idle]
    if len(set(ids)) != len(ids):
        yield "a node stands twice in the plan"
    if not stages or placement.model.n_layers < 1:
        yield "there is nothing to run"
    layers, total_s = _Layers(placement.model), math.fsum(a.est_stage_s for a in stages)
    for at, a in enumerate(stages):
        who = a.node.node_id
        if (a.first, a.last) != (at == 0, at == len(stages) - 1):
            yield f"{who} is not marked as the end that it is"
        if exclusion(a.node, placement.engine) is not None:
            yield f"{who} should have no part in it"
        room = budget(a.node, placement.reserve.of(a.node, placement.engine), placement.engine)
        if a.budget_bytes != room.budget_bytes:
            yield f"{who} has a wrong budget"
        yield from _wrong_estimates(placement, a, layers.of(a))
        time_s = _seconds(placement, a, layers.of(a))
        if not math.isclose(a.est_stage_s, time_s, rel_tol=CLOSE, abs_tol=CLOSE * total_s):
            yield f"{who} has a wrong stage time"


def _wrong_estimates(placement: Placement, stage: Assignment, layers: Sequence[Part]) -> Iterator[str]:
    who = stage.node.node_id
    weights, cache, experts = _held(placement, stage, layers)
    if stage.est_bytes != stage.est_weight_bytes + stage.est_kv_bytes + stage.est_overhead_bytes:
        yield f"{who} has parts that don't add up"
    held = weights + (0 if stage.experts_paged else experts)
    if (stage.est_weight_bytes, stage.est_kv_bytes) != (held, cache):
        yield f"{who} has a wrong estimate"
    if stage.est_overhead_bytes != placement.engine.overhead_bytes:
        yield f"{who} doesn't carry what the engine adds"
    if not stage.experts_paged:
        return
    disk = stage.node.disk_free
    if stage.est_disk_bytes != experts or disk is None or experts > math.floor(disk * 0.9):
        yield f"{who} pages experts to a disk that can't hold them"
    if stage.est_bytes + experts <= stage.budget_bytes:
        yield f"{who} pages experts that fit in memory"


def _held(placement: Placement, stage: Assignment, layers: Sequence[Part]) -> tuple[int, int, int]:
    """Weights, caches and experts."""
    model, engine, objective = placement.model, placement.engine, placement.objective
    weights = cache = experts = 0
    for count, block in layers:
        tokens = engine.cached_tokens(objective.context, objective.sequences, block.kv_window)
        weights += count * block.bytes
        experts += count * block.expert_bytes
        cache += count * (tokens * block.kv_bytes_per_token + objective.sequences * block.state_bytes)
    weights += model.embed_bytes if stage.first and engine.embeds else 0
    weights += model.head_bytes if stage.last else 0
    once = stage.first and stage.last and engine.embeds and engine.shares_table
    return weights - (model.shared_bytes if once else 0), cache, experts


def _seconds(placement: Placement, stage: Assignment, layers: Sequence[Part]) -> float:
    """The time of one decode step."""
    model, sequences = placement.model, placement.objective.sequences
    speed = worker_of(stage.node, Budget(0, ""), placement.engine)
    flops = math.fsum(count * block.flops for count, block in layers) + (model.head_flops if stage.last else 0.0)
    compute = sequences * flops / speed.flops_per_s
    streamed = sum(count * block.bytes for count, block in layers) + (model.head_bytes if stage.last else 0)
    streamed += _held(placement, stage, layers)[1]
    active = sum(n * min(block.expert_bytes, sequences * block.expert_active_bytes) for n, block in layers)
    if stage.experts_paged:
        return max(compute, streamed / speed.bytes_per_s) + active / speed.disk_bytes_per_s
    return max(compute, (streamed + active) / speed.bytes_per_s)


class _Layers:
    """The model's own runs of layers, where the planner subtracts sums."""

    def __init__(self, model: ModelCost) -> None:
        self.blocks = model.blocks
        self.ends = list(accumulate(block.count for block in self.blocks))
        self.goes_on = model.uniform

    def of(self, stage: Assignment) -> list[Part]:
        """The runs of one stage; a range given by hand may leave a uniform model. O(runs of the stage)."""
        parts, at = [], stage.start
        for run in range(bisect_right(self.ends, at), len(self.ends)):
            if at >= stage.end:
                break
            upto = min(stage.end, self.ends[run])
            parts.append((upto - at, self.blocks[run]))
            at = upto
        if self.goes_on and at < stage.end:
            parts.append((stage.end - at, self.blocks[0]))
        return parts


def _out_of_order(placement: Placement, nodes: Sequence[Node]) -> Iterator[str]:
    """Stages of nobody in the list, or in another order than the list's where that is part of the question."""
    places = {node.node_id: at for at, node in enumerate(nodes)}
    if not places:
        return
    at = [places.get(a.node.node_id, -1) for a in placement.assignments]
    if min(at, default=0) < 0:
        yield "a stage is on a node that was not asked for"
    if (placement.proof is None or placement.objective.order == "given") and at != sorted(at):
        yield "the stages leave the order of the list"


def _too_many_devices(placement: Placement) -> Iterator[str]:
    most = placement.engine.max_devices
    used = sum(devices_used(a.node, placement.engine) for a in placement.assignments if a.end > a.start)
    if most is not None and used > most:
        yield f"{placement.engine.name} can't drive {used} devices"


def _untiled(placement: Placement) -> Iterator[str]:
    at = 0
    for a in placement.assignments:
        if a.start != at or a.end < a.start:
            yield f"{a.node.node_id} does not continue at layer {at}"
        at = a.end
    if at != placement.model.n_layers:
        yield f"the plan ends at layer {at} of {placement.model.n_layers}"


def _overcommitted(placement: Placement) -> Iterator[str]:
    held = {a.node.node_id: a.est_bytes for a in placement.assignments if a.end > a.start}
    nodes = (a.node for a in placement.assignments if a.end > a.start)
    for host_id, group in sharing(nodes, placement.engine).items():
        if sum(held[node.node_id] for node in group) > host_room(group, placement.reserve, placement.engine):
            yield f"the stages on host {host_id} exceed its RAM together"


def _apart(placement: Placement) -> Iterator[str]:
    """Layers that must stay together, under policy ``auto``."""
    if placement.proof is None:
        return
    cuts, at = {a.end for a in placement.assignments}, 0
    for block in placement.model.layers:
        if block.together and any(at < cut < at + block.count for cut in cuts):
            yield f"layers {at} to {at + block.count} are torn apart"
        at += block.count


def _unproven(placement: Placement) -> Iterator[str]:
    """Bounds of the request that the plan breaks, and a value that its stages don't have."""
    stages, objective, proof = (placement.assignments, placement.objective, placement.proof)
    if not stages:
        return
    if any(a.start == a.end for a in stages):
        yield "a stage is empty"
    if len(stages) not in objective.counts(len(stages)):
        yield f"{len(stages)} stages are not allowed"
    if objective.first_node not in (None, stages[0].node.node_id):
        yield f"{objective.first_node} is not first"
    if objective.last_node not in (None, stages[-1].node.node_id):
        yield f"{objective.last_node} is not last"
    optimize = objective.optimize or placement.engine.optimize
    if optimize == "latency":
        value = math.fsum(a.est_stage_s for a in stages) + objective.hop_s * (len(stages) - 1)
    elif optimize == "throughput":
        value = max(a.est_stage_s for a in stages)
    else:
        value = max(a.est_bytes / a.budget_bytes if a.budget_bytes else 0.0 for a in stages)
    if proof is not None and not math.isclose(value, proof.value, rel_tol=CLOSE):
        yield "the plan doesn't have the value that it claims"
    if proof is not None and proof.lower_bound > proof.value * (1 + CLOSE):
        yield "the plan is better than its bound"
