"""A price for every layer, and what it proves: a Lagrangian bound on sums of stage times.

Whatever the prices, a plan costs at least all prices plus, for each stage, what its time and hop exceed the prices of
its layers by; and no stage of a node does worse than the node's cheapest, its *excess*. So the prices less a hop, plus
the negative excesses of as many nodes as there may be stages, bound every plan. The best prices are approached by
subgradient steps: layers that the cheapest stages leave out become dearer, layers that several take cheaper.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add

from app.placement.auto.problem import Lane, Problem, Stages
from app.placement.auto.sweep import columns

STEPS = 40
SAFE = 1 - 1e-12
"""Keeps a bound below the value it bounds in spite of rounding."""


@dataclass(frozen=True, slots=True)
class Prices:
    """``upto`` are the prices of the first layers (by cut), ``excess`` is by worker, at most 0."""

    bound: float
    upto: list[float]
    excess: list[float]


def prices(problem: Problem, stages: Stages, steps: int = STEPS) -> Prices:
    """The best prices found, from those of a plan. O(steps * kinds * cuts^2)."""
    upper = problem.value(stages)
    each = _of_plan(problem, stages)
    best, scale = _bounded(problem, each)[0], 1.0
    for _ in range(steps):
        found, taken = _bounded(problem, each)
        if found.bound > best.bound:
            best = found
        else:
            scale *= 0.8
        slope = [1 - count for count in taken]
        length = sum(s * s for s in slope)
        if length == 0 or best.bound >= upper:
            break
        step = scale * (upper - found.bound) / length
        each = [price + step * s for price, s in zip(each, slope, strict=True)]
    return best


def _of_plan(problem: Problem, stages: Stages) -> list[float]:
    """Each stage's time and hop, spread evenly over its layers."""
    each: list[float] = []
    for worker, a, b in stages:
        each += [(problem.lanes[worker].value(a, b) + problem.hop_s) / (b - a)] * (b - a)
    return each


def _bounded(problem: Problem, each: Sequence[float]) -> tuple[Prices, list[int]]:
    """The bound of these prices, and how often the cheapest stages take each layer."""
    upto = list(accumulate(each, initial=0.0))
    kinds: dict[int, tuple[float, int, int]] = {}
    for lane in problem.lanes:
        if id(lane) not in kinds:
            kinds[id(lane)] = _cheapest(lane, upto, problem.hop_s)
    excess = [min(0.0, kinds[id(lane)][0]) for lane in problem.lanes]
    order = sorted(range(len(excess)), key=excess.__getitem__)[: max(problem.counts)]
    bound, taken = upto[-1] - problem.hop_s, [0] * len(each)
    for worker in order:
        bound += excess[worker]
        _, a, b = kinds[id(problem.lanes[worker])]
        if excess[worker] < 0:
            for layer in range(a, b):
                taken[layer] += 1
    return Prices(max(0.0, bound * SAFE), upto, excess), taken


def _cheapest(lane: Lane, upto: Sequence[float], hop: float) -> tuple[float, int, int]:
    """The stage whose time and hop exceed its prices least, and by how much."""
    best = (math.inf, 0, 0)
    for b, (low, values) in enumerate(columns(lane)):
        if values:
            sums = list(map(add, values, upto[low:b]))
            least = min(sums)
            if least - upto[b] < best[0]:
                best = (least - upto[b], low + sums.index(least), b)
    return best[0] + hop, best[1], best[2]
