"""Parameters and windows against what the real classes of these models say, counted once and kept.

``golden/architectures.json`` was counted on torch's meta device with transformers 5.24: for each config the parameters
around the layers, run-length those of each layer, those of the towers, and each layer's window where the class slides
at all. Routers' biases, which are buffers of the classes but stored, count as parameters.
"""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from app.checkpoints.architectures import architecture
from app.checkpoints.roles import Parts, sort_out
from app.checkpoints.tensors import Architecture, Tensor

GOLDEN: dict[str, dict[str, Any]] = json.loads((Path(__file__).parents[1] / "golden/architectures.json").read_text())

Runs = list[list[Any]]


def runs(values: list[Any]) -> Runs:
    """Run-length: ``[[count, value], ..]``."""
    return [[len(list(equal)), value] for value, equal in groupby(values)]


def parameters(tensors: list[Tensor]) -> int:
    return sum(t.n_elements for t in tensors)


def parts_of(found: Architecture) -> Parts:
    return sort_out(found.tensors or (), len(found.caches))


def check(found: Architecture, real: dict[str, Any]) -> None:
    parts = parts_of(found)
    layers = [parameters(dense + experts) for dense, experts in zip(parts.dense, parts.experts, strict=True)]
    assert runs(layers) == real["layers"]
    assert parameters(parts.embedding + parts.head) == real["around"]
    assert parameters(parts.apart.get("vision", [])) == real.get("towers", 0)
    if "windows" in real:
        assert runs([cache.window for cache in found.caches]) == real["windows"]
    else:
        assert all(cache.window is None for cache in found.caches)


@pytest.mark.parametrize("name", GOLDEN["small"])
def test_a_small_model_of_each_kind_has_the_parameters_of_its_class(name: str) -> None:
    real = GOLDEN["small"][name]
    check(architecture(real["config"], "bf16"), real)


@pytest.mark.parametrize("name", GOLDEN["published"])
def test_a_published_model_has_the_parameters_of_its_class(shared: Path, name: str) -> None:
    config = json.loads((shared / f"memory/configs/{name}.json").read_text())
    check(architecture(config, "bf16"), GOLDEN["published"][name])


def test_the_bytes_of_an_unquantised_model_are_its_parameters_by_the_type() -> None:
    config = GOLDEN["small"]["llama"]["config"]
    for dtype, size in (("f32", 4), ("bf16", 2), ("float16", 2), ("torch.float64", 8)):
        tensors = architecture(config, dtype).tensors or ()
        assert {t.n_bytes for t in tensors if t.name == "model.norm.weight"} == {64 * size}
        assert sum(t.n_bytes for t in tensors) == size * sum(t.n_elements for t in tensors)


@pytest.mark.parametrize("name", GOLDEN["small"])
def test_a_layer_caches_what_its_projections_of_keys_and_values_make(name: str) -> None:
    """Where a layer has such projections; the others have a latent, one matrix for all three, or a state."""
    found = architecture(GOLDEN["small"][name]["config"], "bf16")
    for layer, cache in zip(parts_of(found).dense, found.caches, strict=True):
        rows = {t.name.rsplit(".", 2)[1]: t.shape[0] for t in layer if t.name.endswith("_proj.weight")}
        if "k_proj" in rows:
            assert cache.k_elements == rows["k_proj"]
            assert cache.v_elements == rows.get("v_proj", rows["k_proj"])
            assert cache.state_elements == 0


@pytest.mark.parametrize("name", GOLDEN["small"])
def test_a_layer_that_mixes_tokens_keeps_something_of_them(name: str) -> None:
    """Only Nemotron-H has layers that don't mix: a feed-forward or experts alone."""
    found = architecture(GOLDEN["small"][name]["config"], "bf16")
    idle = [at for at, cache in enumerate(found.caches) if not cache.k_elements and not cache.state_elements]
    assert idle == ([1, 3] if name == "nemotron_h" else [])


def same_as(name: str, changes: dict[str, Any], other: dict[str, Any]) -> None:
    """Two ways to say one model."""
    config = GOLDEN["small"][name]["config"]
    assert architecture(config | changes, "bf16") == architecture(config | other, "bf16")


def test_a_model_may_be_said_in_several_ways() -> None:
    same_as("lfm2", {"layer_types": None, "full_attn_idxs": [1]}, {})
    same_as(
        "lfm2",
        {"block_auto_adjust_ff_dim": False},
        {"intermediate_size": 96, "block_multiple_of": 32 * 3, "block_ff_dim": 144},
    )
    same_as("exaone4", {"sliding_window_pattern": "LLLG"}, {})
    same_as("minimax", {"layer_types": None, "attn_type_list": [0, 0, 0, 1]}, {})
    same_as("mamba", {"time_step_rank": "auto"}, {"time_step_rank": 4})
    tower = GOLDEN["small"]["mistral3"]["config"]["vision_config"]
    same_as("mistral3", {"vision_config": tower | {"patch_size": [4, 4]}}, {})


def test_what_is_optional_can_be_left_out() -> None:
    config = GOLDEN["small"]
    plain = {t.name for t in architecture(config["cohere"]["config"] | {"use_qk_norm": False}, "bf16").tensors or ()}
    assert "model.layers.0.self_attn.q_norm.weight" not in plain
    alone = {
        t.name for t in architecture(config["nemotron_h"]["config"] | {"n_shared_experts": 0}, "bf16").tensors or ()
    }
    assert not any("shared_experts" in name for name in alone)


def test_a_tower_that_isn_t_known_is_left_out_and_the_language_model_is_all_there() -> None:
    llava = GOLDEN["small"]["llava"]["config"]
    other = architecture(llava | {"vision_config": {"model_type": "siglip_vision_model"}}, "bf16")
    deepseek = GOLDEN["small"]["deepseek_v3"]["config"]
    kimi = architecture({"model_type": "kimi_vl", "text_config": deepseek, "vision_config": {}}, "bf16")
    assert parts_of(other).apart == parts_of(kimi).apart == {}
    assert parameters(parts_of(kimi).stack) == parameters(parts_of(architecture(deepseek, "bf16")).stack)
