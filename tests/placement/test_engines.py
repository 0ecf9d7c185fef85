"""Engines' rules, by figures that a person can check against the engines' sources."""

import pytest

from app.placement.engines import ENGINES, engine
from app.placement.errors import InvalidFieldError


@pytest.mark.parametrize(
    ("name", "options", "window", "tokens"),
    [
        ("plain", {}, None, 32 * 8192),
        ("plain", {}, 128, 32 * 128),
        ("rlx", {}, 10_000, 32 * 8192),
        ("vllm", {"max_batched_tokens": 2048}, 128, 32 * 16 * 137),
        ("vllm", {"max_batched_tokens": 2048}, None, 32 * 8192),
        ("vllm", {"max_batched_tokens": 65_536}, 128, 32 * 8192),
        ("sglang", {}, 1, 32 * 8192),
        ("llama.cpp", {}, None, 32 * 8192),
        ("llama.cpp", {}, 128, 128 * 32 + 512),
        ("llama.cpp", {"kv_unified": False}, 128, 32 * 768),
        ("llama.cpp", {"kv_unified": False, "kv_pad": 10_000}, None, 32 * 10_000),
    ],
)
def test_a_layer_is_charged_what_the_engine_keeps_of_it(
    name: str, options: dict[str, int | bool], window: int | None, tokens: int
) -> None:
    """32 sequences of 8192 tokens."""
    assert engine(name, options).cached_tokens(8192, 32, window) == tokens


@pytest.mark.parametrize("name", ENGINES)
def test_nothing_is_cached_of_no_tokens(name: str) -> None:
    """A context of 0 needs no cache, whatever the padding."""
    assert engine(name).cached_tokens(0, 3, None) == 0
    assert engine(name).cached_tokens(0, 3, 128) == 0


@pytest.mark.parametrize("name", ENGINES)
def test_more_context_never_needs_less(name: str) -> None:
    """Monotone, so the largest context can be found by halving."""
    for window in (None, 1, 7, 300):
        kept = [engine(name).cached_tokens(context, 2, window) for context in range(700)]
        assert kept == sorted(kept)


@pytest.mark.parametrize(
    ("name", "options", "pointer"),
    [
        ("tgi", {}, "/engine/name"),
        ("plain", {"kv_pad": 1}, "/engine/kv_pad"),
        ("vllm", {"n_ubatch": 1}, "/engine/n_ubatch"),
        ("llama.cpp", {"kv_pad": 0}, "/engine/kv_pad"),
        ("llama.cpp", {"kv_unified": 1}, "/engine/kv_unified"),
        ("vllm", {"tensor_parallel": True}, "/engine/tensor_parallel"),
        ("vllm", {"overhead_bytes": -1}, "/engine/overhead_bytes"),
    ],
)
def test_what_an_engine_cannot_take_is_refused(name: str, options: dict[str, int | bool], pointer: str) -> None:
    """The pointer names the field."""
    with pytest.raises(InvalidFieldError) as refusal:
        engine(name, options)
    assert refusal.value.pointer == pointer


def test_an_engine_may_add_nothing_to_a_stage() -> None:
    """0 is a figure, not a missing one."""
    assert engine("vllm", {"overhead_bytes": 0}).overhead_bytes == 0
    assert engine("llama.cpp", {"kv_unified": False}).kv_unified is False
