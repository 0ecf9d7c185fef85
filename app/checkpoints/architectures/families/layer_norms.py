"""Decoders with layer norms and plain feed-forwards: Falcon, BLOOM, GPT-NeoX, StarCoder2, Nemotron."""

from dataclasses import replace

from app.checkpoints.architectures.assembly import Family, Layout, Model, decoder
from app.checkpoints.architectures.decoders import Attention, Decoder
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import Heads, fused, head_share
from app.checkpoints.architectures.parts.feedforward import plain
from app.checkpoints.architectures.parts.rotary import NO_LONGER_STORED, saved_before
from app.checkpoints.architectures.parts.windows import everywhere
from app.checkpoints.architectures.weights import NOTHING, Part, layer_norm, repeat, vector

UP_DOWN = ("dense_h_to_4h", "dense_4h_to_h")


def falcon(c: Fields) -> Model:
    """Falcon, old and new. Its class ties the tables, but the published checkpoints store the head all the same."""
    hidden, n = c.whole("hidden_size"), c.layers("num_hidden_layers", "n_layer")
    bias, of = c.flag("bias"), falcon_heads(c)
    width = c.whole("ffn_hidden_size", default=4 * hidden)
    layer = (
        fused(hidden, of, ("query_key_value", "dense"), bias=bias, out_bias=bias).under("self_attention")
        + plain(hidden, width, UP_DOWN, bias=bias).under("mlp")
        + sum((layer_norm(name, hidden) for name in falcon_norms(c)), NOTHING)
    )
    layout = Layout("transformer.word_embeddings", "transformer.h", "transformer.ln_f", "lm_head")
    return decoder(c, (layer,) * n, layout=layout, closing=layer_norm)


def falcon_heads(c: Fields) -> Heads:
    """Groups by ``num_kv_heads`` in the new architecture; in the old one a single head of keys, or all.

    The new architecture's groups rule even where ``multi_query`` is true.
    """
    n = c.whole("num_attention_heads", "n_head")
    dim = head_share(c, n)
    if c.flag("new_decoder_architecture"):
        n_kv = c.whole("num_kv_heads", "n_head_kv", default=n)
        c.share("num_attention_heads", n, "num_kv_heads", n_kv)
        return Heads(n, n_kv, dim)
    return Heads(n, 1 if c.flag("multi_query", True) else n, dim)


def falcon_norms(c: Fields) -> tuple[str, ...]:
    """One norm for attention and feed-forward side by side, or one each."""
    if c.flag("new_decoder_architecture") and c.whole("num_ln_in_parallel_attn", default=2) > 1:
        return ("ln_attn", "ln_mlp")
    if c.flag("new_decoder_architecture") or c.flag("parallel_attn", True):
        return ("input_layernorm",)
    return ("input_layernorm", "post_attention_layernorm")


def bloom(c: Fields) -> Model:
    """BLOOM, with a norm on its embedding."""
    hidden, n = c.whole("hidden_size", "n_embed"), c.whole("num_attention_heads", "n_head")
    of = Heads(n, n, c.share("hidden_size", hidden, "n_head", n))
    layer = (
        layer_norm("input_layernorm", hidden)
        + fused(hidden, of, ("query_key_value", "dense"), bias=True, out_bias=True).under("self_attention")
        + layer_norm("post_attention_layernorm", hidden)
        + plain(hidden, 4 * hidden, UP_DOWN, bias=True).under("mlp")
    )
    layers = (layer,) * c.layers("num_hidden_layers", "n_layer")
    model = decoder(c, layers, tied=True, layout=Layout("word_embeddings", "h", "ln_f"), closing=layer_norm)
    return replace(model, embedding=model.embedding + layer_norm("word_embeddings_layernorm", hidden))


def gpt_neox(c: Fields) -> Model:
    """GPT-NeoX and Pythia; old releases stored masks and rotary frequencies beside the parameters."""
    hidden, n = c.whole("hidden_size"), c.whole("num_attention_heads")
    of, bias = Heads(n, n, head_share(c, n)), c.flag("attention_bias", True)
    layer = (
        layer_norm("input_layernorm", hidden)
        + layer_norm("post_attention_layernorm", hidden)
        + fused(hidden, of, ("query_key_value", "dense"), bias=bias, out_bias=bias).under("attention")
        + plain(hidden, c.whole("intermediate_size"), UP_DOWN, bias=True).under("mlp")
    )
    layers = (layer,) * c.layers("num_hidden_layers")
    layout = Layout("gpt_neox.embed_in", "gpt_neox.layers", "gpt_neox.final_layer_norm", "embed_out")
    return neox_buffers(c, decoder(c, layers, layout=layout, closing=layer_norm), of)


def neox_buffers(c: Fields, model: Model, of: Heads) -> Model:
    """The model with each layer's causal mask (a byte per pair), its fill value and rotary frequencies."""
    if not saved_before(c, NO_LONGER_STORED):
        return model
    span = c.whole("max_position_embeddings", default=2048)
    half = int(of.dim * c.share_of("rotary_pct", 0.25)) // 2
    each = vector("bias", 1, 1, span, span, dtype="u8") + vector("masked_bias") + vector("rotary_emb.inv_freq", half)
    return replace(model, buffers=repeat(each.under("attention"), len(model.layers), model.layers_at))


def starcoder2_mlp(c: Fields) -> Part:
    """StarCoder2's feed-forward."""
    names, bias = ("c_fc", "c_proj"), c.flag("use_bias", True)
    return plain(c.whole("hidden_size"), c.whole("intermediate_size"), names, bias=bias).under("mlp")


def nemotron_mlp(c: Fields) -> Part:
    """Nemotron's feed-forward."""
    names, bias = ("up_proj", "down_proj"), c.flag("mlp_bias")
    return plain(c.whole("hidden_size"), c.whole("intermediate_size"), names, bias=bias).under("mlp")


STARCODER2 = Decoder(
    Attention(default_bias=True, key="use_bias"),
    starcoder2_mlp,
    norm=layer_norm,
    slides=lambda _c: everywhere,
    tied=True,
)

FAMILIES = {
    "starcoder2": Family(STARCODER2),
    "nemotron": Family(Decoder(dense=nemotron_mlp, norm=layer_norm)),
    "falcon": Family(falcon),
    "RefinedWeb": Family(falcon),
    "RefinedWebModel": Family(falcon),
    "bloom": Family(bloom),
    "gpt_neox": Family(gpt_neox),
}
