"""A planning problem in the terms of the search: cut points, lanes, values.

A *cut* is an index into the places where a stage may begin or end; a stage is ``(worker, a, b)`` with cuts ``a < b``.
The embedding and the head are folded into the prefix sums at both ends, so that no solver treats them apart.

Invariant that the fast solvers rest on: what fits still fits when shortened, and, where ``Chain.monotone``, a stage
that is shortened never gets a larger value.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from app.placement.stages import Stack, Worker

Stage = tuple[int, int, int]
"""Worker index, first cut, last cut."""

Stages = tuple[Stage, ...]


@dataclass(frozen=True)
class Problem:
    """What to minimise. ``first`` and ``last`` index ``workers``; ``counts`` are the allowed numbers of stages.

    ``given``: stages follow the workers' order. ``entries`` bounds the work: entries of a dynamic programme that are
    computed at most, at about 60 ns each.
    """

    stack: Stack
    workers: tuple[Worker, ...]
    optimize: str
    hop_s: float
    given: bool
    counts: Sequence[int]
    first: int | None = None
    last: int | None = None
    slack: float = 0.0
    entries: int = 10_000_000

    @cached_property
    def chain(self) -> "Chain":
        """The stack as prefix sums over its cuts."""
        return Chain(self.stack)

    @cached_property
    def kinds(self) -> dict[object, "Lane"]:
        """The lanes made so far, by kind of worker."""
        return {}

    @cached_property
    def lanes(self) -> list["Lane"]:
        """One lane per worker; equal workers share one."""
        return [self.lane(at) for at in range(len(self.workers))]

    def lane(self, at: int) -> "Lane":
        """One worker's lane, for who needs a few of many."""
        return self.lane_of(self.workers[at])

    def lane_of(self, worker: Worker) -> "Lane":
        """The lane of a worker's kind."""
        kind = worker.kind
        lane = self.kinds.get(kind)
        if lane is None:
            lane = self.kinds[kind] = Lane(self.chain, worker, shares=self.optimize == "memory")
        return lane

    def among(self, workers: Sequence[Worker], **changes: Any) -> "Problem":
        """The problem on other workers; what is known of the stack and of kinds of workers is shared."""
        other = replace(self, workers=tuple(workers), **changes)
        other.__dict__["chain"] = self.chain
        other.__dict__["kinds"] = self.kinds
        return other

    @property
    def any_count(self) -> bool:
        """Whether the number of stages is free."""
        return isinstance(self.counts, range) and len(self.counts) >= min(len(self.workers), self.stack.n_layers)

    @property
    def sums(self) -> bool:
        """Whether stage values add up; otherwise the largest counts."""
        return self.optimize == "latency"

    @cached_property
    def monotone(self) -> bool:
        """Whether shortening a stage never raises its value.

        Not so where experts can be paged and paging lowers the value: the share of memory does, and the time where
        the disk is said to be faster than memory.
        """
        if not any(layer.experts for _, layer, _ in self.stack.runs):
            return True
        pagers = [w for w in self.workers if w.disk_bytes > 0]
        if self.optimize == "memory":
            return not pagers
        return all(w.disk_bytes_per_s <= w.bytes_per_s for w in pagers)

    def value(self, stages: Stages) -> float:
        """The objective of a plan, added left to right."""
        total = 0.0
        for worker, a, b in stages:
            value = self.lane(worker).value(a, b)
            total = total + value if self.sums else max(total, value)
        return total + self.hop_s * (len(stages) - 1) if self.sums else total

    def headroom(self, stages: Stages) -> int:
        """The smallest number of bytes that a stage leaves of its budget."""
        return min(self.lane(worker).headroom(a, b) for worker, a, b in stages)


class Chain:
    """Prefix sums over cuts: entry ``b`` less entry ``a`` is what a stage from ``a`` to ``b`` holds.

    Entry 0 is lower by the embedding, the last one higher by the head. ``full`` counts experts in memory, ``bare`` as
    paged; ``streamed`` and ``active`` are read in a step, ``work`` is computed.
    """

    def __init__(self, stack: Stack) -> None:
        """O(layers)."""
        cuts = stack.cuts()
        weights, cache = stack.prefix("weights"), stack.prefix("cache")
        experts, active, work = (stack.prefix("experts"), stack.prefix("active"), stack.prefix("work"))
        self.stack = stack
        self.cuts = cuts
        self.end = len(cuts) - 1
        self.streamed = [weights[c] + cache[c] for c in cuts]
        self.bare = list(self.streamed)
        self.experts = [experts[c] for c in cuts]
        self.active = [active[c] for c in cuts]
        self.work = [work[c] for c in cuts]
        self.bare[0] -= stack.embed
        self.bare[-1] += stack.head
        self.streamed[-1] += stack.head
        self.work[-1] += stack.head_work
        self.full = [b + e for b, e in zip(self.bare, self.experts, strict=True)]
        self.hungry = [s + a for s, a in zip(self.streamed, self.active, strict=True)]

    @cached_property
    def steps(self) -> frozenset[tuple[int, int, int]]:
        """What the shortest stages hold: with experts in memory, without, experts. O(cuts)."""
        once = self.stack.shared if self.end == 1 else 0
        pairs = [pairwise(sums) for sums in (self.full, self.bare, self.experts)]
        return frozenset(
            (f1 - f0 - once, b1 - b0 - once, e1 - e0) for (f0, f1), (b0, b1), (e0, e1) in zip(*pairs, strict=True)
        )

    def holds_any(self, worker: Worker) -> bool:
        """Whether the worker can hold a stage at all. O(kinds of layers)."""
        room, disk = worker.budget.budget_bytes - self.stack.overhead, worker.disk_bytes
        return any(full <= room or (bare <= room and experts <= disk) for full, bare, experts in self.steps)


class Lane:
    """What stages cost one kind of worker: how far they may reach and what value they have."""

    def __init__(self, chain: Chain, worker: Worker, *, shares: bool) -> None:
        """``shares``: a stage's value is its share of the budget, otherwise its seconds."""
        self.chain = chain
        self.worker = worker
        self.room = worker.budget.budget_bytes - chain.stack.overhead
        self.table: list[tuple[int, list[float]]] | None = None
        self._spans: dict[int, tuple[int, int]] = {}
        self.value: Callable[[int, int], float] = self._share if shares else _clock(self)

    def span(self, a: int) -> tuple[int, int]:
        """The furthest cut of a stage from ``a`` with its experts in memory, and the furthest of all."""
        known = self._spans.get(a)
        if known is None:
            known = self._spans[a] = self._measure(a)
        return known

    def _measure(self, a: int) -> tuple[int, int]:
        chain, room = self.chain, self.room
        if room < 0:
            return a, a
        resident = self._furthest(chain.full, a)
        furthest = resident
        if self.worker.disk_bytes >= 0 and resident < chain.end:
            within = bisect_right(chain.experts, chain.experts[a] + self.worker.disk_bytes) - 1
            furthest = max(resident, min(within, self._furthest(chain.bare, a)))
        return resident, furthest

    def _furthest(self, held: list[int], a: int) -> int:
        end, shared = self.chain.end, self.chain.stack.shared
        if a == 0 and shared and held[end] - held[0] - shared <= self.room:
            return end
        return max(a, bisect_right(held, held[a] + self.room) - 1)

    def reach(self, a: int, limit: float) -> int:
        """The furthest cut of a stage from ``a`` whose value stays within the limit; ``a`` where there is none.

        For monotone values. O(log cuts).
        """
        low, high = a, self.span(a)[1]
        if limit == math.inf:
            return high
        value = self.value
        while low < high:
            middle = (low + high + 1) >> 1
            if value(a, middle) <= limit:
                low = middle
            else:
                high = middle - 1
        return low

    def after(self, a: int, b: int) -> float:
        """The value of the stage that is one cut longer, infinite where it doesn't fit."""
        return self.value(a, b + 1) if b < self.span(a)[1] else math.inf

    def held(self, a: int, b: int) -> int:
        """Bytes that the stage occupies in memory."""
        chain = self.chain
        held = chain.full if b <= self.span(a)[0] else chain.bare
        once = chain.stack.shared if a == 0 and b == chain.end else 0
        return held[b] - held[a] + chain.stack.overhead - once

    def headroom(self, a: int, b: int) -> int:
        """Bytes that the stage leaves of the budget."""
        return self.worker.budget.budget_bytes - self.held(a, b)

    def _share(self, a: int, b: int) -> float:
        budget = self.worker.budget.budget_bytes
        return self.held(a, b) / budget if budget else 0.0


def _clock(lane: Lane) -> Callable[[int, int], float]:
    """The seconds of a stage, ``stages.seconds`` on prefix sums; a closure, since nothing is called as often."""
    chain, worker = lane.chain, lane.worker
    work, streamed, hungry, active = (chain.work, chain.streamed, chain.hungry, chain.active)
    flops_per_s, bytes_per_s = worker.flops_per_s * chain.stack.unit, worker.bytes_per_s
    disk_bytes_per_s, span = worker.disk_bytes_per_s, lane.span
    paging = chain.experts[-1] > 0

    def clock(a: int, b: int) -> float:
        compute = (work[b] - work[a]) / flops_per_s
        if paging and b > span(a)[0]:
            stream = (streamed[b] - streamed[a]) / bytes_per_s
            return max(compute, stream) + (active[b] - active[a]) / disk_bytes_per_s
        stream = (hungry[b] - hungry[a]) / bytes_per_s
        return max(stream, compute)

    return clock
