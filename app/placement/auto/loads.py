"""What equal layers cost a worker, by number and by the ends that the stage holds."""

import math
from collections.abc import Callable, Sequence

from app.placement.auto.problem import Problem, Stage, Stages
from app.placement.stages import Stack, Worker

MIDDLE, FIRST, LAST, BOTH = range(4)
"""Which ends a stage holds, as bits: the embedding 1, the head 2."""


class Load:
    """What so many layers cost one kind of worker, by the ends that it holds."""

    def __init__(self, stack: Stack, worker: Worker, ends: Sequence[int], *, shares: bool) -> None:
        """O(1). ``ends``: ``end_bytes`` of each role. ``shares``: the value is the share of the budget, not seconds."""
        self.stack = stack
        self.worker = worker
        self.ends = ends
        layer, n_layers = stack.layer, stack.n_layers
        self.layer = layer
        bare = layer.weights + layer.cache
        budget = worker.budget.budget_bytes
        self.most = self.resident = [_whole(budget - end, bare + layer.experts, n_layers) for end in ends]
        if layer.experts:
            paged = _whole(worker.disk_bytes, layer.experts, n_layers)
            bare_most = [_whole(budget - end, bare, n_layers) for end in ends]
            self.most = [max(r, min(b, paged)) for r, b in zip(self.resident, bare_most, strict=True)]
        self.value: Callable[[int, int], float] = self._share if shares else _clock(stack, self)
        self._lines: list[tuple[float, float] | None] = [None] * 4

    def held(self, role: int, layers: int) -> int:
        """Bytes in memory."""
        layer = self.layer
        experts = layer.experts if layers <= self.resident[role] else 0
        return layers * (layer.weights + layer.cache + experts) + self.ends[role]

    def headroom(self, role: int, layers: int) -> int:
        """Bytes left of the budget."""
        return self.worker.budget.budget_bytes - self.held(role, layers)

    def _share(self, role: int, layers: int) -> float:
        budget = self.worker.budget.budget_bytes
        return self.held(role, layers) / budget if budget else 0.0

    def caps(self, limit: float) -> list[int]:
        """The most layers within the limit in the middle, first and last; ends only add. For monotone values."""
        middle = self.cap(MIDDLE, limit, self.most[MIDDLE])
        return [middle, self.cap(FIRST, limit, middle), self.cap(LAST, limit, middle)]

    def cap(self, role: int, limit: float, most: int) -> int:
        """The most layers within the limit, at most ``most``. O(1) where values are linear, else O(log layers)."""
        low, high, value = 0, min(most, self.most[role]), self.value
        if high == 0 or value(role, high) <= limit:
            return high
        slope, base = self._line(role)
        guess = int((limit - base) / slope) if slope and limit > base else 0
        for k in (guess, guess + 1):
            if low < k < high:
                low, high = (k, high) if value(role, k) <= limit else (low, k)
        while low < high - 1:
            middle = (low + high) >> 1
            low, high = (middle, high) if value(role, middle) <= limit else (low, middle)
        return low

    def _line(self, role: int) -> tuple[float, float]:
        """Slope and base of the line through the values of one layer and of the most."""
        line = self._lines[role]
        if line is None:
            one, most = self.value(role, 1), self.most[role]
            slope = (self.value(role, most) - one) / (most - 1) if most > 1 else 0.0
            line = self._lines[role] = (slope, one - slope)
        return line


def _clock(stack: Stack, load: Load) -> Callable[[int, int], float]:
    """The seconds of so many layers, ``stages.seconds``; a closure, since nothing is called as often."""
    layer, worker, resident = load.layer, load.worker, load.resident
    work, active, held = layer.work, layer.active, layer.weights + layer.cache
    flops_per_s, bytes_per_s, disk_bytes_per_s = (
        worker.flops_per_s * stack.unit, worker.bytes_per_s, worker.disk_bytes_per_s
    )  # fmt: skip
    head, head_work = stack.head, stack.head_work

    def clock(role: int, layers: int) -> float:
        compute, read = layers * work, layers * held
        if role >= LAST:
            compute, read = compute + head_work, read + head
        if layers > resident[role]:
            slower = max(compute / flops_per_s, read / bytes_per_s)
            return slower + layers * active / disk_bytes_per_s
        return max((read + layers * active) / bytes_per_s, compute / flops_per_s)

    return clock


def _whole(room: int, each: int, n_layers: int) -> int:
    if room < 0:
        return 0
    return n_layers if each == 0 else min(n_layers, room // each)


def loads_of(problem: Problem) -> list[Load]:
    """One load per worker; equal workers share one."""
    kinds: dict[object, Load] = {}
    stack, shares, loads = problem.stack, problem.optimize == "memory", []
    ends = ends_of(stack)
    for worker in problem.workers:
        kind = worker.kind
        load = kinds.get(kind)
        if load is None:
            load = kinds[kind] = Load(stack, worker, ends, shares=shares)
        loads.append(load)
    return loads


def ends_of(stack: Stack) -> list[int]:
    """What the ends hold beside layers, by role."""
    return [stack.end_bytes(first=bool(role & FIRST), last=bool(role & LAST)) for role in range(4)]


def may_be_alone(problem: Problem, worker: int) -> bool:
    """Whether the request lets the worker hold everything."""
    return problem.counts[:1] in ((1,), range(1, 2)) and {problem.first, problem.last} <= {None, worker}


def alone(problem: Problem, loads: Sequence[Load], limit: float = math.inf) -> Stages | None:
    """The best single stage within the limit, of equal ones the roomiest, then the earliest. O(n)."""
    n_layers = problem.stack.n_layers
    able = (at for at, load in enumerate(loads) if load.most[BOTH] == n_layers and may_be_alone(problem, at))
    best = min(
        ((loads[at].value(BOTH, n_layers), -loads[at].headroom(BOTH, n_layers), at) for at in able), default=None
    )
    return None if best is None or best[0] > limit else ((best[2], 0, n_layers),)


def laid_out(workers: Sequence[int], counts: Sequence[int]) -> Stages:
    """Stages of so many layers one after the other."""
    stages: list[Stage] = []
    start = 0
    for worker, layers in zip(workers, counts, strict=True):
        stages.append((worker, start, start + layers))
        start += layers
    return tuple(stages)
