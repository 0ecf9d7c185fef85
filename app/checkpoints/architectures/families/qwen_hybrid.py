"""Qwen's hybrids: three layers of a gated delta net, then one of gated attention."""

from collections.abc import Callable
from dataclasses import dataclass

from app.checkpoints.architectures.assembly import Family, Model, decoder
from app.checkpoints.architectures.decoders import AROUND, mlp
from app.checkpoints.architectures.families.qwen import (
    experts_of,
    is_sparse,
    joined_sparse_mlp,
    sparse_mlp,
)
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import grouped, head_norms, heads
from app.checkpoints.architectures.parts.feedforward import Experts
from app.checkpoints.architectures.parts.recurrent import DeltaNet, delta_net
from app.checkpoints.architectures.parts.windows import nowhere
from app.checkpoints.architectures.weights import NOTHING, Part, linear, norm, repeat, stack

LINEAR, FULL = "linear_attention", "full_attention"


@dataclass(frozen=True, slots=True)
class Hybrid:
    """A hybrid: its delta nets' input projections, its experts if any, and blocks of further predictions.

    ``predicting`` is their number where the config is silent; the checkpoints of Qwen3-Next have one all the same.
    """

    into: Callable[[int, DeltaNet], Part]
    sparse: Callable[[Fields, Experts], Part] | None = None
    predicting: int = 0

    def __call__(self, c: Fields) -> Model:
        """The model of a config. Raises CheckpointError."""
        n = c.layers("num_hidden_layers")
        experts = experts_of(c) if self.sparse else None
        sparse = is_sparse(c) if self.sparse else nowhere
        kinds = zip(_kinds(c, n), map(sparse, range(n)), strict=True)
        layers = stack(kinds, lambda kind: self._layer(c, *kind, experts))
        model = decoder(c, layers, experts=experts)
        return model.beside(self._prediction(c, experts))

    def _layer(self, c: Fields, kind: str, sparse: bool, experts: Experts | None) -> Part:  # noqa: FBT001 a kind
        hidden = c.whole("hidden_size")
        mixer = self._delta(c, hidden) if kind == LINEAR else _attention(c, hidden)
        feeds = self.sparse(c, experts) if sparse and self.sparse and experts else mlp(c)
        return sum((norm(name, hidden) for name in AROUND), mixer + feeds)

    def _delta(self, c: Fields, hidden: int) -> Part:
        sizes = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
        of = DeltaNet(*(c.whole(f"linear_{size}") for size in sizes))
        return delta_net(hidden, of, self.into(hidden, of)).under("linear_attn")

    def _prediction(self, c: Fields, experts: Experts | None) -> Part:
        n = c.whole("mtp_num_hidden_layers", default=self.predicting, least=0, most=100)
        if not n:
            return NOTHING
        hidden = c.whole("hidden_size")
        layer = self._layer(c, FULL, experts is not None, experts)
        names = ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
        around = sum((norm(name, hidden) for name in names), linear("fc", 2 * hidden, hidden, role="kept"))
        return (around + repeat(layer, n, "layers")).under("mtp")


def _kinds(c: Fields, n: int) -> tuple[str, ...]:
    kinds = c.items("layer_types", str, n)
    if kinds is None:
        every = c.whole("full_attention_interval", default=4)
        return tuple(FULL if (layer + 1) % every == 0 else LINEAR for layer in range(n))
    if not set(kinds) <= {LINEAR, FULL}:
        raise c.wrong("layer_types", f"has other types than {LINEAR} and {FULL}")
    return kinds


def _attention(c: Fields, hidden: int) -> Part:
    of = heads(c, 256)
    bias = c.flag("attention_bias")
    gate = c.flag("attn_output_gate", True)
    return (grouped(hidden, of, bias=bias, out_bias=bias, gated=gate) + head_norms(of)).under("self_attn")


def paired(hidden: int, of: DeltaNet) -> Part:
    """Qwen3-Next's projections: queries, keys, values and gate in one, both scalars in another."""
    return linear("in_proj_qkvz", hidden, of.channels + of.values) + linear("in_proj_ba", hidden, 2 * of.n_values)


def single(hidden: int, of: DeltaNet) -> Part:
    """Qwen3.5's: the gate and each scalar by itself."""
    return (
        linear("in_proj_qkv", hidden, of.channels)
        + linear("in_proj_z", hidden, of.values)
        + linear("in_proj_b", hidden, of.n_values, role="kept")
        + linear("in_proj_a", hidden, of.n_values, role="kept")
    )


FAMILIES = {
    "qwen3_next": Family(Hybrid(paired, sparse_mlp, predicting=1)),
    "qwen3_5_text": Family(Hybrid(single)),
    "qwen3_5_moe_text": Family(Hybrid(single, joined_sparse_mlp)),
}
