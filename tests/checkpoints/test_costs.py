"""From tensors to a cost: what belongs where, what is shared, what one token touches."""

import pytest

from app.checkpoints.caches import kv_bytes_per_token, state_bytes
from app.checkpoints.costs import price
from app.checkpoints.roles import n_layers_of, sort_out
from app.checkpoints.tensors import Architecture, Cache, CheckpointError, Tensor
from app.placement.cost import Block


def tensor(name: str, *shape: int, dtype: str = "bf16", size: int = 2) -> Tensor:
    found = Tensor(name, shape, dtype, 0)
    return Tensor(name, shape, dtype, found.n_elements * size)


def layer(at: int, rows: int = 4) -> list[Tensor]:
    """Keys and values of so many rows, and a matrix."""
    prefix = f"model.layers.{at}"
    return [
        tensor(f"{prefix}.self_attn.k_proj.weight", rows, 8),
        tensor(f"{prefix}.self_attn.v_proj.weight", rows, 8),
        tensor(f"{prefix}.mlp.up_proj.weight", 16, 8),
    ]


EMBEDDING, NORM = tensor("model.embed_tokens.weight", 10, 8), tensor("model.norm.weight", 8)
HEAD = tensor("lm_head.weight", 10, 8)
TWO = [EMBEDDING, *layer(0), *layer(1), NORM]


def shape_of(*caches: Cache, tied: bool = False, experts: int = 0, used: int = 0) -> Architecture:
    return Architecture("some", caches, tied, experts, used)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.layers.1.mlp.up_proj.weight", "layer"),
        ("transformer.h.1.attn.c_attn.weight", "layer"),
        ("h.1.self_attention.dense.bias", "layer"),
        ("language_model.model.layers.1.mlp.up_proj.weight", "layer"),
        ("backbone.layers.1.mixer.A_log", "layer"),
        ("blk.1.ffn_up.weight", "layer"),
        ("model.layers.1.mlp.experts.7.up_proj.weight", "expert"),
        ("model.layers.1.mlp.experts.gate_up_proj_blocks", "expert"),
        ("model.layers.1.block_sparse_moe.input_linear.weight", "expert"),
        ("model.layers.1.block_sparse_moe.experts.0.w1.weight", "expert"),
        ("blk.1.ffn_gate_exps.weight", "expert"),
        ("model.layers.1.mlp.shared_experts.up_proj.weight", "layer"),
        ("blk.1.ffn_up_shexp.weight", "layer"),
        ("model.layers.1.mlp.gate.weight", "layer"),
        ("model.embed_tokens.weight", "embedding"),
        ("transformer.wte.weight", "embedding"),
        ("transformer.word_embeddings_layernorm.weight", "embedding"),
        ("backbone.embeddings.weight", "embedding"),
        ("token_embd.weight", "embedding"),
        ("lm_head.weight", "head"),
        ("output.weight", "head"),
        ("output_norm.weight", "head"),
        ("model.norm.weight", "head"),
        ("model.layers.2.eh_proj.weight", "prediction"),
        ("mtp.layers.0.mlp.up_proj.weight", "prediction"),
        ("model.mtp_layers.0.mlp.up_proj.weight", "prediction"),
        ("visual.blocks.1.attn.qkv.weight", "vision"),
        ("vision_tower.vision_model.encoder.layers.1.mlp.fc1.weight", "vision"),
        ("multi_modal_projector.linear_1.weight", "vision"),
        ("model.visual.merger.mlp.0.weight", "vision"),
    ],
)
def test_a_name_tells_where_a_tensor_belongs(name: str, part: str) -> None:
    parts = sort_out([tensor(name, 1)], 2)
    found = {
        "layer": len(parts.dense[1]),
        "expert": len(parts.experts[1]),
        "embedding": len(parts.embedding),
        "head": len(parts.head),
        "prediction": len(parts.apart.get("prediction", [])),
        "vision": len(parts.apart.get("vision", [])),
    }
    assert {key for key, count in found.items() if count} == {part}


def test_bytes_stand_where_they_are_held() -> None:
    made = price([*TWO, HEAD], shape_of(Cache(4, 4), Cache(4, 4)), name="m", source="s").cost
    assert (made.embed_bytes, made.head_bytes) == (160, 16 + 160)
    assert (made.n_layers, made.per_layer_bytes, made.kv_bytes_per_layer_token) == (2, 2 * (32 + 32 + 128), 16)
    assert (made.layers, made.tied_embeddings, made.tied_bytes) == ((), False, None)
    assert (made.per_layer_flops, made.head_flops) == (2.0 * 192, 2.0 * 88)
    assert (made.params, made.name, made.source) == (80 + 2 * 192 + 88, "m", "s")
    assert made.total_bytes == 2 * (80 + 2 * 192 + 88)


def test_a_shared_table_stands_at_both_ends_and_is_counted_once() -> None:
    made = price(TWO, shape_of(Cache(4, 4), Cache(4, 4), tied=True)).cost
    assert (made.embed_bytes, made.head_bytes, made.tied_bytes) == (160, 16 + 160, 160)
    assert made.head_flops == 2.0 * 88
    assert made.total_bytes == 2 * (made.params or 0) == 160 + 2 * 384 + 16


def test_a_head_that_is_stored_is_no_shared_table_whatever_the_config_says() -> None:
    made = price([*TWO, HEAD], shape_of(Cache(4, 4), Cache(4, 4), tied=True)).cost
    assert (made.tied_embeddings, made.head_bytes) == (False, 176)


def test_layers_that_differ_become_runs_in_their_order() -> None:
    caches = (Cache(4, 4, 7), Cache(4, 4, 7), Cache(4, 4), Cache(state_elements=3))
    tensors = [EMBEDDING, NORM, *(t for at in range(4) for t in layer(at))]
    made = price(tensors, shape_of(*caches)).cost
    assert made.layers == (
        Block(2, 384, 384.0, 16, 7),
        Block(1, 384, 384.0, 16),
        Block(1, 384, 384.0, 0, None, 12),
    )


def test_one_kind_of_layer_with_a_window_still_needs_a_block() -> None:
    made = price(TWO, shape_of(Cache(4, 4, 7), Cache(4, 4, 7))).cost
    assert made.layers == (Block(2, 384, 384.0, 16, 7),)


def test_of_the_experts_one_token_touches_its_share() -> None:
    """Eight experts of 16 parameters, two of them used."""
    experts = [tensor(f"model.layers.{at}.mlp.experts.{e}.w.weight", 4, 4) for at in range(2) for e in range(8)]
    made = price([*TWO, *experts], shape_of(Cache(4, 4), Cache(4, 4), experts=8, used=2)).cost
    assert (made.expert_bytes_per_layer, made.expert_active_bytes_per_layer) == (256, 64)
    assert made.per_layer_flops == 2.0 * (192 + 32)


def test_packed_files_take_their_parameters_from_the_config() -> None:
    packed = [EMBEDDING, Tensor("model.layers.0.mlp.up_proj.qweight", (8, 2), "i32", 64), NORM]
    known = Architecture("some", (Cache(4, 4),), tied=True, tensors=(EMBEDDING, *layer(0), NORM))
    made = price(packed, known).cost
    assert (made.per_layer_bytes, made.per_layer_flops, made.params) == (64, 384.0, 80 + 192 + 8)


def test_without_a_config_caches_follow_from_the_projections_and_it_is_said() -> None:
    made = price(TWO, None)
    assert (made.cost.kv_bytes_per_layer_token, made.cost.tied_embeddings) == (16, True)
    assert made.notes == ("no config: caches by the shapes of the projections, without sliding windows",)
    latent = [tensor("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", 6, 8)]
    assert price(latent, None).cost.kv_bytes_per_layer_token == 12


def test_packed_files_without_a_config_have_no_parameters_that_could_be_told() -> None:
    made = price([*TWO, Tensor("model.layers.1.mlp.gate.qweight", (8, 2), "i32", 64)], None)
    assert made.cost.params is None
    assert "packed tensors hide how many parameters there are" in made.notes[-1]


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([tensor("model.layers.0.self_attn.qkv_proj.weight", 12, 8)], "layer 0 shows no projection"),
        ([EMBEDDING], "no tensor stands in a layer"),
        ([], "no tensor stands in a layer"),
    ],
)
def test_a_cache_that_cannot_be_told_is_no_zero(tensors: list[Tensor], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        price(tensors, None)


def test_a_layer_that_the_files_lack_is_named() -> None:
    with pytest.raises(CheckpointError, match="layer 1 has no tensors"):
        price([EMBEDDING, *layer(0), NORM], shape_of(Cache(4, 4), Cache(4, 4)))


def test_what_is_apart_is_noted_and_not_counted() -> None:
    extra = [tensor("visual.blocks.0.w", 5), tensor("model.layers.2.eh_proj.weight", 3)]
    made = price([*TWO, *extra], shape_of(Cache(4, 4), Cache(4, 4)))
    assert made.cost == price(TWO, shape_of(Cache(4, 4), Cache(4, 4))).cost
    assert made.notes == (
        "6 bytes of blocks that predict further tokens are no part of the stack and not counted",
        "10 bytes of towers for images or sound are no part of the stack and not counted",
    )


def test_towers_are_no_layers() -> None:
    assert n_layers_of([tensor("vision_tower.encoder.layers.26.w", 1), *layer(3)]) == 4


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("f32", 256),
        ("f16", 128),
        ("bf16", 128),
        ("fp8", 64),
        ("q8_0", 68),
        ("q4_0", 36),
        ("q8_0/f16", 34 + 64),
        ("f16/q4_0", 64 + 18),
    ],
)
def test_a_token_s_keys_and_values_weigh_by_their_type(dtype: str, size: int) -> None:
    assert kv_bytes_per_token(Cache(32, 32), dtype) == size


def test_blocks_are_filled_by_rows_and_states_are_float32() -> None:
    assert kv_bytes_per_token(Cache(33, 0), "q8_0") == 68
    assert state_bytes(Cache(state_elements=5)) == 20


def test_a_type_that_nobody_knows_is_named_beside_those_that_are() -> None:
    with pytest.raises(CheckpointError, match="no cache type 'int3'; there are f32, f16"):
        kv_bytes_per_token(Cache(1, 1), "int3")
