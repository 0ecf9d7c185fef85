"""What a model costs to hold and to run."""

from dataclasses import dataclass

from app.placement.nodes import Node


@dataclass(frozen=True, slots=True)
class ModelCost:
    """A stack of equal layers between an embedding and a head: bytes, and FLOPs of a layer for one token.

    The first stage also holds the embedding, the last one also the head.
    """

    n_layers: int
    per_layer_bytes: int
    embed_bytes: int
    head_bytes: int
    per_layer_flops: float = 1.0
    name: str | None = None
    source: str | None = None

    @property
    def total_bytes(self) -> int:
        """All layers, the embedding and the head."""
        return self.n_layers * self.per_layer_bytes + self.embed_bytes + self.head_bytes

    def stage_bytes(self, layers: int, *, first: bool, last: bool) -> int:
        """Bytes of a stage with so many layers."""
        return layers * self.per_layer_bytes + self.overhead_bytes(first=first, last=last)

    def overhead_bytes(self, *, first: bool, last: bool) -> int:
        """Bytes that a stage carries beside its layers."""
        return self.embed_bytes * first + self.head_bytes * last

    def stage_seconds(self, node: Node, layers: int, *, last: bool) -> float:
        """Seconds of one decode step: computing, or streaming the weights where the memory's speed is known.

        The embedding isn't streamed, since one token reads a single row of it. An empty stage takes no time
        for layers, but a last one still reads its head.
        """
        compute = layers * self.per_layer_flops / (node.speed_gflops * 1e9)
        gbps = node.speed_gbps
        if gbps is None:
            return compute
        streamed = layers * self.per_layer_bytes + self.head_bytes * last
        return max(compute, streamed / (gbps * 1e9))
