"""Which solver answers which problem, and what that proves."""

import math
from collections.abc import Callable
from functools import partial

from app.placement.auto import bounds, equal, given, orders
from app.placement.auto.levelling import levelled
from app.placement.auto.line import least_in_line
from app.placement.auto.outcome import NOTHING, Outcome, by_count, tied
from app.placement.auto.probing import smallest
from app.placement.auto.problem import Problem, Stages
from app.placement.auto.states import Costs, Reaches, kinds_of, size
from app.placement.auto.sweep import TIE, Sweep
from app.placement.auto.uniform import Uniform

MOVES = 500_000
"""States times kinds that are laid out at most: about 0.1 s per limit."""

EXACT_MOVES = 25_000
"""The same where a number of stages is demanded, which takes sets of cuts instead of cuts: 20 times the time."""

REACH = 10
"""Entries for each stage that is looked at for the fewest of them: 2 s where there are as many as the budget has."""


def solve(problem: Problem) -> Outcome:
    """The best plan within the step budgets. See ``docs/planner.md`` for what is exact."""
    if not problem.counts:
        return NOTHING
    if problem.given:
        return _in_order(problem)
    if problem.stack.uniform and not problem.sums and problem.monotone:
        uniform = Uniform(problem)
        return _chosen(problem, uniform.least(), uniform.fewest, level=False)
    if problem.stack.uniform:
        return equal.least_sum(problem) if problem.sums else equal.least_limit(problem)
    return _any_order(problem)


def _chosen(
    problem: Problem, value: float | None, fewest: Callable[[float], Stages | None], *, level: bool = True
) -> Outcome:
    """The fewest stages within the least limit and its slack."""
    least = None if value is None else fewest(value)
    if value is None or least is None:
        return NOTHING
    limit = tied(problem, value, problem.slack)
    stages = least if problem.slack == 0 else fewest(limit) or least
    return Outcome(levelled(problem, stages, limit) if level else stages, value, len(least), value, proven=True)


def _in_order(problem: Problem) -> Outcome:
    if problem.monotone and not problem.sums:
        least = smallest(partial(given.probe, problem), bounds.work(problem))
        return _chosen(problem, least, partial(given.few, problem, reaches=problem.entries // REACH))
    counted = not problem.any_count or problem.slack > 0
    if problem.stack.uniform and problem.sums and not counted:
        return least_in_line(problem)
    rows = (max(problem.counts) if counted else 1) * len(problem.workers)
    if rows * problem.chain.end**2 // 3 > problem.entries:
        return orders.best_effort(problem)
    return _swept(problem, counted=counted)


def _swept(problem: Problem, *, counted: bool) -> Outcome:
    """Dynamic programming over cuts; sums prefer fewer stages by a price far below what is told apart."""
    hop = problem.hop_s if problem.sums else 0.0
    sweep = Sweep(problem, counted=counted, fee=hop)
    if counted:
        found = {count: sweep.best(count) for count in problem.counts if sweep.best(count) < math.inf}
        return by_count(problem, found, sweep.stages)
    if sweep.best() == math.inf:
        return NOTHING
    value = problem.value(sweep.stages())
    within = None if problem.sums else value
    stages = Sweep(problem, counted=False, fee=hop + TIE * (value or 1.0) * problem.sums, within=within).stages()
    return Outcome(levelled(problem, stages, tied(problem, value, 0.0)), value, len(stages), value, proven=True)


def _any_order(problem: Problem) -> Outcome:
    kinds = kinds_of(problem)
    moves = size(kinds) * len(kinds)
    if problem.monotone and not problem.sums:
        if moves <= (MOVES if isinstance(problem.counts, range) else EXACT_MOVES):
            reaches = Reaches(problem)
            return _chosen(problem, smallest(reaches.probe, bounds.work(problem)), reaches.fewest)
        return orders.best_effort(problem)
    if moves * problem.chain.end**2 // 4 > problem.entries:
        return orders.best_effort(problem)
    costs = Costs(problem)
    best = costs.best()
    return by_count(problem, {c: v for c, (v, _) in best.items()}, lambda count: costs.stages(*best[count]))
