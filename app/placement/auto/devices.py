"""Engines that drive only so many devices, where a stage may use several: how many nodes of each class to leave out.

The best plan without the limit bounds all plans within it. Where it uses too many devices, a plan within the limit has
fewer stages of some class of equal nodes than it has, so each class in turn is cut down to one less than is used. The
node set of least bound is divided first: the first plan that keeps the limit is the best of all.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import accumulate

from app.placement.auto.outcome import NOTHING, Outcome, Solver, tied
from app.placement.auto.problem import Problem, Stages
from app.placement.stages import Worker

SOLVED = 100
"""Node sets that are planned at most; each with a ``PART``th of the entries."""

PART = 20

SIZE = 400_000
"""Nodes times layers that are planned at most, all node sets together: about 2 s for sums, 0.4 s for bottlenecks."""


@dataclass(frozen=True, slots=True)
class Devices:
    """How many devices a stage of each node uses (by node_id), and how many the engine can drive in all."""

    each: Mapping[str, int]
    most: int

    def of(self, worker: Worker) -> int:
        """Devices of one stage."""
        return self.each[worker.node.node_id]

    @property
    def binding(self) -> bool:
        """Whether a limit on the number of stages says less than the limit on devices."""
        return any(count > 1 for count in self.each.values())

    def stages(self, workers: Sequence[Worker]) -> int:
        """The most stages that these nodes can have within the limit."""
        return sum(used <= self.most for used in accumulate(sorted(map(self.of, workers))))

    def kept(self, problem: Problem, stages: Stages) -> bool:
        """Whether the stages use no more devices than there may be."""
        return sum(self.of(problem.workers[worker]) for worker, _, _ in stages) <= self.most


def solve_within(problem: Problem, devices: Devices, solver: Solver) -> Outcome:
    """The best plan within the devices, and of equal ones (or within the slack) one of the fewest stages.

    ``solver`` plans without regard to devices. Exact where it is and the step budget lasts.
    """
    free = solver(replace(problem, slack=0.0))
    if free.stages is None:
        return free
    if devices.kept(problem, free.stages):
        free = solver(problem) if problem.slack else free
        if free.stages is not None and devices.kept(problem, free.stages):
            return free
    search = _Search(problem, devices, solver)
    best = search.best(problem.counts)
    if best.stages is None:
        return best
    limit, least = tied(problem, best.best_value, problem.slack), best.best_stages
    for count in (count for count in problem.counts if count < least):
        fewer = search.best((count,))
        if fewer.stages is not None and fewer.best_value <= limit:
            exact = fewer.best_value <= tied(problem, best.best_value, 0.0)
            return replace(best, stages=fewer.stages, best_stages=count if exact else least)
    return best


class _Search:
    """Best first over sets of nodes."""

    def __init__(self, problem: Problem, devices: Devices, solver: Solver) -> None:
        self.problem = replace(problem, slack=0.0, entries=problem.entries // PART)
        self.devices = devices
        self.solver = solver
        size = len(problem.workers) * problem.stack.n_layers
        self.left = max(1, min(SOLVED, SIZE // size))
        self.classes = classes(problem, devices)

    def best(self, counts: Sequence[int]) -> Outcome:
        """The best plan with a number of stages among ``counts``."""
        everybody = tuple(range(len(self.problem.workers)))
        best, floor, bound = NOTHING, math.inf, 0.0
        heap: list[tuple[float, tuple[int, ...], Stages]] = []
        seen = {everybody}
        fresh = [everybody]
        while True:
            for members in fresh:
                outcome = self._planned(members, counts)
                if outcome is None:
                    floor = min(floor, bound)
                elif outcome.stages is None or self.devices.kept(self.problem, outcome.stages):
                    floor = min(floor, outcome.lower_bound)
                    best = min(best, outcome, key=lambda found: found.best_value)
                else:
                    heappush(heap, (outcome.lower_bound, members, outcome.stages))
            if not heap or heap[0][0] >= best.best_value:
                break
            bound, members, stages = heappop(heap)
            fresh = [rest for rest in self._without(members, stages) if rest not in seen]
            seen.update(fresh)
        floor = min([floor, best.best_value, *(at_least for at_least, _, _ in heap[:1])])
        return replace(best, lower_bound=floor, proven=floor >= best.best_value)

    def _planned(self, members: tuple[int, ...], counts: Sequence[int]) -> Outcome | None:
        """The plan on some of the nodes, its stages by their places in the whole; None beyond the budget."""
        if self.left <= 0:
            return None
        self.left -= 1
        workers = tuple(self.problem.workers[at] for at in members)
        most = self.devices.stages(workers)
        allowed = counts[:most] if isinstance(counts, range) else tuple(c for c in counts if c <= most)
        pins = {self.problem.first, self.problem.last} - {None}
        if not allowed or not pins <= set(members):
            return NOTHING
        first, last = (None if pin is None else members.index(pin) for pin in (self.problem.first, self.problem.last))
        found = self.solver(self.problem.among(workers, counts=allowed, first=first, last=last))
        if found.stages is None:
            return found
        return replace(found, stages=tuple((members[worker], a, b) for worker, a, b in found.stages))

    def _without(self, members: tuple[int, ...], stages: Stages) -> list[tuple[int, ...]]:
        """The nodes with each class that is used cut down to one less than is used."""
        used: dict[object, int] = {}
        for worker, _, _ in stages:
            used[self.classes[worker]] = used.get(self.classes[worker], 0) + 1
        rest = []
        for kind, count in used.items():
            alike = [at for at in members if self.classes[at] == kind]
            gone = set(alike[count - 1 :])
            rest.append(tuple(at for at in members if at not in gone))
        return rest


def classes(problem: Problem, devices: Devices | None) -> list[object]:
    """What tells each worker from others: nothing but cost and devices, where neither place nor pin matters."""
    pins = {problem.first, problem.last}
    return [
        at if problem.given or at in pins else (worker.kind, devices.of(worker) if devices else 1)
        for at, worker in enumerate(problem.workers)
    ]
