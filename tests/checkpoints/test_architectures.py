"""Small configs, so that a person can add up what their checkpoints hold and their layers cache."""

from typing import Any

import pytest

from app.checkpoints.architectures import architecture
from app.checkpoints.tensors import Cache

LLAMA = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 10,
    "tie_word_embeddings": False,
}
"""A layer: q and o 8 x 8 each, k and v 4 x 8 each, three times 16 x 8, two norms of 8: 592 parameters."""


def params_of(config: dict[str, Any], dtype: str | None = None) -> int:
    return sum(t.n_elements for t in architecture(config, dtype).tensors or ())


def test_a_small_llama_adds_up_by_hand() -> None:
    found = architecture(LLAMA)
    assert params_of(LLAMA) == 80 + 2 * 592 + 8 + 80
    assert found.caches == (Cache(4, 4), Cache(4, 4))
    assert not found.tied
    assert {t.n_bytes for t in found.tensors or () if t.shape == (8, 8)} == {128}
    assert found.buffers == ()


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"tie_word_embeddings": True}, -80),
        ({"attention_bias": True}, 2 * (8 + 4 + 4 + 8)),
        ({"mlp_bias": True}, 2 * (16 + 16 + 8)),
        ({"model_type": "qwen2"}, 2 * (8 + 4 + 4)),
        ({"model_type": "qwen3", "head_dim": 4}, 2 * (4 + 4)),
        ({"model_type": "hunyuan_v1_dense"}, 2 * (4 + 4)),
        ({"model_type": "mimo", "num_nextn_predict_layers": 1}, 2 * 16 + 592 + 16 + 3 * 8 + 128),
        ({"model_type": "gemma", "head_dim": 4}, 0),
        ({"model_type": "gemma2", "head_dim": 4, "sliding_window": 3}, 2 * 16),
        ({"model_type": "olmo2"}, 2 * (8 + 4)),
        ({"model_type": "bitnet"}, 2 * (8 + 16)),
        ({"model_type": "smollm3", "sliding_window": None}, 0),
        ({"model_type": "phi3"}, 0),
        ({"num_key_value_heads": None}, 2 * (32 + 32)),
        ({"head_dim": 8}, 2 * (64 + 32 + 32 + 64)),
    ],
)
def test_members_of_the_family_differ_by_what_can_be_counted(changes: dict[str, Any], more: int) -> None:
    assert params_of(LLAMA | changes) == params_of(LLAMA) + more


@pytest.mark.parametrize(
    ("changes", "caches"),
    [
        ({"model_type": "gemma2", "sliding_window": 3}, (Cache(4, 4, 3), Cache(4, 4))),
        ({"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 7}, (Cache(4, 4), Cache(4, 4, 7))),
        ({"model_type": "mistral", "sliding_window": 5}, (Cache(4, 4, 5),) * 2),
        ({"model_type": "mistral"}, (Cache(4, 4, 4096),) * 2),  # its class slides unless told not to
        ({"model_type": "mistral", "sliding_window": None}, (Cache(4, 4),) * 2),
        ({"model_type": "qwen2", "sliding_window": 5, "use_sliding_window": False}, (Cache(4, 4),) * 2),
        (
            {"model_type": "qwen2", "sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1},
            (Cache(4, 4), Cache(4, 4, 5)),
        ),
        ({"model_type": "smollm3", "sliding_window": 5, "use_sliding_window": False}, (Cache(4, 4),) * 2),
        ({"model_type": "gemma3", "sliding_window": 5, "sliding_window_pattern": 2}, (Cache(4, 4, 5), Cache(4, 4))),
    ],
)
def test_windows_are_those_of_the_layers(changes: dict[str, Any], caches: tuple[Cache, ...]) -> None:
    assert architecture(LLAMA | {"head_dim": 4} | changes).caches == caches


GEMMA4 = {
    "model_type": "gemma4_text",
    "torch_dtype": "bfloat16",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "global_head_dim": 8,
    "vocab_size": 10,
    "vocab_size_per_layer_input": 10,
    "hidden_size_per_layer_input": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 3,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
}


def test_a_layer_that_reads_another_s_cache_keeps_none_of_its_own() -> None:
    """Gemma 4's small models; the published checkpoints carry the unused projections all the same."""
    found = architecture(GEMMA4)
    assert found.caches == (Cache(4, 4, 3), Cache(8, 8), Cache(), Cache())
    shapes = {t.name: t.shape for t in found.tensors or ()}
    assert shapes["model.layers.2.self_attn.k_proj.weight"] == (4, 8)
    assert shapes["model.layers.1.mlp.up_proj.weight"] == (16, 8)
    assert shapes["model.layers.3.mlp.up_proj.weight"] == (32, 8)
    assert shapes["model.embed_tokens_per_layer.weight"] == (10, 4 * 2)


def test_gemma_4_caches_keys_twice_where_values_are_keys() -> None:
    found = architecture(GEMMA4 | {"attention_k_eq_v": True, "num_global_key_value_heads": 2})
    assert found.caches[1] == Cache(16, 16)
    assert "model.layers.1.self_attn.v_proj.weight" not in {t.name for t in found.tensors or ()}


@pytest.mark.parametrize(("release", "each"), [("4.31.0", 8), ("4.32.0", 0), ("4.45.0.dev0", 0), ("5.1.0", 0), ("", 0)])
def test_old_releases_stored_rotary_frequencies_beside_the_parameters(release: str, each: int) -> None:
    found = architecture(LLAMA | {"transformers_version": release})
    assert [t.n_bytes for t in found.buffers] == ([each] * 2 if each else [])
    assert all(t.dtype == "f32" for t in found.buffers)


def test_old_releases_stored_pythia_s_masks_too() -> None:
    found = architecture(LLAMA | {"model_type": "gpt_neox", "transformers_version": "4.24.0", "rotary_pct": 1})
    named = {t.name.removeprefix("gpt_neox.layers.1.attention."): t for t in found.buffers[3:]}
    assert (named["bias"].dtype, named["bias"].n_bytes) == ("u8", 2048 * 2048)


def test_a_model_without_its_towers_is_its_language_model() -> None:
    found = architecture({"model_type": "gemma3", "text_config": LLAMA | {"model_type": "gemma3_text"}})
    assert {t.name.split(".")[0] for t in found.tensors or ()} == {"language_model"}


def test_sizes_that_a_nested_config_leaves_out_are_those_of_its_class() -> None:
    """LLaVA's text_config says little more than that it is a llama."""
    found = architecture({"model_type": "llava", "text_config": {"model_type": "llama"}, "torch_dtype": "float16"})
    assert sum(t.n_elements for t in found.tensors or ()) == 6_738_415_616


OTHERS: dict[str, tuple[dict[str, Any], int, Cache]] = {
    "bloom": ({}, 80 + 16 + 2 * (32 + 8 * 24 + 24 + 8 * 8 + 8 + 2 * 8 * 32 + 32 + 8) + 16 + 80, Cache(8, 8)),
    "gpt_neox": ({}, 80 + 2 * (32 + 8 * 24 + 24 + 8 * 8 + 8 + 2 * 8 * 16 + 16 + 8) + 16 + 80, Cache(8, 8)),
    "qwen": (
        {"kv_channels": 4, "no_bias": True},
        80 + 2 * (16 + 8 * 24 + 24 + 64 + 3 * 8 * 8) + 8 + 80,
        Cache(8, 8),
    ),
    "falcon": (
        {"multi_query": True, "parallel_attn": True},
        80 + 2 * (16 + 8 * 16 + 64 + 2 * 8 * 32) + 16 + 80,
        Cache(4, 4),
    ),
    "mixtral": (
        {"num_local_experts": 3, "num_experts_per_tok": 2},
        80 + 2 * (16 + 192 + 24 + 3 * 384) + 8 + 80,
        Cache(4, 4),
    ),
    "qwen2_moe": (
        {
            "num_experts": 3,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 2,
            "shared_expert_intermediate_size": 4,
            "decoder_sparse_step": 2,
        },
        80 + (16 + 192 + 16 + 384) + (16 + 192 + 16 + 24 + 3 * 48 + 96 + 8) + 8 + 80,
        Cache(4, 4),
    ),
    "olmoe": (
        {"num_experts": 3, "num_experts_per_tok": 1},
        80 + 2 * (16 + 192 + 12 + 24 + 3 * 384) + 8 + 80,
        Cache(4, 4),
    ),
    "granitemoe": (
        {"num_local_experts": 3, "num_experts_per_tok": 1},
        80 + 2 * (16 + 192 + 3 * 384 + 24) + 8 + 80,
        Cache(4, 4),
    ),
    "mamba_ssm": (
        {"d_model": 8, "n_layer": 2, "ssm_cfg": {"layer": "Mamba1"}, "tie_embeddings": False},
        16 * 8 * 2 + 2 * (8 + 256 + 64 + 16 + 16 * (1 + 32) + 16 + 16 + 16 * 16 + 16 + 128) + 8,
        Cache(state_elements=3 * 16 + 16 * 16),
    ),
}
"""By kind: what is changed of the small Llama, the parameters added up, and what a layer keeps."""


@pytest.mark.parametrize("kind", OTHERS)
def test_other_kinds_add_up_by_hand(kind: str) -> None:
    changes, params, cache = OTHERS[kind]
    config = LLAMA | {"model_type": None if kind == "mamba_ssm" else kind} | changes
    assert params_of(config) == params
    assert architecture(config).caches == (cache, cache)
