"""Widths that a model's layers can be stored at, to see whether it would fit at another one."""

import re
from dataclasses import replace

from app.placement.cost import Block, ModelCost
from app.placement.errors import InvalidFieldError

WIDTHS = {
    "f32": 32.0,
    "bf16": 16.0,
    "f16": 16.0,
    "fp8": 8.0,
    "int8": 8.0,
    "q8_0": 8.5,
    "mxfp4": 4.25,
    "nvfp4": 4.5,
}
"""Bits per parameter, scales included: q8_0 has 16 bits per 32 values, mxfp4 8 per 32, nvfp4 8 per 16."""

CLEARLY = 0.95
"""A few tensors are always wider than the rest: 16.02 bits per parameter are bf16 already."""

FLOAT = re.compile(r"f([0-9]{1,2})e[0-9]{1,2}m[0-9]{1,2}", re.ASCII)
"""The family of small floats by their bits, exponent and mantissa: ``f8e4m3``."""


def width_bits(precision: str) -> float | None:
    """Bits per parameter of a precision by name, None where there is none of that name."""
    if precision in WIDTHS:
        return WIDTHS[precision]
    match = FLOAT.fullmatch(precision)
    return float(match[1]) if match and int(match[1]) else None


def narrower(model: ModelCost) -> tuple[str, ...]:
    """The named precisions clearly below the model's present bits per parameter, the widest first, one of each width.

    None without ``params``.
    """
    if not model.params:
        return ()
    present = 8 * model.total_bytes / model.params
    found = {bits: name for name, bits in reversed(WIDTHS.items()) if bits < present * CLEARLY}
    return tuple(found[bits] for bits in sorted(found, reverse=True))


def at_precision(model: ModelCost, precision: str) -> ModelCost:
    """The model with its layers stored at another precision; the tables, caches and FLOPs stay as they are.

    An estimate: layers are scaled by the ratio of the width to the present bits per parameter, 8 x total bytes /
    ``params``, and rounded up. Raises InvalidFieldError without ``params`` or for an unknown precision.
    """
    bits = width_bits(precision)
    if bits is None:
        raise InvalidFieldError(f"there is no precision {precision}", "/objective/precision_ladder")
    if not model.params:
        raise InvalidFieldError("other precisions need the number of parameters", "/model/params")
    scale = bits * model.params / (8 * max(1, model.total_bytes))
    return replace(
        model,
        per_layer_bytes=_scaled(model.per_layer_bytes, scale),
        expert_bytes_per_layer=_scaled(model.expert_bytes_per_layer, scale),
        expert_active_bytes_per_layer=_scaled(model.expert_active_bytes_per_layer, scale),
        layers=tuple(_block(block, scale) for block in model.layers),
    )


def _block(block: Block, scale: float) -> Block:
    return replace(
        block,
        bytes=_scaled(block.bytes, scale),
        expert_bytes=_scaled(block.expert_bytes, scale),
        expert_active_bytes=_scaled(block.expert_active_bytes, scale),
    )


def _scaled(size: int, scale: float) -> int:
    return -int(-size * scale // 1)
