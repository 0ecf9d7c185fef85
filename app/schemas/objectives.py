"""What a plan is for, and what will run it, on the wire."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from app.placement.engines import Engine, engine
from app.placement.objective import Objective
from app.schemas.fields import PRECISION, WHOLE, Bytes, NodeId
from app.schemas.parsing import Out, Strict

Optimize = Literal["throughput", "latency", "memory"]
EngineName = Literal["plain", "rlx", "llama.cpp", "vllm", "sglang"]

Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Stages = Annotated[int, Field(ge=1, le=10_000), WHOLE]
Tokens = Annotated[int, Field(ge=1, le=2**30), WHOLE]


class ObjectiveIn(Strict):
    """What policy ``auto`` makes small, within which bounds, and the load that every policy must leave room for.

    ``throughput``: the largest stage time; ``latency``: the sum of stage times and ``hop_s`` per boundary; ``memory``:
    the largest share of a budget; the engine's own where left out. ``slack`` is the share of the objective that may be
    given up for fewer stages.
    """

    optimize: Optimize | None = None
    context: Annotated[int, Field(ge=0, le=2**40), WHOLE] = Field(4096, description="Tokens of each sequence")
    sequences: Annotated[int, Field(ge=1, le=2**20), WHOLE] = 1
    hop_s: Seconds = 0.002
    order: Literal["any", "given"] = Field("any", description="given: the list's order stays, nodes may be skipped")
    max_stages: Stages | None = None
    stage_counts: Annotated[list[Stages], Field(fail_fast=True, max_length=10_000)] | None = Field(
        None, description="Only these numbers"
    )
    first_node: NodeId | None = Field(None, description="Who holds the embedding")
    last_node: NodeId | None = Field(None, description="Who holds the head")
    slack: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    precision_ladder: Annotated[list[Annotated[str, Field(pattern=PRECISION)]], Field(max_length=16)] | None = Field(
        None, description="Precisions to step down to, in order, where the model doesn't fit as it is"
    )

    def to_objective(self) -> Objective:
        """The objective as planners see it."""
        return Objective(
            self.optimize,
            self.context,
            self.sequences,
            self.hop_s,
            self.order,
            self.max_stages,
            tuple(self.stage_counts or ()),
            self.first_node,
            self.last_node,
            self.slack,
        )


class EngineOptionsIn(Strict):
    """An engine and its options; one that the engine doesn't have is refused."""

    name: EngineName = "plain"
    overhead_bytes: Bytes | None = Field(None, description="What a stage carries beside weights and caches")
    kv_pad: Tokens | None = None
    n_ubatch: Tokens | None = None
    kv_unified: bool | None = None
    max_batched_tokens: Tokens | None = None
    tensor_parallel: Annotated[int, Field(ge=1, le=64), WHOLE] | None = None

    def to_engine(self) -> Engine:
        """The engine's rules. Raises InvalidFieldError for an option that it doesn't have."""
        return engine(self.name, {k: v for k, v in self.model_dump(exclude={"name"}).items() if v is not None})


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


EngineIn = Annotated[EngineOptionsIn, BeforeValidator(_named, json_schema_input_type=EngineName | EngineOptionsIn)]
"""``"vllm"``, or ``{"name": "vllm", ..options}``."""


class ObjectiveOut(Out):
    """The objective as it was used; ``optimize`` is the engine's own where the request left it out."""

    optimize: Optimize
    context: int
    sequences: int
    hop_s: float
    order: str
    max_stages: int | None
    stage_counts: list[int]
    first_node: str | None
    last_node: str | None
    slack: float

    @staticmethod
    def of(objective: Objective, rules: Engine) -> "ObjectiveOut":
        """The echo."""
        own = {field: getattr(objective, field) for field in ObjectiveOut.model_fields}
        return ObjectiveOut(
            **own | {"optimize": objective.optimize or rules.optimize, "stage_counts": list(objective.stage_counts)}
        )
