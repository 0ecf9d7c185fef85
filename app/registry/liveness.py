"""Who is alive, by the server's own monotonic clock.

Invariant: no node expires before one whole ``ttl_s`` in which this server could have heard it. A start, a stall, a
suspend and a step of the wall clock each begin that time anew for every node that had not expired before; one that is
shorter than a beat's interval only adds itself to what each has left.
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
    """Notices that the server could not hear: its own looks at the clock came late, or the wall clock moved apart."""

    def __init__(self, mono: float, wall: datetime) -> None:
        """From this look on."""
        self._mono = mono
        self._wall = wall

    def look(self, mono: float, wall: datetime) -> tuple[float, float]:
        """The monotonic instant of the last look, and for how many seconds the server was perhaps deaf since."""
        heard_until, gap_s = self._mono, mono - self._mono
        step_s = abs((wall - self._wall).total_seconds() - gap_s)
        self._mono, self._wall = mono, wall
        return heard_until, max(gap_s, step_s)


def start_over(pulses: Collection[Pulse], heard_until: float, now: float) -> None:
    """Give everybody who was alive at ``heard_until`` one whole TTL from now."""
    for pulse in pulses:
        if pulse.state(heard_until) != "expired":
            pulse.begin(now)


def wait_longer(pulses: Collection[Pulse], heard_until: float, deaf_s: float) -> None:
    """Don't count a short deafness against anybody; many of them would add up to a life."""
    for pulse in pulses:
        if pulse.state(heard_until) != "expired":
            pulse.heard_at += deaf_s
            pulse.deadline_at += deaf_s


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
