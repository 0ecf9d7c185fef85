"""Qwen, from the first to the hybrids of delta nets and attention."""

from dataclasses import replace

from app.checkpoints.architectures.assembly import Family, Layout, Model, decoder
from app.checkpoints.architectures.decoders import Attention, Chooses, Decoder, Sparse
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import Heads, fused, head_norms
from app.checkpoints.architectures.parts.feedforward import (
    Experts,
    gated_experts,
    joined_experts,
    plain,
    routed,
    router,
    shared_expert,
)
from app.checkpoints.architectures.parts.windows import nowhere
from app.checkpoints.architectures.weights import Part, linear, norm


def slides(c: Fields) -> Chooses:
    """Layers from ``max_window_layers`` on slide, if any do."""
    first = c.whole("max_window_layers", default=28, least=0)
    return (lambda layer: layer >= first) if c.flag("use_sliding_window") else nowhere


def is_sparse(c: Fields) -> Chooses:
    """Every ``decoder_sparse_step``-th layer has experts, but those that are dense by name."""
    step = c.whole("decoder_sparse_step", default=1)
    dense = frozenset(c.items("mlp_only_layers", int) or ())
    return lambda layer: layer not in dense and (layer + 1) % step == 0


def experts_of(c: Fields) -> Experts:
    """The config's experts."""
    return routed(c, "moe_intermediate_size")


def sparse_mlp(c: Fields, of: Experts) -> Part:
    """A router and experts, and an expert for all where the config has one."""
    hidden = c.whole("hidden_size")
    shared = shared_expert(hidden, c.optional("shared_expert_intermediate_size"))
    return (router(hidden, of.n) + gated_experts(hidden, of) + shared).under("mlp")


def joined_sparse_mlp(c: Fields, of: Experts) -> Part:
    """The same where the checkpoint has the experts in one piece."""
    hidden = c.whole("hidden_size")
    shared = shared_expert(hidden, c.optional("shared_expert_intermediate_size"))
    return (router(hidden, of.n) + joined_experts(hidden, of) + shared).under("mlp")


def first_qwen(c: Fields) -> Model:
    """The first Qwen; its ``intermediate_size`` is that of both halves together."""
    hidden, n = c.whole("hidden_size"), c.layers("num_hidden_layers")
    count = c.whole("num_attention_heads")
    of = Heads(count, count, c.whole("kv_channels", default=128))
    width = c.share("intermediate_size", c.whole("intermediate_size"), "the two halves", 2)
    bias = not c.flag("no_bias", True)
    layer = (
        norm("ln_1", hidden)
        + fused(hidden, of, ("c_attn", "c_proj"), bias=True, out_bias=bias).under("attn")
        + norm("ln_2", hidden)
        + (linear("w1", hidden, width, bias=bias) + plain(hidden, width, ("w2", "c_proj"), bias=bias)).under("mlp")
    )
    layout = Layout("transformer.wte", "transformer.h", "transformer.ln_f", "lm_head")
    return decoder(c, (layer,) * n, layout=layout)


def _decoder(attention: Attention, sparse: bool = False, joined: bool = False) -> Decoder:  # noqa: FBT001, FBT002
    part = joined_sparse_mlp if joined else sparse_mlp
    return Decoder(
        attention, slides=slides, absent=4096, sparse=Sparse(experts_of, part, is_sparse) if sparse else None
    )


_BIASED = Attention(qkv_bias=True, out_bias=False)
_NORMED = Attention(inside=lambda _c, of: head_norms(of))

FAMILIES = {
    "qwen": Family(first_qwen),
    "qwen2": Family(_decoder(_BIASED)),
    "qwen2_moe": Family(_decoder(_BIASED, sparse=True)),
    "qwen3": Family(_decoder(replace(_NORMED, dim=128))),
    "qwen3_moe": Family(_decoder(_NORMED, sparse=True)),
    "qwen3_vl_text": Family(_decoder(replace(_NORMED, dim=128))),
    "qwen3_vl_moe_text": Family(_decoder(_NORMED, sparse=True, joined=True)),
}
