import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.checkpoints.caches import STATE_BYTES, kv_bytes_per_token
from app.checkpoints.gguf_architecture import architecture
from app.checkpoints.tensors import Architecture, Cache, CheckpointError
from tests.checkpoints.gguf_models import (
    FFN,
    Layer,
    attention,
    delta_hybrid,
    dense,
    latent,
    mamba_2_8b,
    mamba_figures,
    mamba_layer,
    metadata,
    published,
    shown,
    tensor,
)

OTHER_ENGINES = ("Llama-3.1-8B vLLM", "Llama-3.1-70B (HF blog table", "Qwen3-235B-A22B-FP8 SGLang")
"""Measured on what is no GGUF file."""

VALUES_BESIDE_THE_LATENT = "DeepSeek-V3/R1 mainline llama.cpp 2025"
"""Until January 2026 llama.cpp also kept 512 elements of values, which the latent has already."""


def measured(shared: Path, kind: str) -> list[dict[str, Any]]:
    entries = json.loads((shared / "memory/ground_truth.json").read_text())
    return [e for e in entries if e["kind"] == kind and not e["model"].startswith(OTHER_ENGINES)]


def test_caches_are_those_that_llama_cpp_printed(shared: Path) -> None:
    """Elements of a layer, how many layers have them, and the bytes of all cells in the printed precision."""
    entries = measured(shared, "kv_cache")
    assert len(entries) > 40
    for e in entries:
        caches = published(e["model"]).caches
        assert len(caches) == e["n_layers"]
        attending = [c for c in caches if c.k_elements]
        of_a_kind = [c for c in attending if (c.window is not None) == ("SWA" in e["model"].replace("non-SWA", ""))]
        counted = attending if "270m" in e["model"] else of_a_kind
        assert len(counted) == e["n_kv_layers"] or "stage" in e["model"], e["model"]
        values = 0 if e["model"].startswith(VALUES_BESIDE_THE_LATENT) else e["v_elems_per_token_layer"]
        assert {(c.k_elements, c.v_elements) for c in counted} == {(e["k_elems_per_token_layer"], values)}, e["model"]
        dtypes = "/".join(word.split()[1] for word in e["kv_dtype"].split(" / "))
        total = e["n_kv_layers"] * e["cells"] * e["streams"] * kv_bytes_per_token(counted[0], dtypes)
        if not e["model"].startswith(VALUES_BESIDE_THE_LATENT):
            assert round(total / 2**20, 2) == pytest.approx(e["expected_mib_as_printed"], abs=0.011), e["model"]


def test_states_are_those_that_llama_cpp_printed(shared: Path) -> None:
    entries = measured(shared, "state")
    assert len(entries) == 6
    for e in entries:
        states = [c.state_elements for c in published(e["model"]).caches if c.state_elements]
        assert states == [e["r_elems_per_layer_seq"] + e["s_elems_per_layer_seq"]] * e["n_recurrent_layers"]
        total = sum(states) * STATE_BYTES * e["n_parallel"]
        assert total / 2**20 == pytest.approx(e["expected_mib_as_printed"], abs=0.006)


def windows(made: Architecture) -> list[int | None]:
    return [c.window for c in made.caches]


W = 512
PATTERNS: dict[str, list[int | None]] = {
    "gemma2": [W, None] * 6,
    "gemma3": [W, W, W, W, W, None] * 2,
    "gpt-oss": [W, None] * 6,
    "cohere2": [W, W, W, None] * 3,
    "olmo2": [W, W, W, None] * 3,
    "afmoe": [W, W, W, None] * 3,
    "exaone-moe": [W, W, W, None] * 3,
    "mellum": [W, W, W, None] * 3,
    "cohere2moe": [None, W, W, W] * 3,
    "gemma3n": [W, W, W, W, None] * 2 + [W, W],
    "plamo3": [W] * 7 + [None] + [W] * 4,
    "llama4": [8192, 8192, 8192, None] * 3,
    "smallthinker": [None, 4096, 4096, 4096] * 3,
    "phi3": [None] * 12,
    "llama": [None] * 12,
    "qwen2": [None] * 12,
}


@pytest.mark.parametrize("arch", PATTERNS)
def test_which_layers_slide_is_fixed_by_the_architecture(arch: str) -> None:
    assert windows(dense(arch, 12, 64, 4, 2, sliding_window=W)) == PATTERNS[arch]


def test_some_architectures_have_a_window_that_their_files_do_not_name() -> None:
    assert windows(dense("gemma2", 2, 64, 4)) == [4096, None]
    assert windows(dense("llama4", 4, 64, 4)) == [8192, 8192, 8192, None]
    assert windows(dense("llama4", 4, 64, 4, sliding_window=0)) == [None] * 4
    assert windows(dense("exaone-moe", 4, 64, 4)) == [128, 128, 128, None]
    assert windows(dense("exaone4", 64, 64, 4))[:4] == [4096, 4096, 4096, None]
    assert windows(dense("exaone4", 30, 64, 4, sliding_window=W)) == [None] * 30
    assert windows(dense("smallthinker", 4, 64, 4)) == [None] * 4
    assert windows(dense("gemma3", 6, 64, 4)) == [None] * 6


@pytest.mark.parametrize("arch", ["gpt-oss", "cohere2", "cohere2moe", "gemma3n"])
def test_others_must_name_it(arch: str) -> None:
    with pytest.raises(CheckpointError, match=f"{arch}.attention.sliding_window is missing"):
        dense(arch, 4, 64, 4)


def test_the_files_own_pattern_comes_first() -> None:
    listed = [True, False, False, True, True, False]
    assert windows(dense("mimo2", 6, 64, 4, sliding_window=W, sliding_window_pattern=listed)) == [
        W if slides else None for slides in listed
    ]
    assert windows(dense("gemma3", 4, 64, 4, sliding_window=W, sliding_window_pattern=2)) == [W, None] * 2
    assert windows(dense("mystery", 2, 64, 4, sliding_window=W, sliding_window_pattern=[0, 1])) == [None, W]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"sliding_window": W}, "sliding_window_pattern is missing: there is a window"),
        ({"sliding_window_pattern": [True, True]}, "attention.sliding_window is missing"),
        ({"sliding_window": W, "sliding_window_pattern": [True]}, "must say of each of the 2 layers"),
        ({"sliding_window": W, "sliding_window_pattern": [True, 0.5]}, "must say of each of the 2 layers"),
        ({"sliding_window": W, "sliding_window_pattern": "no"}, "must be a whole number from 1"),
        ({"sliding_window": -1}, "must be a whole number from 0"),
    ],
)
def test_a_window_that_cannot_be_placed_is_refused(told: dict[str, Any], why: str) -> None:
    with pytest.raises(CheckpointError, match=why):
        dense("mystery", 2, 64, 4, **told)


def test_sliding_layers_may_have_heads_of_their_own() -> None:
    """Gemma 4: 8 heads of 256 where it slides, 2 of 512 where not, and the last two layers reuse a cache."""
    figures = {
        "embedding_length": 64,
        "attention.head_count": 8,
        "attention.head_count_kv": [8, 2, 8, 2],
        "attention.key_length": 512,
        "attention.value_length": 512,
        "attention.key_length_swa": 256,
        "attention.value_length_swa": 256,
        "attention.sliding_window": W,
        "attention.sliding_window_pattern": [True, False, True, False],
        "attention.shared_kv_layers": 2,
    }
    layers = [attention(64, 2048), {"attn_k.weight": (1024, 64), **FFN}, {"attn_q.weight": (64, 64), **FFN}]
    made = shown("gemma4", figures, [*layers, attention(64, 1024)])
    assert made.caches == (Cache(2048, 2048, W), Cache(1024, 1024), Cache(), Cache())


def test_gemma3n_caches_in_its_first_twenty_layers_whatever_the_file_says() -> None:
    made = dense("gemma3n", 30, 64, 4, 2, sliding_window=W)
    assert [bool(c.k_elements) for c in made.caches] == [True] * 20 + [False] * 10
    assert all(c.k_elements for c in dense("gemma3n", 5, 64, 4, 2, sliding_window=W).caches)


def test_heads_by_layer_and_lengths_of_keys_and_values_apart() -> None:
    figures = {"embedding_length": 64, "attention.head_count": [4, 8], "attention.head_count_kv": [2, 4],
               "attention.key_length": 24, "attention.value_length": 16}  # fmt: skip
    made = shown("mimo2", figures, [attention(64, 48, 32), attention(64, 96, 64)])
    assert made.caches == (Cache(48, 32), Cache(96, 64))


def test_one_projection_for_queries_keys_and_values() -> None:
    """Falcon-7B: 71 heads of 64 and one of keys and values."""
    figures = {"embedding_length": 4544, "attention.head_count": 71, "attention.head_count_kv": 1}
    made = shown("falcon", figures, [{"attn_qkv.weight": (73 * 64, 4544), **FFN}])
    assert made.caches == (Cache(64, 64),)


def test_latent_attention_without_latents_runs_as_full_heads() -> None:
    """MiniCPM3 never had the absorbed projections; lengths may also stand under the newer keys."""
    figures = {"embedding_length": 2560, "attention.head_count": 40, "attention.head_count_kv": 40,
               "attention.key_length": 96, "attention.kv_lora_rank": 256, "rope.dimension_count": 32}  # fmt: skip
    layer = {"attn_kv_a_mqa.weight": (288, 2560), "attn_kv_b.weight": (40 * 128, 256)}
    assert shown("minicpm3", figures, [layer]).caches == (Cache(40 * 96, 40 * 64),)
    newer = figures | {"attention.head_count_kv": 1, "attention.key_length": 288,
                       "attention.key_length_mla": 96, "attention.value_length_mla": 64}  # fmt: skip
    assert shown("deepseek2", newer, [layer]).caches == (Cache(40 * 96, 40 * 64),)
    del newer["attention.key_length_mla"]
    with pytest.raises(CheckpointError, match=r"deepseek2\.attention\.key_length_mla is missing"):
        shown("deepseek2", newer, [layer])


def test_an_indexer_caches_a_key_beside_the_latent() -> None:
    figures = {"embedding_length": 64, "attention.head_count": 8, "attention.kv_lora_rank": 512,
               "rope.dimension_count": 64, "attention.indexer.key_length": 128}  # fmt: skip
    plain = {"attn_kv_a_mqa.weight": (576, 64), "attn_k_b.weight": (8, 512, 128)}
    indexed = {**plain, "indexer.attn_k.weight": (128, 64)}
    assert shown("deepseek32", figures, [indexed, plain]).caches == (Cache(704), Cache(576))


NEMOTRON: dict[str, Any] = {
    **mamba_figures(128, 16, group_count=2),
    "attention.head_count": [0, 4, 0],
    "attention.head_count_kv": [0, 2, 0],
    "attention.key_length": 8,
    "attention.value_length": 8,
    "feed_forward_length": [0, 0, 64],
}


def test_a_layer_is_what_its_tensors_make_it() -> None:
    """Nemotron-H: a state, a cache, or a feed-forward network alone."""
    layers: list[Layer] = [mamba_layer(128, 192), {"attn_k.weight": (16, 64), "attn_v.weight": (16, 64)}, FFN]
    made = shown("nemotron_h", NEMOTRON, layers)
    assert made.caches == (Cache(state_elements=3 * 192 + 128 * 16), Cache(16, 16), Cache())


def test_a_cache_and_a_state_side_by_side() -> None:
    """Falcon-H1 has both in every layer."""
    figures = NEMOTRON | {"attention.head_count": 4, "attention.head_count_kv": 2}
    layer = {**mamba_layer(128, 192), **attention(64, 16)}
    assert shown("falcon-h1", figures, [layer]).caches == (Cache(16, 16, state_elements=3 * 192 + 2048),)


def test_jambas_convolution_sees_no_groups() -> None:
    figures = NEMOTRON | {"attention.head_count": 4, "attention.head_count_kv": [0, 2]}
    del figures["ssm.group_count"]
    made = shown("jamba", figures, [mamba_layer(128), attention(64, 16)])
    assert made.caches == (Cache(state_elements=3 * 128 + 128 * 16), Cache(16, 16))


def test_short_convolutions() -> None:
    """LFM2: the last two inputs of 1,024 channels."""
    figures = {"embedding_length": 1024, "shortconv.l_cache": 3, "attention.head_count": 16,
               "attention.head_count_kv": [0, 8]}  # fmt: skip
    conv = {"shortconv.conv.weight": (1024, 3), "shortconv.in_proj.weight": (3072, 1024), **FFN}
    made = shown("lfm2", figures, [conv, attention(1024, 512)])
    assert made.caches == (Cache(state_elements=2 * 1024), Cache(512, 512))


def test_rwkv_keeps_shifted_tokens_and_a_matrix_per_head() -> None:
    layer = {"time_mix_key.weight": (64, 64), "time_mix_receptance.weight": (64, 64), "channel_mix_key.weight": (8, 8)}
    figures = {"embedding_length": 64, "wkv.head_size": 16}
    assert shown("rwkv7", figures, [layer]).caches == (Cache(state_elements=2 * 64 + 64 * 16),)
    one = figures | {"token_shift_count": 1}
    assert shown("arwkv7", one, [layer]).caches == (Cache(state_elements=64 + 64 * 16),)


def test_kimi_linear_has_latents_and_delta_attention() -> None:
    figures = {"embedding_length": 64, "attention.head_count": 4, "attention.head_count_kv": [0, 4], "kda.head_dim": 16,
               "ssm.conv_kernel": 4, "attention.kv_lora_rank": 32, "rope.dimension_count": 8}  # fmt: skip
    kda = {"ssm_conv1d_q.weight": (64, 4), "ssm_conv1d_k.weight": (64, 4), "ssm_a": (4,), **FFN}
    mla = {"attn_kv_a_mqa.weight": (40, 64), "attn_k_b.weight": (4, 32, 16), **FFN}
    made = shown("kimi-linear", figures, [kda, mla])
    assert made.caches == (Cache(state_elements=3 * 3 * 64 + 4 * 16 * 16), Cache(40))


def test_blocks_that_predict_further_tokens_are_no_part_of_the_stack() -> None:
    figures = {"embedding_length": 64, "attention.head_count": 4, "nextn_predict_layers": 1}
    further = {**attention(64, 64), "nextn.eh_proj.weight": (64, 128)}
    made = shown("glm4moe", figures, [attention(64, 64)] * 2 + [further])
    assert made.caches == (Cache(64, 64),) * 2
    with pytest.raises(CheckpointError, match="nextn_predict_layers counts block 2, which has no nextn tensors"):
        shown("glm4moe", figures, [attention(64, 64)] * 3)
    assert len(shown("glm4moe", figures | {"block_count": 3}, [attention(64, 64)] * 2).caches) == 2


def test_experts_and_the_tied_table() -> None:
    figures = {"embedding_length": 64, "attention.head_count": 4, "expert_count": 128, "expert_used_count": 8}
    made = shown("qwen3moe", figures, [attention(64, 64)], "output.weight")
    assert (made.name, made.n_experts, made.experts_per_token, made.tied) == ("qwen3moe", 128, 8, False)
    assert dense("llama", 1, 64, 4).tied
    assert dense("llama", 1, 64, 4).tensors is None
    with pytest.raises(CheckpointError, match=r"qwen3moe\.expert_used_count must be up to 128"):
        shown("qwen3moe", figures | {"expert_used_count": 129}, [attention(64, 64)])


LLAMA = {"embedding_length": 64, "attention.head_count": 4}
ONE = [attention(64, 64)]
UNKNOWABLE: dict[str, tuple[Callable[[], Architecture], str]] = {
    "nothing said": (lambda: architecture({}, ()), "general.architecture is missing"),
    "no name": (lambda: architecture({"general.architecture": 3}, ()), "general.architecture is missing or no name"),
    "an encoder": (lambda: shown("bert", LLAMA, ONE), "bert can't be planned: it is an encoder"),
    "diffusion": (lambda: shown("dream", LLAMA, ONE), "without a cache"),
    "compressed caches": (lambda: shown("deepseek4", LLAMA, ONE), "compressed caches aren't known"),
    "no blocks": (lambda: architecture(metadata("llama", LLAMA), ()), "llama.block_count is missing"),
    "too many blocks": (lambda: shown("llama", {**LLAMA, "block_count": 10_001}, ONE), "must be up to 10000"),
    "only further blocks": (lambda: shown("llama", {**LLAMA, "nextn_predict_layers": 1}, ONE), "more than nextn"),
    "half a block": (lambda: shown("llama", {**LLAMA, "block_count": 1.5}, ONE), "block_count must be a whole number"),
    "a block too many": (lambda: shown("llama", {**LLAMA, "block_count": 1}, ONE * 2), "beyond the 1 blocks"),
    "a block too few": (
        lambda: shown("llama", {**LLAMA, "block_count": 2}, ONE), r"layer 1 of llama has 0 tensors.*it is missing"
    ),
    "no heads": (lambda: shown("llama", {"embedding_length": 64}, ONE), "llama.attention.head_count is missing"),
    "no keys' heads": (
        lambda: shown("llama", {**LLAMA, "attention.head_count_kv": 0}, [{"attn_k.weight": ()}]), "is 0 for layer 0"
    ),
    "no width": (lambda: shown("llama", {"attention.head_count": 4}, ONE), "llama.embedding_length is missing"),
    "heads of too few layers": (
        lambda: shown("llama", {**LLAMA, "attention.head_count_kv": [4]}, ONE * 2), "for each of the 2 layers"
    ),
    "a head of true": (lambda: shown("llama", {**LLAMA, "attention.head_count": True}, ONE), "must be a whole number"),
    "other keys than it says": (
        lambda: shown("llama", {**LLAMA, "attention.head_count_kv": 2}, ONE), "attn_k has 64 rows, .* 32"
    ),
    "other values than it says": (
        lambda: shown("llama", LLAMA, [attention(64, 64, 32)]), "attn_v has 32 rows, .* 64"
    ),
    "another fused projection": (
        lambda: shown("falcon", LLAMA, [{"attn_qkv.weight": (64, 64)}]), "attn_qkv has 64 rows, .* 192"
    ),
    "another latent": (
        lambda: shown(
            "deepseek2",
            {**LLAMA, "attention.kv_lora_rank": 32, "rope.dimension_count": 8},
            [{"attn_kv_a_mqa.weight": (48, 64), "attn_k_b.weight": (4, 32, 16)}],
        ), "attn_kv_a_mqa has 48 rows, .* 40"
    ),
    "no rank": (
        lambda: shown("deepseek2", LLAMA, [{"attn_kv_a_mqa.weight": (48, 64), "attn_k_b.weight": (4, 32, 16)}]),
        "kv_lora_rank is missing",
    ),
    "an indexer of its own": (
        lambda: shown("minimax-m3", LLAMA, [{**attention(64, 64), "indexer.attn_k.weight": (8, 64)}]),
        "what the indexer of layer 0",
    ),
    "cross attention": (
        lambda: shown("mllama", LLAMA, [{**attention(64, 64), "cross_attn_k_proj.weight": (8, 64)}]), "isn't known"
    ),
    "an unknown mixer": (lambda: shown("new", LLAMA, [{"mixer_in.weight": (8, 8)}]), "none of attention or of a state"),
    "an unknown mixer without heads": (
        lambda: shown("new", {**LLAMA, "attention.head_count_kv": [0]}, [{"mixer_in.weight": (8, 8)}]),
        "none of attention or of a state",
    ),
    "a layer whose keys are told and not there": (
        lambda: shown("nemotron_h", NEMOTRON, [mamba_layer(128, 192), FFN, FFN]), "layer 1 of nemotron_h has 2 tensors"
    ),
    "an unknown state": (lambda: shown("new", LLAMA, [{"ssm_foo.weight": (8, 8)}]), "of a kind that isn't known"),
    "feed-forward networks alone": (
        lambda: shown("new", {**LLAMA, "attention.head_count_kv": [0]}, [FFN]), "no layer of new has attention"
    ),
    "no groups": (lambda: shown("mamba2", mamba_figures(128, 16), [mamba_layer(128)]), "mamba2.ssm.group_count is mis"),
    "another convolution": (
        lambda: shown("mamba2", mamba_figures(128, 16, group_count=1), [mamba_layer(128)]), "convolves 128 .* 160"
    ),
    "no kernel": (lambda: shown("mamba", {"embedding_length": 64}, [mamba_layer(128)]), "ssm.conv_kernel is missing"),
    "no head size": (
        lambda: shown("rwkv6", {"embedding_length": 64}, [{"time_mix_key.weight": (8, 8)}]), "wkv.head_size is missing"
    ),
    "experts that nobody uses": (lambda: shown("llama", {**LLAMA, "expert_count": 8}, ONE), "used_count is missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNKNOWABLE)
def test_what_cannot_be_known_is_said_and_never_a_zero(case: str) -> None:
    make, why = UNKNOWABLE[case]
    with pytest.raises(CheckpointError, match=why):
        make()


def test_tensors_of_quantised_files_have_the_same_rows() -> None:
    """Bytes and types play no part."""
    tensors = [tensor("blk.0.attn_k.weight", 64, 64), tensor("blk.0.attn_k.bias", 64)]
    assert architecture(metadata("qwen2", {**LLAMA, "block_count": 1}), tensors).caches == (Cache(64, 64),)


def test_the_models_of_this_file_are_of_every_kind() -> None:
    """So that the measurements above are met by more than one rule."""
    made = (mamba_2_8b(), latent(2, 4, absorbed=True), delta_hybrid("qwen35", 4, 2, 32))
    kinds = {(bool(c.k_elements), bool(c.v_elements), bool(c.state_elements)) for m in made for c in m.caches}
    assert kinds == {(False, False, True), (True, False, False), (True, True, False)}
