"""Rotary frequencies that old checkpoints store beside the parameters."""

import re
from dataclasses import replace

from app.checkpoints.architectures.assembly import Model
from app.checkpoints.architectures.fields import Fields
from app.checkpoints.architectures.parts.attention import heads
from app.checkpoints.architectures.weights import repeat, vector

VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\b")

NO_LONGER_STORED = (4, 32)
"""The release of transformers whose llama no longer saves ``inv_freq`` (its pull request 24998)."""


def with_rotary_buffers(c: Fields, model: Model) -> Model:
    """The model with the frequencies of each layer as buffers, where its config is of a release that stored them.

    They are float32 whatever the parameters are.
    """
    if not saved_before(c, NO_LONGER_STORED):
        return model
    each = vector("self_attn.rotary_emb.inv_freq", heads(c).dim // 2, dtype="f32")
    return replace(model, buffers=repeat(each, len(model.layers), model.layers_at))


def saved_before(c: Fields, release: tuple[int, int]) -> bool:
    """Whether the config says that an older release of transformers than that wrote it."""
    found = VERSION.match(c.word("transformers_version"))
    return found is not None and (int(found[1]), int(found[2])) < release
