"""MiniMax: Text-01 and M1 with seven layers of lightning attention to one of softmax (arXiv 2501.08313), and M2."""

from functools import partial

from app.checkpoints.architectures.assembly import Family, Model, decoder
from app.checkpoints.architectures.decoders import Attention, Decoder, Sparse
from app.checkpoints.architectures.families.llama import MIXTRAL_NAMES, mixtral_experts
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import Heads, grouped, heads, wide_norms
from app.checkpoints.architectures.parts.feedforward import Experts, gated_experts, routed, router
from app.checkpoints.architectures.parts.recurrent import lightning
from app.checkpoints.architectures.weights import NOTHING, Part, norm, stack, vector

LINEAR, FULL = "linear_attention", "full_attention"


def minimax(c: Fields) -> Model:
    """The model of a config. Raises CheckpointError."""
    if c.optional("shared_intermediate_size"):
        raise c.wrong("shared_intermediate_size", "asks for a shared expert, whose tensors aren't known here")
    hidden, n = c.whole("hidden_size"), c.layers("num_hidden_layers")
    of, attends = routed(c, "intermediate_size"), heads(c)

    def layer(kind: str) -> Part:
        attention = grouped(hidden, attends) if kind == FULL else lightning(hidden, attends.n, attends.dim)
        parts = attention.under("self_attn") + mixtral_experts(c, of)
        return norm("input_layernorm", hidden) + parts + norm("post_attention_layernorm", hidden)

    return decoder(c, stack(kinds(c, n), layer), experts=of)


def kinds(c: Fields, n: int) -> tuple[str, ...]:
    """Each layer's kind: by name, or by number with 1 for full attention."""
    named = c.items("layer_types", str, n)
    if named is None:
        numbered = c.items("attn_type_list", int, n)
        if numbered is None:
            raise c.wrong("layer_types", "is missing, and so is attn_type_list")
        named = tuple({0: LINEAR, 1: FULL}.get(number, "") for number in numbered)
    if not set(named) <= {LINEAR, FULL}:
        raise c.wrong("layer_types", f"has other types than {LINEAR} and {FULL}")
    return named


def m2_norms(c: Fields, of: Heads) -> Part:
    """MiniMax-M2's norms over all heads at once."""
    return wide_norms(of) if c.flag("use_qk_norm", True) else NOTHING


def m2_experts(c: Fields, of: Experts) -> Part:
    """MiniMax-M2's router with its bias, and experts. Checkpoints have no blocks of further predictions."""
    hidden = c.whole("hidden_size")
    bias = vector("e_score_correction_bias", of.n, dtype="f32")
    return (router(hidden, of.n) + bias + gated_experts(hidden, of, MIXTRAL_NAMES)).under("block_sparse_moe")


M2 = Decoder(Attention(inside=m2_norms), sparse=Sparse(partial(routed, width="intermediate_size"), m2_experts))

FAMILIES = {
    "minimax": Family(minimax),
    "minimax_text_01": Family(minimax),
    "minimax_m1": Family(minimax),
    "minimax_m2": Family(M2),
}
