"""What every source of a model's figures comes down to: its tensors, and what each layer keeps of a sequence."""

from dataclasses import dataclass
from math import prod


@dataclass(eq=False)
class CheckpointError(Exception):
    """A checkpoint or config that can't be priced; ``detail`` says what is wrong or missing, for a person.

    Over HTTP it is a fault of the request, see ``requests``.
    """

    detail: str

    def __str__(self) -> str:
        return self.detail


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named array; ``shape`` outermost first. ``n_bytes`` as stored, padding not counted.

    ``dtype`` is the format's own word in lower case (``bf16``, ``f8_e4m3``, ``i32``, ``q4_k``). Where a config stands
    in for a file, ``shape`` is the parameter's and ``n_bytes`` has the scales and zeros of its quantisation too.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    n_bytes: int

    @property
    def n_elements(self) -> int:
        """Elements of the array; more than one parameter each where a format packs them."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Cache:
    """What one layer keeps of one sequence.

    ``k_elements`` and ``v_elements`` per token, of the last ``window`` tokens where attention slides (None: of all);
    ``state_elements`` of recurrent and convolution state whatever its length, in float32.
    """

    k_elements: int = 0
    v_elements: int = 0
    window: int | None = None
    state_elements: int = 0


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model's shape. ``caches`` has one entry per layer of the stack, in order.

    ``tensors`` are named as in its checkpoints and carry the index of their layer in the name; None where only a file
    can say. ``n_experts`` routed experts in each layer that has any, ``experts_per_token`` of them read by one token.
    ``buffers`` are stored beside the parameters by some checkpoints and never counted in the cost.
    """

    name: str
    caches: tuple[Cache, ...]
    tied: bool
    n_experts: int = 0
    experts_per_token: int = 0
    tensors: tuple[Tensor, ...] | None = None
    buffers: tuple[Tensor, ...] = ()
