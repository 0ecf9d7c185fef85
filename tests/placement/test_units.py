import math

import pytest

from app.placement.units import UNLIMITED, gigabytes, rounded, truncated


@pytest.mark.parametrize(
    ("value", "whole"),
    [
        (0.5, 1),
        (1.5, 2),
        (2.5, 3),  # half to even would say 2
        (0.49999999999999994, 0),  # floor(x + 0.5) would say 1
        (4503599627370495.5, 4503599627370496),
        (-0.5, 0),
        (-3.0, 0),
        (math.nan, 0),
        (math.inf, UNLIMITED),
        (1e30, UNLIMITED),
    ],
)
def test_halves_round_away_from_zero_and_the_rest_saturates(value: float, whole: int) -> None:
    assert rounded(value) == whole


@pytest.mark.parametrize(
    ("value", "whole"),
    [(2.999, 2), (-1.5, 0), (math.nan, 0), (math.inf, UNLIMITED), (-math.inf, 0), (1e300, UNLIMITED)],
)
def test_floats_truncate_towards_zero_and_saturate(value: float, whole: int) -> None:
    assert truncated(value) == whole


def test_a_gigabyte_is_decimal() -> None:
    assert gigabytes(44) == 44_000_000_000
    assert gigabytes(0.1) == 100_000_000
