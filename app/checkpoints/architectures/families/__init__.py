"""The known architectures: a file per family, a line or a few functions for each."""

from collections.abc import Mapping

from app.checkpoints.architectures.assembly import Family
from app.checkpoints.architectures.families import (
    decoder_kin,
    deepseek,
    gemma,
    gemma4,
    hybrids,
    layer_norms,
    llama,
    mamba,
    minimax,
    qwen,
    qwen_hybrid,
)

FAMILIES: Mapping[str, Family] = {
    **llama.FAMILIES,
    **qwen.FAMILIES,
    **qwen_hybrid.FAMILIES,
    **deepseek.FAMILIES,
    **gemma.FAMILIES,
    **gemma4.FAMILIES,
    **decoder_kin.FAMILIES,
    **layer_norms.FAMILIES,
    **minimax.FAMILIES,
    **hybrids.FAMILIES,
    **mamba.FAMILIES,
}
"""By the ``model_type`` of a config."""
