"""Policy ``auto`` between the planner's words and the search's: workers in, assignments and proof out."""

from collections.abc import Sequence
from functools import partial

from app.placement.auto.devices import Devices, classes, solve_within
from app.placement.auto.outcome import Solver
from app.placement.auto.problem import Problem, Stages
from app.placement.auto.refusal import any_plan, fits, refused
from app.placement.auto.search import solve
from app.placement.auto.shared import Rooms, solve_shared
from app.placement.budgets import devices_used
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
    problem = problem_of(stack, workers, task.engine, task.objective)
    outcome = _within_limits(task, workers, solve)(problem)
    if outcome.stages is None:
        raise refused(problem, outcome, _within_limits(task, workers, any_plan))
    stages, cuts = outcome.stages, stack.cuts()
    if not problem.given and not sharing((w.node for w in workers), task.engine):
        stages = _by_name(problem, _devices(workers, task.engine), stages)
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


def _by_name(problem: Problem, devices: Devices | None, stages: Stages) -> Stages:
    """The same plan with equal nodes, pinned ones apart, in the order of their node_ids, the first of them used."""
    kinds = classes(problem, devices)
    alike: dict[object, list[int]] = {}
    for at, kind in enumerate(kinds):
        alike.setdefault(kind, []).append(at)
    names = {kind: iter(found) for kind, found in alike.items()}
    return tuple((next(names[kinds[w]]), a, b) for w, a, b in stages)


def feasible(task: Task, stack: Stack, workers: Sequence[Worker]) -> bool:
    """Whether any plan is found, whatever its value: much cheaper than the best one. What is found exists."""
    problem = problem_of(stack, workers, task.engine, task.objective)
    return fits(problem, _within_limits(task, workers, any_plan))


def _within_limits(task: Task, workers: Sequence[Worker], solver: Solver) -> Solver:
    """The solver, within the limits that bind several stages together where there are some."""
    if sharing((w.node for w in workers), task.engine):
        solver = partial(solve_shared, rooms=Rooms(task.reserve, task.engine), solver=solver)
    devices = _devices(workers, task.engine)
    return solver if devices is None else partial(solve_within, devices=devices, solver=solver)


def _devices(workers: Sequence[Worker], engine: Engine) -> Devices | None:
    """The limit on devices, None where it is one on stages or there is none."""
    if engine.max_devices is None:
        return None
    devices = Devices({w.node.node_id: devices_used(w.node, engine) for w in workers}, engine.max_devices)
    return devices if devices.binding else None


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
