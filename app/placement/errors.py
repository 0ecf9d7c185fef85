"""Why a request can't be met. Attributes are typed and shown to clients; none knows an HTTP status."""

from dataclasses import dataclass, field


class CleaveError(Exception):
    """What the service refuses. Each kind is a dataclass; one table in ``api.problems`` maps them to HTTP."""

    detail: str
    """What went wrong, for a person."""

    def __str__(self) -> str:
        return self.detail


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What one node could have given to a plan that was refused.

    ``limit`` names what binds ``budget_bytes``; ``layer_cap`` counts the model's layers that fit in the
    node's place in the list; ``excluded`` is the reason why it had no part in it.
    """

    node_id: str
    addr: str
    budget_bytes: int
    limit: str
    layer_cap: int
    excluded: str | None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change to the request that makes it fit, as planning has found: the field, its value, and what that means."""

    change: str
    value: int | str
    detail: str


@dataclass(frozen=True, slots=True)
class Excess:
    """A stage that doesn't fit its node, in bytes."""

    node_id: str
    est_bytes: int
    budget_bytes: int
    excess_bytes: int


@dataclass(eq=False)
class NoNodesError(CleaveError):
    """There is nobody to plan on. ``excluded`` says why those who are there don't count."""

    excluded: dict[str, str] = field(default_factory=dict)
    detail: str = "no nodes"


@dataclass(eq=False)
class DoesNotFitError(CleaveError):
    """The nodes can't hold the model. Bytes; ``shortfall_bytes`` is 0 where only fragments don't fit."""

    detail: str
    required_bytes: int
    usable_bytes: int
    capacity_layers: int
    nodes: tuple[NodeVerdict, ...]
    shortfall_bytes: int = field(init=False)
    proven: bool = True
    suggestions: tuple[Suggestion, ...] = ()

    def __post_init__(self) -> None:
        """What the model needs beyond the sum of the budgets."""
        self.shortfall_bytes = max(0, self.required_bytes - self.usable_bytes)


@dataclass(eq=False)
class ManualRangesError(CleaveError):
    """The ranges given by hand don't tile the model. ``nodes`` are the node_ids at fault, in order."""

    detail: str
    nodes: tuple[str, ...] = ()


@dataclass(eq=False)
class OverBudgetError(CleaveError):
    """Ranges given by hand need more memory than their nodes have."""

    nodes: tuple[Excess, ...]
    detail: str = field(init=False)

    def __post_init__(self) -> None:
        """Name the stages at fault with their figures."""
        each = (f"{n.node_id} needs {n.est_bytes} of {n.budget_bytes} bytes" for n in self.nodes)
        self.detail = "stages over their budget: " + "; ".join(each)


@dataclass(eq=False)
class InvalidFieldError(CleaveError):
    """A figure of the request is impossible beside the others. ``pointer`` is its JSON pointer."""

    detail: str
    pointer: str
