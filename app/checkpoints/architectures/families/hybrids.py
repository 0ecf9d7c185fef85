"""Decoders whose layers, some or all, keep a state of fixed size instead of a cache that grows."""

from app.checkpoints.architectures.families.dense import QK, TWO, Dense, attended
from app.checkpoints.architectures.families.mixtures import granite_experts
from app.checkpoints.architectures.families.stack import (
    Family,
    Names,
    decoder,
    heads_of,
    mixes,
    n_experts,
    names_of,
    pattern_of,
)
from app.checkpoints.architectures.parts import (
    Delta,
    Mamba,
    Mamba2,
    attention,
    delta_net,
    gated_experts,
    gated_mlp,
    lightning_attention,
    mamba,
    mamba2,
    plain_mlp,
)
from app.checkpoints.architectures.reading import Config
from app.checkpoints.architectures.vision import towers
from app.checkpoints.architectures.weights import Weights
from app.checkpoints.tensors import Cache, CheckpointError

BACKBONE = Names("backbone", "embeddings", final="norm_f")


def _mamba(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    inner = c.count("intermediate_size", default=c.count("expand", default=2) * c.hidden)
    rank = c.count("time_step_rank", default=-(-c.hidden // 16))
    shape = Mamba(c.hidden, inner, c.count("state_size"), c.count("conv_kernel"), rank)
    conv_bias, bias = c.flag("use_conv_bias", default=True), c.flag("use_bias")

    def layer(_at: int, prefix: str) -> Cache:
        w.norm(f"{prefix}.norm", c.hidden)
        return mamba(w, f"{prefix}.mixer", shape, conv_bias=conv_bias, proj_bias=bias)

    return decoder(c, w, tied, layer, BACKBONE)


def _mamba2(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    shape = Mamba2(
        c.hidden,
        c.count("num_heads"),
        c.count("head_dim"),
        c.count("state_size"),
        c.count("n_groups"),
        c.count("conv_kernel"),
    )
    conv_bias, bias = c.flag("use_conv_bias", default=True), c.flag("use_bias")

    def layer(_at: int, prefix: str) -> Cache:
        w.norm(f"{prefix}.norm", c.hidden)
        return mamba2(w, f"{prefix}.mixer", shape, conv_bias=conv_bias, proj_bias=bias)

    return decoder(c, w, tied, layer, BACKBONE)


def _mamba_ssm(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    """The format of the mamba_ssm package, with its defaults; the table is padded to a multiple."""
    said = c.find("ssm_cfg") or {}
    if c.count("d_intermediate", default=0, least=0) or c.find("attn_layer_idx"):
        raise CheckpointError("mamba_ssm with attention or feed-forward layers is not known from its config")
    multiple = c.count("pad_vocab_size_multiple", default=8)
    padded = c.with_defaults({})
    rows = -(-c.vocab // multiple) * multiple
    inner = int(said.get("expand", 2)) * c.hidden
    two = said.get("layer") == "Mamba2"
    width = int(said.get("headdim", 64))
    second = Mamba2(c.hidden, inner // width, width, int(said.get("d_state", 128)), int(said.get("ngroups", 1)), 4)
    first = Mamba(c.hidden, inner, int(said.get("d_state", 16)), int(said.get("d_conv", 4)), -(-c.hidden // 16))

    def layer(_at: int, prefix: str) -> Cache:
        w.norm(f"{prefix}.norm", c.hidden)
        at = f"{prefix}.mixer"
        if two:
            return mamba2(w, at, second, conv_bias=True, proj_bias=False)
        return mamba(w, at, first, conv_bias=True, proj_bias=False)

    w.table("backbone.embedding", rows, c.hidden)
    caches = [layer(at, f"backbone.layers.{at}") for at in range(padded.n_layers)]
    w.norm("backbone.norm_f", c.hidden)
    if not tied:
        w.table("lm_head", rows, c.hidden)
    return caches


def _jamba(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    """Attention in one layer of a period, experts in some; each layer has one mixer and one feed-forward part."""
    rank = c.count("mamba_dt_rank", default=-(-c.hidden // 16))
    inner = c.count("mamba_expand", default=2) * c.hidden
    shape = Mamba(c.hidden, inner, c.count("mamba_d_state", default=16), c.count("mamba_d_conv", default=4), rank)
    conv_bias, bias = c.flag("mamba_conv_bias", default=True), c.flag("mamba_proj_bias")

    def falls(at: int, what: str, period: int, offset: int) -> bool:
        every = c.count(f"{what}_layer_period", default=period)
        return at % every == c.count(f"{what}_layer_offset", default=offset, least=0)

    def layer(at: int, prefix: str) -> Cache:
        for norm in ("input_layernorm", "pre_ff_layernorm"):
            w.norm(f"{prefix}.{norm}", c.hidden)
        ffn, width, count = f"{prefix}.feed_forward", c.count("intermediate_size"), n_experts(c)
        if count > 1 and falls(at, "expert", 2, 1):
            w.add(f"{ffn}.router.weight", count, c.hidden)
            gated_experts(w, ffn, count, c.hidden, width)
        else:
            gated_mlp(w, ffn, c.hidden, width)
        if falls(at, "attn", 8, 4):
            return attention(w, f"{prefix}.self_attn", heads_of(c))
        return mamba(w, f"{prefix}.mamba", shape, conv_bias=conv_bias, proj_bias=bias, norms=True)

    return decoder(c, w, tied, layer, Names(final="final_layernorm"))


def _mamba2_of(c: Config) -> Mamba2:
    """The mixer as Bamba and Granite describe it."""
    heads = c.count("mamba_n_heads")
    inner = c.count("mamba_expand", default=2) * c.hidden
    given = c.find("mamba_d_head")
    width = (
        c.count("mamba_d_head") if isinstance(given, int) else c.quotient(inner, heads, "inner size", "mamba_n_heads")
    )
    state, groups = c.count("mamba_d_state", default=256), c.count("mamba_n_groups", default=1)
    return Mamba2(c.hidden, heads, width, state, groups, c.count("mamba_d_conv", default=4))


def _bamba(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    attends, shape = c.indices("attn_layer_indices"), _mamba2_of(c)
    bias = c.flag("attention_bias")
    conv_bias, proj_bias = c.flag("mamba_conv_bias", default=True), c.flag("mamba_proj_bias")

    def layer(at: int, prefix: str) -> Cache:
        for norm in ("input_layernorm", "pre_ff_layernorm"):
            w.norm(f"{prefix}.{norm}", c.hidden)
        gated_mlp(w, f"{prefix}.feed_forward", c.hidden, c.count("intermediate_size"), bias=c.flag("mlp_bias"))
        if at in attends:
            return attention(w, f"{prefix}.self_attn", heads_of(c), qkv_bias=bias, out_bias=bias)
        return mamba2(w, f"{prefix}.mamba", shape, conv_bias=conv_bias, proj_bias=proj_bias)

    return decoder(c, w, tied, layer, Names(final="final_layernorm"))


def _granite_hybrid(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    kinds = c.listed("layer_types", c.n_layers)
    if kinds is None:
        raise CheckpointError("granitemoehybrid needs layer_types to tell mamba from attention")
    shape, shared, bias = _mamba2_of(c), c.count("shared_intermediate_size"), c.flag("attention_bias")
    conv_bias, proj_bias = c.flag("mamba_conv_bias", default=True), c.flag("mamba_proj_bias")

    def layer(at: int, prefix: str) -> Cache:
        for norm in TWO:
            w.norm(f"{prefix}.{norm}", c.hidden)
        w.linear(f"{prefix}.shared_mlp.input_linear", 2 * shared, c.hidden)
        w.linear(f"{prefix}.shared_mlp.output_linear", c.hidden, shared)
        if n_experts(c):
            granite_experts(c, w, prefix)
        if kinds[at] == "attention":
            return attention(w, f"{prefix}.self_attn", heads_of(c), qkv_bias=bias, out_bias=bias)
        return mamba2(w, f"{prefix}.mamba", shape, conv_bias=conv_bias, proj_bias=proj_bias)

    return decoder(c, w, tied, layer, Names())


def _nemotron_h(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    """Each letter of the pattern is a layer: M a mixer, * attention, - a network, E experts."""
    pattern = pattern_of(c, "hybrid_override_pattern", "M*-E")
    shape = Mamba2(
        c.hidden,
        c.count("mamba_num_heads"),
        c.count("mamba_head_dim"),
        c.count("ssm_state_size"),
        c.count("n_groups"),
        c.count("conv_kernel"),
    )
    conv_bias, proj_bias = c.flag("use_conv_bias", default=True), c.flag("mamba_proj_bias")
    bias, mlp_bias = c.flag("attention_bias"), c.flag("mlp_bias")

    def layer(at: int, prefix: str) -> Cache:
        w.norm(f"{prefix}.norm", c.hidden)
        own, kind = f"{prefix}.mixer", pattern[at]
        if kind == "M":
            return mamba2(w, own, shape, conv_bias=conv_bias, proj_bias=proj_bias)
        if kind == "*":
            return attention(w, own, heads_of(c), qkv_bias=bias, out_bias=bias)
        if kind == "-":
            inner = c.count("intermediate_size")
            plain_mlp(w, f"{own}.up_proj", f"{own}.down_proj", c.hidden, inner, bias=mlp_bias)
        else:
            _nemotron_experts(c, w, own, bias=mlp_bias)
        return Cache()

    return decoder(c, w, tied, layer, BACKBONE)


def _nemotron_experts(c: Config, w: Weights, at: str, *, bias: bool) -> None:
    count, inner = n_experts(c), c.count("moe_intermediate_size")
    w.add(f"{at}.gate.weight", count, c.hidden)
    w.add(f"{at}.gate.e_score_correction_bias", count, dtype="f32")
    w.experts(f"{at}.experts.up_proj", count, inner, c.hidden)
    w.experts(f"{at}.experts.down_proj", count, c.hidden, inner)
    shared = c.count("moe_shared_expert_intermediate_size", default=0, least=0)
    if shared:
        up, down = f"{at}.shared_experts.up_proj", f"{at}.shared_experts.down_proj"
        plain_mlp(w, up, down, c.hidden, shared, bias=bias)


def _qwen_next(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    """Three layers of gated delta net, then one of gated attention."""
    every = c.count("full_attention_interval", default=4)
    kinds = c.listed("layer_types", c.n_layers) or [
        "full_attention" if (at + 1) % every == 0 else "linear_attention" for at in range(c.n_layers)
    ]
    delta = Delta(
        c.hidden,
        c.count("linear_num_key_heads"),
        c.count("linear_num_value_heads"),
        c.count("linear_key_head_dim"),
        c.count("linear_value_head_dim"),
        c.count("linear_conv_kernel_dim"),
    )
    heads, fused, moe = heads_of(c), c.model_type.startswith("qwen3_next"), n_experts(c) > 0

    def layer(at: int, prefix: str) -> Cache:
        for norm in TWO:
            w.norm(f"{prefix}.{norm}", c.hidden)
        _qwen_network(c, w, f"{prefix}.mlp", experts=moe and mixes(c, at))
        if kinds[at] != "full_attention":
            return delta_net(w, f"{prefix}.linear_attn", delta, fused=fused)
        own = f"{prefix}.self_attn"
        for norm in QK:
            w.norm(f"{own}.{norm}", heads.width)
        return attention(w, own, heads, gated=c.flag("attn_output_gate", default=True))

    towers(c, w)
    return decoder(c, w, tied, layer, names_of(c))


def _qwen_network(c: Config, w: Weights, at: str, *, experts: bool) -> None:
    if not experts:
        gated_mlp(w, at, c.hidden, c.count("intermediate_size"))
        return
    count = n_experts(c)
    w.add(f"{at}.gate.weight", count, c.hidden)
    gated_experts(w, at, count, c.hidden, c.count("moe_intermediate_size"))
    gated_mlp(w, f"{at}.shared_expert", c.hidden, c.count("shared_expert_intermediate_size"))
    w.add(f"{at}.shared_expert_gate.weight", 1, c.hidden)


def _minimax(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    """Seven layers of lightning attention, then one of softmax attention, each with experts."""
    listed = c.listed("layer_types", c.n_layers) or c.listed("attn_type_list", c.n_layers)
    kinds = listed or [(at + 1) % 8 == 0 for at in range(c.n_layers)]
    softmax = ("full_attention", 1, True)
    kind = Dense(qkv_bias=False, out_bias=False)

    def layer(at: int, prefix: str) -> Cache:
        moe, count = f"{prefix}.block_sparse_moe", n_experts(c)
        w.add(f"{moe}.gate.weight", count, c.hidden)
        gated_experts(w, moe, count, c.hidden, c.count("intermediate_size"))
        if kinds[at] in softmax:
            return attended(c, w, prefix, kind, None)
        for norm in TWO:
            w.norm(f"{prefix}.{norm}", c.hidden)
        return lightning_attention(w, f"{prefix}.self_attn", heads_of(c))

    return decoder(c, w, tied, layer, Names())


HYBRIDS = {
    "mamba": Family(_mamba, tied=True),
    "falcon_mamba": Family(_mamba, tied=True),
    "mamba2": Family(_mamba2),
    "mamba_ssm": Family(_mamba_ssm, tied=True),
    "jamba": Family(_jamba),
    "bamba": Family(_bamba),
    "granitemoehybrid": Family(_granite_hybrid),
    "nemotron_h": Family(_nemotron_h),
    "qwen3_next": Family(_qwen_next),
    "qwen3_5": Family(_qwen_next),
    "qwen3_5_moe": Family(_qwen_next),
    "minimax": Family(_minimax),
    "minimax_m1": Family(_minimax),
    "minimax_text_01": Family(_minimax),
}
"""By ``model_type``, a ``_text`` behind it left out."""
