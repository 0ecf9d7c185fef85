"""Llama 4's language model: chunks, experts in all layers or some, one that every token passes."""

from functools import partial

from app.checkpoints.architectures.assembly import Family
from app.checkpoints.architectures.decoders import Chooses, Decoder, Sparse
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.feedforward import Experts, gated, joined_experts, routed, router
from app.checkpoints.architectures.parts.windows import but_every
from app.checkpoints.architectures.weights import Part


def llama4_experts(c: Fields, of: Experts) -> Part:
    """Llama 4's router, experts and the one that every token passes."""
    hidden = c.whole("hidden_size")
    shared = gated(hidden, of.width).under("shared_expert")
    return (router(hidden, of.n, "router") + joined_experts(hidden, of) + shared).under("feed_forward")


def llama4_dense(c: Fields) -> Part:
    """The feed-forward of Llama 4's layers without experts."""
    return gated(c.whole("hidden_size"), c.whole("intermediate_size_mlp", default=16384)).under("feed_forward")


def llama4_sparse(c: Fields) -> Chooses:
    """Layers have experts as listed, or every ``interleave_moe_layer_step``-th."""
    listed = c.items("moe_layers", int)
    if listed is not None:
        chosen = frozenset(listed)
        return lambda layer: layer in chosen
    step = c.whole("interleave_moe_layer_step", default=1)
    return lambda layer: (layer + 1) % step == 0


def llama4_chunked(c: Fields) -> Chooses:
    """Layers with positions attend within a chunk; every fourth has none and sees everything."""
    n = c.layers("num_hidden_layers")
    listed = c.items("no_rope_layers", int)
    if not listed:
        return but_every(c.whole("no_rope_layer_interval", default=4))
    if len(listed) != n:
        raise c.wrong("no_rope_layers", f"has {len(listed)} items for {n} layers")
    return lambda layer: bool(listed[layer])


LLAMA4 = Decoder(
    dense=llama4_dense,
    sparse=Sparse(partial(routed, width="intermediate_size"), llama4_experts, llama4_sparse),
    slides=llama4_chunked,
    window="attention_chunk_size",
    absent=8192,
)

FAMILIES = {"llama4_text": Family(LLAMA4)}
