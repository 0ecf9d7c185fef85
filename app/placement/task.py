"""The question that the planner answers."""

from dataclasses import dataclass
from typing import Literal

from app.placement.budgets import Reserve
from app.placement.cost import ModelCost
from app.placement.engines import PLAIN, Engine
from app.placement.nodes import Node
from app.placement.objective import Objective
from app.placement.reference import Policy


@dataclass(frozen=True, slots=True)
class Task:
    """What to place, on whom (in pipeline order), by which rule, run by which engine, for which load."""

    model: ModelCost
    nodes: tuple[Node, ...]
    policy: Policy | Literal["auto"]
    reserve: Reserve
    allow_over_budget: bool = False
    engine: Engine = PLAIN
    objective: Objective = Objective()
