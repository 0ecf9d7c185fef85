"""Plans of an exact number of stages: which cuts they can reach within a limit; for monotone values.

Where the number is free, a plan loses nothing by going as far as each node can: one that could add nothing is left out.
Where it is demanded, the furthest cut may be one from which the next node holds nothing, so all cuts that are reached
are kept, as the bits of an integer.
"""

import math

from app.placement.auto.problem import Chain, Lane

Cuts = int
"""A set of cuts: bit ``b`` for cut ``b``."""


class Spread:
    """The stages of one lane within a limit, from whole sets of cuts at once."""

    def __init__(self, lane: Lane, limit: float) -> None:
        """O(runs of equal layers * log cuts)."""
        self._lane = lane
        self._limit = limit
        self._beyond = ~(1 << lane.chain.end)
        self._stuck: list[tuple[Cuts, float]] = []
        self._blocked: Cuts = 0
        for low, high in alike(lane.chain):
            if lane.reach(low, limit) == low:
                run = (1 << high) - (1 << low)
                self._blocked |= run
                self._stuck.append((run, lane.after(low, low)))

    def after(self, starts: Cuts) -> tuple[Cuts, float]:
        """Where a stage can end that begins at one of ``starts``, and the least limit at which that may change.

        A stage from ``a`` ends anywhere up to its reach. So one cut further is open from every start that isn't
        blocked, and beyond that only the last of neighbouring starts reaches more than the others.
        """
        free = starts & self._beyond & ~self._blocked
        following = min((then for run, then in self._stuck if run & starts), default=math.inf)
        ends, tips = free << 1, free & ~(free >> 1)
        while tips:
            tip = tips & -tips
            tips ^= tip
            a = tip.bit_length() - 1
            b = self._lane.reach(a, self._limit)
            ends |= (2 << b) - (2 << a)
            following = min(following, self._lane.after(a, b))
        return ends, following

    def start(self, starts: Cuts, b: int) -> int | None:
        """The last of ``starts`` from which a stage can end at ``b``, None where there is none."""
        earlier = starts & ((1 << b) - 1)
        a = earlier.bit_length() - 1
        return a if earlier and self._lane.reach(a, self._limit) >= b else None


def alike(chain: Chain) -> list[tuple[int, int]]:
    """Runs ``[low, high)`` of cuts from which a stage of one step holds the same, both ends of the stack apart.

    O(cuts).
    """
    sums = (chain.full, chain.bare, chain.streamed, chain.hungry, chain.experts, chain.active, chain.work)
    steps = [tuple(s[at + 1] - s[at] for s in sums) for at in range(chain.end)]
    runs: list[tuple[int, int]] = []
    for at, step in enumerate(steps):
        if runs and at > 1 and at < chain.end - 1 and step == steps[at - 1]:
            runs[-1] = (runs[-1][0], at + 1)
        else:
            runs.append((at, at + 1))
    return runs
