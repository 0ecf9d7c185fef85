"""The smallest limit that a probe can meet: exact search over the values that stages take."""

import math
from collections.abc import Callable

Probe = Callable[[float], tuple[bool, float]]
"""Whether there is a plan within a limit. If so, also a value, at most the limit, within which there is one too;
if not, the least larger limit at which the answer could change."""


def smallest(probe: Probe, low: float) -> float | None:
    """The least largest value of all plans, None where nothing fits; ``low`` is a lower bound.

    A probe that succeeds lowers the upper end to a value that stages take; one that fails raises the lower end to the
    next such value. So the interval closes on a stage's value exactly as computed, not on a neighbour. The bound is
    probed first, since it is often met, then limits at growing distance from it, then halves of what is left.
    """
    found, level = probe(low)
    if found:
        return level
    low, step = level, 1 / 16
    feasible, high = probe(math.inf)
    if not feasible:
        return None
    while low < high:
        limit = min(low + (high - low) / 2, low * (1 + step)) if low > 0 else high / 2
        found, level = probe(limit)
        if found:
            high = level
        else:
            low, step = max(level, math.nextafter(limit, math.inf)), 2 * step
    return high
