"""The book of what was promised. It knows deployments by name and, for each node, what counts against its limits.

Invariant: a stage counts against its node from the moment its deployment is entered until that is released, and after
that for as long as the node's last beat may still call memory free that it has filled.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from app.deployments.errors import UnknownDeploymentError
from app.placement.nodes import Claim, Node
from app.ports import BookedStage, Clock, DeploymentRecord, Journal

MAX_RELEASED = 1_000
"""So many released deployments are kept to be looked at."""


REBOOTED, UNLOADED = "rebooted", "no longer resident"
"""Losses with which a stage's engine has ended and its memory is free."""


class Ledger:
    """The deployments of one server; it is the registry's ``Promises``."""

    def __init__(self, journal: Journal, clock: Clock, stored: Iterable[DeploymentRecord]) -> None:
        """Take over what was stored; what is to be confirmed has as long as it had left by the wall clock."""
        self._journal = journal
        self._clock = clock
        self._records: dict[str, DeploymentRecord] = {}
        self._names: list[str] = []
        self._on: dict[str, dict[tuple[str, bool], BookedStage]] = {}
        self._hosts: dict[str, set[tuple[str, str, bool]]] = {}
        self._resident: dict[str, Mapping[str, int]] = {}
        self._deadlines: dict[str, float] = {}
        self._released: dict[str, datetime] = {}
        for record in stored:
            self._enter(record)

    # The registry's side

    def claims(self, node: Node, anew: str | None = None) -> tuple[Claim, ...]:
        """What counts against the node's limits, its own stages and those of its host's other nodes."""
        found = [self._claim(node.node_id, name, ghost, anew) for name, ghost in self._on.get(node.node_id, ())]
        for at, name, ghost in self._hosts.get(node.host_id, ()) if node.host_id is not None else ():
            if at != node.node_id and (claim := self._claim(at, name, ghost, anew)).ram:
                found.append(replace(claim, neighbour=True))
        return tuple(found)

    def seen(self, node: Node, *, beat: bool) -> None:
        """Look at a node's stages after its beat, or after its operator's decision."""
        here = self._on.get(node.node_id)
        if not here:
            self._resident.pop(node.node_id, None)
            return
        self._resident[node.node_id] = node.resident or {}
        for (name, ghost), stage in tuple(here.items()):
            record = self._records[name]
            if ghost and beat:
                self._note(replace(record, ghosts=tuple(g for g in record.ghosts if g is not stage)), urgent=False)
            elif not ghost:
                self._observe(record, stage, node, beat=beat)

    def lost(self, node_id: str, why: str) -> None:
        """Whatever has a stage there is degraded."""
        for (name, ghost), stage in tuple(self._on.get(node_id, {}).items()):
            record = self._records[name]
            if not ghost and stage.lost is None:
                self._degrade(record, stage, replace(stage, lost=why))

    def _observe(self, record: DeploymentRecord, stage: BookedStage, node: Node, *, beat: bool) -> None:
        ended = _why_ended(record.name, stage, node)
        filled = 0 if ended else stage.filled_bytes
        now = replace(
            stage,
            host_id=node.host_id,
            named=record.name in (node.resident or ()) or (stage.named and node.resident is None),
            filled_bytes=filled,
            loaded_bytes=filled if beat or ended else stage.loaded_bytes,
        )
        lost = ended or stage.lost or _why_elsewhere(stage, node)
        if lost != stage.lost:
            self._degrade(record, stage, replace(now, lost=lost))
        elif now != stage:
            self._note(_with(record, stage, now), urgent=False)

    def _degrade(self, record: DeploymentRecord, old: BookedStage, new: BookedStage) -> None:
        reason = f"{new.node_id}: {new.lost}"
        self.change(replace(_with(record, old, new), state="degraded", reason=reason))

    # The use case's side

    def get(self, name: str) -> DeploymentRecord:
        """One deployment. Raises UnknownDeploymentError."""
        record = self._records.get(name)
        if record is None:
            raise UnknownDeploymentError(name)
        return record

    def find(self, name: str) -> DeploymentRecord | None:
        """One deployment, None where there is none of that name."""
        return self._records.get(name)

    def of_plan(self, plan_id: str) -> DeploymentRecord | None:
        """The deployment of this plan, None where there is none. O(deployments)."""
        return next((record for record in self._records.values() if record.plan_id == plan_id), None)

    def held(self) -> Iterator[DeploymentRecord]:
        """All that are not released. O(deployments)."""
        return (record for record in self._records.values() if record.state != "released")

    def page(self, after: str | None, limit: int, state: str | None) -> tuple[list[DeploymentRecord], bool]:
        """Up to ``limit`` deployments behind the name ``after``, in order of names, and whether there are more."""
        start = 0 if after is None else bisect_right(self._names, after)
        wanted = (self._records[name] for name in self._names[start:])
        found = [r for r in wanted if state is None or r.state == state][: limit + 1]
        return found[:limit], len(found) > limit

    def change(self, record: DeploymentRecord) -> DeploymentRecord:
        """Enter a new deployment, or one's next generation.

        Generations are the store's revisions, so that none of an earlier deployment of the name comes again.
        """
        changed = replace(record, generation=self._journal.advance(), updated_at=self._clock.now())
        self._note(changed, urgent=True)
        return changed

    def release(self, record: DeploymentRecord, reason: str) -> DeploymentRecord:
        """Give its memory back, as far as beats already say so."""
        ghosts = haunted(record.ghosts, record.stages)
        return self.change(replace(record, state="released", reason=reason, expires_at=None, ghosts=ghosts))

    def lapse(self) -> list[tuple[str, str]]:
        """End what was not confirmed in time; which, and what became of it.

        What was loaded before and planned anew since is degraded instead: most of it still runs.
        """
        now, why = self._clock.monotonic(), "not confirmed in time"
        lapsed = [self._records[name] for name, deadline in self._deadlines.items() if deadline <= now]
        for record in lapsed:
            if record.confirmed is None:
                self.release(record, why)
            else:
                stages = tuple(s if s.confirmed or s.lost else replace(s, lost=why) for s in record.stages)
                self.change(replace(record, state="degraded", reason=why, expires_at=None, stages=stages))
        return [(record.name, "deployment lapsed") for record in lapsed]

    # The book

    def _claim(self, node_id: str, name: str, ghost: bool, anew: str | None) -> Claim:  # noqa: FBT001  # a key's part
        stage = self._on[node_id][name, ghost]
        if ghost:
            return Claim(name, stage.est_bytes, 0, stage.ram, stage.device)
        loaded = self._resident.get(node_id, {}).get(name, stage.loaded_bytes)
        if name == anew:
            return Claim(name, -loaded, 0, stage.ram, stage.device)
        wanted = max(stage.est_bytes, stage.filled_bytes if _unseen(stage) else 0)
        return Claim(name, max(0, wanted - loaded), stage.est_bytes, stage.ram, stage.device)

    def _note(self, record: DeploymentRecord, *, urgent: bool) -> None:
        self._enter(record)
        self._journal.note("deployment", record.name, record, urgent=urgent)
        while len(self._released) > MAX_RELEASED:
            self._forget(min(self._released, key=lambda name: (self._released[name], name)))

    def _enter(self, record: DeploymentRecord) -> None:
        """Take the record for the one of its name. O(stages)."""
        before = self._records.get(record.name)
        if before is None:
            insort(self._names, record.name)
        else:
            self._strike(before)
        self._records[record.name] = record
        for stage, ghost in _counted(record):
            self._on.setdefault(stage.node_id, {})[record.name, ghost] = stage
            if stage.host_id is not None:
                self._hosts.setdefault(stage.host_id, set()).add((stage.node_id, record.name, ghost))
        if record.state == "released":
            self._released[record.name] = record.updated_at
        if record.expires_at is None:
            self._deadlines.pop(record.name, None)
        elif before is None or before.expires_at != record.expires_at:
            left_s = (record.expires_at - self._clock.now()).total_seconds()
            self._deadlines[record.name] = self._clock.monotonic() + min(record.ttl_s, max(0.0, left_s))

    def _strike(self, record: DeploymentRecord) -> None:
        """Take a record's stages out of the book."""
        self._released.pop(record.name, None)
        for stage, ghost in _counted(record):
            self._on[stage.node_id].pop((record.name, ghost))
            if stage.host_id is not None:
                self._hosts[stage.host_id].discard((stage.node_id, record.name, ghost))

    def _forget(self, name: str) -> None:
        self._strike(self._records.pop(name))
        del self._names[bisect_left(self._names, name)]
        self._journal.note("deployment", name, None, urgent=False)


def _counted(record: DeploymentRecord) -> list[tuple[BookedStage, bool]]:
    """What counts against nodes, and whether it is but the ghost of a stage."""
    stages = () if record.state == "released" else record.stages
    return [*[(stage, False) for stage in stages], *[(ghost, True) for ghost in record.ghosts]]


def haunted(ghosts: Iterable[BookedStage], given_up: Iterable[BookedStage]) -> tuple[BookedStage, ...]:
    """What stages that are given up may have filled since their nodes' last beats, which still call it free.

    ``ghosts`` are there already; there is one per node.
    """
    found = {ghost.node_id: ghost for ghost in ghosts}
    for stage in given_up:
        if size := _unseen(stage):
            before = found.get(stage.node_id)
            found[stage.node_id] = replace(stage, est_bytes=size + (before.est_bytes if before else 0))
    return tuple(found.values())


def _unseen(stage: BookedStage) -> int:
    """What its engine has filled since the node's last beat, which still calls it free."""
    return max(0, stage.filled_bytes - stage.loaded_bytes)


def _with(record: DeploymentRecord, old: BookedStage, new: BookedStage) -> DeploymentRecord:
    return replace(record, stages=tuple(new if stage is old else stage for stage in record.stages))


def _why_elsewhere(stage: BookedStage, node: Node) -> str | None:
    """What of the node means that the stage must go from it, though its engine may still run there."""
    if (node.addr, node.device_index) != (stage.addr, stage.device_index):
        return "moved"
    return "draining" if node.config.role == "draining" else None


def _why_ended(name: str, stage: BookedStage, node: Node) -> str | None:
    """What of the node means that the stage's engine has ended and its memory is free."""
    if None not in (node.boot_id, stage.boot_id) and node.boot_id != stage.boot_id:
        return REBOOTED
    return UNLOADED if stage.named and node.resident is not None and name not in node.resident else None
