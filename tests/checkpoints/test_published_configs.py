"""Configs as published: bytes as their indices say, parameters as their pages say, caches by the architecture."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.checkpoints.architectures import architecture
from app.checkpoints.costs import price
from app.checkpoints.tensors import Architecture, Cache, CheckpointError

PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b-v0.1": 7_241_732_096,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2-lite": 15_706_484_224,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b-it": 999_885_952,
    "phi-3-mini-4k-instruct": 3_821_079_552,
    "jamba-1.5-mini": 51_570_323_328,
    "mamba-2.8b-hf": 2_768_345_600,
    "codestral-mamba-7b": 7_285_403_648,
    "falcon-mamba-7b": 7_272_665_088,
    "granite-4.0-h-micro-base": 3_191_396_096,
}
"""Parameters as the models' pages state them, a shared table once, blocks that predict further tokens left out."""

WITH_PREDICTIONS = {"glm-4.5": 358_337_791_296, "glm-4.5-air": 110_468_824_832}
"""The same of pages that count blocks that predict further tokens, copies of both tables included."""

KEPT = {
    "llama-3.1-8b": [(32, Cache(1024, 1024))],
    "mistral-7b-v0.1": [(32, Cache(1024, 1024, 4096))],
    "qwen2.5-7b": [(28, Cache(512, 512))],  # has a window and says that it doesn't use it
    "deepseek-v3": [(61, Cache(512 + 64))],
    "deepseek-v3.2": [(61, Cache(512 + 64 + 128))],
    "gemma-2-9b": [(1, Cache(2048, 2048, 4096)), (1, Cache(2048, 2048))],
    "gemma-3-1b-it": [(5, Cache(256, 256, 512)), (1, Cache(256, 256))],
    "gemma-4-26b-a4b-it": [(5, Cache(2048, 2048, 1024)), (1, Cache(1024, 1024))],
    "gpt-oss-120b": [(1, Cache(512, 512, 128)), (1, Cache(512, 512))],
    "llama-4-scout-17b-16e-instruct": [(3, Cache(1024, 1024, 8192)), (1, Cache(1024, 1024))],
    "phi-3-mini-4k-instruct": [(32, Cache(3072, 3072, 2047))],
    "falcon-180b-chat": [(80, Cache(512, 512))],
    "qwen3-next-80b-a3b": [(3, Cache(state_elements=24_576 + 524_288)), (1, Cache(512, 512))],
    "minimax-text-01-hf": [(7, Cache(state_elements=64 * 128 * 128)), (1, Cache(1024, 1024))],
    "minimax-m1-80k": [(7, Cache(state_elements=64 * 128 * 128)), (1, Cache(1024, 1024))],
    "jamba-1.5-mini": [(4, Cache(state_elements=3 * 8192 + 8192 * 16)), (1, Cache(1024, 1024))],
    "mamba-2.8b-hf": [(64, Cache(state_elements=15_360 + 81_920))],
    "mamba2-2.7b": [(64, Cache(state_elements=3 * (5120 + 2 * 128) + 5120 * 128))],
    "bamba-9b-v2": [(9, Cache(state_elements=3 * (8192 + 2 * 128) + 8192 * 128)), (1, Cache(1024, 1024))],
    "nemotron-h-8b-base-8k": [(1, Cache(state_elements=3 * (8192 + 2 * 8 * 128) + 8192 * 128)), (1, Cache())],
}
"""How the stack begins: runs of layers, and what each keeps of a sequence."""


def config_of(shared: Path, name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((shared / f"memory/configs/{name}.json").read_text())
    return config


def of(shared: Path, name: str) -> Architecture:
    """The architecture of a published config; those that don't say it are stored in bfloat16."""
    config = config_of(shared, name)
    try:
        return architecture(config)
    except CheckpointError as error:
        assert "give a dtype" in error.detail
        return architecture(config, "bf16")


def index(shared: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((shared / "memory/configs/INDEX.json").read_text())
    return entries


def test_every_published_total_size_is_met_to_the_byte_or_by_named_buffers(shared: Path) -> None:
    met = 0
    for entry in index(shared):
        if "total_size" in entry:
            found = of(shared, entry["file"].removesuffix(".json"))
            assert found.tensors is not None
            size = sum(t.n_bytes for t in found.tensors)
            buffers = sum(t.n_bytes for t in found.buffers)
            assert entry["total_size"] == size + buffers, entry["file"]
            assert bool(buffers) == entry["file"].startswith("llama-2"), "no others are that old"
            met += 1
    assert met == 15


def test_every_config_has_its_layers_and_none_is_without_a_cache_or_a_state(shared: Path) -> None:
    for entry in index(shared):
        found = of(shared, entry["file"].removesuffix(".json"))
        assert len(found.caches) == entry.get("n_layers", len(found.caches)), entry["file"]
        assert any(c.k_elements or c.state_elements for c in found.caches), entry["file"]
        cost = price(found.tensors or (), found).cost
        assert sum(block.count for block in cost.blocks) == len(found.caches)
        assert all(block.flops > 0 and block.bytes > 0 for block in cost.blocks), entry["file"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_published(shared: Path, name: str) -> None:
    found = of(shared, name)
    assert price(found.tensors or (), found).cost.params == PUBLISHED[name]


@pytest.mark.parametrize("name", WITH_PREDICTIONS)
def test_blocks_that_predict_further_tokens_are_of_the_published_size_too(shared: Path, name: str) -> None:
    assert sum(t.n_elements for t in of(shared, name).tensors or ()) == WITH_PREDICTIONS[name]


@pytest.mark.parametrize("name", KEPT)
def test_each_layer_keeps_what_its_kind_keeps(shared: Path, name: str) -> None:
    expected = [cache for count, cache in KEPT[name] for _ in range(count)]
    assert list(of(shared, name).caches[: len(expected)]) == expected


def test_deepseek_v3_in_eight_bits_is_what_its_checkpoint_weighs(shared: Path) -> None:
    """671,026,404,352 parameters and a bias per expert; a block that predicts, with copies of both tables, apart."""
    found = of(shared, "deepseek-v3")
    made = price(found.tensors or (), found)
    assert (found.n_experts, found.experts_per_token) == (256, 8)
    assert [(b.count, b.expert_bytes, b.expert_active_bytes) for b in made.cost.layers] == [
        (3, 0, 0),
        (58, 11_277_041_664, 352_407_552),
    ]
    assert made.cost.params == 671_026_419_200
    assert sum(t.n_bytes for t in found.tensors or ()) == 688_574_839_360
    assert made.notes[0].startswith("15424227552 bytes of blocks that predict further tokens")


def test_parameters_of_a_quantised_model_are_told_by_its_config(shared: Path) -> None:
    """gpt-oss-120b has 116.83 billion, two of them in a byte."""
    found = of(shared, "gpt-oss-120b")
    assert price(found.tensors or (), found).cost.params == 116_829_156_672


def test_a_model_that_also_sees_keeps_its_language_part_nested_and_its_tower_apart(shared: Path) -> None:
    found = of(shared, "olmocr-qwen2-vl-7b")
    made = price(found.tensors or (), found)
    assert made.cost.params == 7_615_616_512
    assert "1351518208 bytes of towers for images" in made.notes[0]
