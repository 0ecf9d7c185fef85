"""Towers that look at images, and what brings what they see to the language model.

They are no part of the stack, so a tower that isn't known here is left out and not refused.
"""

from dataclasses import replace

from app.checkpoints.architectures.fields import MAX_DEPTH, Fields
from app.checkpoints.architectures.parts.attention import Heads, grouped, head_norms
from app.checkpoints.architectures.parts.feedforward import gated, plain
from app.checkpoints.architectures.weights import NOTHING, Part, layer_norm, linear, norm, repeat, table, vector

CLIP_NAMES = ("fc1", "fc2")
CLIP_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


def clip_layer(hidden: int, width: int) -> Part:
    """A layer as CLIP and SigLIP have it."""
    attention = sum((linear(name, hidden, hidden, bias=True) for name in CLIP_PROJECTIONS), NOTHING)
    return (
        layer_norm("layer_norm1", hidden)
        + attention.under("self_attn")
        + layer_norm("layer_norm2", hidden)
        + plain(hidden, width, CLIP_NAMES, bias=True).under("mlp")
    )


def siglip(v: Fields) -> Part:
    """SigLIP, and the tower of Idefics 3 (arXiv 2303.15343): patches with a bias, a norm behind the layers."""
    hidden = v.whole("hidden_size")
    embedding = patches(v, hidden, bias=True) + table("position_embedding", _grid(v), hidden)
    layers = repeat(
        clip_layer(hidden, v.whole("intermediate_size")),
        v.layers("num_hidden_layers", most=MAX_DEPTH),
        "encoder.layers",
    )
    return embedding.under("embeddings") + layers + layer_norm("post_layernorm", hidden)


def clip(v: Fields) -> Part:
    """CLIP (arXiv 2103.00020): a position for the class, norms before and behind the layers."""
    hidden = v.whole("hidden_size")
    embedding = (
        vector("class_embedding", hidden)
        + patches(v, hidden, bias=False)
        + table("position_embedding", _grid(v) + 1, hidden)
    )
    layers = repeat(
        clip_layer(hidden, v.whole("intermediate_size")),
        v.layers("num_hidden_layers", most=MAX_DEPTH),
        "encoder.layers",
    )
    norms = layer_norm("pre_layrnorm", hidden) + layer_norm("post_layernorm", hidden)
    return embedding.under("embeddings") + layers + norms


def patches(v: Fields, hidden: int, *, bias: bool) -> Part:
    """A convolution over patches."""
    side = _side(v, "patch_size")
    weights = vector("patch_embedding.weight", hidden, v.whole("num_channels", default=3), side, side)
    return weights + vector("patch_embedding.bias", hidden) if bias else weights


def unknown(_c: Fields, _hidden: int) -> Part:
    """A tower that isn't known here."""
    return NOTHING


def llava(c: Fields, hidden: int) -> Part:
    """LLaVA: CLIP, and two matrices."""
    v = c.inner("vision_config", CLIP_SIZES)
    if v.word("model_type") != "clip_vision_model":
        return NOTHING
    width = v.whole("hidden_size")
    projector = linear("linear_1", width, hidden, bias=True) + linear("linear_2", hidden, hidden, bias=True)
    return clip(v).under("vision_tower.vision_model") + projector.under("multi_modal_projector")


def gemma3(c: Fields, hidden: int) -> Part:
    """Gemma 3: SigLIP, a norm and a matrix."""
    v = c.inner("vision_config", SIGLIP_SIZES)
    width = v.whole("hidden_size")
    projector = vector("mm_input_projection_weight", width, hidden) + norm("mm_soft_emb_norm", width)
    return siglip(v).under("vision_tower.vision_model") + projector.under("multi_modal_projector")


def aria(c: Fields, hidden: int) -> Part:
    """Aria: the tower of Idefics 3, and queries that attend to what it sees."""
    v = c.inner("vision_config", IDEFICS3_SIZES)
    width = v.whole("hidden_size")
    asked = c.find("projector_patch_to_query_dict")
    counts = asked.values() if isinstance(asked, dict) and asked else (128, 256)
    queries = max(Fields({"queries": n}, where="projector_patch_to_query_dict.").whole("queries") for n in counts)
    attention = (
        sum((linear(name, width, width) for name in ("q_proj", "k_proj", "v_proj")), NOTHING)
        + vector("multihead_attn.in_proj_weight", 3 * width, width)
        + vector("multihead_attn.in_proj_bias", 3 * width)
        + linear("multihead_attn.out_proj", width, width, bias=True)
        + linear("linear", width, width, bias=True)
        + layer_norm("layer_norm", width)
        + layer_norm("layer_norm_kv", width)
    )
    projector = (
        vector("query", queries, width)
        + attention.under("cross_attn")
        + layer_norm("layer_norm", width)
        + (linear("linear_in", width, hidden) + linear("linear_out", hidden, hidden)).under("feed_forward")
    )
    return siglip(v).under("vision_tower") + projector.under("multi_modal_projector")


def llama4(c: Fields, hidden: int) -> Part:
    """Llama 4: a tower, an adapter that shuffles pixels, a matrix."""
    v = c.inner("vision_config", LLAMA4_SIZES)
    width, inner, side = v.whole("hidden_size"), v.whole("intermediate_size"), _side(v, "patch_size")
    layer = (
        layer_norm("input_layernorm", width)
        + grouped(width, Heads(1, 1, width), bias=True, out_bias=True).under("self_attn")
        + layer_norm("post_attention_layernorm", width)
        + plain(width, inner, CLIP_NAMES, bias=True).under("mlp")
    )
    into, out = v.whole("projector_input_dim"), v.whole("projector_output_dim")
    adapter = linear("fc1", inner, into) + linear("fc2", into, out)
    tower = (
        vector("class_embedding", width)
        + vector("positional_embedding_vlm", _grid(v) + 1, width)
        + linear("patch_embedding.linear", v.whole("num_channels") * side * side, width)
        + layer_norm("layernorm_pre", width)
        + layer_norm("layernorm_post", width)
        + repeat(layer, v.layers("num_hidden_layers", most=MAX_DEPTH), "model.layers")
        + adapter.under("vision_adapter.mlp")
    )
    projector = linear("multi_modal_projector.linear_1", v.whole("vision_output_dim"), hidden)
    return Part(tower.weights).under("vision_model") + projector


def gemma4(c: Fields, hidden: int) -> Part:
    """Gemma 4's own tower; the audio tower of its small models is left out."""
    v = c.inner("vision_config", GEMMA4_SIZES)
    width, inner, side = v.whole("hidden_size"), v.whole("intermediate_size"), _side(v, "patch_size")
    n, dim = v.whole("num_attention_heads"), v.whole("head_dim")
    of = Heads(n, v.whole("num_key_value_heads"), dim)
    norms = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    layer = (
        _wrapped(grouped(width, of)).under("self_attn")
        + head_norms(of).under("self_attn")
        + _wrapped(gated(width, inner)).under("mlp")
        + sum((norm(name, width) for name in norms), NOTHING)
    )
    embedder = vector("position_embedding_table", 2, v.whole("position_embedding_size"), width)
    embedder += linear("input_proj", 3 * side * side, width)
    scaling = vector("std_bias", width) + vector("std_scale", width) if v.flag("standardize") else NOTHING
    layers = repeat(layer, v.layers("num_hidden_layers", most=MAX_DEPTH), "encoder.layers")
    tower = embedder.under("patch_embedder") + layers + scaling
    return tower.under("model.vision_tower") + linear("model.embed_vision.embedding_projection", width, hidden)


def mistral3(c: Fields, hidden: int) -> Part:
    """Pixtral's tower (arXiv 2410.07073), with patches merged four to one."""
    v = c.inner("vision_config", PIXTRAL_SIZES)
    width, side = v.whole("hidden_size"), _side(v, "patch_size")
    layer = (
        norm("attention_norm", width)
        + grouped(width, Heads(1, 1, width)).under("attention")
        + norm("ffn_norm", width)
        + gated(width, v.whole("intermediate_size")).under("feed_forward")
    )
    tower = (
        vector("patch_conv.weight", width, v.whole("num_channels", default=3), side, side)
        + norm("ln_pre", width)
        + repeat(layer, v.layers("num_hidden_layers", most=MAX_DEPTH), "transformer.layers")
    )
    merged, bias = c.whole("spatial_merge_size", default=2) ** 2 * width, c.flag("multimodal_projector_bias")
    projector = (
        norm("norm", width)
        + linear("patch_merger.merging_layer", merged, width)
        + linear("linear_1", width, hidden, bias=bias)
        + linear("linear_2", hidden, hidden, bias=bias)
    )
    return tower.under("vision_tower") + projector.under("multi_modal_projector")


def _wrapped(part: Part) -> Part:
    """Matrices inside a module that can clip them."""
    weights = (replace(w, name=w.name.replace(".weight", ".linear.weight")) for w in part.weights)
    return Part(tuple(weights))


def _side(v: Fields, key: str) -> int:
    """A side of a square, which some configs give twice."""
    value = v.find(key)
    if isinstance(value, list) and value:
        return Fields({key: value[0]}, where=v.where).whole(key)
    return v.whole(key)


def _grid(v: Fields) -> int:
    """Patches of an image."""
    return (_side(v, "image_size") // _side(v, "patch_size")) ** 2


CLIP_SIZES = {
    "model_type": "clip_vision_model",
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "image_size": 224,
    "patch_size": 32,
}
SIGLIP_SIZES = CLIP_SIZES | {"patch_size": 16}
IDEFICS3_SIZES = CLIP_SIZES | {"hidden_size": 1152}
LLAMA4_SIZES = {
    "hidden_size": 768,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "num_channels": 3,
    "image_size": 448,
    "patch_size": 14,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
    "vision_output_dim": 7680,
}
GEMMA4_SIZES = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 16,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
    "patch_size": 16,
    "position_embedding_size": 10_240,
}
PIXTRAL_SIZES = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "image_size": 1024,
    "patch_size": 16,
}
