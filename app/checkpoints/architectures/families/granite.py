"""Granite: llama's decoder, alone or with experts and a feed-forward that every token passes."""

from functools import partial

from app.checkpoints.architectures.assembly import Family
from app.checkpoints.architectures.decoders import Decoder, Sparse
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.feedforward import Experts, joined, routed, router
from app.checkpoints.architectures.weights import Part, experts


def granite_experts(c: Fields, of: Experts) -> Part:
    """Granite's router and experts."""
    hidden = c.whole("hidden_size")
    parts = (
        router(hidden, of.n, "router.layer")
        + experts("input_linear.weight", of.n, hidden, 2 * of.width)
        + experts("output_linear.weight", of.n, of.width, hidden)
    )
    return parts.under("block_sparse_moe")


def granite_shared(c: Fields) -> Part:
    """The feed-forward that every token passes beside Granite's experts."""
    width = c.whole("shared_intermediate_size")
    return joined(c.whole("hidden_size"), width, ("input_linear", "output_linear")).under("shared_mlp")


def experts_and_shared(c: Fields, of: Experts) -> Part:
    """Both side by side."""
    return granite_experts(c, of) + granite_shared(c)


_EXPERTS = partial(routed, width="intermediate_size")

FAMILIES = {
    "granite": Family(Decoder()),
    "granitemoe": Family(Decoder(sparse=Sparse(_EXPERTS, granite_experts))),
    "granitemoeshared": Family(Decoder(sparse=Sparse(_EXPERTS, experts_and_shared))),
}
