"""What weights are stored in: types, and the protocol of whatever quantises them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

from app.checkpoints.architectures.storage.kept import NOTHING_KEPT, Kept
from app.checkpoints.architectures.storage.packing import Pack
from app.checkpoints.architectures.weights import Role, Weight
from app.checkpoints.tensors import CheckpointError

SIZES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "f8_e4m3": 1, "f8_e5m2": 1}
"""Bytes of one element, by safetensors' words in lower case."""

STORED = SIZES | {"u8": 1}
"""The same with what only buffers have."""

SPELLINGS = {word: word for word in SIZES} | {
    "float64": "f64",
    "float32": "f32",
    "float": "f32",
    "fp32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "fp16": "f16",
    "half": "f16",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e5m2": "f8_e5m2",
}

NESTED = ("text_config", "llm_config", "language_config")
"""Where composite models keep the language model's config."""


class Scheme(Protocol):
    """How a checkpoint stores its weights."""

    def stored(self, name: str, weight: Weight, *, in_stack: bool) -> tuple[str, int]:
        """The word for a tensor's type, and its bytes, with the scales and zeros that stand beside it."""
        ...

    @property
    def work(self) -> int:
        """Patterns that each name is compared with."""
        ...


@dataclass(frozen=True, slots=True)
class Unquantised:
    """Every weight in one type, but those that always have their own."""

    dtype: str

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return SIZES[self.dtype]

    @property
    def work(self) -> int:
        """None."""
        return 0

    def stored(self, name: str, weight: Weight, *, in_stack: bool) -> tuple[str, int]:  # noqa: ARG002 as the protocol
        """The type and the bytes."""
        dtype = weight.dtype or self.dtype
        return dtype, prod(weight.shape) * STORED[dtype]


MATRICES: frozenset[Role] = frozenset({"linear", "experts"})
WITH_HEAD: frozenset[Role] = MATRICES | {"head"}
EVERYTHING: frozenset[Role] = MATRICES | {"kept", "table", "head"}


@dataclass(frozen=True, slots=True)
class Quantised:
    """Some of the weights packed, the rest in one type.

    ``groups`` are packs with the modules that they are for, None for all; ``own`` has the packs of single modules by
    name, None where one isn't packed. ``roles`` are the kinds of weight that the method packs; with ``stack_only`` it
    leaves alone what stands beside the stack.
    """

    plain: Unquantised
    groups: tuple[tuple[Kept | None, Pack], ...]
    kept: Kept = NOTHING_KEPT
    roles: frozenset[Role] = MATRICES
    stack_only: bool = False
    own: Mapping[str, Pack | None] = field(default_factory=dict)

    @property
    def work(self) -> int:
        """Patterns that each name is compared with."""
        return self.kept.work + sum(modules.work for modules, _ in self.groups if modules)

    def stored(self, name: str, weight: Weight, *, in_stack: bool) -> tuple[str, int]:
        """The type and the bytes."""
        pack = self._pack(name, weight, in_stack=in_stack)
        packed = pack(weight.shape) if pack else None
        return packed or self.plain.stored(name, weight, in_stack=in_stack)

    def _pack(self, name: str, weight: Weight, *, in_stack: bool) -> Pack | None:
        if weight.role not in self.roles or (self.stack_only and not in_stack):
            return None
        module = name.removesuffix(".weight")
        if module in self.own:
            return self.own[module]
        names = {module, module.replace(".experts.", ".experts.0.")}
        if any(map(self.kept.has, names)):
            return None
        return next((pack for among, pack in self.groups if among is None or any(map(among.has, names))), None)


def dtype_of(config: Mapping[str, Any], asked: str | None, *, usual: str | None = None) -> str:
    """What the weights that aren't quantised are stored in: as asked, as the config says, as is ``usual``.

    A config without a dtype would be float32 to its library, though nearly all are bfloat16: a guess would be off by
    two, so it is an error. Raises CheckpointError.
    """
    inner = (config.get(key) for key in NESTED)
    sources = [config, *(c for c in inner if isinstance(c, Mapping))]
    given = [c.get(key) for c in sources for key in ("torch_dtype", "dtype")]
    word = asked or next((g for g in given if g is not None), usual)
    if word is None:
        raise CheckpointError(
            "config: dtype and torch_dtype are missing; give a dtype, what the weights are stored in: bf16, f16, .."
        )
    known = SPELLINGS.get(word.removeprefix("torch.").lower()) if isinstance(word, str) else None
    if known is None:
        raise CheckpointError(f"no weight type {ascii(word)[:40]}; there are {', '.join(SIZES)}")
    return known
