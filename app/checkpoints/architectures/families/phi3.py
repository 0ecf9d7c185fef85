"""Phi-3 and Phi-4: projections in one (arXiv 2404.14219)."""

from app.checkpoints.architectures.assembly import Family
from app.checkpoints.architectures.decoders import Decoder, Window, joined_mlp
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import fused, heads
from app.checkpoints.architectures.parts.windows import everywhere
from app.checkpoints.architectures.weights import Part


def phi3_attention(c: Fields, window: Window) -> Part:
    """Phi-3's attention: queries, keys and values in one."""
    return fused(c.whole("hidden_size"), heads(c), ("qkv_proj", "o_proj"), window=window).under("self_attn")


FAMILIES = {"phi3": Family(Decoder(phi3_attention, joined_mlp, slides=lambda _c: everywhere))}
