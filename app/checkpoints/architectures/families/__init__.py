"""The known architectures, a file for each kind."""

from app.checkpoints.architectures.families.dense import DENSE
from app.checkpoints.architectures.families.hybrids import HYBRIDS
from app.checkpoints.architectures.families.mixtures import MIXTURES
from app.checkpoints.architectures.families.stack import Family

FAMILIES: dict[str, Family] = {**DENSE, **MIXTURES, **HYBRIDS}

__all__ = ["FAMILIES", "Family"]
