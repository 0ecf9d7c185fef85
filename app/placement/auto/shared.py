"""Nodes that share a host's RAM. Choosing who gets how much of it is NP-hard (bin packing), so this searches.

A plan within rooms that are divided among a host's nodes beforehand keeps the promise, and every plan that keeps it
is one of some division. A few divisions are tried: one node alone, even parts, parts as a plan without the limit would
use them, and then parts moved to what the best plan so far leaves over. The plan without the limit bounds from below.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from app.placement.auto.outcome import Outcome, Solver, tied
from app.placement.auto.problem import Problem, Stages
from app.placement.budgets import Budget, Reserve
from app.placement.engines import Engine
from app.placement.hosts import host_room, sharing
from app.placement.nodes import Node

ROUNDS = 3
"""How often the division follows the best plan found."""

SIZE = 2_000_000
"""Nodes times layers that are planned at most, all divisions together, but for the ``FEWEST`` first ones."""

FEWEST = 3

PART = 20
"""Each division has a ``PART``th of the entries."""

Division = dict[int, int]
"""Bytes per worker of a shared host."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """What hosts have, by the reserve and the engine of the plan."""

    reserve: Reserve
    engine: Engine

    def kept(self, problem: Problem, stages: Stages) -> bool:
        """Whether the stages of every host stay within its room together."""
        held: dict[str, int] = {}
        by_id: dict[str, Node] = {}
        for worker, a, b in stages:
            node = problem.workers[worker].node
            by_id[node.node_id] = node
            held[node.node_id] = problem.lanes[worker].held(a, b)
        groups = sharing(by_id.values(), self.engine).values()
        return all(
            sum(held[n.node_id] for n in group) <= host_room(group, self.reserve, self.engine) for group in groups
        )


def solve_shared(problem: Problem, rooms: Rooms, solver: Solver) -> Outcome:
    """The best plan found that keeps every host within its room; proven where the limit doesn't bind.

    ``solver`` plans without regard to hosts.
    """
    free = solver(problem)
    if free.stages is None or (rooms.kept(problem, free.stages) and _keeps_without_slack(problem, rooms, solver)):
        return free
    hosts = _hosts(problem, rooms)
    pool: list[Stages] = [free.stages] if rooms.kept(problem, free.stages) else []
    tried = max(FEWEST, SIZE // (len(problem.workers) * problem.stack.n_layers))
    for division in islice(_divisions(problem, rooms, hosts, free.stages), tried):
        pool += _planned(problem, rooms, division, solver)
    for _ in range(min(ROUNDS, tried - FEWEST) if pool else 0):
        pool += _planned(problem, rooms, _leftover(problem, rooms, hosts, min(pool, key=problem.value)), solver)
    if not pool:
        return Outcome(None, free.best_value, 0, free.lower_bound, proven=False)
    return _chosen(problem, pool, free)


def _keeps_without_slack(problem: Problem, rooms: Rooms, solver: Solver) -> bool:
    """Whether the best plan itself keeps the rooms; one that spent slack may although the best one doesn't."""
    if problem.slack == 0:
        return True
    best = solver(replace(problem, slack=0.0)).stages
    return best is not None and rooms.kept(problem, best)


def _chosen(problem: Problem, pool: list[Stages], free: Outcome) -> Outcome:
    """The fewest stages within the slack of the best plan of the pool; the free plan is the bound."""
    value = min(map(problem.value, pool))
    least = min(len(stages) for stages in pool if problem.value(stages) <= tied(problem, value, 0.0))
    within = (stages for stages in pool if problem.value(stages) <= tied(problem, value, problem.slack))
    stages = min(within, key=lambda stages: (len(stages), problem.value(stages), stages))
    proven = free.proven and value <= tied(problem, free.best_value, 0.0)
    return Outcome(stages, value, least, min(free.lower_bound, value), proven)


def _hosts(problem: Problem, rooms: Rooms) -> list[list[int]]:
    places = {worker.node.node_id: at for at, worker in enumerate(problem.workers)}
    groups = sharing((worker.node for worker in problem.workers), rooms.engine)
    return [[places[node.node_id] for node in groups[host]] for host in sorted(groups)]


def _divisions(problem: Problem, rooms: Rooms, hosts: list[list[int]], free: Stages) -> Iterator[Division]:
    """Ways to divide every host: by use, its best node alone, even parts of its best two, three, .."""
    used = {worker: problem.lanes[worker].held(a, b) for worker, a, b in free}
    ranks: tuple[Callable[[int], float], ...] = (
        lambda at: -problem.workers[at].flops_per_s,
        lambda at: -problem.workers[at].budget.budget_bytes,
    )
    yield _parts(problem, rooms, hosts, [[at for at in host if at in used] or host for host in hosts], used)
    for rank in ranks:
        for size in range(1, max(map(len, hosts)) + 1):
            chosen = [sorted(host, key=rank)[:size] for host in hosts]
            yield _parts(problem, rooms, hosts, chosen, {})


def _parts(
    problem: Problem, rooms: Rooms, hosts: list[list[int]], chosen: list[list[int]], weights: dict[int, int]
) -> Division:
    """The room of each host in proportion to the weights (even without any), nothing for nodes that aren't chosen."""
    division = {at: 0 for host in hosts for at in host}
    for group in chosen:
        room = host_room((problem.workers[at].node for at in group), rooms.reserve, rooms.engine)
        if len(group) == 1:
            room = problem.workers[group[0]].budget.budget_bytes
        total = sum(weights.get(at, 1) for at in group)
        for at in group:
            division[at] = room * weights.get(at, 1) // max(1, total)
    return division


def _leftover(problem: Problem, rooms: Rooms, hosts: list[list[int]], best: Stages) -> Division:
    """What the best plan uses, and what it leaves of each host given to its fastest node in use."""
    used = {worker: problem.lanes[worker].held(a, b) for worker, a, b in best}
    division = {at: 0 for host in hosts for at in host}
    for host in hosts:
        group = [at for at in host if at in used]
        if not group:
            continue
        room = host_room((problem.workers[at].node for at in group), rooms.reserve, rooms.engine)
        for at in group:
            division[at] = used[at]
        fastest = max(group, key=lambda at: (problem.workers[at].flops_per_s, -at))
        division[fastest] += max(0, room - sum(used[at] for at in group))
    return division


def _planned(problem: Problem, rooms: Rooms, division: Division, solver: Solver) -> list[Stages]:
    """The best plan of the division, and the one of fewest stages within the slack, as far as they keep the rooms."""
    workers = list(problem.workers)
    for at, part in division.items():
        own = workers[at].budget
        workers[at] = workers[at]._replace(budget=Budget(min(own.budget_bytes, part), own.limit))
    slacks, entries = sorted({0.0, problem.slack}), problem.entries // PART
    found = [solver(problem.among(workers, entries=entries, slack=slack)).stages for slack in slacks]
    return [stages for stages in found if stages is not None and rooms.kept(problem, stages)]
