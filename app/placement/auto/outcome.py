"""What a search found, and what it proved."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from app.placement.auto.levelling import levelled
from app.placement.auto.problem import Problem, Stages
from app.placement.auto.sweep import TIE


@dataclass(frozen=True, slots=True)
class Outcome:
    """A plan and its proof.

    ``stages`` is None where nothing was found; ``best_value`` and ``best_stages`` are those of the best plan, before
    slack is spent on fewer stages. ``proven``: no plan is better, or none exists.
    """

    stages: Stages | None
    best_value: float
    best_stages: int
    lower_bound: float
    proven: bool


Solver = Callable[[Problem], Outcome]

NOTHING = Outcome(None, math.inf, 0, math.inf, proven=True)
"""Proven: no plan exists."""


def tied(problem: Problem, value: float, slack: float) -> float:
    """The largest value that counts as this one with the slack; sums are compared with room for their rounding."""
    return value * (1 + slack) + (TIE * len(problem.workers) * value if problem.sums else 0.0)


def by_count(problem: Problem, found: dict[int, float], stages_of: Callable[[int], Stages]) -> Outcome:
    """The fewest stages whose best value is within the slack of the best of all; ``found`` are exact, by number."""
    if not found:
        return NOTHING
    value = min(found.values())
    exact = min(count for count, v in found.items() if v <= tied(problem, value, 0.0))
    count = min(count for count, v in found.items() if v <= tied(problem, value, problem.slack))
    best = problem.value(stages_of(exact))
    stages = levelled(problem, stages_of(count), tied(problem, best, problem.slack))
    return Outcome(stages, best, exact, best, proven=True)


def chosen(problem: Problem, plans: list[Stages]) -> Outcome:
    """The fewest stages within the slack of the best of the plans."""
    value = min(problem.value(stages) for stages in plans)
    least = min(len(s) for s in plans if problem.value(s) <= tied(problem, value, 0.0))
    limit = tied(problem, value, problem.slack)
    stages = min((s for s in plans if problem.value(s) <= limit), key=lambda s: (len(s), problem.value(s)))
    return Outcome(levelled(problem, stages, limit), value, least, value, proven=True)
