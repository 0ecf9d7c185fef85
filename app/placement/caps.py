"""The most layers in a row that a node can hold in the middle of a pipeline."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter, sub

from app.placement.stages import Stack, Worker


class Caps:
    """Answers for many nodes of one plan: what several of them ask of the stack is worked out once."""

    def __init__(self, stack: Stack) -> None:
        """O(layers)."""
        self._cuts, self._overhead = stack.cuts(), stack.overhead
        at_cuts = itemgetter(*self._cuts)
        self._bare = at_cuts(stack.prefix("weights", "cache"))
        self._experts = at_cuts(stack.prefix("experts"))
        self._resident = _lightest(stack, at_cuts(stack.prefix("weights", "cache", "experts")))
        self._paged = _lightest(stack, self._bare)
        self._known: dict[tuple[int, int], int] = {}

    def of(self, worker: Worker) -> int:
        """Layers between two cuts with their experts in memory or, where that is more, paged.

        O(log layers) weighings of O(layers) that other nodes may have asked for; where a disk is too small for all
        experts, O(layers) more for each such node.
        """
        asked = (worker.budget.budget_bytes - self._overhead, worker.disk_bytes)
        if asked not in self._known:
            self._known[asked] = self._most(*asked)
        return self._known[asked]

    def _most(self, room: int, disk: int) -> int:
        if room < 0:
            return 0
        if disk < 0 or not self._experts[-1]:
            return self._within(room, self._resident)
        if disk >= self._experts[-1]:
            return self._within(room, self._paged)
        return max(self._within(room, self._resident), self._on_disk(room, disk))

    def _within(self, room: int, weigh: Callable[[int], int]) -> int:
        """By halving: a longer run is never lighter."""
        low, high = 0, self._cuts[-1] + 1
        while low < high - 1:
            middle = (low + high) >> 1
            low, high = (middle, high) if weigh(middle) <= room else (low, middle)
        return low

    def _on_disk(self, room: int, disk: int) -> int:
        """The most layers whose caches and dense weights fit the room and their experts the disk."""
        cuts, bare, experts, start, most = self._cuts, self._bare, self._experts, 0, 0
        for end, cut in enumerate(cuts):
            while bare[end] - bare[start] > room or experts[end] - experts[start] > disk:
                start += 1
            most = max(most, cut - cuts[start])
        return most


def _lightest(stack: Stack, held: Sequence[int]) -> Callable[[int], int]:
    """The bytes of the lightest run of at least so many layers, by what the layers before each cut hold."""
    cuts = stack.cuts()

    @cache
    def weigh(layers: int) -> int:
        if stack.uniform:
            return held[layers]
        if len(cuts) > stack.n_layers:
            lightest: int = min(map(sub, held[layers:], held))
            return lightest
        last = bisect_left(cuts, stack.n_layers - layers + 1)
        ends = (held[bisect_left(cuts, cut + layers)] for cut in cuts[:last])
        return min(end - start for end, start in zip(ends, held, strict=False))

    return weigh
