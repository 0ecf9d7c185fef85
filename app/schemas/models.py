"""What models cost, on the wire."""

from dataclasses import asdict
from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, model_validator

from app.placement.cost import Block, ModelCost
from app.planning import Variant
from app.schemas.fields import WHOLE, Bytes, Count, Flops, ModelName, Text
from app.schemas.parsing import MARK, Out, Strict

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


class CostIn(Strict):
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


class RefIn(Strict):
    """A model that was named before: PUT /models/{name}."""

    ref: ModelName


class RefsIn(Strict):
    """Variants of one model by their names, the best first; the first that fits is planned."""

    refs: Annotated[list[ModelName], Field(fail_fast=True, min_length=1, max_length=16)]


def _spelling(value: Any) -> str:
    """How a request says what its model is."""
    return next((f"{MARK}{key}" for key in ("ref", "refs") if isinstance(value, dict) and key in value), f"{MARK}cost")


ModelIn = Annotated[
    Annotated[CostIn, Tag(f"{MARK}cost")] | Annotated[RefIn, Tag(f"{MARK}ref")] | Annotated[RefsIn, Tag(f"{MARK}refs")],
    Discriminator(_spelling),
]
"""A cost as it stands, or the name of one, or the names of several."""


def model_of(asked: CostIn | RefIn | RefsIn) -> ModelCost | tuple[str, ...]:
    """The model as planning takes it: a cost, or names."""
    if isinstance(asked, CostIn):
        return asked.to_cost()
    return (asked.ref,) if isinstance(asked, RefIn) else tuple(asked.refs)


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


class CostOut(Out):
    """A model's cost. Bytes; FLOPs for one token. ``layers`` is null for equal layers.

    ``total_bytes`` are its weights in all, a shared table once.
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


class ModelOut(CostOut):
    """The model as it was planned.

    ``ref`` and ``version`` say which named model it is, null where the cost stood in the request. ``estimated``: its
    layers' bytes are scaled to another precision than asked.
    """

    ref: str | None
    version: int | None
    estimated: bool

    @staticmethod
    def of(model: ModelCost, variant: Variant) -> "ModelOut":
        """The echo of what was planned for this variant."""
        return ModelOut(
            **cost_fields(model), ref=variant.ref, version=variant.version, estimated=variant.precision is not None
        )


def cost_fields(model: ModelCost) -> dict[str, Any]:
    """A cost's figures by the names that answers have."""
    own = {field: getattr(model, field) for field in CostOut.model_fields}
    return own | {"layers": [BlockOut(**asdict(block)) for block in model.layers] or None}
