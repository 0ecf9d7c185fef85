"""The known architectures: a file per family, a line or a few functions for each."""

from collections.abc import Mapping

from app.checkpoints.architectures.assembly import Family
from app.checkpoints.architectures.families import (
    aria,
    cohere,
    deepseek,
    gemma,
    gemma4,
    glm,
    gpt_oss,
    granite,
    hybrids,
    layer_norms,
    lfm2,
    llama,
    llama4,
    mamba,
    minimax,
    olmo,
    phi3,
    qwen,
    qwen_hybrid,
)

FAMILIES: Mapping[str, Family] = {
    **aria.FAMILIES,
    **cohere.FAMILIES,
    **deepseek.FAMILIES,
    **gemma.FAMILIES,
    **gemma4.FAMILIES,
    **glm.FAMILIES,
    **gpt_oss.FAMILIES,
    **granite.FAMILIES,
    **hybrids.FAMILIES,
    **layer_norms.FAMILIES,
    **lfm2.FAMILIES,
    **llama.FAMILIES,
    **llama4.FAMILIES,
    **mamba.FAMILIES,
    **minimax.FAMILIES,
    **olmo.FAMILIES,
    **phi3.FAMILIES,
    **qwen.FAMILIES,
    **qwen_hybrid.FAMILIES,
}
"""By the ``model_type`` of a config."""
