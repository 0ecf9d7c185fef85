"""The towers of Qwen2-VL, Qwen2.5-VL, and Qwen3-VL, which Qwen3.5 has too."""

from app.checkpoints.architectures.fields import MAX_DEPTH, Fields
from app.checkpoints.architectures.parts.attention import Heads, fused
from app.checkpoints.architectures.parts.feedforward import gated, plain
from app.checkpoints.architectures.weights import Part, layer_norm, linear, norm, repeat, table, vector


def qwen2(c: Fields, _hidden: int) -> Part:
    """Qwen2-VL: layer norms and plain feed-forwards; ``hidden_size`` is that of the language model."""
    v = c.inner("vision_config", QWEN2_SIZES)
    width, out = v.whole("embed_dim"), v.whole("hidden_size")
    inner = v.whole("mlp_ratio", default=4) * width
    block = (
        layer_norm("norm1", width)
        + layer_norm("norm2", width)
        + _attention(width)
        + plain(width, inner, ("fc1", "fc2"), bias=True).under("mlp")
    )
    merger = layer_norm("ln_q", width) + _merger(v, width, out)
    return (_patches(v, width) + _blocks(v, block) + merger.under("merger")).under("visual")


def qwen2_5(c: Fields, _hidden: int) -> Part:
    """Qwen2.5-VL: root-mean-square norms and gated feed-forwards."""
    v = c.inner("vision_config", QWEN2_5_SIZES)
    width, out = v.whole("hidden_size"), v.whole("out_hidden_size")
    block = (
        norm("norm1", width)
        + norm("norm2", width)
        + _attention(width)
        + gated(width, v.whole("intermediate_size"), bias=True).under("mlp")
    )
    merger = norm("ln_q", width) + _merger(v, width, out)
    return (_patches(v, width) + _blocks(v, block) + merger.under("merger")).under("visual")


def qwen3(c: Fields, _hidden: int) -> Part:
    """Qwen3-VL: learnt positions, and a merger for each depth that is handed on."""
    v = c.inner("vision_config", QWEN3_SIZES)
    width, out = v.whole("hidden_size"), v.whole("out_hidden_size")
    names = ("linear_fc1", "linear_fc2")
    block = (
        layer_norm("norm1", width)
        + layer_norm("norm2", width)
        + _attention(width)
        + plain(width, v.whole("intermediate_size"), names, bias=True).under("mlp")
    )
    merged = width * v.whole("spatial_merge_size") ** 2
    merging = linear(names[0], merged, merged, bias=True) + linear(names[1], merged, out, bias=True)
    depths = len(v.items("deepstack_visual_indexes", int) or ())
    tower = (
        _patches(v, width)
        + vector("patch_embed.proj.bias", width)
        + table("pos_embed", v.whole("num_position_embeddings"), width)
        + _blocks(v, block)
        + (layer_norm("norm", width) + merging).under("merger")
        + repeat(layer_norm("norm", merged) + merging, depths, "deepstack_merger_list")
    )
    return tower.under("model.visual")


def _attention(width: int) -> Part:
    weights = fused(width, Heads(1, 1, width), ("qkv", "proj"), bias=True, out_bias=True)
    return Part(weights.weights).under("attn")


def _patches(v: Fields, width: int) -> Part:
    side, frames = v.whole("patch_size"), v.whole("temporal_patch_size")
    return vector("patch_embed.proj.weight", width, v.whole("in_channels", "in_chans", default=3), frames, side, side)


def _blocks(v: Fields, block: Part) -> Part:
    return repeat(block, v.layers("depth", most=MAX_DEPTH), "blocks")


def _merger(v: Fields, width: int, out: int) -> Part:
    merged = width * v.whole("spatial_merge_size") ** 2
    return linear("mlp.0", merged, merged, bias=True) + linear("mlp.2", merged, out, bias=True)


_PATCHES = {"depth": 32, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2}
QWEN2_SIZES = _PATCHES | {"embed_dim": 1280, "hidden_size": 3584}
QWEN2_5_SIZES = _PATCHES | {"hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584}
QWEN3_SIZES = _PATCHES | {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "patch_size": 16,
    "num_position_embeddings": 2304,
    "out_hidden_size": 3584,
    "deepstack_visual_indexes": (8, 16, 24),
}
