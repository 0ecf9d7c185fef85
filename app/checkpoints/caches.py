"""Bytes of what layers keep of a sequence, by the type that an engine stores them in."""

from app.checkpoints.tensors import Cache, CheckpointError

SIZES = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "fp8": (1, 1),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}
"""Elements in a block, and its bytes: llama.cpp's cache types (ggml's block sizes), and vLLM's fp8."""

DEFAULT = "bf16"

STATE_BYTES = 4
"""Recurrent and convolution state is kept in float32 (llama.cpp's ``R (f32)``, ``S (f32)``)."""


def kv_bytes_per_token(cache: Cache, kv_dtype: str = DEFAULT) -> int:
    """Bytes that one layer caches per token of one sequence.

    ``kv_dtype`` is one type, or keys' and values' apart: ``q8_0/f16``. A token's keys fill whole blocks, and so do its
    values. Raises CheckpointError for a type that isn't known.
    """
    keys, _, values = kv_dtype.partition("/")
    return _stored(cache.k_elements, keys) + _stored(cache.v_elements, values or keys)


def state_bytes(cache: Cache) -> int:
    """Bytes that one layer keeps of one sequence whatever its length."""
    return cache.state_elements * STATE_BYTES


def _stored(elements: int, dtype: str) -> int:
    if dtype not in SIZES:
        raise CheckpointError(
            f"no cache type {dtype[:40]!r}; there are {', '.join(SIZES)}, or two of them as keys/values"
        )
    block, size = SIZES[dtype]
    return -(-elements // block) * size
