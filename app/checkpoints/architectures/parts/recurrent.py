"""Layers with a state of fixed size: Mamba 1 and 2, the gated delta net, lightning attention.

State is counted in elements of one sequence, the convolution's last inputs and the recurrence's own, as llama.cpp
allocates both: ``(conv - 1) * channels + state``.
"""

from dataclasses import dataclass

from app.checkpoints.architectures.weights import NOTHING, Part, linear, norm, vector
from app.checkpoints.tensors import Cache


@dataclass(frozen=True, slots=True)
class Mamba:
    """Sizes of a Mamba layer; ``groups`` and ``n_heads`` are the second version's, ``dt_rank`` the first's."""

    inner: int
    state: int
    conv: int
    dt_rank: int = 0
    groups: int = 0
    n_heads: int = 0
    bias: bool = False
    conv_bias: bool = True

    @property
    def channels(self) -> int:
        """Channels of the convolution."""
        return self.inner + 2 * self.groups * self.state

    def cache(self) -> Cache:
        """What a layer keeps of a sequence."""
        return Cache(state_elements=(self.conv - 1) * self.channels + self.inner * self.state)


def mamba1(hidden: int, of: Mamba) -> Part:
    """A selective state space (Mamba, arXiv 2312.00752)."""
    weights = (
        linear("in_proj", hidden, 2 * of.inner, bias=of.bias)
        + _convolution(of.channels, of.conv, bias=of.conv_bias)
        + linear("x_proj", of.inner, of.dt_rank + 2 * of.state)
        + linear("dt_proj", of.dt_rank, of.inner, bias=True)
        + vector("A_log", of.inner, of.state)
        + vector("D", of.inner)
        + linear("out_proj", of.inner, hidden, bias=of.bias)
    )
    return weights + Part(cache=of.cache())


def mamba2(hidden: int, of: Mamba) -> Part:
    """The second version, with heads (arXiv 2405.21060)."""
    weights = (
        linear("in_proj", hidden, of.inner + of.channels + of.n_heads, bias=of.bias)
        + _convolution(of.channels, of.conv, bias=of.conv_bias)
        + vector("dt_bias", of.n_heads)
        + vector("A_log", of.n_heads)
        + vector("D", of.n_heads)
        + norm("norm", of.inner)
        + linear("out_proj", of.inner, hidden, bias=of.bias)
    )
    return weights + Part(cache=of.cache())


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Sizes of a gated delta net (arXiv 2412.06464): heads of keys and of values."""

    n_keys: int
    n_values: int
    key_dim: int
    value_dim: int
    conv: int

    @property
    def keys(self) -> int:
        """Elements of one token's keys, and of its queries."""
        return self.n_keys * self.key_dim

    @property
    def values(self) -> int:
        """Elements of one token's values."""
        return self.n_values * self.value_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution."""
        return 2 * self.keys + self.values


def delta_net(hidden: int, of: DeltaNet, into: Part) -> Part:
    """A gated delta net; ``into`` are its input projections, which checkpoints cut up differently."""
    weights = (
        into
        + _convolution(of.channels, of.conv, bias=False)
        + vector("dt_bias", of.n_values)
        + vector("A_log", of.n_values)
        + norm("norm", of.value_dim)
        + linear("out_proj", of.values, hidden)
    )
    state = (of.conv - 1) * of.channels + of.n_values * of.key_dim * of.value_dim
    return weights + Part(cache=Cache(state_elements=state))


def lightning(hidden: int, n_heads: int, dim: int) -> Part:
    """Lightning attention (MiniMax-01, arXiv 2501.08313): one dim x dim state per head, no convolution."""
    inner = n_heads * dim
    weights = (
        linear("qkv_proj", hidden, 3 * inner)
        + norm("norm", inner)
        + linear("output_gate", hidden, inner)
        + linear("out_proj", inner, hidden)
    )
    return weights + Part(cache=Cache(state_elements=n_heads * dim * dim))


def _convolution(channels: int, width: int, *, bias: bool) -> Part:
    return vector("conv1d.weight", channels, 1, width) + (vector("conv1d.bias", channels) if bias else NOTHING)
