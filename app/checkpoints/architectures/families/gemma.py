"""Gemma: heads of 256, tables shared by embedding and head, windows from the second on."""

from dataclasses import replace

from app.checkpoints.architectures.assembly import Family
from app.checkpoints.architectures.decoders import AROUND, Attention, Decoder
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import head_norms
from app.checkpoints.architectures.parts.windows import but_every

FOUR = (*AROUND, "pre_feedforward_layernorm", "post_feedforward_layernorm")

_GEMMA = Decoder(Attention(dim=256), tied=True)
_GEMMA2 = replace(_GEMMA, norms=FOUR, slides=lambda _c: but_every(2), absent=4096)


def _pattern(c: Fields) -> int:
    """Of so many layers the last sees everything."""
    return c.whole("sliding_window_pattern", "_sliding_window_pattern", default=6)


_GEMMA3 = replace(
    _GEMMA2,
    attention=Attention(dim=256, inside=lambda _c, of: head_norms(of)),
    slides=lambda c: but_every(_pattern(c)),
)

GEMMA3_SIZES = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 26,
    "vocab_size": 262_208,
}

FAMILIES = {
    "gemma": Family(_GEMMA),
    "gemma2": Family(_GEMMA2),
    "gemma3_text": Family(_GEMMA3, GEMMA3_SIZES),
}
