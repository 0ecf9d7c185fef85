"""The answer: one contiguous layer range per node, and who stays idle."""

from dataclasses import dataclass

from app.placement.cost import ModelCost
from app.placement.nodes import Node


@dataclass(frozen=True, slots=True)
class Assignment:
    """One node's stage, layers ``[start, end)``. Bytes; ``est_stage_s`` are seconds of one decode step."""

    node: Node
    start: int
    end: int
    first: bool
    last: bool
    est_bytes: int
    budget_bytes: int
    est_stage_s: float

    @property
    def over_budget(self) -> bool:
        """Whether the stage is estimated to need more than its node may give."""
        return self.est_bytes > self.budget_bytes


@dataclass(frozen=True, slots=True)
class Idle:
    """A node without a stage, and why."""

    node_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Placement:
    """The stages in pipeline order, the idle nodes in list order, and what the caller should know."""

    model: ModelCost
    assignments: tuple[Assignment, ...]
    idle: tuple[Idle, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def bottleneck(self) -> Assignment:
        """The slowest stage; of equal ones the first."""
        return max(self.assignments, key=lambda a: a.est_stage_s)
