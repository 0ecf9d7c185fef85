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
