"""How quantised checkpoints store a matrix: packed values, and the scales and zeros beside them.

Each rule is the layout that the tool of that name writes; the numbers are bytes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.checkpoints.tensors import CheckpointError

MXFP4_GROUP = 32
"""Values that share a scale of one byte (OCP Microscaling Formats, version 1.0)."""

MAX_STARS = 5
MAX_PATTERNS = 32


@dataclass(frozen=True)
class Kept:
    """Modules that stay as they are: by parts of their paths, or by patterns."""

    paths: frozenset[str] = frozenset()
    patterns: tuple[re.Pattern[str], ...] = ()

    def has(self, name: str) -> bool:
        """Whether the module is one of them, or inside of one."""
        parts = name.split(".")
        inner = (".".join(parts[a:b]) for a in range(len(parts)) for b in range(a + 1, len(parts) + 1))
        return any(path in self.paths for path in inner) or any(p.search(name) for p in self.patterns)


@dataclass(frozen=True)
class Storage:
    """Nothing is quantised. ``dtype`` names the packed values, empty here."""

    dtype: str = ""
    kept: Kept = Kept()

    def matrix(self, name: str, out: int, into: int, *, expert: bool) -> int | None:
        """Bytes of a matrix with all that belongs to it, None where it is stored as it is."""
        return None if self.kept.has(name) else self.packed(out, into, expert=expert)

    def packed(self, out: int, into: int, *, expert: bool) -> int | None:  # noqa: ARG002  # for the rules below
        """Bytes of a matrix that is quantised."""
        return None

    def table(self, rows: int, width: int) -> int | None:  # noqa: ARG002  # for the rules below
        """Bytes of an embedding or a head, None where it is stored as it is."""
        return None


@dataclass(frozen=True)
class BlockFloat8(Storage):
    """DeepSeek's fp8: one byte a value, a float32 scale (``weight_scale_inv``) for each block of rows and columns."""

    rows: int = 128
    columns: int = 128

    def packed(self, out: int, into: int, *, expert: bool) -> int:  # noqa: ARG002  # every matrix alike
        """One byte a value, four a block."""
        return out * into + -(-out // self.rows) * -(-into // self.columns) * 4


@dataclass(frozen=True)
class ChannelFloat8(Storage):
    """compressed-tensors' fp8 with a scale for each row, in the model's own 16 bits."""

    def packed(self, out: int, into: int, *, expert: bool) -> int:  # noqa: ARG002  # every matrix alike
        """One byte a value, two a row."""
        return out * into + 2 * out


@dataclass(frozen=True)
class Mxfp4(Storage):
    """gpt-oss: experts alone, two values a byte and a scale of one byte for each 32 (``_blocks``, ``_scales``)."""

    def packed(self, out: int, into: int, *, expert: bool) -> int | None:
        """17 bytes for 32 values."""
        return out * -(-into // MXFP4_GROUP) * (MXFP4_GROUP // 2 + 1) if expert else None


@dataclass(frozen=True)
class Grouped(Storage):
    """AWQ and GPTQ: packed values, and for each group of inputs a float16 scale and a packed zero per output.

    GPTQ also keeps each input's group (``g_idx``, int32).
    """

    bits: int = 4
    group: int = 128
    indexed: bool = False

    def packed(self, out: int, into: int, *, expert: bool) -> int:  # noqa: ARG002  # every matrix alike
        """Values, zeros, scales, indices."""
        groups = 1 if self.group <= 0 else -(-into // self.group)
        values, zeros = into * out * self.bits // 8, groups * out * self.bits // 8
        return values + zeros + 2 * groups * out + (4 * into if self.indexed else 0)


@dataclass(frozen=True)
class Affine(Storage):
    """MLX: packed values, a 16-bit scale and a 16-bit bias for each group, embedding and head too."""

    bits: int = 4
    group: int = 64

    def packed(self, out: int, into: int, *, expert: bool) -> int:  # noqa: ARG002  # every matrix alike
        """Values, and four bytes a group."""
        return out * into * self.bits // 8 + out * -(-into // self.group) * 4

    def table(self, rows: int, width: int) -> int:
        """As any matrix."""
        return self.packed(rows, width, expert=False)


def storage_of(config: Mapping[str, Any], text: Mapping[str, Any]) -> Storage:
    """The rule that a config names. Raises CheckpointError for one that it doesn't describe well enough."""
    mlx = config.get("quantization")
    said = next((c["quantization_config"] for c in (config, text) if c.get("quantization_config")), None)
    if isinstance(mlx, Mapping) and "bits" in mlx:
        return Affine("u32", Kept(), _number(mlx, "bits"), _number(mlx, "group_size"))
    if said is None:
        return Storage()
    if not isinstance(said, Mapping):
        raise CheckpointError("quantization_config must be an object")
    method = str(said.get("quant_method", ""))[:40]
    rule = _RULES.get(method)
    if rule is None:
        raise CheckpointError(f"quant_method {method!r} is not described by its config; only the files tell its bytes")
    return rule(said)


def _float8(said: Mapping[str, Any]) -> Storage:
    block = said.get("weight_block_size") or [128, 128]
    if not isinstance(block, list) or len(block) != len("rc") or not all(isinstance(b, int) and b > 0 for b in block):
        raise CheckpointError("weight_block_size must be two numbers")
    return BlockFloat8("f8_e4m3", _kept(said.get("modules_to_not_convert")), block[0], block[1])


def _compressed(said: Mapping[str, Any]) -> Storage:
    groups = said.get("config_groups")
    weights = [g.get("weights") for g in groups.values()] if isinstance(groups, Mapping) else []
    if not weights or not all(
        isinstance(w, Mapping) and (w.get("num_bits"), w.get("type"), w.get("strategy")) == (8, "float", "channel")
        for w in weights
    ):
        raise CheckpointError("of compressed-tensors only fp8 with a scale per channel is known from its config")
    return ChannelFloat8("f8_e4m3", _kept(said.get("ignore")))


def _mxfp4(said: Mapping[str, Any]) -> Storage:
    return Mxfp4("u8", _kept(said.get("modules_to_not_convert")))


def _grouped(said: Mapping[str, Any]) -> Storage:
    kept = _kept(said.get("modules_to_not_convert"))
    indexed = said.get("quant_method") == "gptq"
    return Grouped("i32", kept, _number(said, "bits"), _number(said, "group_size", least=-1), indexed)


_RULES = {"fp8": _float8, "compressed-tensors": _compressed, "mxfp4": _mxfp4, "awq": _grouped, "gptq": _grouped}


def _number(said: Mapping[str, Any], key: str, least: int = 1) -> int:
    value = said.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 2**16:
        raise CheckpointError(f"the quantisation's {key} must be a whole number")
    return value


def _kept(names: object) -> Kept:
    """What a list of names keeps: plain ones, ones with ``*``, or ``re:`` and an expression."""
    if names is None:
        return Kept()
    if not isinstance(names, Sequence) or isinstance(names, str) or not all(isinstance(n, str) for n in names):
        raise CheckpointError("the modules that are not quantised must be a list of names")
    wild = [name for name in names if "*" in name or name.startswith("re:")]
    return Kept(frozenset(names) - frozenset(wild), tuple(map(_pattern, wild[:MAX_PATTERNS])))


def _pattern(name: str) -> re.Pattern[str]:
    """Whole parts of a path, ``*`` for anything. A client's own expression could hang us, so only ``.*`` is read."""
    pieces = name.removeprefix("re:").replace(".*", "*").split("*")[: MAX_STARS + 1]
    return re.compile(r"(?:^|\.)" + ".*".join(map(re.escape, pieces)) + r"(?:\.|$)")
