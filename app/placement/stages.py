"""A stage's memory and time: the one place where the cost model of a model, an engine and a node meet.

    memory = weights + cache + overhead, + embedding (first), + head (last), - the shared table (both at once),
             + experts unless they are paged
    compute = sequences * (flops + head_flops on the last stage) / speed
    stream = (weights + cache + head on the last stage + active experts unless paged) / bandwidth
    seconds = max(compute, stream), + active experts / disk speed where they are paged

Sums are exact: bytes are integers, and FLOPs are counted in whole units of a power of two, so that neither the order
of adding nor the length of a prefix changes a figure, and a longer stage never takes less work.
"""

import math
from dataclasses import dataclass, replace
from itertools import accumulate, chain, repeat
from typing import NamedTuple

from app.placement.budgets import Budget, memory_mode, stage_devices, usable_devices
from app.placement.cost import Block, ModelCost
from app.placement.engines import Engine
from app.placement.errors import InvalidFieldError
from app.placement.nodes import Device, Node
from app.placement.units import INT_MAX, truncated

DISK_SHARE = 0.90
"""Share of the free disk that paged experts may fill."""

SLOWEST_GBPS = 1e-6
"""A slower memory counts as this, so that no time leaves the range of a float."""

GFLOP = 1e9
MBPS = 1e6


class Layer(NamedTuple):
    """What one layer asks of a stage: bytes for all sequences together, ``work`` in units of the stack's ``unit``."""

    weights: int
    cache: int
    experts: int
    active: int
    work: int


@dataclass(frozen=True, slots=True)
class Stack:
    """The layers of a model under an engine, a context and a number of sequences.

    ``runs`` are (count, layer, divisible). ``unit`` are units of ``work`` per FLOP, a power of two. ``embed``,
    ``head``, ``shared`` and ``overhead`` are bytes as the engine holds them, ``head_work`` is the head's,
    ``layer_flops`` the first layer's for one token.
    """

    n_layers: int
    runs: tuple[tuple[int, Layer, bool], ...]
    unit: int
    embed: int
    head: int
    shared: int
    overhead: int
    head_work: int
    layer_flops: float

    @property
    def layer(self) -> Layer:
        """The layer that all are like, where the stack is uniform."""
        return self.runs[0][1]

    @property
    def uniform(self) -> bool:
        """Whether all layers are alike and every cut is allowed."""
        return len(self.runs) == 1 and self.runs[0][2]

    @property
    def has_experts(self) -> bool:
        """Whether some layer has routed experts."""
        return any(layer.experts for _, layer, _ in self.runs)

    @property
    def resident_layer_bytes(self) -> int:
        """Bytes of one of the equal layers with its cache and experts in memory."""
        return self.layer.weights + self.layer.cache + self.layer.experts

    def required_bytes(self, *, paged: bool = False) -> int:
        """Layers, caches, embedding and head, a tied table once; without experts where they are ``paged``."""
        total = self.total
        return total.weights + total.cache + (0 if paged else total.experts) + self.embed + self.head - self.shared

    def end_bytes(self, *, first: bool, last: bool) -> int:
        """Bytes that a stage carries beside its layers."""
        return self.overhead + self.embed * first + self.head * last - self.shared * (first and last)

    def sums(self, start: int, end: int) -> Layer:
        """Layers ``[start, end)`` taken together; a uniform stack goes on beyond its end. O(runs)."""
        if len(self.runs) == 1:
            layers, (weights, cache, experts, active, work) = end - start, self.runs[0][1]
            return Layer(layers * weights, layers * cache, layers * experts, layers * active, layers * work)
        weights = cache = experts = active = work = at = 0
        for count, one, _ in self.runs:
            layers = min(end, at + count) - max(start, at)
            at += count
            if layers > 0:
                weights += layers * one.weights
                cache += layers * one.cache
                experts += layers * one.experts
                active += layers * one.active
                work += layers * one.work
        return Layer(weights, cache, experts, active, work)

    def prefix(self, *figures: str) -> list[int]:
        """The figures, added up, of the first 0, 1, .. ``n_layers`` layers."""
        sums = ((count, sum(getattr(layer, figure) for figure in figures)) for count, layer, _ in self.runs)
        each = chain.from_iterable(repeat(size, count) for count, size in sums)
        return list(accumulate(each, initial=0))

    def cuts(self) -> list[int]:
        """Where a stage may begin or end, 0 and ``n_layers`` included."""
        found, at = [0], 0
        for count, _, divisible in self.runs:
            found += range(at + 1, at + count + 1) if divisible else (at + count,)
            at += count
        return found

    def truncated(self, n_layers: int) -> "Stack":
        """The first layers with the same embedding and head."""
        runs, left = [], n_layers
        for count, layer, divisible in self.runs:
            if left > 0:
                runs.append((min(count, left), layer, divisible))
            left -= count
        return replace(self, n_layers=n_layers, runs=tuple(runs))

    @property
    def total(self) -> Layer:
        """All layers taken together."""
        return self.sums(0, self.n_layers)


def stack_of(model: ModelCost, engine: Engine, context: int, sequences: int) -> Stack:
    """The model's layers as the engine runs them.

    Raises InvalidFieldError where a sum leaves the range of the figures.
    """
    blocks = model.blocks
    unit = _unit([*(b.flops for b in blocks), model.head_flops], model.n_layers, sequences)
    runs = tuple([(b.count, _layer(b, engine, context, sequences, unit), b.divisible) for b in blocks])
    stack = Stack(
        n_layers=model.n_layers,
        runs=runs,
        unit=unit,
        embed=model.embed_bytes if engine.embeds else 0,
        head=model.head_bytes,
        shared=model.shared_bytes if engine.embeds and engine.shares_table else 0,
        overhead=engine.overhead_bytes,
        head_work=sequences * _whole(model.head_flops, unit),
        layer_flops=blocks[0].flops,
    )
    total = stack.total
    weights = total.weights + total.experts + stack.overhead + model.embed_bytes + model.head_bytes
    if weights > INT_MAX:
        raise InvalidFieldError("layers, embedding and head together exceed 2^63-1 bytes", "/model")
    if weights + total.cache > INT_MAX:
        raise InvalidFieldError("the caches exceed 2^63-1 bytes", "/objective/context")
    return stack


def _layer(block: Block, engine: Engine, context: int, sequences: int, unit: int) -> Layer:
    tokens = engine.cached_tokens(context, sequences, block.kv_window) if block.kv_bytes_per_token else 0
    return Layer(
        weights=block.bytes,
        cache=tokens * block.kv_bytes_per_token + sequences * block.state_bytes,
        experts=block.expert_bytes,
        active=min(block.expert_bytes, sequences * block.expert_active_bytes),
        work=sequences * _whole(block.flops, unit),
    )


def _unit(figures: list[float], n_layers: int, sequences: int) -> int:
    """Units per FLOP that make all figures whole, as far as their sum stays a float.

    A float is a whole number over a power of two; figures 2^900 apart in size are rounded.
    """
    largest = max(figures) * (n_layers + 1) * sequences
    if not math.isfinite(largest):
        raise InvalidFieldError("the model's FLOPs exceed the range of a float", "/model")
    finest = max(figure.as_integer_ratio()[1] for figure in figures)
    return min(finest, 1 << max(0, 960 - math.frexp(largest)[1]))


def _whole(flops: float, unit: int) -> int:
    whole, parts = flops.as_integer_ratio()
    return whole * unit // parts


class Worker(NamedTuple):
    """A node's figures for one plan: bytes, and units per second.

    ``disk_bytes`` is what paged experts may fill, -1 where unknown; ``bytes_per_s`` is infinite where unknown.
    """

    node: Node
    budget: Budget
    disk_bytes: int
    gflops: float
    flops_per_s: float
    bytes_per_s: float
    disk_bytes_per_s: float

    @property
    def reads_at_once(self) -> bool:
        """Whether nothing is known of its memory's speed, so that reading takes no time."""
        return self.bytes_per_s == math.inf

    @property
    def kind(self) -> tuple[int, int, float, float, float]:
        """Equal for nodes that no cost can tell apart."""
        return (
            self.budget.budget_bytes, self.disk_bytes, self.flops_per_s, self.bytes_per_s, self.disk_bytes_per_s
        )  # fmt: skip


def worker_of(node: Node, budget: Budget, engine: Engine) -> Worker:
    """The node's figures under the engine; unknown FLOP/s count as slow ones, an unknown bandwidth doesn't count."""
    devices = _running_devices(node, engine) if node.devices else ()
    gflops = max(_total(devices, "gflops") or node.gflops or 0.0, 1.0)
    mem_gbps = _total(devices, "mem_gbps")
    return Worker(
        node=node,
        budget=budget,
        disk_bytes=-1 if node.disk_free is None else truncated(node.disk_free * DISK_SHARE),
        gflops=gflops,
        flops_per_s=gflops * GFLOP,
        bytes_per_s=max(mem_gbps, SLOWEST_GBPS) * GFLOP if mem_gbps else math.inf,
        disk_bytes_per_s=max(node.io_mbps or 0.0, 1.0) * MBPS,
    )


def _running_devices(node: Node, engine: Engine) -> tuple[Device, ...]:
    """The first device of the primary kind, in mode ``pooled`` all that take part."""
    primary = usable_devices(node)
    if len(primary) > 1 and memory_mode(node, engine) == "pooled":
        return stage_devices(node, engine) or primary
    return primary[:1]


def _total(devices: tuple[Device, ...], figure: str) -> float:
    total = 0.0
    for device in devices:
        total += getattr(device, figure) or 0.0
    return total


def seconds(stack: Stack, worker: Worker, layers: Layer, *, paged: bool, last: bool) -> float:
    """Seconds of one decode step of a stage, a token for each sequence.

    The embedding isn't streamed: one token reads a single row of it.
    """
    compute = (layers.work + stack.head_work * last) / (worker.flops_per_s * stack.unit)
    streamed = layers.weights + layers.cache + stack.head * last + (0 if paged else layers.active)
    stream = streamed / worker.bytes_per_s
    slower = max(stream, compute)
    return slower + layers.active / worker.disk_bytes_per_s if paged else slower
