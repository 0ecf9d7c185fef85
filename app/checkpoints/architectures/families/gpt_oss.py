"""gpt-oss: sinks, windows in turn, experts with biases (arXiv 2508.10925)."""

from functools import partial

from app.checkpoints.architectures.assembly import Family
from app.checkpoints.architectures.decoders import Attention, Decoder, Sparse
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import Heads
from app.checkpoints.architectures.parts.feedforward import Experts, joined_experts, routed, router
from app.checkpoints.architectures.parts.windows import but_every
from app.checkpoints.architectures.weights import Part, vector


def sinks(_c: Fields, of: Heads) -> Part:
    """A logit per head that takes attention off all tokens."""
    return vector("sinks", of.n)


def gpt_oss_experts(c: Fields, of: Experts) -> Part:
    """gpt-oss's router and experts, all with biases."""
    hidden = c.whole("hidden_size")
    parts = (
        router(hidden, of.n, "router", bias=True)
        + joined_experts(hidden, of)
        + vector("experts.gate_up_proj_bias", of.n, 2 * of.width)
        + vector("experts.down_proj_bias", of.n, hidden)
    )
    return parts.under("mlp")


FAMILIES = {
    "gpt_oss": Family(
        Decoder(
            Attention(default_bias=True, inside=sinks),
            sparse=Sparse(partial(routed, width="intermediate_size"), gpt_oss_experts),
            slides=lambda _c: but_every(2),
            absent=128,
        )
    )
}
