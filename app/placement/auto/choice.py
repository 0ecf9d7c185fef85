"""The best s of the nodes with two of them as ends.

Whatever the best choice is, its middle nodes are those that carry most in the middle of all that are no ends. So, with
the nodes sorted by that: with both ends among the s largest the choice is these, with one beyond them the s - 1 largest
and that one, and with both beyond the s - 2 largest and those. Each of the four cases is the cheapest pair of ends that
differ, out of the two best first and the two best last ones of a prefix or a suffix. O(n log n) to prepare, O(1) per s.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from app.placement.auto.loads import FIRST, LAST, MIDDLE


@dataclass(frozen=True, slots=True)
class Pick:
    """Which nodes take part: indices of the first, the last, and those between."""

    first: int
    last: int
    middle: tuple[int, ...]


class Choice:
    """The best s of the nodes, sorted by what they carry in the middle, with two of them as ends."""

    def __init__(self, order: Sequence[int], rows: dict[int, list[int]], first: int | None, last: int | None) -> None:
        """``first``, ``last``: pinned ends."""
        self.order = order
        self.rows = rows
        self.total = [0]
        for at in order:
            self.total.append(self.total[-1] + rows[at][MIDDLE])
        ends = []
        for role, pinned in ((FIRST, first), (LAST, last)):
            may = [rows[at][role] > 0 and pinned in (None, at) for at in order]
            loss = [rows[at][MIDDLE] - rows[at][role] if ok else None for at, ok in zip(order, may, strict=True)]
            gain = [-rows[at][role] if ok else None for at, ok in zip(order, may, strict=True)]
            ends.append((_best_of_prefixes(loss), _best_of_prefixes(gain[::-1])))
        (self.first_loss, self.first_gain), (self.last_loss, self.last_gain) = ends

    def carried(self, counts: Sequence[int]) -> int | None:
        """The most layers that a number of nodes among ``counts`` carries, None without any; more nodes carry more."""
        tried = counts[-1:] if isinstance(counts, range) else counts
        return max((carried for carried, pick in map(self._most, tried) if pick), default=None)

    def fewest(self, counts: Sequence[int], wanted: int) -> Pick | None:
        """The nodes of the least number among ``counts`` that carry ``wanted`` layers."""
        if isinstance(counts, range):
            counts = counts[bisect_left(counts, wanted, key=lambda count: self._most(count)[0]) :]
        return next((pick for carried, pick in map(self._most, counts) if carried >= wanted), None)

    def _most(self, count: int) -> tuple[int, Pick | None]:
        """How much the best ``count`` nodes carry."""
        return max(self._options(count), key=lambda option: option[0], default=(-1, None))

    def _options(self, count: int) -> list[tuple[int, Pick | None]]:
        """How much ``count`` nodes carry with their ends among the largest or beyond them."""
        found: list[tuple[int, Pick | None]] = []
        for first_in, last_in in ((True, True), (True, False), (False, True), (False, False)):
            top = count - (not first_in) - (not last_in)
            firsts = self._candidates(self.first_loss, self.first_gain, top, inside=first_in)
            lasts = self._candidates(self.last_loss, self.last_gain, top, inside=last_in)
            pairs = [(a + b, i, j) for a, i in firsts for b, j in lasts if i != j]
            if pairs:
                cost, i, j = min(pairs)
                middle = tuple(self.order[k] for k in range(top) if k not in (i, j))
                found.append((self.total[top] - cost, Pick(self.order[i], self.order[j], middle)))
        return found

    def _candidates(
        self, loss: list[list[tuple[int, int]]], gain: list[list[tuple[int, int]]], top: int, *, inside: bool
    ) -> list[tuple[int, int]]:
        """The two cheapest ends among the ``top`` largest nodes, or beyond them."""
        if inside:
            return loss[top]
        size = len(self.order)
        return [(cost, size - 1 - k) for cost, k in gain[size - top]]


def _best_of_prefixes(costs: Sequence[int | None]) -> list[list[tuple[int, int]]]:
    """For every prefix the two least costs with their places, the earlier of equals."""
    pair: list[tuple[int, int]] = []
    best = [pair]
    for place, cost in enumerate(costs):
        if cost is not None and (not pair[1:] or cost < pair[1][0]):
            pair = sorted([*pair, (cost, place)])[:2]
        best.append(pair)
    return best
