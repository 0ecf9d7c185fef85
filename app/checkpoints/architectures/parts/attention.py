"""Attention and what it caches of a token: grouped heads, fused projections, a latent, an indexer."""

from dataclasses import dataclass

from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.weights import NOTHING, Part, linear, norm, vector
from app.checkpoints.tensors import Cache


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads, the heads of keys and values that they share, and elements in each."""

    n: int
    n_kv: int
    dim: int

    @property
    def queries(self) -> int:
        """Elements of one token's queries."""
        return self.n * self.dim

    @property
    def keys(self) -> int:
        """Elements of one token's keys, and of its values."""
        return self.n_kv * self.dim

    def cache(self, window: int | None = None) -> Cache:
        """What a layer keeps of a token."""
        return Cache(self.keys, self.keys, window)


def heads(c: Fields, dim: int | None = None) -> Heads:
    """The config's heads; ``dim`` elements each where neither head_dim nor anything else is to say. Raises."""
    n = c.whole("num_attention_heads", "n_head")
    n_kv = c.whole("num_key_value_heads", default=n)
    c.share("num_attention_heads", n, "num_key_value_heads", n_kv)
    return Heads(n, n_kv, c.optional("head_dim") or dim or head_share(c, n))


def head_share(c: Fields, n: int) -> int:
    """The hidden size shared out to the heads. Raises CheckpointError."""
    return c.share("hidden_size", c.whole("hidden_size", "n_embed"), "num_attention_heads", n)


def grouped(
    hidden: int,
    of: Heads,
    *,
    bias: bool = False,
    out_bias: bool = False,
    window: int | None = None,
    gated: bool = False,
    out: str = "o_proj",
) -> Part:
    """Attention of grouped heads; ``gated`` doubles the queries by a gate on what comes out."""
    weights = (
        linear("q_proj", hidden, of.queries * (2 if gated else 1), bias=bias)
        + linear("k_proj", hidden, of.keys, bias=bias)
        + linear("v_proj", hidden, of.keys, bias=bias)
        + linear(out, of.queries, hidden, bias=out_bias)
    )
    return weights + Part(cache=of.cache(window))


def fused(
    hidden: int,
    of: Heads,
    names: tuple[str, str],
    *,
    bias: bool = False,
    out_bias: bool = False,
    window: int | None = None,
) -> Part:
    """The same with queries, keys and values from one matrix; ``names`` are its and the output's."""
    into, out = names
    weights = linear(into, hidden, of.queries + 2 * of.keys, bias=bias) + linear(out, of.queries, hidden, bias=out_bias)
    return weights + Part(cache=of.cache(window))


def head_norms(of: Heads, names: tuple[str, str] = ("q_norm", "k_norm")) -> Part:
    """Norms over one head, which all heads share."""
    return norm(names[0], of.dim) + norm(names[1], of.dim)


def wide_norms(of: Heads) -> Part:
    """Norms over all heads of a token at once."""
    return norm("q_norm", of.queries) + norm("k_norm", of.keys)


def latent(c: Fields, hidden: int) -> Part:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    A token's cache is its latent and the rotary part of its key, whatever the heads: ``kv_lora_rank +
    qk_rope_head_dim`` elements, values none.
    """
    n, bias = c.whole("num_attention_heads"), c.flag("attention_bias")
    rope, nope, value = (c.whole(key) for key in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    rank = c.whole("kv_lora_rank")
    return (
        _latent_queries(c, hidden, n * (nope + rope), bias=bias)
        + linear("kv_a_proj_with_mqa", hidden, rank + rope, bias=bias)
        + norm("kv_a_layernorm", rank)
        + linear("kv_b_proj", rank, n * (nope + value))
        + linear("o_proj", n * value, hidden, bias=bias)
        + Part(cache=Cache(rank + rope))
    )


def _latent_queries(c: Fields, hidden: int, outputs: int, *, bias: bool) -> Part:
    rank = c.optional("q_lora_rank")
    if rank is None:
        return linear("q_proj", hidden, outputs)
    return linear("q_a_proj", hidden, rank, bias=bias) + norm("q_a_layernorm", rank) + linear("q_b_proj", rank, outputs)


def indexer(c: Fields, hidden: int) -> Part:
    """What picks the tokens to attend to in DeepSeek's sparse attention (DeepSeek-V3.2-Exp's report, section 2.1).

    It caches one key of ``index_head_dim`` per token. DeepSeek's checkpoint keeps its norm in float32, GLM's don't, and
    none quantises the weights of its heads. Nothing where the config has no ``index_topk``.
    """
    if c.optional("index_topk") is None:
        return NOTHING
    if set(c.items("indexer_types", str) or ()) - {"full"}:
        raise c.wrong("indexer_types", "has layers that share another's indexer, which isn't known here")
    n, dim = c.whole("index_n_heads"), c.whole("index_head_dim")
    kept = "f32" if c.word("model_type") == "deepseek_v32" else None
    weights = (
        linear("wq_b", c.whole("q_lora_rank"), n * dim)
        + linear("wk", hidden, dim)
        + vector("k_norm.weight", dim, dtype=kept)
        + vector("k_norm.bias", dim, dtype=kept)
        + linear("weights_proj", hidden, n, role="kept")
    )
    return weights.under("indexer") + Part(cache=Cache(dim))
