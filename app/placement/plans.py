"""The answer: one contiguous layer range per node, and who stays idle."""

from dataclasses import dataclass

from app.placement.budgets import Reserve
from app.placement.cost import ModelCost
from app.placement.engines import PLAIN, Engine
from app.placement.nodes import Node
from app.placement.objective import Objective
from app.placement.stages import Stack, Worker, seconds


@dataclass(frozen=True, slots=True)
class Assignment:
    """One node's stage, layers ``[start, end)``. Bytes; ``est_stage_s`` are seconds of one decode step.

    ``est_bytes`` are weights, caches (KV and state) and overhead together; ``est_disk_bytes`` are experts paged from
    disk. ``limit`` names what binds ``budget_bytes``.
    """

    node: Node
    start: int
    end: int
    first: bool
    last: bool
    est_bytes: int
    budget_bytes: int
    est_stage_s: float
    est_weight_bytes: int
    est_kv_bytes: int = 0
    est_overhead_bytes: int = 0
    est_disk_bytes: int = 0
    limit: str = ""

    @property
    def over_budget(self) -> bool:
        """Whether the stage is estimated to need more than its node may give."""
        return self.est_bytes > self.budget_bytes

    @property
    def experts_paged(self) -> bool:
        """Whether the stage reads its experts from disk."""
        return self.est_disk_bytes > 0

    @property
    def headroom_bytes(self) -> int:
        """What the stage leaves of the budget, negative where it is over."""
        return self.budget_bytes - self.est_bytes


def assigned(  # a stage is no less than this
    stack: Stack, worker: Worker, start: int, end: int, *, first: bool, last: bool
) -> Assignment:
    """The worker's stage with its figures; experts are paged only where they don't fit otherwise.

    A stage that fits neither way is counted with its experts in memory.
    """
    layers = stack.sums(start, end)
    ends = stack.end_bytes(first=first, last=last)
    bare, experts, room = layers.weights + layers.cache + ends, layers.experts, worker.budget.budget_bytes
    paged = 0 < experts <= worker.disk_bytes and bare <= room < bare + experts
    return Assignment(
        worker.node,
        start,
        end,
        first,
        last,
        bare if paged else bare + experts,
        room,
        seconds(stack, worker, layers, paged=paged, last=last),
        layers.weights + ends - stack.overhead + (0 if paged else experts),
        layers.cache,
        stack.overhead,
        experts if paged else 0,
        worker.budget.limit,
    )


@dataclass(frozen=True, slots=True)
class Idle:
    """A node without a stage, and why."""

    node_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What policy ``auto`` knows of its plan.

    ``value`` is the plan's objective; ``best_value`` and ``best_stages`` are those of the best plan found, before slack
    was spent on fewer stages. No plan is below ``lower_bound``; ``optimal``: the best found is the optimum.
    """

    value: float
    best_value: float
    best_stages: int
    lower_bound: float
    optimal: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """The stages in pipeline order, the idle nodes in list order, and what the caller should know."""

    model: ModelCost
    assignments: tuple[Assignment, ...]
    idle: tuple[Idle, ...] = ()
    warnings: tuple[str, ...] = ()
    engine: Engine = PLAIN
    objective: Objective = Objective()
    reserve: Reserve = Reserve(0, 0)
    proof: Proof | None = None

    @property
    def bottleneck(self) -> Assignment:
        """The slowest stage; of equal ones the first."""
        return max(self.assignments, key=lambda a: a.est_stage_s)
