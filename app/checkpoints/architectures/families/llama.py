"""Llama and those that are llama but for a bias, a norm or a window."""

from functools import partial

from app.checkpoints.architectures.assembly import Family, Model
from app.checkpoints.architectures.decoders import BEHIND, Attention, Chooses, Decoder, Sparse, mlp
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import Heads, head_norms
from app.checkpoints.architectures.parts.feedforward import Experts, gated, gated_experts, routed, router
from app.checkpoints.architectures.parts.rotary import with_rotary_buffers
from app.checkpoints.architectures.parts.windows import but_every, everywhere, nowhere
from app.checkpoints.architectures.weights import NOTHING, Part, linear, norm, repeat

MIXTRAL_NAMES = ("w1", "w3", "w2")


def llama(c: Fields) -> Model:
    """Llama; old releases stored rotary frequencies beside the parameters."""
    return with_rotary_buffers(c, Decoder()(c))


def mixtral_experts(c: Fields, of: Experts) -> Part:
    """Mixtral's router and experts."""
    hidden = c.whole("hidden_size")
    return (router(hidden, of.n) + gated_experts(hidden, of, MIXTRAL_NAMES)).under("block_sparse_moe")


def bitnet_mlp(c: Fields) -> Part:
    """BitNet's feed-forward, with a norm before the last matrix."""
    width = c.whole("intermediate_size")
    return (gated(c.whole("hidden_size"), width) + norm("ffn_sub_norm", width)).under("mlp")


def bitnet_norm(c: Fields, _of: Heads) -> Part:
    """BitNet's norm before the output projection."""
    return norm("attn_sub_norm", c.whole("hidden_size"))


def hunyuan_norms(c: Fields, of: Heads) -> Part:
    """Hunyuan's norms of queries and keys, where it has them."""
    return head_norms(of, ("query_layernorm", "key_layernorm")) if c.flag("use_qk_norm", True) else NOTHING


def mimo(c: Fields) -> Model:
    """MiMo: Qwen2's layers, and blocks beside them that predict further tokens (arXiv 2505.07608)."""
    style = Decoder(Attention(default_bias=True, out_bias=False))
    hidden, n = c.whole("hidden_size"), c.whole("num_nextn_predict_layers", default=0, least=0, most=100)
    names = ("token_layernorm", "hidden_layernorm", "final_layernorm")
    block = sum((norm(name, hidden) for name in names), style.layer(c, None, False, None))
    block += linear("input_proj", 2 * hidden, hidden)
    return style(c).beside(repeat(block, n, "model.mtp_layers"))


def exaone_slides(c: Fields) -> Chooses:
    """EXAONE 4: the last of every few layers sees everything; the period is a number, or a word of so many letters."""
    pattern = c.find("sliding_window_pattern")
    period = len(pattern) if isinstance(pattern, str) else c.whole("sliding_window_pattern", default=4, least=0)
    return but_every(period) if period else nowhere


SIZES_7B = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
}
MISTRAL_7B = SIZES_7B | {"intermediate_size": 14336, "num_key_value_heads": 8}

_mistral = Decoder(slides=lambda _c: everywhere, absent=4096)

FAMILIES = {
    "llama": Family(llama, SIZES_7B),
    "mistral": Family(_mistral, MISTRAL_7B),
    "ministral3": Family(Decoder(), MISTRAL_7B),
    "mixtral": Family(
        Decoder(
            slides=lambda _c: everywhere,
            sparse=Sparse(partial(routed, width="intermediate_size"), mixtral_experts),
        )
    ),
    "seed_oss": Family(Decoder(Attention(default_bias=True, out_bias=False))),
    "smollm3": Family(
        Decoder(slides=lambda c: everywhere if c.flag("use_sliding_window") else nowhere, tied=True),
    ),
    "hunyuan_v1_dense": Family(Decoder(Attention(inside=hunyuan_norms))),
    "mimo": Family(mimo),
    "bitnet": Family(Decoder(Attention(inside=bitnet_norm), bitnet_mlp)),
    "ernie4_5": Family(Decoder(Attention(key="use_bias", dim=128), partial(mlp, bias="use_bias"), tied=True)),
    "exaone4": Family(
        Decoder(Attention(inside=lambda _c, of: head_norms(of)), norms=BEHIND, slides=exaone_slides, absent=4096),
    ),
}
