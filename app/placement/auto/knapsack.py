"""Sums over equal layers in any order, and bottlenecks whose values aren't monotone: a knapsack over nodes.

A node in a place (middle, first, last) costs piecewise linear prices of its number of layers. ``best[k]`` is the least
price of k layers on the nodes so far, one row for each choice of ends that are taken already. A linear piece extends a
row by a sliding minimum: O(layers) whatever the piece's length, so O(nodes * layers) in all, times the number of
stages where that is bounded. Node order doesn't matter, since the row knows which ends are taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from app.placement.auto.loads import BOTH, FIRST, LAST, MIDDLE, Load, laid_out
from app.placement.auto.problem import Stages

Row = list[float]
SEATS = {FIRST: 0, MIDDLE: 1, LAST: 2}
"""The order of roles in a pipeline."""


@dataclass(frozen=True, slots=True)
class Piece:
    """So many layers, from ``low`` to ``high``, for ``base + slope * layers``."""

    low: int
    high: int
    base: float
    slope: float


@dataclass(frozen=True, slots=True)
class Item:
    """A worker (index) and its pieces for each role but both."""

    worker: int
    pieces: tuple[tuple[Piece, ...], ...]


def priced(load: Load, role: int, extra: float) -> tuple[Piece, ...]:
    """The seconds of a stage and ``extra`` as linear pieces."""
    stack, worker, layer, last = load.stack, load.worker, load.stack.layer, role >= LAST
    per_flop, per_byte = 1 / (worker.flops_per_s * stack.unit), 1 / worker.bytes_per_s
    compute = (stack.head_work * last * per_flop, layer.work * per_flop)
    bare = layer.weights + layer.cache
    found: list[Piece] = []
    for low, high, read, waits in (
        (1, load.resident[role], bare + layer.active, 0.0),
        (load.resident[role] + 1, load.most[role], bare, layer.active / worker.disk_bytes_per_s),
    ):
        stream = (stack.head * last * per_byte, read * per_byte)
        for a, b, (base, slope) in _upper(low, high, compute, stream):
            found.append(Piece(a, b, base + extra, slope + waits))
    return tuple(found)


def _upper(
    low: int, high: int, one: tuple[float, float], other: tuple[float, float]
) -> list[tuple[int, int, tuple[float, float]]]:
    """The larger of two lines over a range, at most two pieces."""
    if low > high:
        return []

    def leads(k: int) -> bool:
        return one[0] + one[1] * k >= other[0] + other[1] * k

    at_low, at_high = leads(low), leads(high)
    if at_low == at_high:
        return [(low, high, one if at_low else other)]
    left, right = low, high
    while right - left > 1:
        middle = (left + right) >> 1
        left, right = (middle, right) if leads(middle) == at_low else (left, middle)
    return [(low, left, one if at_low else other), (right, high, one if at_high else other)]


def within(load: Load, role: int, limit: float) -> tuple[Piece, ...]:
    """The numbers of layers whose value is within the limit, at the price of one stage."""
    found = []
    for low, high in ((1, load.resident[role]), (load.resident[role] + 1, load.most[role])):
        if low <= high and load.value(role, low) <= limit:
            left, right = low, high + 1
            while right - left > 1:
                middle = (left + right) >> 1
                left, right = (middle, right) if load.value(role, middle) <= limit else (left, middle)
            found.append(Piece(low, left, 1.0, 0.0))
    return tuple(found)


class Knapsack:
    """The dynamic programme over items. Rows are by number of stages (0 where not counted) and ends taken."""

    def __init__(self, items: Sequence[Item], n_layers: int, most: int, start: float) -> None:
        """``most`` stages are counted, 0: any number, not counted. O(items * layers * (most + 1))."""
        self.items = items
        self.n_layers = n_layers
        self.shift = int(most > 0)
        blank = [math.inf] * (n_layers + 1)
        first = [[list(blank) for _ in range(4)] for _ in range(most + 1)]
        first[0][MIDDLE][0] = start
        self.history = [first]
        for item in items:
            self.history.append(self._with(item))

    def _with(self, item: Item) -> list[list[Row]]:
        before = self.history[-1]
        rows = [list(by_ends) for by_ends in before]
        for count in range(len(before) - self.shift):
            for taken in range(4):
                row = before[count][taken]
                if min(row) == math.inf:
                    continue
                for role in (MIDDLE, FIRST, LAST):
                    if role & taken == 0 and item.pieces[role]:
                        to = rows[count + self.shift]
                        to[taken | role] = list(map(min, to[taken | role], slid(row, item.pieces[role])))
        return rows

    def best(self, count: int = 0) -> float:
        """The least price of all layers with both ends on different nodes, in ``count`` stages if counted."""
        rows = self.history[-1]
        return rows[count][BOTH][-1] if count < len(rows) else math.inf

    def stages(self, count: int = 0) -> Stages:
        """A plan of that price; nodes between the ends by index."""
        taken, left, found = BOTH, self.n_layers, list[tuple[tuple[int, int], int]]()
        for at in range(len(self.items) - 1, -1, -1):
            before = self.history[at]
            if before[count][taken][left] == self.history[at + 1][count][taken][left]:
                continue
            role, layers = self._made(self.items[at], before, count, taken, left)
            found.append(((SEATS[role], self.items[at].worker), layers))
            taken, left, count = taken & ~role, left - layers, count - self.shift
        found.sort()
        return laid_out([worker for (_, worker), _ in found], [layers for _, layers in found])

    def _made(self, item: Item, before: list[list[Row]], count: int, taken: int, left: int) -> tuple[int, int]:
        """The role and the number of layers by which the item made an entry."""
        options = (
            (before[count - self.shift][taken & ~role][left - k] + piece.base + piece.slope * k, role, k)
            for role in (MIDDLE, FIRST, LAST)
            if role == MIDDLE or role & taken
            for piece in item.pieces[role]
            for k in range(piece.low, min(piece.high, left) + 1)
        )
        _, role, layers = min(options)
        return role, layers


def slid(row: Row, pieces: Sequence[Piece]) -> Row:
    """The row extended by one node: ``min over k of row[n - k] + price(k)``. O(layers) per piece."""
    grown: Row | None = None
    for piece in pieces:
        width = piece.high - piece.low + 1
        levels = [value - piece.slope * at for at, value in enumerate(row[: len(row) - piece.low])]
        least = _least(levels, width)
        prices = [low + (piece.base + piece.slope * n) for n, low in enumerate(least, piece.low)]
        prices[:0] = [math.inf] * piece.low
        grown = prices if grown is None else list(map(min, grown, prices))
    return grown or []


def _least(levels: Row, width: int) -> Row:
    """The least of the last ``width`` entries up to each: by prefix and suffix minima of blocks (van Herk, 1992)."""
    if width >= len(levels):
        return list(accumulate(levels, min))
    if width == 1:
        return levels
    before: Row = []
    after: Row = []
    for start in range(0, len(levels), width):
        block = levels[start : start + width]
        before += accumulate(block, min)
        after += list(accumulate(reversed(block), min))[::-1]
    return before[: width - 1] + list(map(min, after, before[width - 1 :]))
