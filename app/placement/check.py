"""An independent reading of a finished plan: the gate before an answer, and an oracle for tests.

It shares no arithmetic with the planner: layers are added up one by one, by the contract's formulas.
"""

import math
from collections.abc import Iterator, Sequence

from app.placement.budgets import budget, exclusion
from app.placement.cost import Block
from app.placement.hosts import host_room, sharing
from app.placement.plans import Assignment, Placement

CLOSE = 1e-9
"""Relative distance within which two ways of adding floats agree."""


def violations(placement: Placement, *, allow_over_budget: bool = False) -> tuple[str, ...]:
    """What the plan promises and doesn't keep, in words; empty for a sound plan. O(nodes + layers).

    A plan that was allowed to exceed budgets is the reference's verbatim: only its figures are checked then.
    """
    found = list(_wrong_figures(placement))
    if not allow_over_budget:
        found += _untiled(placement)
        found += [f"{a.node.node_id} is over its budget" for a in placement.assignments if a.over_budget]
        found += _overcommitted(placement)
        found += _apart(placement)
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
    blocks = placement.model.blocks
    for at, a in enumerate(stages):
        who = a.node.node_id
        if (a.first, a.last) != (at == 0, at == len(stages) - 1):
            yield f"{who} is not marked as the end that it is"
        if exclusion(a.node, placement.engine) is not None:
            yield f"{who} should have no part in it"
        room = budget(a.node, placement.reserve.of(a.node, placement.engine), placement.engine)
        if a.budget_bytes != room.budget_bytes:
            yield f"{who} has a wrong budget"
        yield from _wrong_bytes(placement, a, blocks)


def _wrong_bytes(placement: Placement, stage: Assignment, blocks: Sequence[Block]) -> Iterator[str]:
    who = stage.node.node_id
    weights, cache, experts = _from_scratch(placement, stage, blocks)
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


def _from_scratch(placement: Placement, stage: Assignment, blocks: Sequence[Block]) -> tuple[int, int, int]:
    """Weights, caches and experts from the model's own runs of layers, where the planner subtracts sums. O(runs)."""
    model, engine, objective = placement.model, placement.engine, placement.objective
    weights = cache = experts = at = 0
    for block in blocks:
        tokens = engine.cached_tokens(objective.context, objective.sequences, block.kv_window)
        layers = max(0, min(stage.end, at + block.count) - max(stage.start, at))
        weights += layers * block.bytes
        experts += layers * block.expert_bytes
        cache += layers * (tokens * block.kv_bytes_per_token + objective.sequences * block.state_bytes)
        at += block.count
    beyond = max(0, stage.end - max(at, stage.start))  # a range given by hand may leave the model
    if beyond and model.uniform:
        only = blocks[0]
        weights += beyond * only.bytes
        experts += beyond * only.expert_bytes
        cache += beyond * (
            engine.cached_tokens(objective.context, objective.sequences, only.kv_window) * only.kv_bytes_per_token
            + objective.sequences * only.state_bytes
        )
    weights += model.embed_bytes if stage.first and engine.embeds else 0
    weights += model.head_bytes if stage.last else 0
    once = stage.first and stage.last and engine.embeds and engine.shares_table
    return weights - (model.shared_bytes if once else 0), cache, experts


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
