"""How a checkpoint is stored, as far as its config says."""

from collections.abc import Mapping
from typing import Any

from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.storage import packing
from app.checkpoints.architectures.storage.methods import LEAVES_BF16, METHODS
from app.checkpoints.architectures.storage.packing import Pack
from app.checkpoints.architectures.storage.schemes import EVERYTHING, Quantised, Scheme, Unquantised, dtype_of


def scheme_of(config: Mapping[str, Any], dtype: str | None) -> Scheme:
    """How the checkpoint of a config stores its weights; ``dtype`` is that of what isn't quantised.

    Raises CheckpointError for a method that isn't known, or whose config leaves open what is stored.
    """
    c = Fields(config)
    for holder in (c, *(c.inner(key) for key in ("text_config",) if isinstance(c.find(key), Mapping))):
        if holder.find("quantization") is not None:
            return _mlx(holder.inner("quantization"), config, dtype)
        if holder.find("quantization_config") is not None:
            return _by_method(holder.inner("quantization_config"), config, dtype)
    return Unquantised(dtype_of(config, dtype))


def _by_method(q: Fields, config: Mapping[str, Any], dtype: str | None) -> Scheme:
    method = q.word("quant_method")
    if not method and q.find("bits") is not None and q.find("group_size") is not None:
        return _mlx(q, config, dtype)
    if not method and (q.find("load_in_4bit") is not None or q.find("load_in_8bit") is not None):
        method = "bitsandbytes"
    if method not in METHODS:
        raise q.wrong("quant_method", f"{ascii(method)[:40]} isn't known; there are {', '.join(sorted(METHODS))}")
    usual = "bf16" if method in LEAVES_BF16 else None
    return METHODS[method](q, Unquantised(dtype_of(config, dtype, usual=usual)))


def _mlx(q: Fields, config: Mapping[str, Any], dtype: str | None) -> Scheme:
    """MLX packs whatever is a matrix or a table; modules that are named have sizes of their own, or false for none."""
    plain = Unquantised(dtype_of(config, dtype))
    named = {key: value for key, value in q.values.items() if value is False or isinstance(value, Mapping)}
    own = {key: _mlx_pack(q.inner(key), plain) if value else None for key, value in named.items()}
    return Quantised(plain, ((None, _mlx_pack(q, plain)),), roles=EVERYTHING, stack_only=True, own=own)


def _mlx_pack(q: Fields, plain: Unquantised) -> Pack:
    mode = q.word("mode", "affine")
    if mode == "mxfp4":
        return packing.mxfp4
    if mode != "affine":
        raise q.wrong("mode", f"{ascii(mode)[:40]} isn't known; there are affine and mxfp4")
    return packing.mlx(q.whole("bits", most=8), q.whole("group_size"), plain.size)
