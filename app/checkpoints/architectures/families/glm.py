"""GLM-4: biases on queries, keys and values, gate and up in one, two norms or four. GLM-4.5 is DeepSeek's kin."""

from app.checkpoints.architectures.assembly import Family
from app.checkpoints.architectures.decoders import AROUND, Attention, Decoder, joined_mlp

_ATTENTION = Attention(default_bias=True, out_bias=False, dim=128)
_FOUR = (*AROUND, "post_self_attn_layernorm", "post_mlp_layernorm")

FAMILIES = {
    "glm": Family(Decoder(_ATTENTION, joined_mlp)),
    "glm4": Family(Decoder(_ATTENTION, joined_mlp, norms=_FOUR)),
}
