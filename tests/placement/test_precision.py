"""Layers at another width, with figures that a person can check."""

from dataclasses import replace

import pytest

from app.placement.cost import Block, ModelCost
from app.placement.errors import InvalidFieldError
from app.placement.precision import at_precision, narrower, width_bits

BLOCKS = ModelCost(3, 0, 10, 10, layers=(Block(2, 20, 7.0, 5, expert_bytes=10, expert_active_bytes=6), Block(1, 20)))
"""100 bytes."""


def test_layers_are_scaled_by_the_ratio_of_widths_and_rounded_up() -> None:
    """50 parameters in 100 bytes are 16 bits each; at 4.25 a layer of 20 bytes takes 5.3125, experts of 10 2.7."""
    mxfp4 = at_precision(ModelCost(3, 20, 20, 20, params=50), "mxfp4")
    assert (mxfp4.per_layer_bytes, mxfp4.embed_bytes, mxfp4.head_bytes) == (6, 20, 20)


def test_blocks_are_scaled_each_with_their_experts_and_nothing_else() -> None:
    """At 8 bits all is half; FLOPs and caches stay."""
    half = at_precision(replace(BLOCKS, params=50), "fp8")
    assert half.layers == (Block(2, 10, 7.0, 5, expert_bytes=5, expert_active_bytes=3), Block(1, 10))


@pytest.mark.parametrize(("name", "bits"), [("bf16", 16.0), ("f6e3m2", 6.0), ("f0e3m2", None), ("q4", None)])
def test_a_width_has_a_name(name: str, bits: float | None) -> None:
    assert width_bits(name) == bits


@pytest.mark.parametrize(
    ("model", "precision", "pointer"),
    [
        (ModelCost(1, 10, 0, 0, params=5), "q4", "/objective/precision_ladder"),
        (ModelCost(1, 10, 0, 0), "fp8", "/model/params"),
    ],
)
def test_what_cannot_be_scaled_is_refused(model: ModelCost, precision: str, pointer: str) -> None:
    with pytest.raises(InvalidFieldError) as refused:
        at_precision(model, precision)
    assert refused.value.pointer == pointer


def test_narrower_precisions_are_named_from_wide_to_narrow() -> None:
    """100 bytes of 50 parameters are 16 bits each; a little more is bf16 with some wide tensors, not more than that."""
    assert narrower(ModelCost(3, 20, 20, 20, params=50)) == ("q8_0", "fp8", "nvfp4", "mxfp4")
    assert narrower(ModelCost(3, 20, 21, 20, params=50))[0] == "q8_0"
    assert narrower(ModelCost(1, 100, 0, 0, params=25))[:2] == ("bf16", "q8_0")
    assert narrower(ModelCost(1, 100, 0, 0)) == ()


def test_a_model_without_bytes_stays_without() -> None:
    assert at_precision(ModelCost(1, 0, 0, 0, params=5), "fp8").total_bytes == 0
