"""Policy ``auto`` between the planner's words and the search's: workers in, assignments and proof out."""

from collections.abc import Sequence
from dataclasses import replace

from app.placement.auto.outcome import Outcome
from app.placement.auto.problem import Problem, Stages
from app.placement.auto.refusal import fits, refused
from app.placement.auto.search import solve
from app.placement.auto.shared import Rooms, solve_shared
from app.placement.budgets import stage_devices
from app.placement.engines import Engine
from app.placement.hosts import sharing
from app.placement.objective import Objective
from app.placement.plans import Assignment, Proof, assigned
from app.placement.stages import Stack, Worker
from app.placement.task import Task


def best_plan(
    task: Task, stack: Stack, workers: Sequence[Worker], idle: dict[str, str]
) -> tuple[tuple[Assignment, ...], Proof]:
    """The best stages and what is proven of them; nodes without a stage are noted in ``idle``.

    Raises DoesNotFitError.
    """
    engine = task.engine
    problem = problem_of(stack, workers, engine, task.objective)
    rooms = Rooms(task.reserve, engine) if sharing((w.node for w in workers), engine) else None
    outcome = _within_devices(problem, rooms, engine)
    if outcome.stages is None:
        raise refused(problem, rooms, outcome)
    stages, cuts = outcome.stages, stack.cuts()
    if rooms is None and not problem.given:
        stages = _by_name(problem, stages)
    end = len(cuts) - 1
    assignments = tuple(
        assigned(stack, problem.workers[w], cuts[a], cuts[b], first=a == 0, last=b == end) for w, a, b in stages
    )
    used = {a.node.node_id for a in assignments}
    for worker in problem.workers:
        if worker.node.node_id not in used:
            able = problem.chain.holds_any(worker)
            idle[worker.node.node_id] = "the best plan leaves it out" if able else "cannot hold a layer"
    value = problem.value(stages)
    lower = min(outcome.lower_bound, outcome.best_value)
    return assignments, Proof(value, outcome.best_value, outcome.best_stages, lower, outcome.proven)


def _by_name(problem: Problem, stages: Stages) -> Stages:
    """The same plan with equal nodes, pinned ones apart, in the order of their node_ids, the first of them used."""
    pinned, workers = {problem.first, problem.last}, problem.workers
    alike: dict[object, list[int]] = {workers[w].kind: [] for w, _, _ in stages}
    for at, worker in enumerate(workers):
        if at not in pinned and worker.kind in alike:
            alike[worker.kind].append(at)
    names = {kind: iter(found) for kind, found in alike.items()}
    return tuple((w if w in pinned else next(names[workers[w].kind]), a, b) for w, a, b in stages)


def feasible(task: Task, stack: Stack, workers: Sequence[Worker]) -> bool:
    """Whether any plan is found, whatever its value: much cheaper than the best one. What is found exists."""
    problem = problem_of(stack, workers, task.engine, task.objective)
    shared = sharing((w.node for w in workers), task.engine)
    return fits(problem, Rooms(task.reserve, task.engine) if shared else None)


def problem_of(stack: Stack, workers: Sequence[Worker], engine: Engine, objective: Objective) -> Problem:
    """The search's problem. In any order the workers are sorted by node_id, so that the list's order can't matter."""
    given = objective.order == "given"
    ordered = tuple(workers) if given else tuple(sorted(workers, key=lambda worker: worker.node.node_id))
    ids = [worker.node.node_id for worker in ordered]
    first, last = ids_at(ids, objective.first_node), ids_at(ids, objective.last_node)
    most = min(len(ordered), stack.n_layers, engine.max_devices or len(ordered))
    counts: Sequence[int] = objective.counts(most)
    missing = {objective.first_node, objective.last_node} - {None, *ids}
    if missing:  # a pinned node is excluded
        counts = ()
    if first is not None and first == last:
        counts, last = tuple(count for count in counts if count == 1), None
    return Problem(
        stack,
        ordered,
        objective.optimize or engine.optimize,
        objective.hop_s,
        given,
        counts,
        first,
        last,
        objective.slack,
    )


def ids_at(ids: Sequence[str], node_id: str | None) -> int | None:
    """Where a pinned node stands, None where none is pinned or it is not there."""
    return ids.index(node_id) if node_id in ids else None


def _within_devices(problem: Problem, rooms: Rooms | None, engine: Engine) -> Outcome:
    """The outcome whose stages together don't use more devices than the engine can; fewer stages where they do.

    Stages of several devices are rare where devices are limited: then the limit is on stages, and not proven.
    """
    outcome = _solved(problem, rooms)
    first = outcome
    while outcome.stages and engine.max_devices:
        used = sum(max(1, len(stage_devices(problem.workers[w].node, engine))) for w, _, _ in outcome.stages)
        if used <= engine.max_devices:
            break
        counts = tuple(count for count in problem.counts if count < len(outcome.stages or ()))
        problem = replace(problem, counts=counts)
        outcome = replace(_solved(problem, rooms), lower_bound=first.lower_bound, proven=False)
    return outcome


def _solved(problem: Problem, rooms: Rooms | None) -> Outcome:
    return solve(problem) if rooms is None else solve_shared(problem, rooms)
