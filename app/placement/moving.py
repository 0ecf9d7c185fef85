"""A plan near one that is loaded: of all plans whose objective is within a tolerance, one that moves the fewest bytes.

What a stage costs is the weights that its node would have to load: those of its layers less those that it holds. That
adds up over stages, so the sweep and the search over states that minimise sums find the least (``auto.sweep``,
``auto.states``). A bottleneck's tolerance is a limit on each stage. A sum's is one on all together: bytes and seconds
are added at a price per second (a Lagrangian), and the price at which a plan just keeps the limit is found by halving.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from app.placement.auto.orders import Order, ordered, pinned, renamed
from app.placement.auto.policy import problem_of
from app.placement.auto.problem import Lane, Problem, Stages
from app.placement.auto.states import Costs, kinds_of, size
from app.placement.auto.sweep import TIE, Sweep
from app.placement.check import violations
from app.placement.explain import objective_value
from app.placement.objective import Objective
from app.placement.planner import considered, place
from app.placement.plans import Idle, Placement, Proof, assigned
from app.placement.stages import Stack, Worker
from app.placement.task import Task

PRICES = 16
"""Prices per second that are tried for a sum."""

CHANGE = 1e-9
"""What a node that gives up its range costs beside, as a share of the model: it decides where plans move the same."""

Span = tuple[int, int]
"""Layers ``[start, end)``."""


@dataclass(frozen=True, slots=True)
class Move:
    """Layers ``[start, end)`` that ``target`` loads; ``source`` has them now, None where nobody has. Bytes."""

    start: int
    end: int
    source: str | None
    target: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A plan, what it moves, and what every plan within the tolerance moves at least."""

    placement: Placement
    moves: tuple[Move, ...]
    least_bytes: int

    @property
    def bytes(self) -> int:
        """Of all moves together."""
        return sum(move.bytes for move in self.moves)


def place_near(task: Task, held: Mapping[str, Span], tolerance: float) -> Moved:
    """The plan that moves least; ``held`` are the layers that nodes have loaded, by node_id.

    Exact for bottlenecks as far as ``Problem.entries`` last for the search over states or, in given order, the sweep;
    else the best of some orders, and ``least_bytes`` is the bound. Raises what ``place`` raises.
    """
    best = place(task)
    stack, workers, _ = considered(task)
    weights = _Weights(stack)
    limit = objective_value(best) * (1 + tolerance) * (1 + TIE)
    near = _Near(task, best, weights, held, {worker.node.node_id for worker in workers}, limit)
    plans = [best, *near.plans(problem_of(stack, workers, task.engine, _aim(task)))]
    chosen = min(plans, key=lambda plan: (weights.moved(plan, held), objective_value(plan), len(plan.assignments)))
    moves = tuple(weights.moves(chosen, held))
    return Moved(chosen, moves, min(near.least, weights.moved(chosen, held)))


class _Weights:
    """What layers weigh when they move, the tables at both ends with them."""

    def __init__(self, stack: Stack) -> None:
        self.sums = stack.prefix("weights", "experts")
        self.sums[-1] += stack.head
        self.sums[1:] = [size + stack.embed for size in self.sums[1:]]
        self.n_layers = stack.n_layers
        self.total = self.sums[-1]

    def of(self, start: int, end: int) -> int:
        """Bytes of layers ``[start, end)``."""
        return self.sums[end] - self.sums[start] if start < end else 0

    def lacking(self, wanted: Span, held: Span | None) -> int:
        """Bytes of the wanted layers that are not held."""
        both = (0, 0) if held is None else (max(wanted[0], held[0]), min(wanted[1], held[1]))
        return self.of(*wanted) - self.of(*both)

    def moved(self, plan: Placement, held: Mapping[str, Span]) -> int:
        """Bytes that the plan moves."""
        return sum(self.lacking((a.start, a.end), held.get(a.node.node_id)) for a in plan.assignments)

    def unheld(self, held: Mapping[str, Span], nodes: set[str]) -> int:
        """Bytes that none of these nodes has: every plan moves them."""
        spans = sorted(span for node_id, span in held.items() if node_id in nodes)
        at, lacking = 0, 0
        for start, end in spans:
            lacking += self.of(at, start)
            at = max(at, end)
        return lacking + self.of(at, self.n_layers)

    def moves(self, plan: Placement, held: Mapping[str, Span]) -> Iterator[Move]:
        """What the plan moves, in order of layers; a stage's layers from several sources are several moves."""
        for a in plan.assignments:
            own = held.get(a.node.node_id, (a.start, a.start))
            others = [(span, node_id) for node_id, span in sorted(held.items()) if node_id != a.node.node_id]
            edges = {edge for span, _ in others for edge in span} | {*own}
            cuts = sorted({a.start, a.end, *(edge for edge in edges if a.start < edge < a.end)})
            for start, end in pairwise(cuts):
                if not own[0] <= start < own[1]:
                    source = next((who for span, who in others if span[0] <= start < span[1]), None)
                    yield Move(start, end, source, a.node.node_id, self.of(start, end))


@dataclass(frozen=True)
class _Moving(Problem):
    """The problem with bytes moved for its values: as a sum, at a ``price`` per second of stages within ``limit``."""

    base: Problem | None = None
    weights: _Weights | None = None
    held: Mapping[str, Span] = field(default_factory=dict)
    limit: float = math.inf
    price: float = 0.0

    def lane_of(self, worker: Worker) -> Lane:
        """The lane of a worker's kind and of what it holds."""
        base, weights = self.base, self.weights
        assert base is not None  # noqa: S101  # fields of a subclass need defaults
        assert weights is not None  # noqa: S101
        span = self.held.get(worker.node.node_id)
        kind = (worker.kind, span)
        if kind not in self.kinds:
            lane = self.kinds[kind] = Lane(self.chain, worker, shares=False)
            cuts, own, limit, price = self.chain.cuts, base.lane_of(worker), self.limit, self.price

            def value(a: int, b: int) -> float:
                time, wanted = own.value(a, b), (cuts[a], cuts[b])
                if time > limit:
                    return math.inf
                change = 0.0 if span in (None, wanted) else CHANGE * weights.total
                return weights.lacking(wanted, span) + change + price * time

            lane.value = value
        return self.kinds[kind]


class _Near:
    """Plans that move little within a limit on the objective."""

    def __init__(
        self, task: Task, best: Placement, weights: _Weights, held: Mapping[str, Span], able: set[str], limit: float
    ) -> None:
        self.task = task
        self.best = best
        self.weights = weights
        self.held = held
        self.limit = limit
        self.least = weights.unheld(held, able)

    def plans(self, base: Problem) -> Iterator[Placement]:
        """Those that were found and keep the limit and all promises; ``least`` is raised to what is proven."""
        if self.task.policy == "manual" or not base.counts:
            return
        found = self._of_sum(base) if base.sums else self._of_bottleneck(base)
        for stages in found:
            plan = self._placement(base, stages)
            if objective_value(plan) <= self.limit and not violations(plan, nodes=self.task.nodes):
                yield plan

    def _of_bottleneck(self, base: Problem) -> Iterator[Stages]:
        found, exact = _least(self._moving(base, self.limit, self._next_to_nothing))
        if exact and found:
            self.least = self.weights.moved(self._placement(base, found[0]), self.held)
        yield from found

    def _of_sum(self, base: Problem) -> Iterator[Stages]:
        """Prices from next to nothing, at which bytes decide, up to where seconds do, halved where the limit is met."""
        low = self._next_to_nothing
        high = low / TIE * 1e6
        for step in range(PRICES):
            price = low if step == 0 else math.sqrt(low * high)
            moving = self._moving(base, math.inf, price)
            found, exact = _least(moving)
            if exact and found:
                bound = moving.value(found[0]) - price * self.limit
                self.least = max(self.least, math.floor(bound - CHANGE * self.weights.total * len(base.workers) - 1))
            kept = [stages for stages in found if base.value(stages) <= self.limit]
            yield from kept
            if kept and step == 0:
                return
            low, high = (low, price) if kept else (price, high)

    @property
    def _next_to_nothing(self) -> float:
        """A price per second that decides between plans that move and change the same."""
        return TIE * max(1, self.weights.total) / self.limit if self.limit > 0 else 0.0

    def _moving(self, base: Problem, limit: float, price: float) -> _Moving:
        own = {name: getattr(base, name) for name in Problem.__dataclass_fields__}
        own |= {"optimize": "latency", "hop_s": price * base.hop_s if base.sums else 0.0, "slack": 0.0}
        own["entries"] = base.entries // (PRICES if base.sums else 4)
        moving = _Moving(**own, base=base, weights=self.weights, held=self.held, limit=limit, price=price)
        moving.__dict__["chain"] = base.chain
        return moving

    def _placement(self, base: Problem, stages: Stages) -> Placement:
        best, cuts = self.best, base.chain.cuts
        assignments = tuple(
            assigned(base.stack, base.workers[w], cuts[a], cuts[b], first=a == 0, last=b == base.chain.end)
            for w, a, b in stages
        )
        used, known = {a.node.node_id for a in assignments}, {idle.node_id: idle.reason for idle in best.idle}
        left = [a.node.node_id for a in best.assignments if a.node.node_id not in used]
        reasons = known | dict.fromkeys(left, "the plan that moves least leaves it out")
        everybody = [*[idle.node_id for idle in best.idle], *left]
        idle = tuple(Idle(node_id, reasons[node_id]) for node_id in everybody if node_id not in used)
        plan = replace(best, assignments=assignments, idle=idle)
        if best.proof is None:
            return plan
        proof = best.proof
        return replace(
            plan,
            proof=Proof(
                objective_value(plan), proof.best_value, proof.best_stages, proof.lower_bound, optimal=proof.optimal
            ),
        )


def _least(moving: _Moving) -> tuple[list[Stages], bool]:
    """Stages that cost least, and whether no others cost less."""
    if moving.given:
        return _swept(moving), True
    kinds = kinds_of(moving)
    if size(kinds) * len(kinds) * moving.chain.end**2 // 4 > moving.entries:
        return [renamed(s, order) for order in _orders(moving) for s in _swept(ordered(moving, order))], False
    costs = Costs(moving)
    found = sorted((value, count, state) for count, (value, state) in costs.best().items())
    return [costs.stages(value, state) for value, _, state in found[:1] if value < math.inf], True


def _swept(moving: Problem) -> list[Stages]:
    """The best stages in the order of the nodes, none where there are none or the budget doesn't last."""
    counted = not moving.any_count
    most = max(moving.counts) if counted else 1
    if len(moving.workers) * moving.chain.end**2 // 2 * most > moving.entries:
        return []
    sweep = Sweep(moving, counted=counted, fee=moving.hop_s)
    count = min(moving.counts, key=sweep.best) if counted else 0
    return [sweep.stages(count)] if sweep.best(count) < math.inf else []


def _orders(moving: _Moving) -> Iterator[Order]:
    """The nodes that hold something in the order of what they hold; the others, the fastest first, where layers lack.

    Then the others ahead of them, and behind them; no more of them than the budget lasts for.
    """
    spans = {at: moving.held[w.node.node_id] for at, w in enumerate(moving.workers) if w.node.node_id in moving.held}
    holders = sorted(spans, key=spans.__getitem__)
    rest = sorted(set(range(len(moving.workers))) - set(holders), key=lambda at: (-moving.workers[at].flops_per_s, at))
    few = rest[: max(1, 2 * moving.entries // moving.chain.end**2 - len(holders))]
    reached, gaps = 0, []
    for spot, at in enumerate(holders):
        if spans[at][0] > reached:
            gaps.append(spot)
        reached = max(reached, spans[at][1])
    if reached < moving.stack.n_layers or not gaps:
        gaps.append(len(holders))
    filled: list[int] = []
    for spot in range(len(holders) + 1):
        filled += few[gaps.index(spot) :: len(gaps)] if spot in gaps else []
        filled += holders[spot : spot + 1]
    for order in (filled, [*few, *holders], [*holders, *few]):
        yield pinned(moving, order)


def _aim(task: Task) -> Objective:
    """The objective; policies that follow the list keep its order."""
    return task.objective if task.policy == "auto" else replace(task.objective, order="given")
