"""Towers for images, as far as their shapes are published: no part of the stack, but of what a checkpoint weighs."""

from collections.abc import Mapping
from typing import Any

from app.checkpoints.architectures.parts import plain_mlp
from app.checkpoints.architectures.reading import Config
from app.checkpoints.architectures.weights import Weights


def towers(c: Config, w: Weights) -> None:
    """The tower that the config describes, nothing where it describes none or one that isn't known here."""
    said = c.whole.get("vision_config")
    if not isinstance(said, Mapping):
        return
    if c.whole.get("model_type") == "qwen2_vl":
        _qwen2_vl(c, Config(said), w)
    elif c.whole.get("model_type") == "gemma3":
        _gemma3(c, Config({**SIGLIP, **said}), w)
    elif c.whole.get("model_type") == "aria":
        _aria(c, Config({**SIGLIP, **said}), w)


MAX_DEPTH = 1_000

SIGLIP: dict[str, Any] = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "image_size": 896,
}
"""SigLIP's So400m, where a config leaves its figures out."""


def _qwen2_vl(c: Config, v: Config, w: Weights) -> None:
    """Qwen2-VL: patches of space and time, blocks of full attention, and a merger into the language model's width."""
    width, depth = v.count("embed_dim"), v.count("depth")
    patch = v.count("in_chans", "in_channels") * v.count("temporal_patch_size") * v.count("patch_size") ** 2
    w.add("visual.patch_embed.proj.weight", width, patch)
    for at in range(min(depth, MAX_DEPTH)):
        block = f"visual.blocks.{at}"
        for norm in ("norm1", "norm2"):
            w.norm(f"{block}.{norm}", width, bias=True)
        w.linear(f"{block}.attn.qkv", 3 * width, width, bias=True)
        w.linear(f"{block}.attn.proj", width, width, bias=True)
        plain_mlp(w, f"{block}.mlp.fc1", f"{block}.mlp.fc2", width, width * v.count("mlp_ratio"), bias=True)
    merged = width * v.count("spatial_merge_size") ** 2
    w.norm("visual.merger.ln_q", width, bias=True)
    w.linear("visual.merger.mlp.0", merged, merged, bias=True)
    w.linear("visual.merger.mlp.2", c.hidden, merged, bias=True)


def _gemma3(c: Config, v: Config, w: Weights) -> None:
    _siglip(v, w, "vision_tower.vision_model")
    w.add("multi_modal_projector.mm_input_projection_weight", v.hidden, c.hidden)
    w.norm("multi_modal_projector.mm_soft_emb_norm", v.hidden)


def _aria(c: Config, v: Config, w: Weights) -> None:
    """Aria: learned queries look at the patches through attention of their own, and go through a network."""
    width, at = v.hidden, "multi_modal_projector"
    queries = c.whole.get("projector_patch_to_query_dict")
    most = max(queries.values(), default=0) if isinstance(queries, Mapping) else 0
    _siglip(v, w, "vision_tower")
    w.add(f"{at}.query", most if isinstance(most, int) else 0, width)
    for name in ("q_proj", "k_proj", "v_proj"):
        w.linear(f"{at}.cross_attn.{name}", width, width)
    w.add(f"{at}.cross_attn.multihead_attn.in_proj_weight", 3 * width, width)
    w.add(f"{at}.cross_attn.multihead_attn.in_proj_bias", 3 * width)
    w.linear(f"{at}.cross_attn.multihead_attn.out_proj", width, width, bias=True)
    w.linear(f"{at}.cross_attn.linear", width, width, bias=True)
    for name in ("cross_attn.layer_norm", "cross_attn.layer_norm_kv", "layer_norm"):
        w.norm(f"{at}.{name}", width, bias=True)
    w.linear(f"{at}.feed_forward.linear_in", c.hidden, width)
    w.linear(f"{at}.feed_forward.linear_out", c.hidden, c.hidden)


def _siglip(v: Config, w: Weights, root: str) -> None:
    """SigLIP: patches with learned positions, blocks of full attention."""
    width, patch, inner = v.hidden, v.count("patch_size"), v.count("intermediate_size")
    w.add(f"{root}.embeddings.patch_embedding.weight", width, 3, patch, patch)
    w.add(f"{root}.embeddings.patch_embedding.bias", width)
    w.add(f"{root}.embeddings.position_embedding.weight", (v.count("image_size") // patch) ** 2, width)
    for at in range(min(v.n_layers, MAX_DEPTH)):
        block = f"{root}.encoder.layers.{at}"
        for norm in ("layer_norm1", "layer_norm2"):
            w.norm(f"{block}.{norm}", width, bias=True)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            w.linear(f"{block}.self_attn.{name}", width, width, bias=True)
        plain_mlp(w, f"{block}.mlp.fc1", f"{block}.mlp.fc2", width, inner, bias=True)
    w.norm(f"{root}.post_layernorm", width, bias=True)
