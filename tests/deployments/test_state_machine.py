"""The ledger against a world that remembers what really fills each node's memory.

Whatever happens, what is promised of a node, together with what engines that were told to go still fill, is within what
it has; and after a beat a plan may use exactly the rest.
"""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from app.deployments import StaleRevisionError, UnknownDeploymentError, WrongGenerationError
from app.deployments.errors import DeploymentConflictError
from app.placement.errors import DoesNotFitError, NoNodesError
from app.ports import DeploymentRecord, UnknownNodeError
from tests.deployments.town import Town, asked
from tests.registry.doubles import at_once

EXAMPLES = int(os.environ.get("EXAMPLES", "150"))
RAM = 20
NODES = st.sampled_from("ab")
NAMES = st.sampled_from("de")
REFUSALS = (DoesNotFitError, NoNodesError, UnknownNodeError, DeploymentConflictError, StaleRevisionError)


class Promises(RuleBasedStateMachine):
    """``filled`` is what each deployment's engine fills of each node; ``sizes`` is what its request wants.

    ``names`` says of a node whether its agent names what fills it; such an agent puts a deployment in the place of the
    last of its name, another loads it beside that "old" one. ``looks`` is what a caller has seen of a deployment, each
    with its generation.
    """

    @initialize(a_names=st.booleans(), b_names=st.booleans())
    def start(self, *, a_names: bool, b_names: bool) -> None:
        self.town = Town()
        self.filled: dict[str, dict[str, int]] = {"a": {}, "b": {}}
        self.names = {"a": a_names, "b": b_names}
        self.boots = {"a": 0, "b": 0}
        self.sizes: dict[str, int] = {}
        self.looks: dict[str, list[tuple[int, dict[str, int]]]] = {}
        for name in "ab":
            self.beat(name)

    @rule(name=NODES)
    def beat(self, name: str) -> None:
        filled = self.filled[name]
        resident = dict(filled) if self.names[name] else None
        self.town.beat(name, RAM - sum(filled.values()), boot_id=f"{name}{self.boots[name]}", resident=resident)
        left = RAM - self.taken(name)
        assert self.town.budget(name) <= left
        if not any(s.lost for r in self.town.ledger.held() for s in r.stages if s.node_id == name):
            assert self.town.budget(name) == left

    @rule(name=NAMES, size=st.integers(1, 2 * RAM), nodes=st.sampled_from([None, ("a",), ("b",)]))
    def deploy(self, name: str, size: int, nodes: tuple[str, ...] | None) -> None:
        before = self.town.ledger.find(name)
        try:
            self.town.deploy(asked(name, size, nodes=nodes))
        except REFUSALS:
            return
        self.sizes[name] = size
        if before is not None and before.state == "released":
            for node_id, filled in self.filled.items():
                if not self.names[node_id]:
                    filled[f"old {name}"] = filled.get(f"old {name}", 0) + filled.pop(name, 0)

    @rule(name=NAMES, back=st.sampled_from([0, 0, 0, 1, 2]))
    def load_and_confirm(self, name: str, back: int) -> None:
        """Load what one looked at, now or a while ago, and say so.

        Only a confirmation that is accepted leaves the engine running; what it ran elsewhere it unloads.
        """
        record = self.town.ledger.find(name)
        if record is None:
            return
        looks = self.looks.setdefault(name, [])
        looks.append((record.generation, {stage.node_id: stage.est_bytes for stage in record.stages}))
        generation, stages = looks[max(-1 - back, -len(looks))]
        try:
            at_once(self.town.deployments.confirm(name, generation))
        except WrongGenerationError:
            return
        for filled in self.filled.values():
            filled.pop(name, None)
        for node_id, est_bytes in stages.items():
            self.filled[node_id][name] = est_bytes

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        try:
            self.town.release(name)
        except UnknownDeploymentError:
            return

    @rule(name=NAMES, sizes=st.tuples(st.integers(1, RAM), st.integers(1, RAM)))
    def give_way(self, name: str, sizes: tuple[int, int]) -> None:
        """One goes as soon as it is loaded, and another wants its place before any beat has told."""
        self.deploy(name, sizes[0], None)
        self.load_and_confirm(name, 0)
        self.release(name)
        self.deploy("e" if name == "d" else "d", sizes[1], None)

    @rule(name=NAMES)
    def unload(self, name: str) -> None:
        """An engine that was told to go is gone at last."""
        record = self.town.ledger.find(name)
        kept = {s.node_id for s in record.stages} if record is not None and record.state != "released" else set()
        for node_id, filled in self.filled.items():
            filled.pop(f"old {name}", None)
            if node_id not in kept:
                filled.pop(name, None)

    @rule(name=NAMES, tolerance=st.sampled_from([0.0, 1.0]))
    def replan(self, name: str, tolerance: float) -> None:
        try:
            self.town.replan(name, asked(name, self.sizes.get(name, 1)), tolerance)
        except (*REFUSALS, UnknownDeploymentError, WrongGenerationError):
            return

    @rule(name=NODES)
    def reboot(self, name: str) -> None:
        self.boots[name] += 1
        self.filled[name].clear()
        self.beat(name)

    @rule(name=NODES)
    def leave(self, name: str) -> None:
        try:
            at_once(self.town.registry.remove(name))
        except UnknownNodeError:
            return

    @rule(seconds=st.sampled_from([1, 31, 61]))
    def live(self, seconds: int) -> None:
        self.town.live(seconds)

    @rule(seconds=st.sampled_from([-3_600.0, 3_600.0]))
    def step_the_clock(self, seconds: float) -> None:
        self.town.clock.step_wall_s(seconds)

    @rule(flushed=st.booleans())
    def crash(self, *, flushed: bool) -> None:
        if flushed:
            self.town.journal.flush()
        self.town.restart()

    @invariant()
    def nothing_is_promised_twice(self) -> None:
        for name in self.filled:
            assert self.taken(name) <= RAM

    def taken(self, node_id: str) -> int:
        """What is promised of the node or filled, whichever is more, of every deployment."""
        promised = {r.name: _bytes_on(r, node_id) for r in self.town.ledger.held()}
        filled = self.filled[node_id]
        return sum(max(promised.get(name, 0), filled.get(name, 0)) for name in promised.keys() | filled.keys())


def _bytes_on(record: DeploymentRecord, node_id: str) -> int:
    return sum(stage.est_bytes for stage in record.stages if stage.node_id == node_id)


TestPromises = Promises.TestCase
TestPromises.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
