"""A world in which memory can be promised: nodes, plans and deployments, without an event loop or a file."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

from app.deployments import Aim, Ask, Deployments, Quota
from app.placement.moving import Moved
from app.placement.nodes import Node
from app.placement.objective import Objective
from app.planning import Planner, Request
from app.ports import DeploymentRecord, ModelRecord, Stored, UnknownModelError
from app.registry import NodeView, Rules
from tests.placement.build import model, node
from tests.registry.doubles import World, at_once

T = TypeVar("T")


class NoModels:
    """No model has a name."""

    def get(self, name: str) -> ModelRecord:
        raise UnknownModelError(name)


def asked(name: str, layers: int, **given: Any) -> Ask:
    """So many layers of a byte; ``given`` may be of the ask or of its request."""
    own = {field: given.pop(field) for field in ("owner", "key", "text", "ttl_s") if field in given}
    request = Request(model(layers, 1), "auto", 0, objective=Objective("throughput", 0), **given)
    return replace(Ask(name, "me", None, f"{layers} layers {given}", request, 60.0), **own)


class Town(World):
    """A server's use cases."""

    def __init__(self, quota: Quota | None = None) -> None:
        self.quota = quota or Quota()
        self.numbers = count(1)
        self.before_commit: Callable[[], object] = lambda: None
        super().__init__(Rules(heartbeat_interval_s=10.0, ttl_s=30.0, retention_s=1e9, default_reserve_bytes=0))

    def start(self, stored: Stored) -> None:
        super().start(stored)
        planner = Planner(self.registry, NoModels(), 0, self.clock.now, lambda: f"plan-{next(self.numbers)}")
        self.deployments = Deployments(self.ledger, self.registry, planner, self.journal, self.clock, self.quota)

    async def beside(self, work: Callable[[], T]) -> T:
        done = work()
        self.before_commit()
        return done

    def beat(self, name: str, ram: int = 100, **given: Any) -> NodeView:
        """A node reports ``ram`` free of 200 bytes."""
        report: Node = replace(node(name, ram, **given), ram_total=200)
        return at_once(self.registry.register(report))

    def deploy(self, ask: Ask) -> DeploymentRecord:
        return at_once(self.deployments.create(ask, self.beside, lambda plan: plan.plan_id.encode()))[0]

    def confirm(self, name: str) -> DeploymentRecord:
        return at_once(self.deployments.confirm(name, self.ledger.get(name).generation))

    def replan(
        self, name: str, ask: Ask, tolerance: float = 0.1, *, dry_run: bool = False
    ) -> tuple[DeploymentRecord, Moved]:
        """Again what the ask asked for."""
        aim = Aim(tolerance, dry_run)
        return at_once(self.deployments.replan(name, ask.request, aim, self.beside, lambda plan: plan.plan_id.encode()))

    def release(self, name: str) -> DeploymentRecord:
        return at_once(self.deployments.release(name))

    def budget(self, name: str) -> int:
        return self.registry.get(name).budget_bytes

    def state_of(self, name: str) -> tuple[str, str | None]:
        record = self.ledger.get(name)
        return record.state, record.reason
