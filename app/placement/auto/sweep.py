"""Plans in the list's order by dynamic programming over cuts: any objective, any values.

``best[b]`` is the least objective of stages that cover the cuts up to ``b`` with the nodes so far. A node extends it
to ``min over a of best[a] (+ or max) value(a, b)``: O(nodes * cuts^2), with a factor of the number of stages where
that is bounded. Rows are kept, so a plan is read back by finding again what made each entry.
"""

import math
from collections.abc import Callable, Sequence
from operator import add
from typing import NamedTuple

from app.placement.auto.problem import Lane, Problem, Stage, Stages

Column = tuple[int, list[float]]
"""Values of all stages that end at one cut: the first cut that they may begin at, and the values from there on."""


class Rule(NamedTuple):
    """How a stage's value goes on from what is before it, and what each stage costs beside."""

    op: Callable[[float, float], float]
    fee: float

    def least(self, row: "Row", table: Sequence[Column], b: int) -> float:
        """The best of one cut whose last stage is this lane's, infinite where there is none."""
        low, values = table[b]
        return min(map(self.op, row[low:b], values), default=math.inf) + self.fee


Row = list[float]
TIE = 1e-12
"""Sums closer than this share per stage are equal, and the plan with fewer stages wins."""


def columns(lane: Lane) -> list[Column]:
    """For every cut the values of the stages that end there; kept with the lane. O(cuts^2)."""
    if lane.table is None:
        lane.table = _columns(lane)
    return lane.table


def _columns(lane: Lane) -> list[Column]:
    end, value, low = lane.chain.end, lane.value, 0
    table: list[Column] = [(0, [])]
    for b in range(1, end + 1):
        while low < b and lane.span(low)[1] < b:
            low += 1
        start = 0 if b == end and lane.span(0)[1] == end else low
        table.append((start, [value(a, b) if lane.span(a)[1] >= b else math.inf for a in range(start, b)]))
    return table


def counted_once(table: Sequence[Column], limit: float) -> list[Column]:
    """One for every stage within the limit, infinity for the others."""
    return [(low, [1.0 if value <= limit else math.inf for value in values]) for low, values in table]


def extended(row: Row, table: Sequence[Column], rule: Rule, stop: int) -> Row:
    """The best of every cut up to ``stop`` whose last stage is this lane's."""
    op, fee = rule
    grown = [math.inf] * len(row)
    for b in range(1, stop + 1):
        low, values = table[b]
        if values:
            grown[b] = min(map(op, row[low:b], values)) + fee
    return grown


def start_of(row: Row, table: Sequence[Column], rule: Rule, b: int, value: float) -> int:
    """Where the lane's stage begins that made ``value`` of the cut ``b``."""
    low, values = table[b]
    return next(a for a, price in enumerate(values, low) if rule.op(row[a], price) + rule.fee == value)


class Sweep:
    """The dynamic programme over a list of nodes, with one row per number of stages, or one for all together."""

    def __init__(self, problem: Problem, *, counted: bool, fee: float, within: float | None = None) -> None:
        """Runs it. ``fee`` is added per stage and hop; ``within``: stages within the limit count, nothing else does."""
        self.problem = problem
        self.rule = Rule(add if problem.sums or within is not None else max, fee)
        self.within = within
        self.shift = int(counted)
        self.tables: dict[int, list[Column]] = {}
        self.history: list[list[Row]] = [self._begin(max(problem.counts, default=0) if counted else 0)]
        for worker in range(problem.first or 0, _stop(problem)):
            self.history.append(self._with(worker))

    def _begin(self, most: int) -> list[Row]:
        blank = [math.inf] * (self.problem.chain.end + 1)
        return [[-self.rule.fee, *blank[1:]], *(list(blank) for _ in range(most))]

    def _table(self, worker: int) -> list[Column]:
        lane = self.problem.lanes[worker]
        if id(lane) not in self.tables:
            table = columns(lane)
            self.tables[id(lane)] = table if self.within is None else counted_once(table, self.within)
        return self.tables[id(lane)]

    def _with(self, worker: int) -> list[Row]:
        problem, before = self.problem, self.history[-1]
        table, end = self._table(worker), problem.chain.end
        stop = end if problem.last in (None, worker) else end - 1
        rows = list(before)
        for count in range(len(before) - self.shift):
            grown = extended(before[count], table, self.rule, stop)
            rows[count + self.shift] = list(map(min, rows[count + self.shift], grown))
        if worker == problem.first:
            rows[0] = [math.inf, *rows[0][1:]]
        return rows

    def best(self, count: int = 0) -> float:
        """The least price of a whole plan, with so many stages where they are counted."""
        rows = self.history[-1]
        return rows[count][-1] if count < len(rows) else math.inf

    def stages(self, count: int = 0) -> Stages:
        """A plan of that price; of equal ones that of the earliest nodes."""
        problem, b, found, at = (self.problem, self.problem.chain.end, list[Stage](), len(self.history) - 1)
        while b > 0:
            value = self.history[at][count][b]
            while at > 0 and self.history[at - 1][count][b] == value:
                at -= 1
            worker = (problem.first or 0) + at - 1
            count -= self.shift
            at -= 1
            a = start_of(self.history[at][count], self._table(worker), self.rule, b, value)
            found.append((worker, a, b))
            b = a
        return tuple(reversed(found))


def _stop(problem: Problem) -> int:
    return len(problem.workers) if problem.last is None else problem.last + 1
