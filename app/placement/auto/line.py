"""Sums over equal layers in given order: the knapsack of ``knapsack`` without the question who is first.

``best[k]`` is the least price of the first k layers on the nodes so far, the last stage not among them: O(nodes *
layers) in all.
"""

import math

from app.placement.auto.equal import relaxed
from app.placement.auto.knapsack import Piece, Row, priced, slid
from app.placement.auto.loads import FIRST, LAST, MIDDLE, Load, alone, laid_out, loads_of
from app.placement.auto.outcome import NOTHING, Outcome, chosen
from app.placement.auto.problem import Problem, Stages
from app.placement.auto.sweep import TIE

NEAR = 300
"""Nodes that are planned first to tell which of the others matter."""


def least_in_line(problem: Problem) -> Outcome:
    """The best plan in the list's order with any number of stages.

    Of many nodes the nearest to the relaxed optimum are planned first; then all that can be in a better plan than that.
    """
    loads = loads_of(problem)
    first, last = problem.first or 0, len(loads) - 1 if problem.last is None else problem.last
    members = list(range(first, last + 1))
    single = alone(problem, loads)
    plans = [] if single is None else [single]
    if len(members) > NEAR:
        relaxation = relaxed(problem, loads)
        nearest = sorted(members, key=lambda at: (at not in (first, last), relaxation.excess[at], at))
        plans += _planned(problem, loads, sorted(nearest[:NEAR]))
        best = min(map(problem.value, plans), default=math.inf) * (1 + TIE)
        members = [at for at in members if relaxation.bound + relaxation.excess[at] <= best or at in (first, last)]
    plans += _planned(problem, loads, members)
    return chosen(problem, plans) if plans else NOTHING


def _planned(problem: Problem, loads: list[Load], members: list[int]) -> list[Stages]:
    """The best plan of two stages or more, then one as good with fewer stages."""
    several = _Line(problem, loads, problem.hop_s, members).stages()
    if several is None:
        return []
    fewer = _Line(problem, loads, problem.hop_s + TIE * (problem.value(several) or 1.0), members).stages()
    return [several] if fewer is None else [several, fewer]


class _Line:
    """The dynamic programme; ``fee`` is the price of a stage beside its time, the first one's not counted."""

    def __init__(self, problem: Problem, loads: list[Load], fee: float, members: list[int]) -> None:
        self.problem = problem
        self.size = problem.stack.n_layers + 1
        self.fee = fee
        self.pieces: dict[tuple[int, int], tuple[Piece, ...]] = {}
        self.loads = loads
        self.rows: list[Row] = [[math.inf] * self.size]
        self.members = members
        self.end: tuple[float, int] = (math.inf, -1)
        for at in members:
            self._add(at)

    def _priced(self, at: int, role: int) -> tuple[Piece, ...]:
        key = (id(self.loads[at]), role)
        if key not in self.pieces:
            self.pieces[key] = priced(self.loads[at], role, self.fee)
        return self.pieces[key]

    def _add(self, at: int) -> None:
        row = self.rows[-1]
        if self.problem.last in (None, at) and self._priced(at, LAST):
            price = slid(row, self._priced(at, LAST))[-1]
            self.end = min(self.end, (price, at))
        grown = slid(row, self._priced(at, MIDDLE)) if self._priced(at, MIDDLE) else row
        longer = list(map(min, row, grown))
        for piece in self._firsts(at):
            for k in range(piece.low, min(piece.high, self.size - 2) + 1):
                longer[k] = min(longer[k], piece.base + piece.slope * k - self.fee)
        longer[-1] = math.inf
        self.rows.append(row if longer == row else longer)

    def stages(self) -> Stages | None:
        """A plan of two stages or more with the least price."""
        price, at = self.end
        if price == math.inf:
            return None
        workers, counts, left, role = [at], [0], self.size - 1, LAST
        place = self.members.index(at)
        while True:
            counts[0] = self._made(place, role, left)
            left -= counts[0]
            if role == FIRST:
                return laid_out(workers, counts)
            place = self._source(place, left)
            at = self.members[place]
            role = FIRST if self._is_first(place, left) else MIDDLE
            workers.insert(0, at)
            counts.insert(0, 0)

    def _source(self, place: int, left: int) -> int:
        """The place of the member that made an entry of the row before the place."""
        value = self.rows[place][left]
        while self.rows[place - 1][left] == value:
            place -= 1
        return place - 1

    def _is_first(self, place: int, left: int) -> bool:
        value = self.rows[place + 1][left]
        return any(
            piece.low <= left <= piece.high and piece.base + piece.slope * left - self.fee == value
            for piece in self._firsts(self.members[place])
        )

    def _made(self, place: int, role: int, left: int) -> int:
        """How many layers the stage has that made an entry."""
        if role == FIRST:
            return left
        row = self.rows[place]
        options = (
            (row[left - k] + piece.base + piece.slope * k, k)
            for piece in self._priced(self.members[place], role)
            for k in range(piece.low, min(piece.high, left - 1) + 1)
        )
        return min(options)[1]

    def _firsts(self, at: int) -> tuple[Piece, ...]:
        return self._priced(at, FIRST) if self.problem.first in (None, at) else ()
