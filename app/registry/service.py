"""The registry's use cases.

Memory is the truth and the journal follows: a change is applied, noted, and acknowledged once it is durable. All of
it runs on one event loop; between two awaits a call is atomic.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.placement.budgets import Reserve, budget, budget_warnings
from app.placement.errors import CleaveError
from app.placement.nodes import Node
from app.ports import (
    NO_OVERRIDES,
    Clock,
    Fleet,
    Journal,
    NodeRecord,
    NothingPromised,
    Overrides,
    Promises,
    Standing,
    State,
    Stored,
    StoreUnavailableError,
    UnknownNodeError,
)
from app.registry.errors import NodeConflictError, RegistryFullError
from app.registry.liveness import Pulse, Rules, Watch, guard_against_mass_expiry, start_over, wait_longer
from app.registry.members import Member, NodeView, lasting_part

NOTHING_LEFT = "its budget is 0: the reserve takes all that it could give. Are its figures in bytes?"


@dataclass(frozen=True, slots=True)
class Page:
    """Nodes in order of node_id, and the node_id after which the next page starts (None: there is none)."""

    nodes: tuple[NodeView, ...]
    next_after: str | None


class Registry:
    """The nodes of one server."""

    def __init__(
        self, rules: Rules, clock: Clock, journal: Journal, stored: Stored, promises: Promises | None = None
    ) -> None:
        """Take over what was stored; who was alive then has one whole TTL from now."""
        self._promises = promises or NothingPromised()
        self._rules = rules
        self._clock = clock
        self._journal = journal
        self._ordinal = stored.ordinal
        self._reserve = Reserve(None, rules.default_reserve_bytes)
        self._members: dict[str, Member] = {}
        self._endpoints: dict[tuple[str, int], str] = {}
        self._ids: list[str] = []
        self.mass_expiry_suspected = False
        now, wall = clock.monotonic(), clock.now()
        self._watch = Watch(now, wall)
        interval_s = rules.interval_for(len(stored.nodes))
        for record in stored.nodes:
            member = _revive(record, interval_s, rules.ttl_for(interval_s), now, wall)
            self._add(member)
            self._promises.seen(member.node, beat=False)

    @property
    def revision(self) -> int:
        """The number of durable changes so far."""
        return self._journal.revision

    # Reports

    async def register(self, report: Node, warnings: tuple[str, ...] = ()) -> NodeView:
        """Take a node's whole report; durable when it returns, if it said anything that lasts.

        Raises NodeConflictError, RegistryFullError, StoreUnavailableError.
        """
        view = self._accept(report, warnings)
        await self._journal.durable(view.revision)
        return view

    async def register_many(self, reports: Sequence[tuple[Node, tuple[str, ...]]]) -> list[NodeView | CleaveError]:
        """Each report on its own, all of them in one durable write. Raises StoreUnavailableError."""
        results: list[NodeView | CleaveError] = []
        for report, warnings in reports:
            try:
                results.append(self._accept(report, warnings))
            except (NodeConflictError, RegistryFullError) as refusal:
                results.append(refusal)
        await self._journal.durable(max((r.revision for r in results if isinstance(r, NodeView)), default=0))
        return results

    async def beat(self, node_id: str, update: Callable[[Node], tuple[Node, tuple[str, ...]]]) -> NodeView:
        """Take a small beat: ``update`` turns the last report into the present one and its warnings.

        Raises UnknownNodeError, what ``update`` raises, and StoreUnavailableError where the registration itself
        is not durable yet.
        """
        member = self._member(node_id)
        report, warnings = update(member.reported)
        view = self._accept(report, member.warnings)
        await self._journal.durable(view.revision)
        return replace(view, warnings=view.warnings + warnings)

    def _accept(self, report: Node, warnings: tuple[str, ...]) -> NodeView:
        now, wall = self._now()
        member = self._members.get(report.node_id)
        if member is not None:
            self._check_identity(member, report, now)
        self._make_room_for(report, new=member is None)
        lasting = lasting_part(report)
        created, changed = member is None, member is None or lasting != member.lasting
        if member is None:
            member = self._admit(report, wall)
        elif changed:
            del self._endpoints[member.endpoint]
            member.revision = self._journal.advance()
        member.accept(report, lasting, warnings)
        self._endpoints[member.endpoint] = report.node_id
        self._keep_alive(member.pulse, now)
        member.seen_at = wall
        self._note(member, urgent=changed)
        self._promises.seen(member.node, beat=True)
        return self._view(member, now, wall, created=created)

    def _check_identity(self, member: Member, report: Node, now: float) -> None:
        """Raise NodeConflictError where another live machine holds the node_id."""
        if member.endpoint == (report.addr, report.device_index) or member.pulse.state(now) != "ready":
            return
        if report.instance_id is not None and report.instance_id == member.reported.instance_id:
            return
        raise NodeConflictError(
            report.node_id, report.addr, member.reported.addr, report.device_index, member.reported.device_index
        )

    def _make_room_for(self, report: Node, *, new: bool) -> None:
        """Whoever stood at this endpoint under another node_id is gone. Raises RegistryFullError."""
        holder = self._endpoints.get((report.addr, report.device_index))
        ghost = holder if holder != report.node_id else None
        if new and ghost is None and len(self._members) >= self._rules.max_nodes:
            raise RegistryFullError(self._rules.max_nodes)
        if ghost is not None:
            self._drop(ghost)

    def _admit(self, report: Node, wall: datetime) -> Member:
        self._ordinal += 1
        pulse = Pulse(0.0, 0.0, 0.0, 0.0)
        member = Member(report, NO_OVERRIDES, self._ordinal, self._journal.advance(), wall, wall, pulse)
        self._add(member)
        return member

    def _keep_alive(self, pulse: Pulse, now: float) -> None:
        pulse.interval_s = self._rules.interval_for(len(self._members))
        pulse.ttl_s = self._rules.ttl_for(pulse.interval_s)
        pulse.begin(now)

    # The operator

    async def override(self, node_id: str, change: Callable[[Overrides], Overrides]) -> NodeView:
        """Change what the operator decided about a node; durable when it returns.

        Raises UnknownNodeError, StoreUnavailableError.
        """
        member = self._member(node_id)
        overrides = change(member.overrides)
        if overrides != member.overrides:
            member.decide(overrides)
            member.revision = self._journal.advance()
            self._note(member, urgent=True)
            self._promises.seen(member.node, beat=False)
        view = self.get(node_id)
        await self._journal.durable(view.revision)
        return view

    async def remove(self, node_id: str) -> None:
        """Let a node leave; durable when it returns. Raises UnknownNodeError, StoreUnavailableError."""
        self._member(node_id)
        self._drop(node_id)
        await self._journal.durable(self.revision)

    # Looking

    def get(self, node_id: str) -> NodeView:
        """One node as it stands. Raises UnknownNodeError."""
        return self._view(self._member(node_id), *self._now())

    def page(self, after: str | None, limit: int, wanted: Callable[[Node, State], bool]) -> Page:
        """Up to ``limit`` wanted nodes behind ``after``, in order of node_id.

        Whoever is registered all the while is seen exactly once, whatever comes and goes between two pages.
        """
        now, wall = self._now()
        found: list[NodeView] = []
        for at in range(0 if after is None else bisect_right(self._ids, after), len(self._ids)):
            member = self._members[self._ids[at]]
            if not wanted(member.node, member.pulse.state(now)):
                continue
            if len(found) == limit:
                return Page(tuple(found), found[-1].node.node_id)
            found.append(self._view(member, now, wall))
        return Page(tuple(found), None)

    def fleet(self, anew: str | None = None) -> Fleet:
        """Every node in order of first registration, and its state. O(n)."""
        now, _ = self._now()
        return Fleet(self.revision, tuple(self._standing(m, now, anew) for m in self._members.values()))

    def standing(self, node_id: str, anew: str | None = None) -> Standing | None:
        """One node as plans see it, None where there is none."""
        member = self._members.get(node_id)
        return None if member is None else self._standing(member, self._now()[0], anew)

    async def settled(self, revision: int) -> None:
        """Wait until a revision that is about to be named to others would survive a crash, unless the store is down."""
        if self._journal.healthy:
            with suppress(StoreUnavailableError):
                await self._journal.durable(revision)

    def checks(self) -> dict[str, str]:
        """What a probe asks about, ``ok`` or what is wrong."""
        return {
            "store": "ok" if self._journal.healthy else "store-unavailable",
            "liveness": "mass-expiry-suspected" if self.mass_expiry_suspected else "ok",
        }

    # Time

    @property
    def tick_interval_s(self) -> float:
        """How often ``tick`` wants to be called."""
        return min(1.0, self._rules.heartbeat_interval_s / 4)

    def tick(self) -> list[tuple[str, str]]:
        """Let time pass: guard, expire, forget; who expired or was forgotten. O(n), about 1 ms for 5,000 nodes."""
        news: list[tuple[str, str]] = []
        now, _ = self._now()
        pulses = [member.pulse for member in self._members.values()]
        self.mass_expiry_suspected = guard_against_mass_expiry(pulses, now)
        for node_id, member in tuple(self._members.items()):
            if now >= member.pulse.deadline_at + self._rules.retention_s:
                self._drop(node_id)
                news.append((node_id, "node forgotten"))
            elif now >= member.pulse.deadline_at and not member.pulse.expired:
                member.pulse.expired = True
                self._note(member, urgent=False)
                self._promises.lost(node_id, "expired")
                news.append((node_id, "node expired"))
        return news

    def _now(self) -> tuple[float, datetime]:
        """Both clocks, after having noticed whether the server was deaf since the last look."""
        now, wall = self._clock.monotonic(), self._clock.now()
        heard_until, deaf_s = self._watch.look(now, wall)
        if deaf_s > self._rules.heartbeat_interval_s:
            start_over([m.pulse for m in self._members.values()], heard_until, now)
        elif deaf_s > 2 * self.tick_interval_s:
            wait_longer([m.pulse for m in self._members.values()], heard_until, deaf_s)
        return now, wall

    # Members

    def _member(self, node_id: str) -> Member:
        member = self._members.get(node_id)
        if member is None:
            raise UnknownNodeError((node_id,))
        return member

    def _add(self, member: Member) -> None:
        node_id = member.reported.node_id
        self._members[node_id] = member
        self._endpoints[member.endpoint] = node_id
        insort(self._ids, node_id)

    def _drop(self, node_id: str) -> None:
        member = self._members.pop(node_id)
        del self._endpoints[member.endpoint]
        del self._ids[bisect_right(self._ids, node_id) - 1]
        self._journal.advance()
        self._journal.note("node", node_id, None, urgent=True)
        self._promises.lost(node_id, "gone")

    def _standing(self, member: Member, now: float, anew: str | None) -> Standing:
        return Standing(self._promised(member.node, anew), member.pulse.state(now))

    def _promised(self, node: Node, anew: str | None = None) -> Node:
        """The node with what was promised of it."""
        claims = self._promises.claims(node, anew)
        return replace(node, claims=claims) if claims else node

    def _note(self, member: Member, *, urgent: bool) -> None:
        self._journal.note("node", member.reported.node_id, member.record(), urgent=urgent)

    def _view(self, member: Member, now: float, wall: datetime, *, created: bool = False) -> NodeView:
        pulse, node = member.pulse, self._promised(member.node)
        room = budget(node, self._reserve.of(node))
        return NodeView(
            node=node,
            overrides=member.overrides,
            state=pulse.state(now),
            revision=member.revision,
            registry_revision=self.revision,
            registered_at=member.registered_at,
            seen_at=member.seen_at,
            expires_at=wall + timedelta(seconds=pulse.deadline_at - now),
            heartbeat_interval_s=pulse.interval_s,
            ttl_s=pulse.ttl_s,
            budget_bytes=room.budget_bytes,
            limit=room.limit,
            warnings=member.warnings + budget_warnings(node) + (() if room.budget_bytes else (NOTHING_LEFT,)),
            created=created,
        )


def _revive(record: NodeRecord, interval_s: float, ttl_s: float, now: float, wall: datetime) -> Member:
    """A stored node: one whole TTL of grace, or still as long expired as it was."""
    pulse = Pulse(now, now + ttl_s, interval_s, ttl_s)
    if record.expired:
        silent_s = max(0.0, (wall - record.seen_at).total_seconds())
        pulse = Pulse(now - silent_s, now - max(0.0, silent_s - ttl_s), interval_s, ttl_s, expired=True)
    return Member(
        record.reported,
        record.overrides,
        record.ordinal,
        record.revision,
        record.registered_at,
        record.seen_at,
        pulse,
    )
