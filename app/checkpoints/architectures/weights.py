"""A model's tensors as they are named and stored, collected part by part."""

from collections.abc import Mapping
from math import prod
from typing import Any

from app.checkpoints.architectures.storage import Storage, storage_of
from app.checkpoints.tensors import CheckpointError, Tensor
from app.placement.units import INT_MAX

SIZES = {
    "float32": ("f32", 4),
    "f32": ("f32", 4),
    "float16": ("f16", 2),
    "f16": ("f16", 2),
    "bfloat16": ("bf16", 2),
    "bf16": ("bf16", 2),
}


class Weights:
    """Collects tensors. ``dtype`` is of all that isn't quantised; ``storage`` says how matrices are stored."""

    def __init__(self, dtype: str, storage: Storage) -> None:
        """``dtype`` by any of its usual names. Raises CheckpointError."""
        if dtype not in SIZES:
            raise CheckpointError(f"no dtype {dtype[:40]!r}; there are f32, f16, bf16")
        self.dtype, self.size = SIZES[dtype]
        self.storage = storage
        self.tensors: list[Tensor] = []
        self.buffers: list[Tensor] = []

    def add(self, name: str, *shape: int, dtype: str | None = None) -> None:
        """A tensor that is never quantised: a norm, a bias, a router."""
        kind, size = SIZES[dtype] if dtype else (self.dtype, self.size)
        self._append(name, shape, kind, prod(shape) * size)

    def linear(self, name: str, out: int, into: int, *, bias: bool = False) -> None:
        """A projection from ``into`` to ``out``, quantised where the model is."""
        self._append(f"{name}.weight", (out, into), *self._stored(name, out, into))
        if bias:
            self.add(f"{name}.bias", out)

    def experts(self, name: str, count: int, out: int, into: int) -> None:
        """The same projection of so many experts, as one tensor."""
        dtype, size = self._stored(name, out, into, expert=True)
        self._append(f"{name}.weight", (count, out, into), dtype, count * size)

    def table(self, name: str, rows: int, width: int) -> None:
        """An embedding or a head."""
        stored = self.storage.table(rows, width)
        self._append(
            f"{name}.weight", (rows, width), self.dtype, rows * width * self.size if stored is None else stored
        )

    def norm(self, name: str, width: int, *, bias: bool = False) -> None:
        """A normalisation's scale, and its shift."""
        self.add(f"{name}.weight", width)
        if bias:
            self.add(f"{name}.bias", width)

    def buffer(self, name: str, *shape: int, dtype: str = "f32") -> None:
        """What some checkpoints store although it is no parameter of its own."""
        kind, size = SIZES[dtype]
        self.buffers.append(Tensor(name, shape, kind, prod(shape) * size))

    def _stored(self, name: str, out: int, into: int, *, expert: bool = False) -> tuple[str, int]:
        packed = self.storage.matrix(name, out, into, expert=expert)
        return (self.storage.dtype, packed) if packed is not None else (self.dtype, out * into * self.size)

    def _append(self, name: str, shape: tuple[int, ...], dtype: str, n_bytes: int) -> None:
        if n_bytes > INT_MAX or prod(shape) > INT_MAX:
            raise CheckpointError(f"{name} would be beyond 2^63-1 bytes")
        self.tensors.append(Tensor(name, shape, dtype, n_bytes))


def weights_of(config: Mapping[str, Any], text: Mapping[str, Any], dtype: str | None) -> Weights:
    """An empty collection for a config. Raises CheckpointError.

    The dtype is the caller's, else the config's. Without either it isn't guessed, but where a config is quantised: what
    such checkpoints leave as it is, is bfloat16.
    """
    storage = storage_of(config, text)
    named = dtype or next(
        (part[key] for part in (text, config) for key in ("torch_dtype", "dtype") if isinstance(part.get(key), str)),
        None,
    )
    if named is None and storage.dtype:
        named = "bf16"
    if named is None:
        raise CheckpointError("the config doesn't say what the weights are stored in: give a dtype (f32, f16, bf16)")
    return Weights(named.removeprefix("torch."), storage)
