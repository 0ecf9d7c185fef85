"""Decoders with a twist in their parts: gpt-oss, Phi-3, Cohere, GLM, Granite's experts, MiniMax-M2, Aria, Llama 4."""

from functools import partial

from app.checkpoints.architectures.assembly import Family
from app.checkpoints.architectures.decoders import Attention, Chooses, Decoder, Sparse, Window
from app.checkpoints.architectures.families.llama import MIXTRAL_NAMES
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import Heads, fused, heads, wide_norms
from app.checkpoints.architectures.parts.feedforward import (
    Experts,
    gated,
    gated_experts,
    joined,
    joined_experts,
    routed,
    router,
)
from app.checkpoints.architectures.parts.windows import but_every, everywhere
from app.checkpoints.architectures.weights import NOTHING, Part, experts, vector

routed_by_width = partial(routed, width="intermediate_size")


def sinks(_c: Fields, of: Heads) -> Part:
    """A logit per head that takes attention off all tokens."""
    return vector("sinks", of.n)


def gpt_oss_experts(c: Fields, of: Experts) -> Part:
    """gpt-oss's router and experts, all with biases."""
    hidden = c.whole("hidden_size")
    parts = (
        router(hidden, of.n, "router", bias=True)
        + joined_experts(hidden, of)
        + vector("experts.gate_up_proj_bias", of.n, 2 * of.width)
        + vector("experts.down_proj_bias", of.n, hidden)
    )
    return parts.under("mlp")


def phi3_attention(c: Fields, window: Window) -> Part:
    """Phi-3's attention: queries, keys and values in one."""
    return fused(c.whole("hidden_size"), heads(c), ("qkv_proj", "o_proj"), window=window).under("self_attn")


def joined_mlp(c: Fields) -> Part:
    """A feed-forward with gate and up in one."""
    return joined(c.whole("hidden_size"), c.whole("intermediate_size"), ("gate_up_proj", "down_proj")).under("mlp")


def granite_experts(c: Fields, of: Experts) -> Part:
    """Granite's router and experts."""
    hidden = c.whole("hidden_size")
    parts = (
        router(hidden, of.n, "router.layer")
        + experts("input_linear.weight", of.n, hidden, 2 * of.width)
        + experts("output_linear.weight", of.n, of.width, hidden)
    )
    return parts.under("block_sparse_moe")


def granite_shared(c: Fields) -> Part:
    """The feed-forward that every token passes beside Granite's experts."""
    width = c.whole("shared_intermediate_size")
    return joined(c.whole("hidden_size"), width, ("input_linear", "output_linear")).under("shared_mlp")


def minimax_m2_norms(c: Fields, of: Heads) -> Part:
    """MiniMax-M2's norms over all heads at once."""
    return wide_norms(of) if c.flag("use_qk_norm", True) else NOTHING


def minimax_m2_experts(c: Fields, of: Experts) -> Part:
    """MiniMax-M2's router with its bias, and experts. Checkpoints have no blocks of further predictions."""
    hidden = c.whole("hidden_size")
    bias = vector("e_score_correction_bias", of.n, dtype="f32")
    return (router(hidden, of.n) + bias + gated_experts(hidden, of, MIXTRAL_NAMES)).under("block_sparse_moe")


def aria_experts(c: Fields, of: Experts) -> Part:
    """Aria's router, experts and those that every token passes."""
    hidden, shared = c.whole("hidden_size"), c.whole("moe_num_shared_experts", default=2)
    parts = (
        router(hidden, of.n, "router")
        + joined_experts(hidden, of, ("fc1.weight", "fc2.weight"))
        + gated(hidden, shared * of.width).under("shared_experts")
    )
    return parts.under("mlp")


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
    Attention(),
    llama4_dense,
    Sparse(routed_by_width, llama4_experts, llama4_sparse),
    slides=llama4_chunked,
    window="attention_chunk_size",
    absent=8192,
)

FAMILIES = {
    "gpt_oss": Family(
        Decoder(
            Attention(default_bias=True, inside=sinks),
            sparse=Sparse(routed_by_width, gpt_oss_experts),
            slides=lambda _c: but_every(2),
            absent=128,
        )
    ),
    "phi3": Family(Decoder(phi3_attention, joined_mlp, slides=lambda _c: everywhere)),
    "granitemoe": Family(Decoder(sparse=Sparse(routed_by_width, granite_experts))),
    "minimax_m2": Family(
        Decoder(
            Attention(inside=minimax_m2_norms),
            sparse=Sparse(routed_by_width, minimax_m2_experts),
        )
    ),
    "aria_text": Family(
        Decoder(sparse=Sparse(partial(routed, width="intermediate_size", count=("moe_num_experts",)), aria_experts))
    ),
    "llama4_text": Family(LLAMA4),
}
