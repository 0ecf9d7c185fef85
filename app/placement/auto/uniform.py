"""Bottlenecks of equal layers in any order: exact for any number of nodes, where values are monotone.

All that tells a stage apart is how many layers it has and which ends it holds, so within a limit a node is four
numbers: how many layers it can carry in the middle, first, last, and as both. ``choice`` finds the best nodes for a
limit; here
the least limit is found.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from heapq import heapify, heappop, heapreplace

from app.placement.auto.choice import Choice, Pick
from app.placement.auto.loads import BOTH, FIRST, LAST, MIDDLE, Load, alone, laid_out, loads_of, may_be_alone
from app.placement.auto.problem import Problem, Stages


class Within:
    """What the nodes carry within a limit, by role, without those that carry none; and the choice among them."""

    def __init__(self, problem: Problem, loads: Sequence[Load], able: Sequence[int], limit: float) -> None:
        """O(n): ``able`` are the nodes that carry something."""
        self.limit = limit
        self._problem = problem
        self._loads = loads
        caps: dict[int, list[int]] = {}
        self.rows: dict[int, list[int]] = {}
        for at in able:
            load = loads[at]
            known = caps.get(id(load))
            if known is None:
                known = caps[id(load)] = load.caps(limit)
            self.rows[at] = known

    @cached_property
    def choice(self) -> Choice:
        """The nodes, those that carry most in the middle first. O(n log n)."""
        rows, loads = self.rows, self._loads
        order = sorted(rows, key=lambda at: (-rows[at][MIDDLE], -loads[at].worker.budget.budget_bytes, at))
        return Choice(order, rows, self._problem.first, self._problem.last)


class Uniform:
    """The bottleneck problem of a uniform stack; for monotone values."""

    def __init__(self, problem: Problem) -> None:
        """O(n log n): the nodes by the value of their first layer."""
        self.problem = problem
        self.n_layers = problem.stack.n_layers
        self.loads = loads_of(problem)
        able = [(load.value(MIDDLE, 1), at) for at, load in enumerate(self.loads) if load.most[MIDDLE]]
        able.sort()
        self.values = [value for value, _ in able]
        self.able = [at for _, at in able]
        self._last: Within | None = None

    def lower_bound(self) -> float:
        """The least limit within which all nodes carry all layers as if none were an end. O(n + layers log n)."""
        heap = [(value, at, 1) for value, at in zip(self.values, self.able, strict=True)]
        value = 0.0
        for _ in range(self.n_layers):
            if not heap:
                return value
            value, at, layers = heap[0]
            load = self.loads[at]
            if layers < load.most[MIDDLE]:
                heapreplace(heap, (load.value(MIDDLE, layers + 1), at, layers + 1))
            else:
                heappop(heap)
        return value

    def least(self) -> float | None:
        """The least limit within which there is a plan, None where nothing fits.

        From the lower bound upwards. Where d layers find no place, d more events are needed at least, an event being
        the value at which some node may carry one layer more in some place: the limit moves on to the d-th. A handful
        of steps of O(n log n).
        """
        limit = max(self.lower_bound(), self._first_ends())
        while missing := self._missing(limit):
            if limit == math.inf:
                return None
            limit = self._event(limit, missing)
        return limit

    def _first_ends(self) -> float:
        """No plan is below the least values of a first and of a last layer."""
        pins = ((FIRST, self.problem.first), (LAST, self.problem.last))
        able = [
            [load.value(role, 1) for at, load in enumerate(self.loads) if load.most[role] and pin in (None, at)]
            for role, pin in pins
        ]
        return max(min(values, default=0.0) for values in able)

    def _missing(self, limit: float) -> int:
        """How many events a plan needs at least beyond the limit: one per layer that finds no place."""
        if alone(self.problem, self.loads, limit):
            return 0
        within = self._within(limit)
        rows = within.rows
        carried = within.choice.carried(self._counts(rows))
        if carried is None:  # no two nodes for the ends, or too few nodes
            return max(1, min(self.problem.counts) - len(rows))
        return max(0, self.n_layers - carried)

    def _event(self, limit: float, count: int) -> float:
        """The ``count``-th event after the limit, or the value of the first single stage if that comes before."""
        rows, n_layers = self._within(limit).rows, self.n_layers
        heap: list[tuple[float, int, int, int]] = []
        single = math.inf
        for at, load in enumerate(self.loads):
            for role in (MIDDLE, FIRST, LAST):
                layers = rows[at][role] + 1 if at in rows else 1
                if layers <= load.most[role]:
                    heap.append((load.value(role, layers), at, role, layers))
            if load.most[BOTH] == n_layers and may_be_alone(self.problem, at):
                value = load.value(BOTH, n_layers)
                single = value if limit < value < single else single
        heapify(heap)
        while heap and count:
            limit, at, role, layers = heap[0]
            count -= 1
            if layers < self.loads[at].most[role]:
                heapreplace(heap, (self.loads[at].value(role, layers + 1), at, role, layers + 1))
            else:
                heappop(heap)
        return single if count else min(limit, single)

    def capacity(self) -> int:
        """The largest number of layers short of all that fits with both ends, 0 where none does."""
        within, most = self._within(math.inf), self.n_layers - 1
        rows = within.rows
        carried = within.choice.carried(self._counts(rows, most)) or 0
        single = (self.loads[at].most[BOTH] for at in rows if may_be_alone(self.problem, at))
        return min(most, max(carried, max(single, default=0)))

    def fewest(self, limit: float) -> Stages | None:
        """Stages within the limit, the fewest of the allowed numbers, of equal ones those that carry most; levelled."""
        single = alone(self.problem, self.loads, limit)
        if single is not None:
            return single
        within = self._within(limit)
        pick = within.choice.fewest(self._counts(within.rows), self.n_layers)
        return None if pick is None else self._levelled(pick, within.rows)

    def _within(self, limit: float) -> Within:
        """What the nodes carry within a limit; the last one is kept, since it is asked for again."""
        if self._last is None or self._last.limit != limit:
            able = self.able[: bisect_right(self.values, limit)]
            self._last = Within(self.problem, self.loads, able, limit)
        return self._last

    def _counts(self, rows: dict[int, list[int]], most: int | None = None) -> Sequence[int]:
        """The allowed numbers of two stages and more, as far as there are nodes and layers."""
        most = min(len(rows), self.n_layers if most is None else most)
        counts = self.problem.counts
        if isinstance(counts, range):
            return range(2, min(most, len(counts)) + 1)
        return [count for count in counts if 1 < count <= most]

    def _levelled(self, pick: Pick, rows: dict[int, list[int]]) -> Stages:
        """Layers dealt one by one to the stage with most bytes left, the first of equals. O(layers log stages)."""
        seats = [(pick.first, FIRST), *((at, MIDDLE) for at in sorted(pick.middle)), (pick.last, LAST)]
        counts = [1] * len(seats)
        heap = []
        for seat, (at, role) in enumerate(seats):
            if rows[at][role] > 1:
                heap.append((-self.loads[at].headroom(role, 2), seat))
        heapify(heap)
        for _ in range(self.n_layers - len(seats)):
            _, seat = heap[0]
            at, role = seats[seat]
            counts[seat] += 1
            if counts[seat] < rows[at][role]:
                heapreplace(heap, (-self.loads[at].headroom(role, counts[seat] + 1), seat))
            else:
                heappop(heap)
        return laid_out([at for at, _ in seats], counts)
