"""Decoders that differ from llama's in a few points, each said in a word: most families are one ``Decoder``."""

from collections.abc import Callable
from dataclasses import dataclass

from app.checkpoints.architectures.assembly import LLAMA, Layout, Model, decoder
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import Heads, grouped, heads
from app.checkpoints.architectures.parts.feedforward import Experts, gated, joined
from app.checkpoints.architectures.parts.windows import nowhere, windows
from app.checkpoints.architectures.weights import NOTHING, Part, norm, stack

Window = int | None
Chooses = Callable[[int], bool]

AROUND = ("input_layernorm", "post_attention_layernorm")
"""The two norms of a layer: before attention, before the feed-forward."""

BEHIND = ("post_attention_layernorm", "post_feedforward_layernorm")
"""The same behind each of them."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Projections of grouped heads, with biases by ``key`` unless ``qkv_bias`` or ``out_bias`` fix them.

    ``inside`` is what stands beside the projections, ``dim`` a head's size where the config gives none.
    """

    qkv_bias: bool | None = None
    out_bias: bool | None = None
    default_bias: bool = False
    key: str = "attention_bias"
    inside: Callable[[Fields, Heads], Part] = lambda _c, _heads: NOTHING
    dim: int | None = None
    at: str = "self_attn"

    def __call__(self, c: Fields, window: Window) -> Part:
        """The attention of a layer with that window."""
        of = heads(c, self.dim)
        asked = c.flag(self.key, self.default_bias)
        weights = grouped(
            c.whole("hidden_size"),
            of,
            bias=asked if self.qkv_bias is None else self.qkv_bias,
            out_bias=asked if self.out_bias is None else self.out_bias,
            window=window,
        )
        return (weights + self.inside(c, of)).under(self.at)


def mlp(c: Fields, bias: str = "mlp_bias") -> Part:
    """Llama's feed-forward; ``bias`` is the key that gives it biases."""
    return gated(c.whole("hidden_size"), c.whole("intermediate_size"), bias=c.flag(bias)).under("mlp")


def joined_mlp(c: Fields) -> Part:
    """The same with gate and up in one matrix."""
    return joined(c.whole("hidden_size"), c.whole("intermediate_size"), ("gate_up_proj", "down_proj")).under("mlp")


@dataclass(frozen=True, slots=True)
class Sparse:
    """Layers of experts: how many, what a layer has, which layers they are."""

    experts: Callable[[Fields], Experts]
    part: Callable[[Fields, Experts], Part]
    at: Callable[[Fields], Chooses] = lambda _c: lambda _layer: True


@dataclass(frozen=True, slots=True)
class Decoder:
    """What sets a decoder apart.

    ``slides``, ``window`` and ``absent`` are as in ``windows``; ``tied`` is the class's default.
    """

    attention: Callable[[Fields, Window], Part] = Attention()
    dense: Callable[[Fields], Part] = mlp
    sparse: Sparse | None = None
    norms: tuple[str, ...] = AROUND
    norm: Callable[[str, int], Part] = norm
    slides: Callable[[Fields], Chooses] = lambda _c: nowhere
    window: str = "sliding_window"
    absent: int | None = None
    tied: bool = False
    layout: Layout = LLAMA

    def __call__(self, c: Fields) -> Model:
        """The model of a config. Raises CheckpointError."""
        n = c.layers("num_hidden_layers")
        experts = self.sparse.experts(c) if self.sparse else None
        sparse = self.sparse.at(c) if self.sparse else nowhere
        spans = windows(c, n, self.slides(c), self.window, absent=self.absent)
        kinds = zip(spans, map(sparse, range(n)), strict=True)
        layers = stack(kinds, lambda kind: self.layer(c, *kind, experts))
        return decoder(c, layers, tied=self.tied, experts=experts, layout=self.layout, closing=self.norm)

    def layer(self, c: Fields, window: Window, sparse: bool, experts: Experts | None) -> Part:  # noqa: FBT001 a kind
        """One layer of that kind."""
        hidden = c.whole("hidden_size")
        feeds = self.sparse.part(c, experts) if sparse and self.sparse and experts else self.dense(c)
        return sum((self.norm(name, hidden) for name in self.norms), self.attention(c, window) + feeds)
