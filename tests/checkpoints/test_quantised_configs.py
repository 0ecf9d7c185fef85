"""What quantised matrices weigh with their scales and zeros, and which modules stay as they are."""

from typing import Any

import pytest

from app.checkpoints.architectures import architecture
from app.checkpoints.tensors import CheckpointError, Tensor

WIDE = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
}
"""A query projection is 256 x 256: 65,536 parameters; one that goes down 256 x 384."""

N = 256 * 256

SPARSE = WIDE | {"model_type": "mixtral", "num_local_experts": 3, "num_experts_per_tok": 1}
"""Three experts of three matrices of 384 x 256."""

GPT_OSS = SPARSE | {"model_type": "gpt_oss", "head_dim": 64, "sliding_window": 8}

Q, DOWN, HEAD, TABLE, NORM = (
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.0.mlp.down_proj.weight",
    "lm_head.weight",
    "model.embed_tokens.weight",
    "model.norm.weight",
)


def stored(config: dict[str, Any], quantization: dict[str, Any] | None = None) -> dict[str, Tensor]:
    """The tensors of a config by their names."""
    more = {"quantization_config": quantization} if quantization else {}
    return {t.name: t for t in architecture(config | more).tensors or ()}


def compressed(form: str, weights: dict[str, Any], **group: Any) -> dict[str, Any]:
    """A quantization_config of compressed-tensors with one group."""
    groups = {"group_0": {"targets": ["Linear"], "weights": weights} | group}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}


FLOAT8 = {"num_bits": 8, "type": "float"}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}

METHODS: dict[str, tuple[dict[str, Any], str, int]] = {
    "fp8 in blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "f8_e4m3", N + 4 * 4),
    "fp8 in blocks that don't divide": ({"quant_method": "fp8", "weight_block_size": [100, 128]}, "f8_e4m3", N + 6 * 4),
    "fp8 as a whole": ({"quant_method": "fp8"}, "f8_e4m3", N + 4),
    "fp8 with activations": ({"quant_method": "fp8", "activation_scheme": "static"}, "f8_e4m3", N + 8),
    "fp8 by row": ({"quant_method": "fbgemm_fp8"}, "f8_e4m3", N + 256 * 4),
    "channels": (compressed("float-quantized", FLOAT8 | {"strategy": "channel"}), "f8_e4m3", N + 256 * 2),
    "tensor": (compressed("float-quantized", FLOAT8 | {"strategy": "tensor"}), "f8_e4m3", N + 2),
    "tensor and activations": (
        compressed("float-quantized", FLOAT8 | {"strategy": "tensor"}, input_activations={"dynamic": False}),
        "f8_e4m3",
        N + 4,
    ),
    "blocks": (
        compressed("float-quantized", FLOAT8 | {"strategy": "block", "block_structure": [128, 128]}),
        "f8_e4m3",
        N + 4 * 2,
    ),
    "int8": (compressed("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}), "i8", N + 256 * 2),
    "int4": (compressed("pack-quantized", INT4), "i32", N // 2 + 256 * 2 * 2 + 16),
    "int4 with zeros": (
        compressed("pack-quantized", INT4 | {"symmetric": False}),
        "i32",
        N // 2 + 256 * 2 * 2 + 16 + 256 // 8 * 2 * 4,
    ),
    "int4 in order": (
        compressed("pack-quantized", INT4 | {"actorder": "group"}),
        "i32",
        N // 2 + 256 * 2 * 2 + 16 + 256 * 4,
    ),
    "nvfp4": (compressed("nvfp4-pack-quantized", {"num_bits": 4}), "u8", N // 2 + N // 16 + 4),
    "nvfp4 by modelopt": ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "u8", N // 2 + N // 16 + 8),
    "fp8 by modelopt": ({"quant_method": "modelopt", "quant_algo": "FP8"}, "f8_e4m3", N + 8),
    "mxfp4": (compressed("mxfp4-pack-quantized", {"num_bits": 4}), "u8", N // 2 + N // 32),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 128}, "i32", N // 2 + 2 * 128 + 2 * 256 * 2),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "i32", N // 2 + 2 * 128 + 2 * 256 * 2 + 256 * 4),
    "gptq, 3 bits": ({"quant_method": "gptq", "bits": 3, "group_size": -1}, "i32", 24 * 256 * 4 + 96 + 512 + 1024),
    "bitsandbytes, 8 bits": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "i8", N + 256 * 4 + 1),
    "bitsandbytes, 4 bits": ({"load_in_4bit": True}, "u8", N // 2 + 1024 * 4 + 64),
    "bitsandbytes, nested": (
        {"quant_method": "bitsandbytes", "_load_in_4bit": True, "bnb_4bit_use_double_quant": True},
        "u8",
        N // 2 + 1024 + 4 * 4 + 1024 + 64,
    ),
    "bitnet": ({"quant_method": "bitnet"}, "u8", N // 4 + 2),
}
"""By method: what the config says, the type and the bytes of a matrix of 256 x 256."""


@pytest.mark.parametrize("method", METHODS)
def test_a_matrix_weighs_its_values_scales_and_zeros(method: str) -> None:
    quantization, dtype, n_bytes = METHODS[method]
    found = stored(WIDE, quantization)
    assert (found[Q].dtype, found[Q].n_bytes) == (dtype, n_bytes)
    assert found[Q].shape == (256, 256), "the shape is the parameter's"
    assert found[TABLE].n_bytes == 512 * 256 * 2
    assert found[NORM].n_bytes == 512
    assert found[DOWN].n_bytes < 256 * 384 * 2


def test_a_stack_of_experts_weighs_as_many_matrices_and_its_router_stays() -> None:
    found = stored(SPARSE, {"quant_method": "fp8", "weight_block_size": [128, 128]})
    experts = found["model.layers.1.block_sparse_moe.experts.w2.weight"]
    assert experts.n_bytes == 3 * (256 * 384 + 2 * 3 * 4)
    assert found["model.layers.1.block_sparse_moe.gate.weight"].n_bytes == 3 * 256 * 2


def test_mxfp4_packs_experts_alone() -> None:
    found = stored(GPT_OSS, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]})
    packed = found["model.layers.0.mlp.experts.gate_up_proj"]
    assert (packed.shape, packed.n_bytes) == ((3, 768, 256), 3 * 768 * (128 + 8))
    assert found["model.layers.0.mlp.experts.gate_up_proj_bias"].n_bytes == 3 * 768 * 2
    assert found[Q].n_bytes == N * 2


@pytest.mark.parametrize(
    ("kept", "q", "down"),
    [
        ("self_attn", True, False),
        ("q_proj", True, False),
        ("proj", False, False),
        ("model.layers.0", True, True),
        ("model.layers.*.self_attn", True, False),
        ("*.mlp.*", False, True),
        ("re:.*q_proj", True, False),
        ("re:.*layers\\.[0-9]+\\.mlp", False, True),
        ("re:.*(q_proj|down_proj)$", True, True),
        ("re:q_proj", False, False),
    ],
)
def test_modules_that_are_not_quantised_stay_as_they_are(kept: str, q: bool, down: bool) -> None:  # noqa: FBT001
    found = stored(WIDE, {"quant_method": "fp8", "modules_to_not_convert": ["lm_head", kept]})
    assert (found[Q].dtype == "bf16", found[DOWN].dtype == "bf16") == (q, down)


def test_a_pattern_of_single_experts_finds_them_in_the_stack() -> None:
    experts = compressed("pack-quantized", INT4)
    experts["config_groups"]["group_0"]["targets"] = ["re:.*experts\\.[0-9]+\\.w[123]$"]
    found = stored(SPARSE, experts)
    assert found["model.layers.0.block_sparse_moe.experts.w1.weight"].dtype == "i32"
    assert found[Q].dtype == "bf16"


def test_the_head_is_packed_only_by_those_who_do() -> None:
    group = {"weights": FLOAT8 | {"strategy": "channel"}, "targets": ["Linear"]}
    everything = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    assert stored(WIDE, everything)[HEAD].dtype == "f8_e4m3"
    assert stored(WIDE, compressed("float-quantized", FLOAT8 | {"strategy": "channel"}))[HEAD].dtype == "bf16"
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    assert stored(WIDE, gptq)[HEAD].dtype == "bf16"
    assert stored(WIDE, gptq | {"lm_head": True})[HEAD].dtype == "i32"


def test_mlx_packs_tables_and_routers_and_what_modules_have_of_their_own() -> None:
    own: dict[str, Any] = {"model.layers.0.block_sparse_moe.gate": {"bits": 8, "group_size": 64}, "lm_head": False}
    found = stored(SPARSE | {"quantization": {"bits": 4, "group_size": 64} | own})
    assert found[TABLE].n_bytes == 512 * (128 + 256 // 64 * 4)
    assert found["model.layers.0.block_sparse_moe.gate.weight"].n_bytes == 3 * (256 + 16)
    assert found["model.layers.1.block_sparse_moe.gate.weight"].n_bytes == 3 * (128 + 16)
    assert found[HEAD].dtype == "bf16"
    assert found[NORM].n_bytes == 512


def test_mlx_leaves_alone_what_its_groups_don_t_divide_and_knows_other_modes() -> None:
    found = stored(WIDE | {"quantization": {"bits": 4, "group_size": 512}})
    assert found[Q].dtype == "bf16"
    found = stored(WIDE | {"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}})
    assert found[Q].n_bytes == N // 2 + N // 32


def test_the_rest_of_fp8_and_mxfp4_is_bfloat16_where_the_config_is_silent_and_what_is_asked_rules() -> None:
    silent = {k: v for k, v in WIDE.items() if k != "torch_dtype"} | {"quantization_config": {"quant_method": "fp8"}}
    assert stored(silent)[NORM].dtype == "bf16"
    assert {t.name: t for t in architecture(silent, "f32").tensors or ()}[NORM].dtype == "f32"
    with pytest.raises(CheckpointError, match="give a dtype"):
        architecture(silent | {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}})


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({"quant_method": "hqq"}, "quant_method 'hqq' isn't known; there are awq, "),
        ({}, None),
        (["fp8"], "quantization_config is of type list, not an object"),
        ({"quant_method": "fp8", "weight_block_size": [0, 1]}, "weight_block_size is not two positive sizes"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size has 1 items, not 2"),
        (
            {"quant_method": "fp8", "modules_to_not_convert": "lm_head"},
            "modules_to_not_convert is 'lm_head', not a list",
        ),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:(a+)+$"]}, "has a pattern that isn't read here"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:" + ".*a" * 3]}, "has a pattern that isn't read here"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:^(?!a)"]}, "has a pattern that isn't read here"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:[z-a]"]}, "has a pattern that is none"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["*.a"] * 51}, "more than 50 patterns"),
        ({"quant_method": "awq", "bits": "4"}, "bits is '4', not a whole number"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv"}, "version isn't gemm"),
        ({"quant_method": "gptq", "bits": 4}, "group_size is missing"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit and load_in_8bit are both missing"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8"}, "quant_algo 'W4A8' isn't known; there are FP8, NVFP4"),
        ({"quant_method": "compressed-tensors"}, "config_groups is missing"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "config_groups has 0 groups"),
        (compressed("marlin-24", INT4), "format 'marlin-24' isn't known"),
        (compressed("float-quantized", FLOAT8 | {"strategy": "token"}), "strategy 'token' isn't known"),
        (compressed("float-quantized", {"num_bits": 4}), "num_bits is 4, not within 8 .. 8"),
        ({"bits": 4, "group_size": 64, "mode": "nvfp4"}, "mode 'nvfp4' isn't known"),
    ],
)
def test_what_a_quantiser_s_config_leaves_open_is_said(quantization: Any, message: str | None) -> None:
    config = WIDE | {"quantization_config": quantization}
    if message is None:
        message = "quant_method '' isn't known"
    with pytest.raises(CheckpointError, match=message):
        architecture(config)


def test_ternary_weights_that_are_packed_when_loaded_are_stored_as_they_are() -> None:
    assert stored(WIDE, {"quant_method": "bitnet", "quantization_mode": "online"})[Q].dtype == "bf16"
