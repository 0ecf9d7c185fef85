"""What equal layers cost a worker, by number and by the ends that the stage holds."""

import math
from collections.abc import Callable, Sequence

from app.placement.auto.problem import Problem, Stage, Stages
from app.placement.stages import Stack, Worker

MIDDLE, FIRST, LAST, BOTH = range(4)
"""Which ends a stage holds, as bits: the embedding 1, the head 2."""


class Load:
    """What so many layers cost one kind of worker, by the ends that it holds."""

    def __init__(self, stack: Stack, worker: Worker, *, shares: bool) -> None:
        """O(1). ``shares``: the value is the share of the budget, otherwise the seconds."""
        self.stack = stack
        self.worker = worker
        self.ends = [stack.end_bytes(first=bool(role & FIRST), last=bool(role & LAST)) for role in range(4)]
        layer, n_layers = stack.layer, stack.n_layers
        self.layer = layer
        bare = layer.weights + layer.cache
        full = bare + layer.experts
        rooms = [worker.budget.budget_bytes - ends for ends in self.ends]
        self.resident = [_whole(room, full, n_layers) for room in rooms]
        paged = _whole(worker.disk_bytes, layer.experts, n_layers)
        self.most = [
            max(r, min(_whole(room, bare, n_layers), paged)) for r, room in zip(self.resident, rooms, strict=True)
        ]
        self.value: Callable[[int, int], float] = self._share if shares else self._seconds
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

    def _seconds(self, role: int, layers: int) -> float:
        """``stages.seconds`` of equal layers."""
        stack, worker, layer = self.stack, self.worker, self.layer
        last = role >= LAST
        compute = (layers * layer.work + stack.head_work * last) / (worker.flops_per_s * stack.unit)
        read = layers * (layer.weights + layer.cache) + stack.head * last
        if layers > self.resident[role]:
            active = layers * layer.active
            return max(compute, read / worker.bytes_per_s) + active / worker.disk_bytes_per_s
        stream = (read + layers * layer.active) / worker.bytes_per_s
        return max(stream, compute)

    def cap(self, role: int, limit: float) -> int:
        """The most layers within the limit; for monotone values. O(1) where they are linear, else O(log layers)."""
        low, high, value = 0, self.most[role], self.value
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


def _whole(room: int, each: int, n_layers: int) -> int:
    if room < 0:
        return 0
    return n_layers if each == 0 else min(n_layers, room // each)


def loads_of(problem: Problem) -> list[Load]:
    """One load per worker; equal workers share one."""
    kinds: dict[object, Load] = {}
    for worker in problem.workers:
        if worker.kind not in kinds:
            kinds[worker.kind] = Load(problem.stack, worker, shares=problem.optimize == "memory")
    return [kinds[worker.kind] for worker in problem.workers]


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
