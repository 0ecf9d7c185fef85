"""What others measured: each figure from the architecture's figures through our code and the engine's rules."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.checkpoints.architectures import architecture
from app.checkpoints.caches import kv_bytes_per_token, state_bytes
from app.checkpoints.costs import price
from app.checkpoints.gguf import BLOCKS
from app.checkpoints.gguf_architecture import architecture as gguf_architecture
from app.checkpoints.tensors import Cache, Tensor
from app.placement.cost import Block, ModelCost
from app.placement.engines import engine
from app.placement.stages import stack_of

Entry = dict[str, Any]


def entries(shared: Path, kind: str) -> list[Entry]:
    found: list[Entry] = json.loads((shared / "memory/ground_truth.json").read_text())
    return [entry for entry in found if entry["kind"] == kind]


def near(entry: Entry, value: int) -> bool:
    """Equal to the byte, or to what a log prints: two digits of a MiB."""
    printed = entry.get("expected_mib_as_printed")
    if value == entry["expected_bytes"]:
        return True
    return printed is not None and abs(value / 2**20 - printed) <= 0.0051


def gguf_cache(entry: Entry) -> Cache:
    """The cache of one attention layer of a GGUF file of this model."""
    arch = "some"
    figures: dict[str, Any] = {"general.architecture": arch, f"{arch}.block_count": 1}
    names = ["blk.0.attn_k.weight"]
    if "kv_lora_rank" in entry:
        figures |= {
            f"{arch}.attention.head_count": 128,
            f"{arch}.attention.kv_lora_rank": entry["kv_lora_rank"],
            f"{arch}.rope.dimension_count": entry["qk_rope_head_dim"],
        }
        names = ["blk.0.attn_kv_a_mqa.weight", "blk.0.attn_k_b.weight"]
    elif "key_length" in entry:
        figures |= {
            f"{arch}.attention.head_count": entry["n_kv_heads"],
            f"{arch}.attention.key_length": entry["key_length"],
            f"{arch}.attention.value_length": entry["value_length"],
            f"{arch}.rope.dimension_count": 64,
        }
        names = ["blk.0.attn_kv_a_mqa.weight", "blk.0.attn_kv_b.weight"]
    else:
        heads = entry.get("n_kv_heads", 8)
        width = entry.get("head_dim", entry["k_elems_per_token_layer"] // heads)
        figures |= {
            f"{arch}.attention.head_count": 32,
            f"{arch}.attention.head_count_kv": heads,
            f"{arch}.attention.key_length": width,
            f"{arch}.attention.value_length": width,
            f"{arch}.attention.sliding_window": entry.get("sliding_window", 0),
            f"{arch}.attention.sliding_window_pattern": [entry.get("n_ubatch") is not None],
        }
    tensors = [Tensor(name, (), "f16", 2) for name in names]
    figures[f"{arch}.embedding_length"] = 4096
    return gguf_architecture(figures, tensors).caches[0]


def dtypes(entry: Entry) -> str:
    """``K q8_0 / V f16`` as we spell it."""
    return str(entry["kv_dtype"]).replace("K ", "").replace("V ", "").replace(" ", "").lower()


def llama_cpp_bytes(entry: Entry, cache: Cache) -> int:
    """All caching layers of one model by llama.cpp's rules, as a plan counts them."""
    layers: int = entry["n_kv_layers"]
    block = Block(layers, 0, 1.0, kv_bytes_per_token(cache, dtypes(entry)), cache.window)
    model = ModelCost(layers, 0, 0, 0, layers=(block,))
    streams = entry["streams"]
    options: dict[str, Any] = {"kv_unified": streams == 1, "n_ubatch": entry.get("n_ubatch", 512)}
    if "pad 32" in entry["model"]:
        options["kv_pad"] = 32
    sequences = streams if streams > 1 else entry["n_parallel"] if cache.window else 1
    context = entry["context"]
    if streams > 1 and entry["cells"] < context:  # -c is divided among the slots
        context = -(-context // streams)
    stack = stack_of(model, engine("llama.cpp", options), context, sequences)
    return stack.total.cache


OLD = "2025"
"""llama.cpp of 2025 also kept a copy of the latent as values; today's doesn't."""


def test_caches_are_what_llama_cpp_printed(shared: Path) -> None:
    met = []
    for entry in entries(shared, "kv_cache"):
        if "cells" not in entry:
            continue  # other engines: below
        cache = gguf_cache(entry)
        if OLD in entry["model"]:
            cache = Cache(cache.k_elements, entry["kv_lora_rank"])
        assert (cache.k_elements, cache.v_elements) == (
            entry["k_elems_per_token_layer"],
            entry["v_elems_per_token_layer"],
        ), entry["model"]
        assert near(entry, llama_cpp_bytes(entry, cache)), (entry["model"], llama_cpp_bytes(entry, cache), entry)
        met.append(entry)
    assert len(met) == 47


def test_a_pool_of_vllm_s_blocks_is_what_it_printed(shared: Path) -> None:
    """The number of blocks is what the card had left; a block's bytes are ours. The log prints hundredths of a GiB."""
    config = json.loads((shared / "memory/configs/llama-3.1-8b.json").read_text())
    per_token = sum(kv_bytes_per_token(cache) for cache in architecture(config).caches)
    met = [e for e in entries(shared, "kv_cache") if "vLLM" in e["model"]]
    for entry in met:
        pool = entry["gpu_blocks"] * entry["block_size"] * per_token
        assert abs(pool - entry["expected_bytes"]) / 2**30 < 0.005
    assert len(met) == 2


def test_a_table_of_caches_is_met_whatever_its_units_are_called(shared: Path) -> None:
    """Of 128,000 tokens, in GiB."""
    entry = next(e for e in entries(shared, "kv_cache") if "HF blog" in e["model"])
    per_token = sum(kv_bytes_per_token(cache, entry["kv_dtype"]) for cache in architecture(NEMOTRON_70B).caches)
    assert abs(per_token * entry["context"] - entry["expected_bytes"]) / 2**30 < 0.005


def test_a_rank_of_sglang_holds_its_share_of_the_heads(shared: Path) -> None:
    """Four key heads on four cards, keys alone, in GiB."""
    entry = next(e for e in entries(shared, "kv_cache") if "SGLang" in e["model"])
    config = json.loads((shared / "memory/configs/qwen3-235b-a22b.json").read_text())
    ranks = config["num_key_value_heads"] // entry["n_kv_heads_per_rank"]
    keys = sum(kv_bytes_per_token(Cache(cache.k_elements // ranks)) for cache in architecture(config).caches)
    assert abs(keys * entry["context"] - entry["expected_bytes"]) / 2**30 < 0.005


def test_states_are_what_llama_cpp_printed(shared: Path) -> None:
    for entry in entries(shared, "state"):
        inner = entry.get("ssm_inner", 4096)
        figures = {
            "general.architecture": "some",
            "some.block_count": 1,
            "some.attention.head_count": 16,
            "some.embedding_length": 2048,
            "some.ssm.inner_size": inner,
            "some.ssm.state_size": entry.get("ssm_state", 128),
            "some.ssm.group_count": entry.get("ssm_groups", 16),
            "some.ssm.conv_kernel": entry.get("conv", 4),
        }
        cache = gguf_architecture(figures, [Tensor("blk.0.ssm_conv1d.weight", (), "f32", 4)]).caches[0]
        assert cache.state_elements == entry["r_elems_per_layer_seq"] + entry["s_elems_per_layer_seq"], entry["model"]
        model = ModelCost(1, 0, 0, 0, layers=(Block(1, 0, state_bytes=state_bytes(cache)),))
        stack = stack_of(model, engine("llama.cpp", {}), 4096, entry["n_parallel"])
        assert near(entry, stack.total.cache * entry["n_recurrent_layers"]), entry["model"]


LLAMA_TEXT = {"model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 128_256}
NEMOTRON_70B = LLAMA_TEXT | {
    "hidden_size": 8192,
    "intermediate_size": 28_672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
GRANITE_3B = LLAMA_TEXT | {
    "vocab_size": 49_152,
    "hidden_size": 2560,
    "intermediate_size": 10_240,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "attention_bias": True,
    "mlp_bias": True,
    "tie_word_embeddings": True,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "MedGemma-27B": {
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 5376,
            "intermediate_size": 21_504,
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "sliding_window": 1024,
        },
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
            "image_size": 896,
            "patch_size": 14,
        },
    },
    "Devstral-Small-2507": LLAMA_TEXT
    | {
        "model_type": "mistral",
        "vocab_size": 131_072,
        "hidden_size": 5120,
        "intermediate_size": 32_768,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "Llama-3.1-Nemotron-70B-Instruct-HF-8bit": NEMOTRON_70B | {"quantization": {"bits": 8, "group_size": 64}},
    "Llama-3.1-Nemotron-70B-Instruct-HF-bf16": NEMOTRON_70B,
    "Gemma-2B": {
        "model_type": "gemma",
        "torch_dtype": "bfloat16",
        "vocab_size": 256_000,
        "hidden_size": 2048,
        "intermediate_size": 16_384,
        "num_hidden_layers": 18,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
    },
    "Qwen3.5-25B-REAP-A3B": {
        "model_type": "qwen3_5_moe",
        "dtype": "float16",
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "qwen3_5_moe_text",
            "vocab_size": 248_320,
            "hidden_size": 2048,
            "num_hidden_layers": 40,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "full_attention_interval": 4,
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_value_head_dim": 128,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
            "num_experts": 180,
            "num_experts_per_tok": 8,
        },
    },
    "Pythia-1.4B": {
        "model_type": "gpt_neox",
        "torch_dtype": "float32",
        "vocab_size": 50_288,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "tie_word_embeddings": True,  # the reward model has no head of that size
    },
    "Llama-3.2-3B": LLAMA_TEXT
    | {
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": True,
    },
    "Llama-3.1-Nemotron-Nano-4B-v1.1": LLAMA_TEXT
    | {
        "hidden_size": 3072,
        "intermediate_size": 9216,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "granite-3b-code": GRANITE_3B,
    "cogito-v1-preview-qwen-14B": LLAMA_TEXT
    | {
        "model_type": "qwen2",
        "vocab_size": 151_665,
        "hidden_size": 5120,
        "intermediate_size": 13_824,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
    },
}
"""The published figures of the models whose weights were weighed, by how their names begin."""

BESIDE = {"Pythia-1.4B": (2049, 4)}
"""What a checkpoint has beside its architecture's parameters: a reward head of 2048 and a bias, in float32."""


def test_weights_are_what_the_checkpoints_index_says(shared: Path) -> None:
    met = entries(shared, "weights_total")
    for entry in met:
        name = next(name for name in sorted(CONFIGS, key=len, reverse=True) if entry["model"].startswith(name))
        found = architecture(CONFIGS[name])
        tensors = found.tensors or ()
        more, size = BESIDE.get(name, (0, 0))
        assert sum(t.n_elements for t in tensors) + more == entry["n_params"], name
        assert sum(t.n_bytes for t in tensors) + more * size == entry["expected_bytes"], name
        cost = price(tensors, found).cost
        layers = {b.bytes + b.expert_bytes for b in cost.blocks}
        told = {entry[k] for k in ("layer_bytes", "linear_layer_bytes", "full_layer_bytes") if k in entry}
        assert told <= layers, name
    assert len(met) == 11


def test_the_tower_of_a_model_that_sees_is_told_apart(shared: Path) -> None:
    entry = next(e for e in entries(shared, "weights_total") if e["model"].startswith("MedGemma"))
    found = architecture(CONFIGS["MedGemma-27B"])
    assert f"{entry['vision_bytes']} bytes of towers" in price(found.tensors or (), found).notes[0]


def test_tensors_in_ggml_s_blocks_weigh_what_llama_cpp_printed(shared: Path) -> None:
    sizes = {name: (block, size) for name, block, size in BLOCKS.values()}
    met = [e for e in entries(shared, "weights_layer") if "tensor_shape_ne" in e]
    for entry in met:
        block, size = sizes[entry["ggml_type"].lower()]
        row, rows = entry["tensor_shape_ne"]
        assert near(entry, row // block * size * rows), entry["model"]
    assert len(met) == 8


def test_a_stage_of_a_split_file_is_predicted_from_the_other(shared: Path) -> None:
    """Stage A has 41 layers and nothing else, stage B 39 and the head; the embedding stays with the client.

    Llama 70B in Q4_K_M mixes types by layer: four layers of stage B are lighter than the mean of A's.
    """
    entry = next(e for e in entries(shared, "weights_layer") if "stage_layers" in e)
    layer = round(entry["stage_a_mib_41_layers"] * 2**20 / 41)
    block, size = next((block, size) for name, block, size in BLOCKS.values() if name == "q6_k")
    head = 128_256 * 8192 // block * size
    assert head == entry["head_q6_K_bytes"]
    model = ModelCost(80, layer, int(entry["token_embd_host_mib"] * 2**20), head)
    stack = stack_of(model, engine("llama.cpp", {"overhead_bytes": 0}), 0, 1)
    predicted = stack.sums(41, 80).weights + stack.end_bytes(first=False, last=True)
    assert predicted == pytest.approx(entry["expected_bytes"], rel=1e-3)
