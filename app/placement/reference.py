"""The reference planner: ``ram_balanced``, ``throughput`` and ``manual``, equal to the last byte.

A port of a Rust module by its behaviour. Its traps: halves round away from zero, ties go to the *last* of the
equal nodes, the weight sum is a plain left-to-right float sum (``sum`` compensates since Python 3.12), and
``n * w / sum`` is evaluated left to right.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Literal

from app.placement.budgets import Budget
from app.placement.cost import ModelCost
from app.placement.errors import DoesNotFitError, ManualRangesError, NodeVerdict
from app.placement.nodes import Node
from app.placement.plans import Assignment
from app.placement.units import GB, INT_MAX, UNLIMITED, rounded

LAYER_RANGE = re.compile(r"([0-9]{1,18}):([0-9]{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Seat:
    """A node in its place in the pipeline, with its budget and the layers that fit there."""

    node: Node
    budget: Budget
    first: bool
    last: bool
    layer_cap: int


def seats(nodes: Sequence[Node], budgets: Sequence[Budget], model: ModelCost) -> tuple[Seat, ...]:
    """Every node in list order: the first carries the embedding, the last the head."""
    end = len(nodes) - 1
    taken = []
    for at, (node, room) in enumerate(zip(nodes, budgets, strict=True)):
        first, last = at == 0, at == end
        overhead = model.overhead_bytes(first=first, last=last)
        cap = layer_capacity(room.budget_bytes, model.per_layer_bytes, overhead)
        taken.append(Seat(node, room, first, last, cap))
    return tuple(taken)


def layer_capacity(budget_bytes: int, layer_bytes: int, overhead_bytes: int) -> int:
    """Whole layers that fit beside what the stage carries anyway.

    Unlimited (``UNLIMITED``) where a layer weighs nothing.
    """
    if layer_bytes == 0:
        return UNLIMITED
    return max(0, budget_bytes - overhead_bytes) // layer_bytes


def ram_balanced(row: Sequence[Seat], model: ModelCost) -> tuple[Assignment, ...]:
    """Layers in proportion to the budgets, as far as they fit. O(n + l log n) for n nodes, l layers.

    Raises DoesNotFitError.
    """
    return _proportional(row, model, lambda seat: float(seat.budget.budget_bytes))


def throughput(row: Sequence[Seat], model: ModelCost) -> tuple[Assignment, ...]:
    """Layers in proportion to the nodes' speed, as far as they fit. O(n + l log n) for n nodes, l layers.

    Raises DoesNotFitError.
    """
    flops = max(model.per_layer_flops, 0.001)
    return _proportional(row, model, lambda seat: seat.node.speed_gflops * flops)


def manual(row: Sequence[Seat], model: ModelCost) -> tuple[Assignment, ...]:
    """Each node's own ``layers``, as they stand; nothing is checked against the model or the budget.

    Raises ManualRangesError for a node without a range.
    """
    return tuple(_assign(seat, model, *parse_layers(seat.node)) for seat in row)


Policy = Literal["ram_balanced", "throughput", "manual"]

POLICIES: dict[Policy, Callable[[Sequence[Seat], ModelCost], tuple[Assignment, ...]]] = {
    "ram_balanced": ram_balanced,
    "throughput": throughput,
    "manual": manual,
}


def parse_layers(node: Node) -> tuple[int, int]:
    """The range that the node's owner gave, ``[start, end)``. Raises ManualRangesError without a valid one."""
    match = LAYER_RANGE.fullmatch(node.config.layers or "")
    start, end = (int(match[1]), int(match[2])) if match else (1, 0)
    if start > end:
        raise ManualRangesError(f"node {node.addr} has no `layers` for manual policy", (node.node_id,))
    return start, end


def does_not_fit(row: Sequence[Seat], model: ModelCost) -> DoesNotFitError:
    """The refusal with its figures, in the reference's words."""
    capacity = sum(min(seat.layer_cap, model.n_layers) for seat in row)
    verdicts = (
        NodeVerdict(s.node.node_id, s.node.addr, s.budget.budget_bytes, s.budget.limit, min(s.layer_cap, INT_MAX), None)
        for s in row
    )
    return DoesNotFitError(
        f"model ({model.n_layers} layers, {model.total_bytes / GB:.1f} GB) does not fit the cluster "
        f"(capacity {capacity} layers). Lower precision, add a node, raise max_ram, or reduce reserve.",
        required_bytes=model.total_bytes,
        usable_bytes=min(INT_MAX, sum(s.budget.budget_bytes for s in row)),
        capacity_layers=capacity,
        nodes=tuple(verdicts),
    )


def _proportional(row: Sequence[Seat], model: ModelCost, weigh: Callable[[Seat], float]) -> tuple[Assignment, ...]:
    caps = [seat.layer_cap for seat in row]
    if sum(min(cap, model.n_layers) for cap in caps) < model.n_layers:
        raise does_not_fit(row, model)
    counts = _settle(_targets([weigh(seat) for seat in row], caps, model.n_layers), caps, model.n_layers)
    assignments, start = [], 0
    for seat, count in zip(row, counts, strict=True):
        assignments.append(_assign(seat, model, start, start + count))
        start += count
    return tuple(assignments)


def _targets(weights: Sequence[float], caps: Sequence[int], n_layers: int) -> list[int]:
    total = 0.0
    for weight in weights:
        total += weight
    if total == 0.0:  # 0 / 0 is NaN in the reference, which it counts as no layers
        return [0] * len(weights)
    return [min(rounded(n_layers * weight / total), cap) for weight, cap in zip(weights, caps, strict=True)]


def _settle(counts: list[int], caps: Sequence[int], n_layers: int) -> list[int]:
    """Give missing layers to the node with most room, take surplus ones from the fullest; the last of equals."""
    missing = n_layers - sum(counts)
    if missing == 0:
        return counts
    step = 1 if missing > 0 else -1
    levels = [cap - count for cap, count in zip(caps, counts, strict=True)] if missing > 0 else counts
    heap = [(-level, -at) for at, level in enumerate(levels)]
    heapify(heap)
    for _ in range(abs(missing)):
        level, at = heap[0]
        counts[-at] += step
        heapreplace(heap, (level + 1, at))
    return counts


def _assign(seat: Seat, model: ModelCost, start: int, end: int) -> Assignment:
    layers = end - start
    return Assignment(
        node=seat.node,
        start=start,
        end=end,
        first=seat.first,
        last=seat.last,
        est_bytes=model.stage_bytes(layers, first=seat.first, last=seat.last),
        budget_bytes=seat.budget.budget_bytes,
        est_stage_s=model.stage_seconds(seat.node, layers, last=seat.last),
    )
