"""DeepSeek and those that took its experts: latent attention or grouped heads, blocks that predict further tokens."""

from collections.abc import Callable

from app.checkpoints.architectures.assembly import Family, Model
from app.checkpoints.architectures.decoders import Attention, Chooses, Decoder, Sparse, Window
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import Heads, head_norms, indexer, latent
from app.checkpoints.architectures.parts.feedforward import Experts, balance, gated, gated_experts, routed, router
from app.checkpoints.architectures.weights import NOTHING, Part, linear, norm, table


def attention(c: Fields, _window: Window) -> Part:
    """Latent attention, with an indexer where the config has one."""
    hidden = c.whole("hidden_size")
    return (latent(c, hidden) + indexer(c, hidden)).under("self_attn")


def experts_of(c: Fields) -> Experts:
    """The config's routed experts."""
    return routed(c, "moe_intermediate_size", count=("n_routed_experts",))


def is_sparse(c: Fields) -> Chooses:
    """Layers have experts after the first few dense ones, every ``moe_layer_freq``-th."""
    first, every = c.whole("first_k_dense_replace", default=0, least=0), c.whole("moe_layer_freq", default=1)
    return lambda layer: layer >= first and layer % every == 0


def sparse_mlp(c: Fields, of: Experts) -> Part:
    """A router, its bias, routed experts and those that every token passes."""
    hidden = c.whole("hidden_size")
    usual = "greedy" if c.word("model_type") == "deepseek_v2" else "noaux_tc"
    biased = c.word("topk_method", usual) == "noaux_tc"
    shared = c.whole("n_shared_experts", default=0, least=0)
    parts = router(hidden, of.n) + (balance(of.n) if biased else NOTHING) + gated_experts(hidden, of)
    if shared:
        parts += gated(hidden, shared * of.width).under("shared_experts")
    return parts.under("mlp")


def glm_norms(c: Fields, of: Heads) -> Part:
    """Norms of queries and keys, which the larger GLM-4.5 has and Air hasn't."""
    return head_norms(of) if c.flag("use_qk_norm") else NOTHING


def predicting(style: Decoder) -> Callable[[Fields], Model]:
    """Such decoders with their further layers, which have tables of their own in the checkpoint.

    DeepSeek-V3's report, arXiv 2412.19437, section 2.2, and the README_WEIGHTS beside its weights.
    """

    def build(c: Fields) -> Model:
        model = style(c)
        n, more = len(model.layers), c.whole("num_nextn_predict_layers", default=0, least=0, most=100)
        block = prediction(c, style.layer(c, None, model.experts is not None, model.experts))
        return model.beside(sum((block.under(f"model.layers.{n + i}") for i in range(more)), NOTHING))

    return build


def prediction(c: Fields, layer: Part) -> Part:
    """A layer with what joins the embedding to the last hidden state before it, and a head behind it."""
    hidden, vocab = c.whole("hidden_size"), c.whole("vocab_size")
    return (
        Part(layer.weights)
        + table("embed_tokens", vocab, hidden)
        + norm("enorm", hidden)
        + norm("hnorm", hidden)
        + linear("eh_proj", 2 * hidden, hidden, role="kept")
        + norm("shared_head.norm", hidden)
        + table("shared_head.head", vocab, hidden, "head")
    )


_SPARSE = Sparse(experts_of, sparse_mlp, is_sparse)
_DEEPSEEK = Family(predicting(Decoder(attention, sparse=_SPARSE)))

FAMILIES = {
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK,
    "glm4_moe": Family(predicting(Decoder(Attention(out_bias=False, inside=glm_norms), sparse=_SPARSE))),
}
