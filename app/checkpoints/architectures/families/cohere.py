"""Cohere's Command: one norm before attention and feed-forward side by side, windows from the second on."""

from app.checkpoints.architectures.assembly import Family
from app.checkpoints.architectures.decoders import Attention, Decoder
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import Heads
from app.checkpoints.architectures.parts.windows import but_every
from app.checkpoints.architectures.weights import NOTHING, Part, vector


def own_norms(c: Fields, of: Heads) -> Part:
    """Norms of queries and keys with a scale per head and element, where the config asks for them."""
    if not c.flag("use_qk_norm"):
        return NOTHING
    return vector("q_norm.weight", of.n, of.dim) + vector("k_norm.weight", of.n_kv, of.dim)


def pattern(c: Fields) -> int:
    """Of so many layers the last sees everything."""
    return c.whole("sliding_window_pattern", "_sliding_window_pattern", default=4)


_ONE = ("input_layernorm",)

FAMILIES = {
    "cohere": Family(Decoder(Attention(inside=own_norms), norms=_ONE, tied=True)),
    "cohere2": Family(Decoder(norms=_ONE, slides=lambda c: but_every(pattern(c)), absent=4096, tied=True)),
}
