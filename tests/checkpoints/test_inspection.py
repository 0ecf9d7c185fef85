"""A path in, a cost out: folders, files written by the real libraries, a config alone."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.numpy

from app.checkpoints.architectures import architecture
from app.checkpoints.inspection import inspect
from app.checkpoints.roles import sort_out
from app.checkpoints.tensors import CheckpointError
from tests.checkpoints.test_architectures import LLAMA
from tests.checkpoints.test_safetensors import save
from tests.conftest import ROOT

NAMES = {
    "model.embed_tokens.weight": (10, 8),
    "model.norm.weight": (8,),
    "lm_head.weight": (10, 8),
    **{
        f"model.layers.{at}.{name}": shape
        for at in range(2)
        for name, shape in {
            "input_layernorm.weight": (8,),
            "post_attention_layernorm.weight": (8,),
            "self_attn.q_proj.weight": (8, 8),
            "self_attn.k_proj.weight": (4, 8),
            "self_attn.v_proj.weight": (4, 8),
            "self_attn.o_proj.weight": (8, 8),
            "mlp.gate_proj.weight": (16, 8),
            "mlp.up_proj.weight": (16, 8),
            "mlp.down_proj.weight": (8, 16),
        }.items()
    },
}
"""The small Llama's tensors."""


SMALL: dict[str, Any] = json.loads((ROOT / "tests/golden/architectures.json").read_text())["small"]

WORDS = {"bf16": "bfloat16", "f32": "float32", "f16": "float16"}


def arrays(names: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    return {name: np.zeros(shape, np.float16) for name, shape in names.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The small Llama in two shards beside its config."""
    model = tmp_path / "small-llama"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(LLAMA))
    names = list(NAMES)
    for at, part in enumerate((names[:9], names[9:]), 1):
        file = model / f"model-{at:05}-of-00002.safetensors"
        safetensors.numpy.save_file(arrays({n: NAMES[n] for n in part}), file)
    return model


def test_a_folder_costs_what_its_config_alone_says(folder: Path) -> None:
    made = inspect(folder)
    alone = inspect(folder / "config.json")
    assert made.cost.total_bytes == alone.cost.total_bytes == 2 * (80 + 2 * 592 + 8 + 80)
    assert made.cost.per_layer_bytes == 1184
    assert made.cost.kv_bytes_per_layer_token == 16
    assert (made.cost.name, made.cost.source) == ("small-llama", "small-llama")
    assert (alone.cost.name, alone.cost.source) == ("small-llama", "config.json")
    assert made.cost.per_layer_flops == alone.cost.per_layer_flops == 2.0 * 592


@pytest.mark.parametrize("kind", SMALL)
def test_a_checkpoint_of_each_kind_costs_what_its_files_hold(tmp_path: Path, kind: str) -> None:
    """Every tensor written by the real library; runs of layers, ends and what is apart add up to the files' data."""
    config = SMALL[kind]["config"]
    known = architecture(config, "bf16")
    tensors = known.tensors or ()
    save(tmp_path / "model.safetensors", {t.name: (WORDS[t.dtype], list(t.shape)) for t in tensors})
    (tmp_path / "config.json").write_text(json.dumps(config))
    made = inspect(tmp_path).cost
    parts = sort_out(tensors, len(known.caches))
    held = [sum(t.n_bytes for t in (*a, *b)) for a, b in zip(parts.dense, parts.experts, strict=True)]
    assert [b.bytes + b.expert_bytes for b in made.blocks for _ in range(b.count)] == held
    assert made.total_bytes == sum(t.n_bytes for t in parts.stack)
    assert made.params == sum(t.n_elements for t in parts.stack)


def test_one_file_without_a_config_is_read_by_its_shapes(tmp_path: Path) -> None:
    file = tmp_path / "alone.safetensors"
    safetensors.numpy.save_file(arrays(NAMES), file)
    made = inspect(file)
    assert (made.cost.name, made.cost.per_layer_bytes, made.cost.kv_bytes_per_layer_token) == ("alone", 1184, 16)
    assert "without sliding windows" in made.notes[0]


def test_files_are_priced_whatever_their_quantiser_is(folder: Path) -> None:
    """Bytes are the files'; the config tells caches and parameters, not how it is stored."""
    unknown = {**LLAMA, "torch_dtype": None, "quantization_config": {"quant_method": "hqq"}}
    (folder / "config.json").write_text(json.dumps(unknown))
    made = inspect(folder).cost
    assert (made.per_layer_bytes, made.kv_bytes_per_layer_token, made.params) == (1184, 16, 1352)
    with pytest.raises(CheckpointError, match="hqq"):
        inspect(folder / "config.json")


def test_caches_are_in_the_type_that_is_asked_for(folder: Path) -> None:
    assert inspect(folder, kv_dtype="f32").cost.kv_bytes_per_layer_token == 32
    with pytest.raises(CheckpointError, match="no cache type"):
        inspect(folder, kv_dtype="f3")


def test_a_config_that_names_no_dtype_takes_the_one_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "torch_dtype": None}))
    with pytest.raises(CheckpointError, match="give a dtype"):
        inspect(tmp_path)
    assert inspect(tmp_path, dtype="f32").cost.per_layer_bytes == 4 * 592


def test_a_config_with_a_bare_infinity_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "time_step_limit": [0.0, float("inf")]}))
    assert inspect(tmp_path).cost.n_layers == 2


def write_gguf(path: Path, title: str = "small") -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(title)
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    shapes = {"token_embd": (96, 64), "output_norm": (64,)}
    for at in range(2):
        for name, rows in {"attn_q": 64, "attn_k": 32, "attn_v": 32, "attn_output": 64, "ffn_up": 128}.items():
            shapes[f"blk.{at}.{name}"] = (rows, 64)
    for name, shape in shapes.items():
        if len(shape) > 1:
            rows, width = shape
            packed = np.zeros((rows, width // 32 * 34), np.uint8)
            writer.add_tensor(f"{name}.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_is_priced_by_its_own_figures(tmp_path: Path) -> None:
    """Rows of 64 take 68 bytes; the table is the head too."""
    write_gguf(tmp_path / "small.gguf")
    made = inspect(tmp_path, kv_dtype="f16").cost
    assert (made.name, made.source, made.n_layers) == ("small", "small.gguf", 2)
    assert made.per_layer_bytes == (64 + 32 + 32 + 64 + 128) * 68
    assert made.per_layer_flops == 2.0 * 320 * 64
    assert made.kv_bytes_per_layer_token == 2 * 32 * 2
    assert (made.embed_bytes, made.head_bytes, made.tied_bytes) == (96 * 68, 96 * 68 + 256, 96 * 68)


def test_a_name_in_a_file_cannot_draw_on_a_terminal(tmp_path: Path) -> None:
    write_gguf(tmp_path / "small.gguf", "a\x1b[31m\u202eb" + "c" * 300)
    assert inspect(tmp_path).cost.name == ("a[31mb" + "c" * 300)[:255]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has neither safetensors nor GGUF files, nor a config.json"),
        ({"config.json": "{"}, "config.json is not JSON"),
        ({"config.json": "[" * 100_000}, "config.json is not JSON"),
        ({"config.json": "[]"}, "config.json is no object"),
        ({"config.json": " " * 5_000_000}, "config.json is larger than"),
        ({"a.gguf": "x", "b.gguf": "x"}, "has 2 GGUF models; name one"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(CheckpointError, match=message):
        inspect(tmp_path)


def test_what_is_not_there_is_said_too(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"can.t read .*nothing: No such file"):
        inspect(tmp_path / "nothing")


def test_an_index_is_a_way_to_its_shards(folder: Path) -> None:
    parts = [(name, f"model-{1 + (at >= 9):05}-of-00002.safetensors") for at, name in enumerate(NAMES)]
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 7}, "weight_map": dict(parts)}))
    for path in (folder, index):
        made = inspect(path)
        assert made.cost.per_layer_bytes == 1184
        assert "7" in made.notes[0]
        assert "2704" in made.notes[0]
