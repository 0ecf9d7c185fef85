"""What models are put together from: named weights, and parts that are added up and put under a prefix."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from app.checkpoints.tensors import Cache

NO_CACHE = Cache()

Role = Literal["linear", "experts", "kept", "table", "head", "plain"]
"""What a quantiser asks: matrices, stacks of experts' matrices, matrices that are kept as they are (routers), .."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter; a matrix is (outputs, inputs), experts' matrices (experts, outputs, inputs).

    ``dtype`` where checkpoints keep it in a type of its own, whatever the rest is stored in.
    """

    name: str
    shape: tuple[int, ...]
    role: Role = "plain"
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Weights, and what the part that they make up keeps of a sequence. Parts add up: ``norm(..) + gated(..)``."""

    weights: tuple[Weight, ...] = ()
    cache: Cache = NO_CACHE

    def __add__(self, other: "Part") -> "Part":
        return Part(self.weights + other.weights, _both(self.cache, other.cache))

    def under(self, prefix: str) -> "Part":
        """The same weights with a prefix before their names."""
        return replace(self, weights=tuple(replace(w, name=f"{prefix}.{w.name}") for w in self.weights))


NOTHING = Part()

Kind = TypeVar("Kind", bound=Hashable)


def stack(kinds: Iterable[Kind], build: Callable[[Kind], Part]) -> tuple[Part, ...]:
    """One part per layer; layers of one kind share it, so that 10,000 of them cost no more than their kinds."""
    order = tuple(kinds)
    built = {kind: build(kind) for kind in dict.fromkeys(order)}
    return tuple(built[kind] for kind in order)


def repeat(part: Part, times: int, at: str) -> Part:
    """The same part again and again beside the stack, numbered; it caches nothing there."""
    weights = (w for i in range(times) for w in part.under(f"{at}.{i}").weights)
    return Part(tuple(weights))


def linear(name: str, inputs: int, outputs: int, *, bias: bool = False, role: Role = "linear") -> Part:
    """A matrix, and a bias where there is one."""
    matrix = Part((Weight(f"{name}.weight", (outputs, inputs), role),))
    return matrix + vector(f"{name}.bias", outputs) if bias else matrix


def experts(name: str, count: int, inputs: int, outputs: int) -> Part:
    """One matrix per expert, as one tensor, whether the checkpoint has it in one piece or expert by expert."""
    return Part((Weight(name, (count, outputs, inputs), "experts"),))


def norm(name: str, size: int, *, bias: bool = False) -> Part:
    """A norm's scale, and its bias where it is a layer norm."""
    scale = vector(f"{name}.weight", size)
    return scale + vector(f"{name}.bias", size) if bias else scale


def layer_norm(name: str, size: int) -> Part:
    """A norm with a bias."""
    return norm(name, size, bias=True)


def table(name: str, rows: int, width: int, role: Role = "table") -> Part:
    """An embedding."""
    return Part((Weight(f"{name}.weight", (rows, width), role),))


def vector(name: str, *shape: int, dtype: str | None = None) -> Part:
    """A parameter that no quantiser touches."""
    return Part((Weight(name, shape, dtype=dtype),))


def _both(one: Cache, other: Cache) -> Cache:
    """Of two parts of a layer at most one attends; a layer that has attention and a recurrence keeps both."""
    return Cache(
        one.k_elements + other.k_elements,
        one.v_elements + other.v_elements,
        one.window or other.window,
        one.state_elements + other.state_elements,
    )
