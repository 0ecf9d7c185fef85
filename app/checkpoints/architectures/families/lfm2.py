"""LFM2: short convolutions between layers of attention."""

from app.checkpoints.architectures.assembly import Family, Layout, Model, decoder
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import grouped, head_norms, heads
from app.checkpoints.architectures.parts.feedforward import gated
from app.checkpoints.architectures.weights import Part, linear, norm, stack, vector
from app.checkpoints.tensors import Cache

CONVOLUTION, FULL = "conv", "full_attention"


def lfm2(c: Fields) -> Model:
    """The model of a config. Raises CheckpointError."""
    hidden, n = c.whole("hidden_size"), c.layers("num_hidden_layers")
    feeds = gated(hidden, width(c), names=("w1", "w3", "w2")).under("feed_forward")

    def layer(kind: str) -> Part:
        mixes = attention(c, hidden) if kind == FULL else convolution(c, hidden)
        return norm("operator_norm", hidden) + mixes + norm("ffn_norm", hidden) + feeds

    layout = Layout(norm="model.embedding_norm")
    return decoder(c, stack(kinds(c, n), layer), layout=layout, tied=c.flag("tie_embedding", True))


def kinds(c: Fields, n: int) -> tuple[str, ...]:
    """Each layer's kind: by name, or by the indices of those that attend."""
    named = c.items("layer_types", str, n)
    if named is None:
        chosen = c.items("full_attn_idxs", int)
        if chosen is None:
            raise c.wrong("layer_types", "is missing, and so is full_attn_idxs")
        named = tuple(FULL if layer in chosen else CONVOLUTION for layer in range(n))
    if not set(named) <= {CONVOLUTION, FULL}:
        raise c.wrong("layer_types", f"has other types than {CONVOLUTION} and {FULL}")
    return named


def attention(c: Fields, hidden: int) -> Part:
    """Attention with norms per head."""
    of = heads(c)
    return (grouped(hidden, of, out="out_proj") + head_norms(of, ("q_layernorm", "k_layernorm"))).under("self_attn")


def convolution(c: Fields, hidden: int) -> Part:
    """A gated convolution; it keeps the inputs before the last."""
    span, bias = c.whole("conv_L_cache", default=3), c.flag("conv_bias")
    weights = linear("in_proj", hidden, 3 * hidden, bias=bias) + linear("out_proj", hidden, hidden, bias=bias)
    weights += vector("conv.weight", hidden, 1, span)
    if bias:
        weights += vector("conv.bias", hidden)
    return weights.under("conv") + Part(cache=Cache(state_elements=(span - 1) * hidden))


def width(c: Fields) -> int:
    """The feed-forward's width: two thirds of the config's, rounded up to a multiple, unless it says otherwise."""
    given = c.whole("block_ff_dim", "intermediate_size")
    if not c.flag("block_auto_adjust_ff_dim", True):
        return given
    factor = c.find("block_ffn_dim_multiplier")
    if factor not in (None, 1, 1.0):
        raise c.wrong("block_ffn_dim_multiplier", "other than 1 isn't known here")
    multiple = c.whole("block_multiple_of", default=256)
    return -(-(2 * given // 3) // multiple) * multiple


FAMILIES = {"lfm2": Family(lfm2)}
