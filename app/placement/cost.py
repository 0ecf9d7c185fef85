"""What a model costs to hold and to run."""

from dataclasses import dataclass, replace

from app.placement.errors import InvalidFieldError
from app.placement.units import INT_MAX


@dataclass(frozen=True, slots=True)
class Block:
    """``count`` equal layers in a row; figures per layer.

    ``flops`` are for one token. ``kv_bytes_per_token`` are cached per token of one sequence, within the last
    ``kv_window`` tokens where attention slides; ``state_bytes`` per sequence. ``expert_bytes`` are routed experts, of
    which one token reads ``expert_active_bytes``. ``together``: the block stays on one stage.
    """

    count: int
    bytes: int
    flops: float = 1.0
    kv_bytes_per_token: int = 0
    kv_window: int | None = None
    state_bytes: int = 0
    expert_bytes: int = 0
    expert_active_bytes: int = 0
    together: bool = False

    @property
    def divisible(self) -> bool:
        """Whether a stage may end inside it."""
        return not self.together or self.count == 1


@dataclass(frozen=True, slots=True)
class ModelCost:
    """A stack of layers between an embedding and a head: bytes, and FLOPs of a layer for one token.

    The scalar figures describe equal layers; ``layers`` replaces them where layers differ. The first stage also holds
    the embedding, the last one also the head; a tied table is counted in both, and ``tied_bytes`` of it (None: the
    smaller of the two) once where one stage is both.
    """

    n_layers: int
    per_layer_bytes: int
    embed_bytes: int
    head_bytes: int
    per_layer_flops: float = 1.0
    name: str | None = None
    source: str | None = None
    layers: tuple[Block, ...] = ()
    kv_bytes_per_layer_token: int = 0
    expert_bytes_per_layer: int = 0
    expert_active_bytes_per_layer: int = 0
    head_flops: float = 0.0
    tied_embeddings: bool = False
    tied_bytes: int | None = None
    params: int | None = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The whole stack in runs of equal layers; neighbours differ or stay together."""
        if not self.layers:
            scalar = Block(
                self.n_layers,
                self.per_layer_bytes,
                self.per_layer_flops,
                self.kv_bytes_per_layer_token,
                expert_bytes=self.expert_bytes_per_layer,
                expert_active_bytes=self.expert_active_bytes_per_layer,
            )
            return (scalar,)
        return _merged(self.layers)

    @property
    def uniform(self) -> bool:
        """Whether all layers are alike and every cut is allowed."""
        return not self.layers or (len(self.blocks) == 1 and self.blocks[0].divisible)

    @property
    def shared_bytes(self) -> int:
        """Bytes of the table that embedding and head share."""
        if not self.tied_embeddings:
            return 0
        ends = min(self.embed_bytes, self.head_bytes)
        return ends if self.tied_bytes is None else min(ends, self.tied_bytes)

    @property
    def layer_bytes(self) -> int:
        """Weights of all layers, experts included."""
        if not self.layers:
            return self.n_layers * (self.per_layer_bytes + self.expert_bytes_per_layer)
        return sum(b.count * (b.bytes + b.expert_bytes) for b in self.layers)

    @property
    def total_bytes(self) -> int:
        """All weights: layers with experts, the embedding and the head, a tied table once."""
        return self.layer_bytes + self.embed_bytes + self.head_bytes - self.shared_bytes


def check_cost(model: ModelCost, at: str = "/model") -> None:
    """Raise InvalidFieldError where the figures contradict each other; ``at`` is where they stand in the request."""
    counted = sum(block.count for block in model.layers)
    if model.layers and counted != model.n_layers:
        raise InvalidFieldError(f"the blocks have {counted} layers, n_layers is {model.n_layers}", f"{at}/layers")
    if model.total_bytes > INT_MAX:
        raise InvalidFieldError("layers, embedding and head together exceed 2^63-1 bytes", at)


def _merged(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    runs: list[Block] = []
    for block in blocks:
        alike = bool(runs) and replace(runs[-1], count=block.count, together=block.together) == block
        if alike and block.divisible and runs[-1].divisible:
            runs[-1] = replace(runs[-1], count=runs[-1].count + block.count, together=False)
        else:
            runs.append(replace(block, together=not block.divisible))
    return tuple(runs)
