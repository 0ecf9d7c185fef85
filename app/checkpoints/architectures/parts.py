"""What layers are made of: attention, feed-forward networks, experts, and mixers that keep a state instead of a cache.

Each part adds its tensors under a prefix and, where it keeps something of a sequence, returns what. Shapes are those of
the published checkpoints; the sources of the formulas stand with the parts.
"""

from dataclasses import dataclass

from app.checkpoints.architectures.weights import Weights
from app.checkpoints.tensors import Cache


@dataclass(frozen=True, slots=True)
class Heads:
    """Grouped-query attention (Ainslie et al. 2023): heads of queries that share fewer of keys and values."""

    hidden: int
    queries: int
    keys: int
    width: int

    @property
    def kv(self) -> int:
        """Elements of the keys, and of the values, of one token."""
        return self.keys * self.width


def attention(  # what families vary
    w: Weights,
    at: str,
    heads: Heads,
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    gated: bool = False,
    values: bool = True,
    out: str = "o_proj",
    window: int | None = None,
) -> Cache:
    """Separate projections. ``gated``: the query's is twice as wide; without ``values`` the keys serve as both."""
    wide = heads.queries * heads.width
    w.linear(f"{at}.q_proj", wide * (2 if gated else 1), heads.hidden, bias=qkv_bias)
    w.linear(f"{at}.k_proj", heads.kv, heads.hidden, bias=qkv_bias)
    if values:
        w.linear(f"{at}.v_proj", heads.kv, heads.hidden, bias=qkv_bias)
    w.linear(f"{at}.{out}", heads.hidden, wide, bias=out_bias)
    return Cache(heads.kv, heads.kv, window)


def fused_attention(
    w: Weights, qkv: str, out: str, heads: Heads, *, qkv_bias: bool = False, out_bias: bool = False,
    window: int | None = None,
) -> Cache:  # fmt: skip
    """One projection for queries, keys and values."""
    wide = heads.queries * heads.width
    w.linear(qkv, wide + 2 * heads.kv, heads.hidden, bias=qkv_bias)
    w.linear(out, heads.hidden, wide, bias=out_bias)
    return Cache(heads.kv, heads.kv, window)


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, section 2.1). ``q_rank`` None: queries are projected at once."""

    hidden: int
    heads: int
    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    value: int


def latent_attention(w: Weights, at: str, latent: Latent, *, bias: bool = False) -> Cache:
    """What is cached of a token is the compressed latent and one rotary key, whatever the number of heads."""
    query = latent.heads * (latent.nope + latent.rope)
    if latent.q_rank is None:
        w.linear(f"{at}.q_proj", query, latent.hidden)
    else:
        w.linear(f"{at}.q_a_proj", latent.q_rank, latent.hidden, bias=bias)
        w.norm(f"{at}.q_a_layernorm", latent.q_rank)
        w.linear(f"{at}.q_b_proj", query, latent.q_rank)
    w.linear(f"{at}.kv_a_proj_with_mqa", latent.kv_rank + latent.rope, latent.hidden, bias=bias)
    w.norm(f"{at}.kv_a_layernorm", latent.kv_rank)
    w.linear(f"{at}.kv_b_proj", latent.heads * (latent.nope + latent.value), latent.kv_rank)
    w.linear(f"{at}.o_proj", latent.hidden, latent.heads * latent.value, bias=bias)
    return Cache(latent.kv_rank + latent.rope)


def gated_mlp(w: Weights, at: str, hidden: int, inner: int, *, bias: bool = False) -> None:
    """Gate, up, down."""
    w.linear(f"{at}.gate_proj", inner, hidden, bias=bias)
    w.linear(f"{at}.up_proj", inner, hidden, bias=bias)
    w.linear(f"{at}.down_proj", hidden, inner, bias=bias)


def plain_mlp(w: Weights, up: str, down: str, hidden: int, inner: int, *, bias: bool = False) -> None:
    """Up, down."""
    w.linear(up, inner, hidden, bias=bias)
    w.linear(down, hidden, inner, bias=bias)


def gated_experts(w: Weights, at: str, count: int, hidden: int, inner: int) -> None:
    """Routed experts of gate, up and down, each projection of all experts as one tensor."""
    w.experts(f"{at}.experts.gate_proj", count, inner, hidden)
    w.experts(f"{at}.experts.up_proj", count, inner, hidden)
    w.experts(f"{at}.experts.down_proj", count, hidden, inner)


@dataclass(frozen=True, slots=True)
class Mamba:
    """A selective state space (Gu and Dao 2023). ``rank`` is of the step's projection."""

    hidden: int
    inner: int
    state: int
    conv: int
    rank: int


def mamba(w: Weights, at: str, m: Mamba, *, conv_bias: bool, proj_bias: bool, norms: bool = False) -> Cache:
    """Keeps the last ``conv - 1`` inputs of its convolution and ``inner x state`` of its recurrence."""
    w.linear(f"{at}.in_proj", 2 * m.inner, m.hidden, bias=proj_bias)
    w.add(f"{at}.conv1d.weight", m.inner, 1, m.conv)
    if conv_bias:
        w.add(f"{at}.conv1d.bias", m.inner)
    w.linear(f"{at}.x_proj", m.rank + 2 * m.state, m.inner)
    w.linear(f"{at}.dt_proj", m.inner, m.rank, bias=True)
    w.add(f"{at}.A_log", m.inner, m.state)
    w.add(f"{at}.D", m.inner)
    w.linear(f"{at}.out_proj", m.hidden, m.inner, bias=proj_bias)
    if norms:
        for name, width in (("dt", m.rank), ("b", m.state), ("c", m.state)):
            w.norm(f"{at}.{name}_layernorm", width)
    return Cache(state_elements=(m.conv - 1) * m.inner + m.inner * m.state)


@dataclass(frozen=True, slots=True)
class Mamba2:
    """State space duality (Dao and Gu 2024): heads with one decay each, input and output maps shared by groups."""

    hidden: int
    heads: int
    width: int
    state: int
    groups: int
    conv: int

    @property
    def inner(self) -> int:
        """Width of all heads."""
        return self.heads * self.width


def mamba2(w: Weights, at: str, m: Mamba2, *, conv_bias: bool, proj_bias: bool) -> Cache:
    """Keeps ``conv - 1`` inputs of its convolution, which the maps go through too, and its heads' states."""
    convolved = m.inner + 2 * m.groups * m.state
    w.linear(f"{at}.in_proj", m.inner + convolved + m.heads, m.hidden, bias=proj_bias)
    w.add(f"{at}.conv1d.weight", convolved, 1, m.conv)
    if conv_bias:
        w.add(f"{at}.conv1d.bias", convolved)
    for name in ("dt_bias", "A_log", "D"):
        w.add(f"{at}.{name}", m.heads)
    w.norm(f"{at}.norm", m.inner)
    w.linear(f"{at}.out_proj", m.hidden, m.inner, bias=proj_bias)
    return Cache(state_elements=(m.conv - 1) * convolved + m.inner * m.state)


@dataclass(frozen=True, slots=True)
class Delta:
    """Gated delta net (Yang et al. 2024): heads of keys and of values, and a state of one by the other."""

    hidden: int
    key_heads: int
    value_heads: int
    key_width: int
    value_width: int
    conv: int

    @property
    def keys(self) -> int:
        """Width of all keys."""
        return self.key_heads * self.key_width

    @property
    def values(self) -> int:
        """Width of all values."""
        return self.value_heads * self.value_width


def delta_net(w: Weights, at: str, d: Delta, *, fused: bool) -> Cache:
    """Keeps ``conv - 1`` of its convolved queries, keys and values, and a matrix per value head.

    ``fused``: two input projections (Qwen3-Next), else four (Qwen3.5).
    """
    convolved = 2 * d.keys + d.values
    if fused:
        w.linear(f"{at}.in_proj_qkvz", convolved + d.values, d.hidden)
        w.linear(f"{at}.in_proj_ba", 2 * d.value_heads, d.hidden)
    else:
        w.linear(f"{at}.in_proj_qkv", convolved, d.hidden)
        w.linear(f"{at}.in_proj_z", d.values, d.hidden)
        w.linear(f"{at}.in_proj_b", d.value_heads, d.hidden)
        w.linear(f"{at}.in_proj_a", d.value_heads, d.hidden)
    w.add(f"{at}.conv1d.weight", convolved, 1, d.conv)
    w.add(f"{at}.dt_bias", d.value_heads)
    w.add(f"{at}.A_log", d.value_heads)
    w.norm(f"{at}.norm", d.value_width)
    w.linear(f"{at}.out_proj", d.hidden, d.values)
    state = d.value_heads * d.key_width * d.value_width
    return Cache(state_elements=(d.conv - 1) * convolved + state)


def lightning_attention(w: Weights, at: str, heads: Heads) -> Cache:
    """Linear attention of MiniMax-01 (section 2.2): a gated sum of outer products, a matrix per head."""
    wide = heads.queries * heads.width
    w.linear(f"{at}.qkv_proj", 3 * wide, heads.hidden)
    w.linear(f"{at}.output_gate", wide, heads.hidden)
    w.norm(f"{at}.norm", wide)
    w.linear(f"{at}.out_proj", heads.hidden, wide)
    return Cache(state_elements=heads.queries * heads.width**2)
