"""What models cost, on the wire."""

from dataclasses import asdict
from typing import Annotated, Self

from pydantic import Field, model_validator

from app.placement.cost import Block, ModelCost
from app.schemas.fields import WHOLE, Bytes, Count, Flops, Text
from app.schemas.parsing import Out, Strict

MAX_LAYERS = 10_000
MAX_BLOCKS = 2_000


class BlockIn(Strict):
    """``count`` equal layers in a row; figures per layer. Bytes; FLOPs for one token.

    ``kv_bytes_per_token`` are cached per token of one sequence, of the last ``kv_window`` tokens where attention
    slides; ``state_bytes`` per sequence. One token reads ``expert_active_bytes`` of ``expert_bytes``. The layers of a
    block that stays ``together`` are on one stage.
    """

    count: Annotated[int, Field(ge=1, le=MAX_LAYERS), WHOLE]
    bytes: Bytes
    flops: Flops = 1.0
    kv_bytes_per_token: Bytes = 0
    kv_window: Annotated[int, Field(ge=1, le=2**40), WHOLE] | None = None
    state_bytes: Bytes = 0
    expert_bytes: Bytes = 0
    expert_active_bytes: Bytes = 0
    together: bool = False

    def to_block(self) -> Block:
        """The block as planners see it."""
        return Block(
            self.count,
            self.bytes,
            self.flops,
            self.kv_bytes_per_token,
            self.kv_window,
            self.state_bytes,
            self.expert_bytes,
            self.expert_active_bytes,
            self.together,
        )


class ModelIn(Strict):
    """What a model costs: a stack of layers between an embedding and a head. Bytes; FLOPs for one token.

    Equal layers are described by ``per_layer_bytes`` and its like, others by ``layers``, which replaces these. A table
    that embedding and head share stands in both, with ``tied_embeddings``; ``tied_bytes`` of it, else the smaller of
    the two, are held once by a stage that is first and last. Everything together stays within 2^63-1 bytes.
    """

    n_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS), WHOLE]
    per_layer_bytes: Bytes | None = None
    embed_bytes: Bytes
    head_bytes: Bytes
    per_layer_flops: Flops = 1.0
    layers: Annotated[list[BlockIn], Field(fail_fast=True, min_length=1, max_length=MAX_BLOCKS)] | None = None
    kv_bytes_per_layer_token: Bytes = 0
    expert_bytes_per_layer: Bytes = 0
    expert_active_bytes_per_layer: Bytes = 0
    head_flops: Flops = 0.0
    tied_embeddings: bool = False
    tied_bytes: Bytes | None = None
    params: Count | None = Field(None, description="Parameters in all; needed to try other precisions")
    name: Text | None = None
    source: Text | None = None

    @model_validator(mode="after")
    def _layers_somehow(self) -> Self:
        if self.layers is None and self.per_layer_bytes is None:
            raise ValueError("give per_layer_bytes, or layers")
        return self

    def to_cost(self) -> ModelCost:
        """The cost as planners see it."""
        return ModelCost(
            self.n_layers,
            self.per_layer_bytes or 0,
            self.embed_bytes,
            self.head_bytes,
            self.per_layer_flops,
            self.name,
            self.source,
            tuple(block.to_block() for block in self.layers or ()),
            self.kv_bytes_per_layer_token,
            self.expert_bytes_per_layer,
            self.expert_active_bytes_per_layer,
            self.head_flops,
            self.tied_embeddings,
            self.tied_bytes,
            self.params,
        )


class BlockOut(Out):
    """Equal layers in a row, as asked."""

    count: int
    bytes: int
    flops: float
    kv_bytes_per_token: int
    kv_window: int | None
    state_bytes: int
    expert_bytes: int
    expert_active_bytes: int
    together: bool


class ModelOut(Out):
    """The model as it was planned, and its weights in all, a shared table once. ``layers`` is null for equal layers.

    ``estimated``: its layers' bytes are scaled to another precision than asked.
    """

    n_layers: int
    per_layer_bytes: int
    embed_bytes: int
    head_bytes: int
    per_layer_flops: float
    layers: list[BlockOut] | None
    kv_bytes_per_layer_token: int
    expert_bytes_per_layer: int
    expert_active_bytes_per_layer: int
    head_flops: float
    tied_embeddings: bool
    tied_bytes: int | None
    params: int | None
    name: str | None
    source: str | None
    total_bytes: int
    estimated: bool

    @staticmethod
    def of(model: ModelCost, *, estimated: bool) -> "ModelOut":
        """The echo."""
        own = {field: getattr(model, field) for field in ModelOut.model_fields if hasattr(model, field)}
        layers = [BlockOut(**asdict(block)) for block in model.layers] or None
        return ModelOut(**(own | {"layers": layers, "estimated": estimated}))
