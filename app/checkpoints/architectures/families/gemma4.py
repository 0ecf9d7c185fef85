"""Gemma 4: wider heads where a layer sees everything, values that are keys, caches shared by the last layers."""

from dataclasses import dataclass, replace

from app.checkpoints.architectures.assembly import Family, Model, decoder
from app.checkpoints.architectures.families.gemma import FOUR
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import Heads, head_norms
from app.checkpoints.architectures.parts.feedforward import Experts, gated, joined_experts, router
from app.checkpoints.architectures.parts.windows import but_every, windows
from app.checkpoints.architectures.weights import NOTHING, Part, linear, norm, stack, table, vector
from app.checkpoints.tensors import Cache


@dataclass(frozen=True, slots=True)
class Kind:
    """What tells one layer from another: its window, and whether it reads the cache of an earlier one."""

    window: int | None
    shares: bool


def gemma4(c: Fields) -> Model:
    """The model of a config. Raises CheckpointError."""
    n = c.layers("num_hidden_layers")
    shared = c.whole("num_kv_shared_layers", default=0, least=0, most=n)
    spans = windows(c, n, but_every(6), absent=512)
    kinds = (Kind(span, at >= n - shared) for at, span in enumerate(spans))
    experts = routed_of(c)
    model = decoder(c, stack(kinds, lambda kind: layer(c, kind, experts)), tied=True, experts=experts)
    return replace(model, embedding=model.embedding + inputs_per_layer(c, n))


def routed_of(c: Fields) -> Experts | None:
    """The config's experts, where it has any."""
    if not c.flag("enable_moe_block"):
        return None
    n, per_token = c.whole("num_experts"), c.whole("top_k_experts")
    if per_token > n:
        raise c.wrong("top_k_experts", f"is {per_token}, more than the {n} experts")
    return Experts(n, per_token, c.whole("moe_intermediate_size"))


def layer(c: Fields, kind: Kind, experts: Experts | None) -> Part:
    """One layer: attention, a feed-forward, experts beside it, and what it takes of the token's own input."""
    hidden, width = c.whole("hidden_size"), c.whole("intermediate_size")
    wide = kind.shares and c.flag("use_double_wide_mlp")
    parts = attention(c, kind) + gated(hidden, width * 2 if wide else width).under("mlp")
    parts += sum((norm(name, hidden) for name in FOUR), vector("layer_scalar", 1))
    if experts:
        parts += expert_block(hidden, experts)
    own = own_width(c)
    if own:
        parts += linear("per_layer_input_gate", hidden, own) + linear("per_layer_projection", own, hidden)
        parts += norm("post_per_layer_input_norm", hidden)
    return parts


def attention(c: Fields, kind: Kind) -> Part:
    """Attention with the heads of its kind.

    A layer that sees everything may project no values of its own and cache its keys twice. One that shares reads what
    the last layer of its kind before the shared ones cached; published checkpoints carry its unused keys and values.
    """
    of, hidden, bias = heads_of(c, kind), c.whole("hidden_size"), c.flag("attention_bias")
    no_values = kind.window is None and c.flag("attention_k_eq_v")
    weights = (
        linear("q_proj", hidden, of.queries, bias=bias)
        + linear("k_proj", hidden, of.keys, bias=bias)
        + (NOTHING if no_values else linear("v_proj", hidden, of.keys, bias=bias))
        + linear("o_proj", of.queries, hidden, bias=bias)
        + head_norms(of)
    )
    return weights.under("self_attn") + Part(cache=Cache() if kind.shares else of.cache(kind.window))


def heads_of(c: Fields, kind: Kind) -> Heads:
    """The heads of a layer."""
    n, n_kv = c.whole("num_attention_heads"), c.whole("num_key_value_heads")
    if kind.window is not None:
        return Heads(n, n_kv, c.whole("head_dim", default=256))
    if c.flag("attention_k_eq_v"):
        n_kv = c.whole("num_global_key_value_heads", default=n_kv)
    return Heads(n, n_kv, c.whole("global_head_dim", default=512))


def expert_block(hidden: int, of: Experts) -> Part:
    """Experts beside the feed-forward, with norms of their own."""
    names = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
    routing = router(hidden, of.n, "proj") + vector("scale", hidden) + vector("per_expert_scale", of.n)
    return sum((norm(name, hidden) for name in names), routing.under("router") + joined_experts(hidden, of))


def inputs_per_layer(c: Fields, n_layers: int) -> Part:
    """A second table, with an input of the token for every layer."""
    own = own_width(c)
    if not own:
        return NOTHING
    rows, hidden = c.whole("vocab_size_per_layer_input", default=262_144), c.whole("hidden_size")
    return (
        table("model.embed_tokens_per_layer", rows, n_layers * own)
        + linear("model.per_layer_model_projection", hidden, n_layers * own)
        + norm("model.per_layer_projection_norm", own)
    )


def own_width(c: Fields) -> int:
    """Elements of a token's own input to each layer; 0 where there is none."""
    return c.whole("hidden_size_per_layer_input", default=256, least=0)


SIZES = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 30,
    "vocab_size": 262_144,
}

FAMILIES = {"gemma4_text": Family(gemma4, SIZES)}
