"""MiniMax-Text-01 and M1: seven layers of lightning attention, then one that sees everything (arXiv 2501.08313)."""

from app.checkpoints.architectures.assembly import Family, Model, decoder
from app.checkpoints.architectures.families.llama import mixtral_experts
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import grouped, heads
from app.checkpoints.architectures.parts.feedforward import routed
from app.checkpoints.architectures.parts.recurrent import lightning
from app.checkpoints.architectures.weights import Part, norm, stack

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


FAMILIES = {kind: Family(minimax) for kind in ("minimax", "minimax_text_01", "minimax_m1")}
