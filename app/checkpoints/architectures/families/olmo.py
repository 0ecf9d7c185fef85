"""OLMo: norms without parameters, then norms behind each part and over all heads (arXiv 2501.00656), experts."""

from functools import partial

from app.checkpoints.architectures.assembly import Family
from app.checkpoints.architectures.decoders import BEHIND, Attention, Decoder, Sparse
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import wide_norms
from app.checkpoints.architectures.parts.feedforward import Experts, gated_experts, routed, router
from app.checkpoints.architectures.parts.windows import but_every
from app.checkpoints.architectures.weights import NOTHING, Part


def no_norm(_name: str, _size: int) -> Part:
    """A norm without parameters."""
    return NOTHING


def olmoe_experts(c: Fields, of: Experts) -> Part:
    """OLMoE's router and experts (arXiv 2409.02060)."""
    hidden = c.whole("hidden_size")
    return (router(hidden, of.n) + gated_experts(hidden, of)).under("mlp")


_NORMED = Attention(inside=lambda _c, of: wide_norms(of))

FAMILIES = {
    "olmo": Family(Decoder(norm=no_norm)),
    "olmo2": Family(Decoder(_NORMED, norms=BEHIND)),
    "olmo3": Family(Decoder(_NORMED, norms=BEHIND, slides=lambda _c: but_every(4), absent=4096)),
    "olmoe": Family(Decoder(_NORMED, sparse=Sparse(partial(routed, width="intermediate_size"), olmoe_experts))),
}
