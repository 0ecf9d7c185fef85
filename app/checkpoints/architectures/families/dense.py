"""Decoders of attention and a feed-forward network: Llama and what grew out of it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from app.checkpoints.architectures.families.stack import Family, Names, decoder, heads_of, names_of, windows_of
from app.checkpoints.architectures.parts import Heads, attention, fused_attention, gated_mlp, plain_mlp
from app.checkpoints.architectures.reading import Config
from app.checkpoints.architectures.vision import towers
from app.checkpoints.architectures.weights import Weights
from app.checkpoints.tensors import Cache

TWO = ("input_layernorm", "post_attention_layernorm")
FOUR = (*TWO, "pre_feedforward_layernorm", "post_feedforward_layernorm")
AFTER = ("post_attention_layernorm", "post_feedforward_layernorm")


@dataclass(frozen=True, slots=True)
class Dense:
    """How a member differs from Llama. None: as the config's ``attention_bias`` or ``mlp_bias`` says.

    ``qk`` names the norms of queries and keys; they are as wide as a head, or ``wide`` as all of them. ``slides`` tells
    which layers have the window.
    """

    qkv_bias: bool | None = None
    out_bias: bool | None = None
    mlp_bias: bool | None = None
    norms: tuple[str, ...] = TWO
    qk: tuple[str, str] | None = None
    wide: bool = False
    sub_norms: bool = False
    slides: Callable[[int], bool] | None = None
    nested: str = "model.language_model"


def attended(c: Config, w: Weights, at: str, kind: Dense, window: int | None) -> Cache:
    """A layer's attention with its norms."""
    heads = heads_of(c)
    bias = c.flag("attention_bias")
    qkv_bias = bias if kind.qkv_bias is None else kind.qkv_bias
    out_bias = bias if kind.out_bias is None else kind.out_bias
    for norm in kind.norms:
        w.norm(f"{at}.{norm}", c.hidden)
    cache = attention(w, f"{at}.self_attn", heads, qkv_bias=qkv_bias, out_bias=out_bias, window=window)
    if kind.qk is not None:
        _qk_norms(w, at, heads, kind.qk, wide=kind.wide)
    return cache


def _qk_norms(w: Weights, at: str, heads: Heads, names: tuple[str, str], *, wide: bool) -> None:
    w.norm(f"{at}.self_attn.{names[0]}", heads.queries * heads.width if wide else heads.width)
    w.norm(f"{at}.self_attn.{names[1]}", heads.kv if wide else heads.width)


def _dense(kind: Dense, c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    windows = windows_of(c, kind.slides)
    inner = c.count("intermediate_size")
    mlp_bias = c.flag("mlp_bias") if kind.mlp_bias is None else kind.mlp_bias

    def layer(at: int, prefix: str) -> Cache:
        cache = attended(c, w, prefix, kind, windows[at])
        gated_mlp(w, f"{prefix}.mlp", c.hidden, inner, bias=mlp_bias)
        if kind.sub_norms:
            w.norm(f"{prefix}.self_attn.attn_sub_norm", c.hidden)
            w.norm(f"{prefix}.mlp.ffn_sub_norm", inner)
        return cache

    names = names_of(c, kind.nested)
    towers(c, w)
    caches = decoder(c, w, tied, layer, names)
    _predictions(c, w, kind, inner)
    _rotary_buffers(c, w, names.root)
    return caches


def _predictions(c: Config, w: Weights, kind: Dense, inner: int) -> None:
    """MiMo's blocks that predict further tokens: a layer each, two norms and a projection of both inputs."""
    if c.model_type != "mimo":
        return
    for at in range(c.count("num_nextn_predict_layers", default=0, least=0)):
        prefix = f"model.mtp_layers.{at}"
        attended(c, w, prefix, kind, None)
        gated_mlp(w, f"{prefix}.mlp", c.hidden, inner)
        for name in ("token_layernorm", "hidden_layernorm", "final_layernorm"):
            w.norm(f"{prefix}.{name}", c.hidden)
        w.linear(f"{prefix}.input_proj", c.hidden, 2 * c.hidden)


def _rotary_buffers(c: Config, w: Weights, root: str) -> None:
    """Llama's checkpoints of 2023 also store each layer's rotary frequencies."""
    if c.model_type == "llama":
        for at in range(c.n_layers):
            w.buffer(f"{root}.layers.{at}.self_attn.rotary_emb.inv_freq", c.head_dim // 2)


def _phi3(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    windows = windows_of(c, lambda _: True)

    def layer(at: int, prefix: str) -> Cache:
        for norm in TWO:
            w.norm(f"{prefix}.{norm}", c.hidden)
        inner = c.count("intermediate_size")
        w.linear(f"{prefix}.mlp.gate_up_proj", 2 * inner, c.hidden)
        w.linear(f"{prefix}.mlp.down_proj", c.hidden, inner)
        qkv, out = f"{prefix}.self_attn.qkv_proj", f"{prefix}.self_attn.o_proj"
        return fused_attention(w, qkv, out, heads_of(c), window=windows[at])

    return decoder(c, w, tied, layer, Names())


def _qwen(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    """The first Qwen: ``intermediate_size`` counts both halves of the gated network."""
    inner = c.quotient(c.count("intermediate_size"), 2, "intermediate_size", "two")
    bias = not c.flag("no_bias", default=True)
    heads = Heads(c.hidden, c.heads, c.heads, c.count("kv_channels", default=c.hidden // c.heads))

    def layer(_at: int, prefix: str) -> Cache:
        for norm in ("ln_1", "ln_2"):
            w.norm(f"{prefix}.{norm}", c.hidden)
        for name in ("w1", "w2"):
            w.linear(f"{prefix}.mlp.{name}", inner, c.hidden, bias=bias)
        w.linear(f"{prefix}.mlp.c_proj", c.hidden, inner, bias=bias)
        qkv, out = f"{prefix}.attn.c_attn", f"{prefix}.attn.c_proj"
        return fused_attention(w, qkv, out, heads, qkv_bias=True, out_bias=bias)

    return decoder(c, w, tied, layer, Names("transformer", "wte", "h", "ln_f"))


def _falcon(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    """The new decoder architecture shares keys among groups of heads, the old one among all or none.

    Its checkpoints store the head although it is the table.
    """
    if tied:
        w.buffer("lm_head.weight", c.vocab, c.hidden, dtype=w.dtype)
    new, bias = c.flag("new_decoder_architecture"), c.flag("bias")
    one = 1 if c.flag("multi_query", default=True) else c.heads
    keys = c.count("num_kv_heads", default=c.heads) if new else one
    heads = Heads(c.hidden, c.heads, keys, c.head_dim)
    inner = c.count("ffn_hidden_size", default=4 * c.hidden)
    two = new and c.count("num_ln_in_parallel_attn", default=2) == len(("ln_attn", "ln_mlp"))
    parallel = c.flag("parallel_attn", default=True)
    norms = ("ln_attn", "ln_mlp") if two else ("input_layernorm",) if parallel else TWO

    def layer(_at: int, prefix: str) -> Cache:
        for norm in norms:
            w.norm(f"{prefix}.{norm}", c.hidden, bias=True)
        at = f"{prefix}.mlp"
        plain_mlp(w, f"{at}.dense_h_to_4h", f"{at}.dense_4h_to_h", c.hidden, inner, bias=bias)
        qkv, out = f"{prefix}.self_attention.query_key_value", f"{prefix}.self_attention.dense"
        return fused_attention(w, qkv, out, heads, qkv_bias=bias, out_bias=bias)

    return decoder(c, w, tied, layer, Names("transformer", "word_embeddings", "h", "ln_f"), norm_bias=True)


def _bloom(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    heads = Heads(c.hidden, c.heads, c.heads, c.head_dim)

    def layer(_at: int, prefix: str) -> Cache:
        for norm in TWO:
            w.norm(f"{prefix}.{norm}", c.hidden, bias=True)
        at = f"{prefix}.mlp"
        plain_mlp(w, f"{at}.dense_h_to_4h", f"{at}.dense_4h_to_h", c.hidden, 4 * c.hidden, bias=True)
        qkv, out = f"{prefix}.self_attention.query_key_value", f"{prefix}.self_attention.dense"
        return fused_attention(w, qkv, out, heads, qkv_bias=True, out_bias=True)

    w.norm("transformer.word_embeddings_layernorm", c.hidden, bias=True)
    return decoder(c, w, tied, layer, Names("transformer", "word_embeddings", "h", "ln_f"), norm_bias=True)


def _gpt_neox(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    heads = Heads(c.hidden, c.heads, c.heads, c.head_dim)
    inner, bias = c.count("intermediate_size"), c.flag("attention_bias", default=True)

    def layer(at: int, prefix: str) -> Cache:
        for norm in TWO:
            w.norm(f"{prefix}.{norm}", c.hidden, bias=True)
        mlp, own = f"{prefix}.mlp", f"{prefix}.attention"
        plain_mlp(w, f"{mlp}.dense_h_to_4h", f"{mlp}.dense_4h_to_h", c.hidden, inner, bias=True)
        w.buffer(f"gpt_neox.layers.{at}.attention.rotary_emb.inv_freq", c.head_dim // 8)
        return fused_attention(w, f"{own}.query_key_value", f"{own}.dense", heads, qkv_bias=bias, out_bias=bias)

    names = Names("gpt_neox", "embed_in", final="final_layer_norm", head="embed_out")
    return decoder(c, w, tied, layer, names, norm_bias=True)


LLAMA = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
"""What a config means that was written with nothing but its differences from Llama-7B."""

GEMMA3 = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
}

QK = ("q_norm", "k_norm")


def _gemma3(c: Config, w: Weights, tied: bool) -> list[Cache]:  # noqa: FBT001  # a ``Build``
    every = c.count("sliding_window_pattern", "_sliding_window_pattern", default=6)
    kind = Dense(norms=FOUR, qk=QK, slides=lambda at: (at + 1) % every != 0, nested="language_model.model")
    return _dense(kind, c, w, tied)


def _member(tied: bool = False, defaults: dict[str, int] | None = None, **kind: object) -> Family:  # noqa: FBT001, FBT002
    return Family(partial(_dense, Dense(**kind)), tied, defaults or {})  # type: ignore[arg-type]  # fields of Dense


DENSE = {
    "llama": _member(defaults=LLAMA, nested="language_model.model"),
    "llava": _member(defaults=LLAMA, nested="language_model.model"),
    "granite": _member(),
    "mistral": _member(qkv_bias=False, out_bias=False, mlp_bias=False, slides=lambda _: True),
    "ministral": _member(qkv_bias=False, out_bias=False, mlp_bias=False, slides=lambda _: True),
    "qwen2": _member(qkv_bias=True, out_bias=False, mlp_bias=False),
    "qwen2_vl": _member(qkv_bias=True, out_bias=False, mlp_bias=False),
    "qwen2_5_vl": _member(qkv_bias=True, out_bias=False, mlp_bias=False),
    "mimo": _member(qkv_bias=True, out_bias=False, mlp_bias=False),
    "qwen3": _member(mlp_bias=False, qk=QK),
    "qwen3_vl": _member(mlp_bias=False, qk=QK),
    "smollm3": _member(tied=True, slides=lambda _: True),
    "hunyuan_v1_dense": _member(qk=("query_layernorm", "key_layernorm")),
    "gemma": _member(tied=True, mlp_bias=False),
    "gemma2": _member(tied=True, mlp_bias=False, norms=FOUR, slides=lambda at: at % 2 == 0),
    "gemma3": Family(_gemma3, tied=True, defaults=GEMMA3),
    "olmo2": _member(
        mlp_bias=False, norms=("post_attention_layernorm", "post_feedforward_layernorm"), qk=QK, wide=True
    ),
    "bitnet": _member(tied=True, mlp_bias=False, sub_norms=True),
    "phi3": Family(_phi3),
    "qwen": Family(_qwen),
    "falcon": Family(_falcon, tied=True),
    "bloom": Family(_bloom, tied=True),
    "gpt_neox": Family(_gpt_neox),
}
"""By ``model_type``, a ``_text`` behind it left out."""
