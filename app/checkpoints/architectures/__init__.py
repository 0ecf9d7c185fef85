"""From a config.json alone to what its checkpoint holds and what its layers keep of a sequence."""

from collections.abc import Mapping
from typing import Any

from app.checkpoints.architectures.families import FAMILIES
from app.checkpoints.architectures.families.stack import experts_per_token, n_experts
from app.checkpoints.architectures.reading import Config
from app.checkpoints.architectures.weights import weights_of
from app.checkpoints.tensors import Architecture, CheckpointError

__all__ = ["architecture"]


def architecture(raw: Mapping[str, Any], dtype: str | None = None) -> Architecture:
    """The model that a config.json describes, stored in ``dtype`` (None: as the config says).

    O(layers): experts are one tensor a projection. Raises CheckpointError for an architecture that isn't known, for a
    figure that is missing or makes no sense, and for weights whose storage the config doesn't tell.
    """
    config = Config(raw)
    name = _name_of(config)
    family = FAMILIES.get(name) or FAMILIES.get(str(raw.get("model_type") or ""))
    if family is None:
        said = config.model_type or ", ".join(map(str, raw.get("architectures") or ())) or "nothing"
        raise CheckpointError(
            f"the architecture {said[:80]!r} is not known: what its layers hold and cache can't be told from the "
            f"config. Give a cost instead. Known are {', '.join(sorted(FAMILIES))}"
        )
    config = config.with_defaults(family.defaults)
    weights = weights_of(raw, config.text, dtype)
    tied = config.tied(default=family.tied)
    caches = family.build(config, weights, tied)
    return Architecture(
        name,
        tuple(caches),
        tied,
        n_experts(config),
        experts_per_token(config),
        tuple(weights.tensors),
        tuple(weights.buffers),
    )


def _name_of(config: Config) -> str:
    """The ``model_type`` of the language model; the mamba_ssm package writes none."""
    if not config.model_type and "ssm_cfg" in config.whole:
        return "mamba_ssm"
    return config.model_type.removesuffix("_text")
