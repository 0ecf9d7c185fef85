"""Named models: the three ways to say what one costs, and what is kept of it."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, RootModel, Tag

from app.ports import ModelRecord
from app.schemas.fields import CURSOR, WHOLE_NUMBERS, Bytes, ModelName, Text
from app.schemas.models import CostIn, CostOut, cost_fields
from app.schemas.parsing import MARK, Out, Strict

MAX_TENSORS = 200_000
MAX_RANK = 16

Shape = Annotated[
    list[Annotated[int, Field(ge=0, le=2**40)]], Field(fail_fast=True, max_length=MAX_RANK), WHOLE_NUMBERS
]
KvDtype = Annotated[str, Field(max_length=32, pattern=r"^[a-z0-9_]+(/[a-z0-9_]+)?$")]


class TensorIn(Strict):
    """One tensor of a checkpoint: its bytes, or a dtype from which they follow."""

    name: Text
    shape: Shape
    dtype: Text | None = None
    bytes: Bytes | None = None


class _Inspected(Strict):
    """What all models have in common whose cost the server works out."""

    kv_dtype: KvDtype = Field(
        "bf16", description="What the caches are stored in: f32, f16, bf16, fp8, q8_0, q4_0, ..; or keys/values apart"
    )
    source: Text | None = None


class ModelTensorsIn(_Inspected):
    """A model by the tensors of its checkpoint, with its config.json where there is one."""

    tensors: Annotated[list[TensorIn], Field(fail_fast=True, min_length=1, max_length=MAX_TENSORS)]
    config: dict[str, Any] | None = None


class ModelConfigIn(_Inspected):
    """A model by its config.json alone, before anything is downloaded."""

    config: dict[str, Any]
    dtype: Text | None = Field(None, description="What the weights are stored in; the config's own where left out")


def _spelling(value: Any) -> str:
    """How a request says what its model costs."""
    return next(
        (f"{MARK}{key}" for key in ("tensors", "config") if isinstance(value, dict) and key in value), f"{MARK}cost"
    )


class PutModelIn(
    RootModel[
        Annotated[
            Annotated[CostIn, Tag(f"{MARK}cost")]
            | Annotated[ModelTensorsIn, Tag(f"{MARK}tensors")]
            | Annotated[ModelConfigIn, Tag(f"{MARK}config")],
            Discriminator(_spelling),
        ]
    ]
):
    """A cost as it stands, the tensors of a checkpoint, or a config.json."""


class NamedModelOut(CostOut):
    """A named model. ``name`` is what plans refer to; ``version`` changes with the cost and is its ETag."""

    name: str
    version: int
    created_at: datetime
    updated_at: datetime
    notes: list[str]

    @staticmethod
    def of(record: ModelRecord, notes: tuple[str, ...] = ()) -> "NamedModelOut":
        """The model as it is kept; ``notes`` are what was noticed when its cost was worked out."""
        own = cost_fields(record.cost) | {"name": record.name}
        stamps = {field: getattr(record, field) for field in ("version", "created_at", "updated_at")}
        return NamedModelOut(**own, **stamps, notes=list(notes))


class ModelItemOut(Out):
    """A named model in a list."""

    name: str
    version: int
    n_layers: int
    total_bytes: int
    params: int | None
    source: str | None
    updated_at: datetime

    @staticmethod
    def of(record: ModelRecord) -> "ModelItemOut":
        """The model in one line."""
        cost = record.cost
        return ModelItemOut(
            name=record.name,
            version=record.version,
            n_layers=cost.n_layers,
            total_bytes=cost.total_bytes,
            params=cost.params,
            source=cost.source,
            updated_at=record.updated_at,
        )


class ModelsOut(Out):
    """A page of named models, in order of names; ``next_cursor`` is null on the last page."""

    models: list[ModelItemOut]
    next_cursor: str | None


ModelNamePath = Annotated[ModelName, Field(description="The model's name")]


class ModelsQuery(BaseModel):
    """Which models to list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    cursor: Annotated[str, Field(max_length=400, pattern=CURSOR)] | None = Field(
        None, description="next_cursor of the page before"
    )
