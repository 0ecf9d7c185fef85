"""Who is alive, by the server's own monotonic clock.

Invariant: no node expires before one whole ``ttl_s`` in which this server could have heard it. A start, a stall, a
suspend and a step of the wall clock each begin that time anew for every node that had not expired before.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from app.ports import State

MAX_BEATS_PER_S = 500
"""Beyond this the interval that agents are told grows with the fleet."""

SUSPECT_AFTER_INTERVALS = 1.5

MASS_EXPIRY_MIN_NODES = 3


@dataclass(frozen=True, slots=True)
class Rules:
    """The registry's settings. Seconds; ``ttl_s`` is at least three intervals."""

    heartbeat_interval_s: float = 10.0
    ttl_s: float = 30.0
    retention_s: float = 86_400.0
    max_nodes: int = 10_000
    default_reserve_bytes: int = 6_000_000_000

    def interval_for(self, nodes: int) -> float:
        """Seconds between beats so that so many nodes stay within ``MAX_BEATS_PER_S``."""
        return max(self.heartbeat_interval_s, nodes / MAX_BEATS_PER_S)

    def ttl_for(self, interval_s: float) -> float:
        """The life of a node that beats at this interval: as many beats as configured."""
        return self.ttl_s * (interval_s / self.heartbeat_interval_s)


@dataclass(slots=True)
class Pulse:
    """One node's life: when it was heard, what interval it was told, until when it is waited for."""

    heard_at: float
    deadline_at: float
    interval_s: float
    ttl_s: float
    granted: bool = False
    expired: bool = False

    def state(self, now: float) -> State:
        """How the node stands; ``suspect`` after a beat and a half without one."""
        if self.expired or now >= self.deadline_at:
            return "expired"
        return "suspect" if now - self.heard_at > SUSPECT_AFTER_INTERVALS * self.interval_s else "ready"

    def begin(self, now: float) -> None:
        """One whole TTL from now."""
        self.heard_at, self.deadline_at = now, now + self.ttl_s
        self.granted = self.expired = False


class Watch:
    """Notices that the server could not hear: its own ticks came late, or the wall clock moved apart."""

    def __init__(self, tolerance_s: float, mono: float, wall: datetime) -> None:
        """Gaps below ``tolerance_s``, one heartbeat interval, cost a node at most one beat and go unnoticed."""
        self._tolerance_s = tolerance_s
        self._mono = mono
        self._wall = wall

    def missed(self, mono: float, wall: datetime) -> float | None:
        """The monotonic instant until which the server surely heard, if it was deaf since; else None."""
        heard_until, gap_s = self._mono, mono - self._mono
        step_s = abs((wall - self._wall).total_seconds() - gap_s)
        self._mono, self._wall = mono, wall
        return heard_until if max(gap_s, step_s) > self._tolerance_s else None


def start_over(pulses: Collection[Pulse], heard_until: float, now: float) -> None:
    """Give everybody who was alive at ``heard_until`` one whole TTL from now."""
    for pulse in pulses:
        if pulse.state(heard_until) != "expired":
            pulse.begin(now)


def guard_against_mass_expiry(pulses: Collection[Pulse], now: float) -> bool:
    """Whether more than half of at least three living nodes are suspect at once: then it is likelier us than them.

    Each suspect node gets one more TTL, once until its next beat.
    """
    states = [(pulse, pulse.state(now)) for pulse in pulses]
    suspects = [pulse for pulse, state in states if state == "suspect"]
    alive = sum(state != "expired" for _, state in states)
    if alive < MASS_EXPIRY_MIN_NODES or 2 * len(suspects) <= alive:
        return False
    for pulse in suspects:
        if not pulse.granted:
            pulse.granted = True
            pulse.deadline_at += pulse.ttl_s
    return True
