"""What a config lacks or says wrongly is named; whatever it says, the answer is quick and small, or a refusal."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.checkpoints.architectures import architecture
from app.checkpoints.tensors import CheckpointError

SMALL = {
    name: real["config"]
    for name, real in json.loads((Path(__file__).parents[1] / "golden/architectures.json").read_text())["small"].items()
}

LLAMA = SMALL["llama"] | {"torch_dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "nobody"}, "the architecture 'nobody' isn't known"),
        ({"model_type": "nobody", "architectures": ["NobodyForCausalLM"]}, r"'nobody' \('NobodyForCausalLM'\) isn't"),
        ({"model_type": None}, "model_type is missing"),
        ({"model_type": None, "architectures": ["NobodyLM"]}, r"model_type is missing \('NobodyLM'\)"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "another head than a language model's"),
        ({"torch_dtype": None}, "give a dtype"),
        ({"torch_dtype": "int3"}, "no weight type 'int3'; there are"),
        ({"torch_dtype": 16}, "no weight type 16"),
        ({"hidden_size": "8"}, "hidden_size is '8', not a whole number"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"vocab_size": -1}, "vocab_size is -1, not within 1 .."),
        ({"vocab_size": 2**70}, "vocab_size is beyond 2.64, not within"),
        ({"hidden_size": 2**41}, "hidden_size is 2199023255552, not within"),
        ({"hidden_size": [8]}, "hidden_size is of type list, not a whole number"),
        ({"hidden_size": 64.5}, "hidden_size is 64.5, not a whole number"),
        ({"hidden_size": "x" * 99}, r"hidden_size is 'x+\.\., not a whole number"),
        ({"num_attention_heads": True}, "num_attention_heads is True, not a whole number"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0, not within 1 .."),
        ({"num_attention_heads": 5}, "num_attention_heads is 5, no multiple of num_key_value_heads, 2"),
        ({"num_attention_heads": 6}, "hidden_size is 64, no multiple of num_attention_heads, 6"),
        ({"num_hidden_layers": 10_001}, "num_hidden_layers is 10001, not within 1 .. 1000"),
        ({"hidden_size": 2**40, "intermediate_size": 2**40}, "would have no parameters, or more than 2.63"),
        ({"hidden_size": 2**31, "intermediate_size": 2**31}, "has more than 2.63 bytes"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', not true or false"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 items, not 4"),
        ({"layer_types": "full_attention"}, "layer_types is 'full_attention', not a list"),
        ({"layer_types": [1, 2, 3, 4]}, "layer_types has items that are not of type str"),
        ({"layer_types": ["linear_attention"] * 4}, "layer_types has 'linear_attention', which this architecture"),
        ({"layer_types": ["sliding_attention"] * 4}, "sliding_window is missing"),
        ({"model_type": 3}, "model_type is 3, not a string"),
    ],
)
def test_what_a_config_lacks_or_says_wrongly_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        architecture(LLAMA | changes)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("mixtral", {"num_experts_per_tok": 9}, "num_experts_per_tok is 9, more than the 4 experts"),
        ("mixtral", {"num_local_experts": None}, "num_experts is missing"),
        ("qwen2_moe", {"mlp_only_layers": "all"}, "mlp_only_layers is 'all', not a list"),
        ("qwen3_next", {"layer_types": ["mamba"] * 4}, "layer_types has other types than"),
        ("minimax", {"layer_types": None}, "layer_types is missing, and so is attn_type_list"),
        ("minimax", {"layer_types": None, "attn_type_list": [0, 1, 2, 0]}, "layer_types has other types than"),
        ("minimax", {"shared_intermediate_size": 8}, "shared_intermediate_size asks for a shared expert"),
        ("nemotron_h", {"hybrid_override_pattern": "MX*EM"}, "has other letters than M"),
        ("nemotron_h", {"hybrid_override_pattern": "M"}, "has 1 letters for 5 layers"),
        ("nemotron_h", {"moe_latent_size": 8}, "moe_latent_size asks for experts on a latent"),
        ("granitemoehybrid", {"layer_types": ["conv"] * 4}, "layer_types has other types than mamba and attention"),
        ("bamba", {"mamba_d_head": 3}, "mamba_d_head times mamba_n_heads is not"),
        ("mamba2", {"num_heads": 3}, "num_heads times head_dim is not"),
        ("lfm2", {"layer_types": None}, "layer_types is missing, and so is full_attn_idxs"),
        ("lfm2", {"layer_types": ["mamba"] * 4}, "layer_types has other types than conv and full_attention"),
        ("lfm2", {"block_ffn_dim_multiplier": 1.5}, "block_ffn_dim_multiplier other than 1"),
        ("deepseek_v32", {"indexer_types": ["full", "shared", "full", "full"]}, "indexer_types has layers that share"),
        ("deepseek_v3", {"num_nextn_predict_layers": 101}, "num_nextn_predict_layers is 101, not within 0 .. 100"),
        ("gemma4-moe", {"text_config": 3}, "text_config is 3, not an object"),
        ("gpt_neox", {"transformers_version": "4.2", "rotary_pct": 2}, "rotary_pct is 2, not within 0 .. 1"),
        (
            "llama4",
            {"text_config": SMALL["llama4"]["text_config"] | {"no_rope_layers": [1]}},
            "no_rope_layers has 1 items for 4 layers",
        ),
        (
            "gemma4-moe",
            {"text_config": SMALL["gemma4-moe"]["text_config"] | {"top_k_experts": 9}},
            "top_k_experts is 9, more than the 8 experts",
        ),
        ("llama4", {"text_config": {"model_type": "nobody"}}, "text_config: the architecture 'nobody' isn't known"),
        ("llava", {"text_config": SMALL["llama"] | {"hidden_size": 0}}, "text_config.hidden_size is 0, not within"),
        (
            "llava",
            {"vision_config": {"num_hidden_layers": 1001}},
            "vision_config.num_hidden_layers is 1001, not within",
        ),
    ],
)
def test_what_a_kind_needs_is_named(kind: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        architecture(SMALL[kind] | changes, "bf16")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"attn_layer_idx": [1]}, "attn_layer_idx"),
        ({"d_intermediate": 8}, "d_intermediate"),
        ({"ssm_cfg": {"layer": "S"}}, "layer"),
    ],
)
def test_what_the_authors_mamba_can_t_say_is_named(changes: dict[str, Any], key: str) -> None:
    config = {"d_model": 8, "n_layer": 2, "vocab_size": 10, "ssm_cfg": {"layer": "Mamba2"}}
    with pytest.raises(CheckpointError, match=key):
        architecture(config | changes, "bf16")


def test_whole_numbers_may_be_written_as_floats() -> None:
    assert architecture(LLAMA | {"hidden_size": 64.0}) == architecture(LLAMA)


def test_too_many_patterns_for_so_many_layers_are_refused_before_they_take_long() -> None:
    patterns = {"quant_method": "fp8", "modules_to_not_convert": ["re:.*a.*b"] * 50}
    with pytest.raises(CheckpointError, match="50 patterns of modules are too many for 9000 tensors"):
        architecture(LLAMA | {"num_hidden_layers": 1_000, "quantization_config": patterns})


ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    1.5,
    "x",
    [],
    {},
    2**62,
    2**70,
    float("nan"),
    float("inf"),
    [None],
    [1],
    {"a": 1},
)


def paths(config: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The way to each key of a config, nested ones too."""
    for key, value in config.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from paths(value, (*above, key))


WAYS = [(name, way) for name, config in SMALL.items() for way in paths(config)]


@given(st.sampled_from(WAYS), st.sampled_from(ODD))
def test_any_odd_value_under_any_key_is_an_architecture_or_a_refusal(
    where: tuple[str, tuple[str, ...]], odd: Any
) -> None:
    name, way = where
    config = copy.deepcopy(SMALL[name])
    inner = config
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = odd
    try:
        found = architecture(config, "bf16")
    except CheckpointError as error:
        assert error.detail
    else:
        assert found.caches
        assert all(t.n_bytes > 0 for t in found.tensors or ())
