"""What policy ``auto`` is asked to make small, and within which bounds."""

from dataclasses import dataclass

from app.placement.errors import InvalidFieldError


@dataclass(frozen=True, slots=True)
class Objective:
    """The aim of a plan and the load that it must carry.

    ``optimize``: ``throughput`` the largest stage time, ``latency`` the sum of stage times and ``hop_s`` per boundary,
    ``memory`` the largest share of a budget; None is the engine's own. ``context`` tokens in each of ``sequences``.
    ``order`` ``given`` keeps the list's order. ``stage_counts`` are the only numbers of stages allowed (empty: all);
    ``first_node`` and ``last_node`` are node_ids; ``slack`` is the share of the objective that may be given up for
    fewer stages.
    """

    optimize: str | None = None
    context: int = 4096
    sequences: int = 1
    hop_s: float = 0.002
    order: str = "any"
    max_stages: int | None = None
    stage_counts: tuple[int, ...] = ()
    first_node: str | None = None
    last_node: str | None = None
    slack: float = 0.0

    def counts(self, most: int) -> tuple[int, ...] | range:
        """The allowed numbers of stages up to ``most``, in rising order."""
        most = most if self.max_stages is None else min(most, self.max_stages)
        if not self.stage_counts:
            return range(1, most + 1)
        return tuple(sorted(c for c in set(self.stage_counts) if 1 <= c <= most))


def check_objective(objective: Objective, node_ids: set[str]) -> None:
    """Raise InvalidFieldError where a pinned node is none of the plan's."""
    for field in ("first_node", "last_node"):
        pinned = getattr(objective, field)
        if pinned is not None and pinned not in node_ids:
            raise InvalidFieldError(f"{field} {pinned} is not among the nodes", f"/objective/{field}")
