"""Hybrids of attention and Mamba: Jamba, Bamba, Granite 4, Nemotron-H."""

from collections.abc import Callable

from app.checkpoints.architectures.assembly import Family, Layout, Model, decoder
from app.checkpoints.architectures.families.granite import granite_experts, granite_shared
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import grouped, heads
from app.checkpoints.architectures.parts.feedforward import (
    Experts,
    balance,
    gated,
    gated_experts,
    plain,
    routed,
    router,
)
from app.checkpoints.architectures.parts.recurrent import Mamba, mamba1, mamba2
from app.checkpoints.architectures.weights import NOTHING, Part, experts, norm, stack

MAMBA, ATTENTION = "mamba", "attention"
ENDING = Layout(norm="model.final_layernorm")


def mamba2_sizes(c: Fields) -> Mamba:
    """Sizes of a Mamba-2 layer as Granite's and Bamba's configs give them."""
    hidden = c.whole("hidden_size")
    inner = c.whole("mamba_expand", default=2) * hidden
    n = c.whole("mamba_n_heads")
    dim = c.find("mamba_d_head")
    if dim not in (None, "auto") and c.whole("mamba_d_head") * n != inner:
        raise c.wrong("mamba_d_head", f"times mamba_n_heads is not the {inner} of mamba_expand x hidden_size")
    return Mamba(
        inner=inner,
        state=c.whole("mamba_d_state", default=256),
        conv=c.whole("mamba_d_conv", default=4),
        groups=c.whole("mamba_n_groups", default=1),
        n_heads=n,
        bias=c.flag("mamba_proj_bias"),
        conv_bias=c.flag("mamba_conv_bias", True),
    )


def attention(c: Fields) -> Part:
    """Attention of grouped heads."""
    bias = c.flag("attention_bias")
    return grouped(c.whole("hidden_size"), heads(c), bias=bias, out_bias=bias).under("self_attn")


def mixer(c: Fields, kind: str) -> Part:
    """Attention or Mamba-2."""
    if kind == ATTENTION:
        return attention(c)
    return mamba2(c.whole("hidden_size"), mamba2_sizes(c)).under("mamba")


def granite(c: Fields) -> Model:
    """Granite 4: one or the other, then experts if any and a feed-forward for every token."""
    hidden, n = c.whole("hidden_size"), c.layers("num_hidden_layers")
    kinds = c.items("layer_types", str, n) or (MAMBA,) * n
    if not set(kinds) <= {MAMBA, ATTENTION}:
        raise c.wrong("layer_types", f"has other types than {MAMBA} and {ATTENTION}")
    of = routed(c, "intermediate_size") if c.optional("num_local_experts") else None

    def layer(kind: str) -> Part:
        feeds = granite_shared(c) + (granite_experts(c, of) if of else NOTHING)
        return norm("input_layernorm", hidden) + mixer(c, kind) + norm("post_attention_layernorm", hidden) + feeds

    return decoder(c, stack(kinds, layer), experts=of)


def bamba(c: Fields) -> Model:
    """Bamba: a few layers of attention by index."""
    hidden, n = c.whole("hidden_size"), c.layers("num_hidden_layers")
    chosen = frozenset(c.items("attn_layer_indices", int) or ())
    kinds = (ATTENTION if layer in chosen else MAMBA for layer in range(n))

    def layer(kind: str) -> Part:
        feeds = gated(hidden, c.whole("intermediate_size"), bias=c.flag("mlp_bias")).under("feed_forward")
        return norm("input_layernorm", hidden) + mixer(c, kind) + norm("pre_ff_layernorm", hidden) + feeds

    return decoder(c, stack(kinds, layer), layout=ENDING)


def jamba(c: Fields) -> Model:
    """Jamba: attention and experts each every so many layers (arXiv 2403.19887)."""
    n = c.layers("num_hidden_layers")
    attends = _periodic(c, "attn_layer", 8, 4)
    sparse = _periodic(c, "expert_layer", 2, 1)
    of = routed(c, "intermediate_size")
    several = of.n > 1
    kinds = ((attends(layer), sparse(layer) and several) for layer in range(n))
    layers = stack(kinds, lambda kind: jamba_layer(c, of, *kind))
    return decoder(c, layers, experts=of if several else None, layout=ENDING)


def jamba_layer(c: Fields, of: Experts, attends: bool, sparse: bool) -> Part:  # noqa: FBT001 a kind
    """One layer of Jamba, whose Mamba has norms on what its state reads."""
    hidden = c.whole("hidden_size")
    several = router(hidden, of.n, "router") + gated_experts(hidden, of)
    feeds = several if sparse else gated(hidden, of.width)
    mixes = attention(c) if attends else jamba_mamba(c, hidden).under("mamba")
    return norm("input_layernorm", hidden) + mixes + norm("pre_ff_layernorm", hidden) + feeds.under("feed_forward")


def jamba_mamba(c: Fields, hidden: int) -> Part:
    """Jamba's Mamba."""
    rank = c.find("mamba_dt_rank")
    of = Mamba(
        inner=c.whole("mamba_expand", default=2) * hidden,
        state=c.whole("mamba_d_state", default=16),
        conv=c.whole("mamba_d_conv", default=4),
        dt_rank=-(-hidden // 16) if rank in (None, "auto") else c.whole("mamba_dt_rank"),
        bias=c.flag("mamba_proj_bias"),
        conv_bias=c.flag("mamba_conv_bias", True),
    )
    norms = norm("dt_layernorm", of.dt_rank) + norm("b_layernorm", of.state) + norm("c_layernorm", of.state)
    return mamba1(hidden, of) + norms


def _periodic(c: Fields, what: str, period: int, offset: int) -> Callable[[int], bool]:
    period = c.whole(f"{what}_period", default=period)
    offset = c.whole(f"{what}_offset", default=offset, least=0)
    return lambda layer: layer % period == offset


def nemotron_h(c: Fields) -> Model:
    """Nemotron-H: Mamba-2, attention, feed-forward and experts are layers of their own (arXiv 2504.03624)."""
    n = c.layers("num_hidden_layers")
    pattern = c.word("hybrid_override_pattern")
    if len(pattern) != n:
        raise c.wrong("hybrid_override_pattern", f"has {len(pattern)} letters for {n} layers")
    of = routed(c, "moe_intermediate_size", count=("n_routed_experts",)) if "E" in pattern else None
    if not set(pattern) <= set("M*-E"):
        raise c.wrong("hybrid_override_pattern", "has other letters than M, *, - and E")
    hidden = c.whole("hidden_size")
    layers = stack(pattern, lambda kind: norm("norm", hidden) + nemotron_mixer(c, kind, of).under("mixer"))
    return decoder(c, layers, experts=of, layout=NEMOTRON)


NEMOTRON = Layout("backbone.embeddings", "backbone.layers", "backbone.norm_f", "lm_head")
UP_DOWN = ("up_proj", "down_proj")


def nemotron_mixer(c: Fields, kind: str, of: Experts | None) -> Part:
    """What a layer of Nemotron-H is."""
    hidden, bias = c.whole("hidden_size"), c.flag("mlp_bias")
    if kind == "M":
        return mamba2(hidden, nemotron_mamba(c))
    if kind == "*":
        biased = c.flag("attention_bias")
        return grouped(hidden, heads(c, c.optional("attention_head_dim") or 128), bias=biased, out_bias=biased)
    if of is None or kind == "-":
        return plain(hidden, c.whole("intermediate_size"), UP_DOWN, bias=bias)
    return nemotron_experts(c, of)


def nemotron_mamba(c: Fields) -> Mamba:
    """Nemotron-H's Mamba-2; its width is that of its heads."""
    n = c.whole("mamba_num_heads")
    return Mamba(
        inner=n * c.whole("mamba_head_dim"),
        state=c.whole("ssm_state_size"),
        conv=c.whole("conv_kernel"),
        groups=c.whole("n_groups"),
        n_heads=n,
        bias=c.flag("use_bias"),
        conv_bias=c.flag("use_conv_bias", True),
    )


def nemotron_experts(c: Fields, of: Experts) -> Part:
    """Nemotron-H's experts, which have no gate."""
    if c.optional("moe_latent_size"):
        raise c.wrong("moe_latent_size", "asks for experts on a latent, whose tensors aren't known here")
    hidden = c.whole("hidden_size")
    parts = router(hidden, of.n) + balance(of.n)
    parts += experts("experts.up_proj.weight", of.n, hidden, of.width)
    parts += experts("experts.down_proj.weight", of.n, of.width, hidden)
    shared = c.whole("n_shared_experts", default=0, least=0)
    if shared:
        width = c.whole("moe_shared_expert_intermediate_size")
        parts += plain(hidden, width, UP_DOWN, bias=c.flag("mlp_bias")).under("shared_experts")
    return parts


FAMILIES = {
    "granitemoehybrid": Family(granite),
    "bamba": Family(bamba),
    "jamba": Family(jamba),
    "nemotron_h": Family(nemotron_h),
}
