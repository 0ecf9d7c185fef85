"""Aria's language model: experts, some of which every token passes (arXiv 2410.05993)."""

from functools import partial

from app.checkpoints.architectures.assembly import Family
from app.checkpoints.architectures.decoders import Decoder, Sparse
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.feedforward import Experts, gated, joined_experts, routed, router
from app.checkpoints.architectures.weights import Part


def aria_experts(c: Fields, of: Experts) -> Part:
    """Aria's router, experts and those that every token passes."""
    hidden, shared = c.whole("hidden_size"), c.whole("moe_num_shared_experts", default=2)
    parts = (
        router(hidden, of.n, "router")
        + joined_experts(hidden, of, ("fc1.weight", "fc2.weight"))
        + gated(hidden, shared * of.width).under("shared_experts")
    )
    return parts.under("mlp")


_EXPERTS = partial(routed, width="intermediate_size", count=("moe_num_experts",))

FAMILIES = {"aria_text": Family(Decoder(sparse=Sparse(_EXPERTS, aria_experts)))}
