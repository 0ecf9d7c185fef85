"""Bytes, and the reference planner's arithmetic.

The reference is a Rust program. Where its numbers behave differently from Python's, the
difference lives here and nowhere else.
"""

import math

GB = 10**9
"""Bytes of a decimal gigabyte, the unit of every ``_gb`` field."""

MIB = 2**20

INT_MAX = 2**63 - 1
"""The largest integer that any field carries."""

UNLIMITED = 2**64 - 1
"""How many layers fit where a layer weighs nothing."""


def truncated(value: float) -> int:
    """The whole number towards zero; negative and NaN are 0, what is too large is ``UNLIMITED``."""
    if not value > 0.0:  # NaN compares false
        return 0
    return UNLIMITED if value >= UNLIMITED else int(value)


def rounded(value: float) -> int:
    """The nearest whole number, halves away from zero; negative and NaN are 0.

    Neither ``round`` (halves to even) nor ``floor(value + 0.5)`` (0.49999999999999994 becomes 1).
    """
    if not 0.0 < value < UNLIMITED:
        return truncated(value)
    whole = math.floor(value)
    return whole + (2 * (value - whole) >= 1)


def gigabytes(size_gb: float) -> int:
    """Bytes of a size in decimal gigabytes."""
    return truncated(size_gb * GB)
