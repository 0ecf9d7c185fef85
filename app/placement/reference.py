"""The reference planner: ``ram_balanced``, ``throughput`` and ``manual``, equal to the last byte.

A port of a Rust module by its behaviour. Its traps: halves round away from zero, ties go to the *last* of the
equal nodes, the weight sum is a plain left-to-right float sum (``sum`` compensates since Python 3.12), and
``n * w / sum`` is evaluated left to right.
"""

import re
from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from typing import Literal, NamedTuple

from app.placement.errors import DoesNotFitError, ManualRangesError, NodeVerdict
from app.placement.nodes import Node
from app.placement.plans import Assignment, assigned
from app.placement.stages import Stack, Worker
from app.placement.units import GB, INT_MAX, UNLIMITED, rounded

LAYER_RANGE = re.compile(r"([0-9]{1,18}):([0-9]{1,18})", re.ASCII)


class Seat(NamedTuple):
    """A worker in its place in the pipeline, with the layers that fit there, caches and experts in memory."""

    worker: Worker
    first: bool
    last: bool
    layer_cap: int


def seats(workers: Sequence[Worker], stack: Stack) -> tuple[Seat, ...]:
    """Every worker in list order: the first carries the embedding, the last the head."""
    end = len(workers) - 1
    each, inner = stack.resident_layer_bytes, stack.overhead
    taken = []
    for at, worker in enumerate(workers):
        first, last = at == 0, at == end
        beside = stack.end_bytes(first=first, last=last) if first or last else inner
        taken.append(Seat(worker, first, last, layer_capacity(worker.budget.budget_bytes, each, beside)))
    return tuple(taken)


def layer_capacity(budget_bytes: int, layer_bytes: int, overhead_bytes: int) -> int:
    """Whole layers that fit beside what the stage carries anyway.

    Unlimited (``UNLIMITED``) where a layer weighs nothing.
    """
    if layer_bytes == 0:
        return UNLIMITED
    return max(0, budget_bytes - overhead_bytes) // layer_bytes


def ram_balanced(row: Sequence[Seat], stack: Stack) -> tuple[Assignment, ...]:
    """Layers in proportion to the budgets, as far as they fit. O(n + l log n) for n nodes, l layers.

    Raises DoesNotFitError.
    """
    return _proportional(row, stack, lambda seat: float(seat.worker.budget.budget_bytes))


def throughput(row: Sequence[Seat], stack: Stack) -> tuple[Assignment, ...]:
    """Layers in proportion to the nodes' speed, as far as they fit. O(n + l log n) for n nodes, l layers.

    Raises DoesNotFitError.
    """
    flops = max(stack.layer_flops, 0.001)
    return _proportional(row, stack, lambda seat: seat.worker.gflops * flops)


def manual(row: Sequence[Seat], stack: Stack) -> tuple[Assignment, ...]:
    """Each node's own ``layers``, as they stand; nothing is checked against the model or the budget.

    Raises ManualRangesError for a node without a range.
    """
    return tuple(_assign(seat, stack, *parse_layers(seat.worker.node)) for seat in row)


Policy = Literal["auto", "ram_balanced", "throughput", "manual"]

POLICIES: dict[Policy, Callable[[Sequence[Seat], Stack], tuple[Assignment, ...]]] = {
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


def does_not_fit(row: Sequence[Seat], stack: Stack) -> DoesNotFitError:
    """The refusal with its figures, in the reference's words."""
    capacity = sum(min(seat.layer_cap, stack.n_layers) for seat in row)
    verdicts = (verdict(seat.worker, min(seat.layer_cap, INT_MAX)) for seat in row)
    return DoesNotFitError(
        f"model ({stack.n_layers} layers, {stack.required_bytes() / GB:.1f} GB) does not fit the cluster "
        f"(capacity {capacity} layers). Lower precision, add a node, raise max_ram, or reduce reserve.",
        required_bytes=stack.required_bytes(),
        usable_bytes=min(INT_MAX, sum(seat.worker.budget.budget_bytes for seat in row)),
        capacity_layers=capacity,
        nodes=tuple(verdicts),
    )


def verdict(worker: Worker, layer_cap: int) -> NodeVerdict:
    """What the worker could have given to a plan that is refused."""
    node, budget = worker.node, worker.budget
    return NodeVerdict(node.node_id, node.addr, budget.budget_bytes, budget.limit, layer_cap, None)


def _proportional(row: Sequence[Seat], stack: Stack, weigh: Callable[[Seat], float]) -> tuple[Assignment, ...]:
    caps = [seat.layer_cap for seat in row]
    if sum(min(cap, stack.n_layers) for cap in caps) < stack.n_layers:
        raise does_not_fit(row, stack)
    counts = _settle(_targets([weigh(seat) for seat in row], caps, stack.n_layers), caps, stack.n_layers)
    assignments, start = [], 0
    for seat, count in zip(row, counts, strict=True):
        assignments.append(_assign(seat, stack, start, start + count))
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


def _assign(seat: Seat, stack: Stack, start: int, end: int) -> Assignment:
    return assigned(stack, seat.worker, start, end, first=seat.first, last=seat.last)
