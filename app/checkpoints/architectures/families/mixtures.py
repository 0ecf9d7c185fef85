"""Decoders with routed experts: Mixtral, Qwen's, DeepSeek's and their kin."""

from collections.abc import Callable
from functools import partial

from app.checkpoints.architectures.families.dense import FOUR, QK, TWO, Dense, attended
from app.checkpoints.architectures.families.stack import (
    Family,
    Names,
    decoder,
    heads_of,
    mixes,
    n_experts,
    names_of,
    windows_of,
)
from app.checkpoints.architectures.parts import (
    Heads,
    Latent,
    attention,
    gated_experts,
    gated_mlp,
    latent_attention,
)
from app.checkpoints.architectures.reading import Config
from app.checkpoints.architectures.vision import towers
from app.checkpoints.architectures.weights import Weights
from app.checkpoints.tensors import Cache, CheckpointError

Network = Callable[[Config, Weights, str, int], None]
"""Adds a layer's feed-forward part under its prefix."""


def _mixture(kind: Dense, network: Network, c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001
    windows = windows_of(c, kind.slides)

    def layer(at: int, prefix: str) -> Cache:
        cache = attended(c, w, prefix, kind, windows[at])
        network(c, w, prefix, at)
        return cache

    towers(c, w)
    return decoder(c, w, tied, layer, names_of(c, kind.nested))


def _experts(c: Config, w: Weights, at: str, inner: int, *, correction: bool = False) -> None:
    """A router and its experts; ``correction``: a float32 bias per expert that only the choice takes into account."""
    count = n_experts(c)
    w.add(f"{at}.gate.weight", count, c.hidden)
    if correction:
        w.add(f"{at}.gate.e_score_correction_bias", count, dtype="f32")
    gated_experts(w, at, count, c.hidden, inner)


def _mixtral(c: Config, w: Weights, prefix: str, _at: int) -> None:
    _experts(c, w, f"{prefix}.block_sparse_moe", c.count("intermediate_size"))


def _qwen(c: Config, w: Weights, prefix: str, at: int) -> None:
    mlp = f"{prefix}.mlp"
    if not mixes(c, at):
        gated_mlp(w, mlp, c.hidden, c.count("intermediate_size"))
        return
    _experts(c, w, mlp, c.count("moe_intermediate_size"))
    shared = c.count("shared_expert_intermediate_size", default=0, least=0)
    if shared:
        gated_mlp(w, f"{mlp}.shared_expert", c.hidden, shared)
        w.add(f"{mlp}.shared_expert_gate.weight", 1, c.hidden)


def _olmoe(c: Config, w: Weights, prefix: str, _at: int) -> None:
    _experts(c, w, f"{prefix}.mlp", c.count("intermediate_size"))


def _granite(c: Config, w: Weights, prefix: str, _at: int) -> None:
    granite_experts(c, w, prefix)


def granite_experts(c: Config, w: Weights, prefix: str) -> None:
    """Granite's experts: gate and up in one tensor."""
    at, count, inner = f"{prefix}.block_sparse_moe", n_experts(c), c.count("intermediate_size")
    w.experts(f"{at}.input_linear", count, 2 * inner, c.hidden)
    w.experts(f"{at}.output_linear", count, c.hidden, inner)
    w.add(f"{at}.router.layer.weight", count, c.hidden)


def _minimax_m2(c: Config, w: Weights, prefix: str, _at: int) -> None:
    at = f"{prefix}.block_sparse_moe"
    _experts(c, w, at, c.count("intermediate_size"))
    if c.flag("use_routing_bias"):
        w.add(f"{at}.e_score_correction_bias", n_experts(c), dtype="f32")


def deepseek_network(c: Config, w: Weights, prefix: str, at: int) -> None:
    """One network in the first layers, then experts beside shared ones."""
    mlp = f"{prefix}.mlp"
    if not mixes(c, at):
        gated_mlp(w, mlp, c.hidden, c.count("intermediate_size"))
        return
    inner = c.count("moe_intermediate_size")
    correction = c.find("topk_method") == "noaux_tc" or c.model_type.startswith("glm4_moe")
    _experts(c, w, mlp, inner, correction=correction)
    shared = c.count("n_shared_experts", default=0, least=0)
    if shared:
        gated_mlp(w, f"{mlp}.shared_experts", c.hidden, inner * shared)


def _deepseek(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    latent = Latent(
        c.hidden,
        c.heads,
        None if c.find("q_lora_rank") is None else c.count("q_lora_rank"),
        c.count("kv_lora_rank"),
        c.count("qk_nope_head_dim"),
        c.count("qk_rope_head_dim"),
        c.count("v_head_dim"),
    )
    indexed = c.find("index_head_dim") is not None

    def layer(at: int, prefix: str) -> Cache:
        for norm in TWO:
            w.norm(f"{prefix}.{norm}", c.hidden)
        cache = latent_attention(w, f"{prefix}.self_attn", latent, bias=c.flag("attention_bias"))
        deepseek_network(c, w, prefix, at)
        return _indexed(c, w, f"{prefix}.self_attn.indexer", cache) if indexed else cache

    caches = decoder(c, w, tied, layer, Names())
    predictions(c, w, layer)
    return caches


def _indexed(c: Config, w: Weights, at: str, cache: Cache) -> Cache:
    """DeepSeek-V3.2's lightning indexer: chooses which tokens attention sees, and caches a key of its own."""
    width, heads = c.count("index_head_dim"), c.count("index_n_heads")
    w.linear(f"{at}.wq_b", heads * width, c.count("q_lora_rank"))
    w.linear(f"{at}.wk", width, c.hidden)
    w.norm(f"{at}.k_norm", width, bias=True)
    w.add(f"{at}.weights_proj.weight", heads, c.hidden)
    return Cache(cache.k_elements + width)


def predictions(c: Config, w: Weights, layer: Callable[[int, str], Cache]) -> None:
    """Blocks that predict further tokens (DeepSeek-V3, section 2.2), behind the last layer.

    A layer each, with a projection of both inputs and copies of the tables.
    """
    for at in range(c.n_layers, c.n_layers + c.count("num_nextn_predict_layers", default=0, least=0)):
        prefix = f"model.layers.{at}"
        layer(at, prefix)
        for name in ("enorm", "hnorm", "shared_head.norm"):
            w.norm(f"{prefix}.{name}", c.hidden)
        w.add(f"{prefix}.eh_proj.weight", c.hidden, 2 * c.hidden)
        w.table(f"{prefix}.embed_tokens", c.vocab, c.hidden)
        w.table(f"{prefix}.shared_head.head", c.vocab, c.hidden)


def _glm4(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    kind = Dense(out_bias=False, qk=QK if c.flag("use_qk_norm") else None)

    def layer(at: int, prefix: str) -> Cache:
        cache = attended(c, w, prefix, kind, None)
        deepseek_network(c, w, prefix, at)
        return cache

    caches = decoder(c, w, tied, layer, Names())
    predictions(c, w, layer)
    return caches


def _gpt_oss(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    count, inner = n_experts(c), c.count("intermediate_size")
    windows = windows_of(c, lambda at: at % 2 == 0)
    kind = Dense(qkv_bias=True, out_bias=True)

    def layer(at: int, prefix: str) -> Cache:
        cache = attended(c, w, prefix, kind, windows[at])
        w.add(f"{prefix}.self_attn.sinks", c.heads)
        mlp = f"{prefix}.mlp"
        w.add(f"{mlp}.router.weight", count, c.hidden)
        w.add(f"{mlp}.router.bias", count)
        for name, out, into in (("gate_up_proj", 2 * inner, c.hidden), ("down_proj", c.hidden, inner)):
            w.experts(f"{mlp}.experts.{name}", count, out, into)
            w.add(f"{mlp}.experts.{name}_bias", count, out)
        return cache

    return decoder(c, w, tied, layer, Names())


def _llama4(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    """Every ``interleave_moe_layer_step``-th layer has experts and a shared one; three of four see a chunk only."""
    step = c.count("interleave_moe_layer_step", default=1)
    everywhere = c.listed("no_rope_layers", c.n_layers) or [(at + 1) % 4 for at in range(c.n_layers)]
    chunk = c.count("attention_chunk_size", default=8192)
    fused = not w.storage.dtype  # quantised checkpoints keep each expert's projections apart

    def layer(at: int, prefix: str) -> Cache:
        for norm in TWO:
            w.norm(f"{prefix}.{norm}", c.hidden)
        ffn = f"{prefix}.feed_forward"
        if (at + 1) % step:
            gated_mlp(w, ffn, c.hidden, c.count("intermediate_size_mlp"))
        else:
            _llama4_experts(c, w, ffn, fused=fused)
        return attention(w, f"{prefix}.self_attn", heads_of(c), window=chunk if everywhere[at] else None)

    return decoder(c, w, tied, layer, Names("language_model.model", head="language_model.lm_head"))


def _llama4_experts(c: Config, w: Weights, at: str, *, fused: bool) -> None:
    count, inner = n_experts(c), c.count("intermediate_size")
    w.add(f"{at}.router.weight", count, c.hidden)
    gated_mlp(w, f"{at}.shared_expert", c.hidden, inner)
    if fused:
        w.experts(f"{at}.experts.gate_up_proj", count, 2 * inner, c.hidden)
        w.experts(f"{at}.experts.down_proj", count, c.hidden, inner)
    else:
        gated_experts(w, at, count, c.hidden, inner)


def _aria(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    count, inner = n_experts(c), c.count("intermediate_size")
    shared = inner * c.count("moe_num_shared_experts", default=2)

    def layer(_at: int, prefix: str) -> Cache:
        for norm in TWO:
            w.norm(f"{prefix}.{norm}", c.hidden)
        mlp = f"{prefix}.mlp"
        w.add(f"{mlp}.router.weight", count, c.hidden)
        w.experts(f"{mlp}.experts.fc1", count, 2 * inner, c.hidden)
        w.experts(f"{mlp}.experts.fc2", count, c.hidden, inner)
        gated_mlp(w, f"{mlp}.shared_experts", c.hidden, shared)
        return attention(w, f"{prefix}.self_attn", heads_of(c))

    towers(c, w)
    return decoder(c, w, tied, layer, Names("language_model.model", head="language_model.lm_head"))


def _gemma4(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    """A network and experts side by side; layers that see everything have wider heads, and keys that are values too."""
    for key in ("num_kv_shared_layers", "hidden_size_per_layer_input"):
        if c.count(key, default=0, least=0):
            raise CheckpointError(f"gemma4 with {key} is not known; only the files tell its bytes")
    windows = windows_of(c)
    narrow = heads_of(c)
    wide = Heads(
        c.hidden,
        c.heads,
        c.count("num_global_key_value_heads", default=narrow.keys),
        c.count("global_head_dim", default=narrow.width),
    )
    shares = c.flag("attention_k_eq_v")

    def layer(at: int, prefix: str) -> Cache:
        sliding = windows[at] is not None
        heads, own = (narrow if sliding else wide), f"{prefix}.self_attn"
        for norm in FOUR:
            w.norm(f"{prefix}.{norm}", c.hidden)
        w.add(f"{prefix}.layer_scalar", 1)
        for norm in QK:
            w.norm(f"{own}.{norm}", heads.width)
        gated_mlp(w, f"{prefix}.mlp", c.hidden, c.count("intermediate_size"))
        if c.flag("enable_moe_block"):
            _gemma4_experts(c, w, prefix)
        return attention(w, own, heads, values=sliding or not shares, window=windows[at])

    return decoder(c, w, tied, layer, names_of(c))


def _gemma4_experts(c: Config, w: Weights, prefix: str) -> None:
    count, inner = n_experts(c), c.count("moe_intermediate_size")
    for norm in ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"):
        w.norm(f"{prefix}.{norm}", c.hidden)
    w.add(f"{prefix}.router.proj.weight", count, c.hidden)
    w.add(f"{prefix}.router.scale", c.hidden)
    w.add(f"{prefix}.router.per_expert_scale", count)
    w.experts(f"{prefix}.experts.gate_up_proj", count, 2 * inner, c.hidden)
    w.experts(f"{prefix}.experts.down_proj", count, c.hidden, inner)


def _of(network: Network, *, tied: bool = False, **kind: object) -> Family:
    return Family(partial(_mixture, Dense(**kind), network), tied)  # type: ignore[arg-type]  # fields of Dense


MIXTURES = {
    "mixtral": _of(_mixtral, qkv_bias=False, out_bias=False, slides=lambda _: True),
    "qwen2_moe": _of(_qwen, qkv_bias=True, out_bias=False),
    "qwen3_moe": _of(_qwen, qk=QK),
    "qwen3_vl_moe": _of(_qwen, qk=QK),
    "olmoe": _of(_olmoe, qk=QK, wide=True),
    "granitemoe": _of(_granite),
    "minimax_m2": _of(_minimax_m2, qkv_bias=False, out_bias=False, qk=QK, wide=True),
    "deepseek_v2": Family(_deepseek),
    "deepseek_v3": Family(_deepseek),
    "deepseek_v32": Family(_deepseek),
    "kimi_k2": Family(_deepseek),
    "glm4_moe": Family(_glm4),
    "gpt_oss": Family(_gpt_oss),
    "llama4": Family(_llama4),
    "aria": Family(_aria),
    "gemma4": Family(_gemma4, tied=True),
}
"""By ``model_type``, a ``_text`` behind it left out."""
