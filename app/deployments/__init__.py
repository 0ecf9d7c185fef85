"""What was promised to whom: plans whose memory is kept for them until they are released."""

from app.deployments.errors import (
    DeploymentConflictError,
    QuotaExceededError,
    StaleRevisionError,
    UnknownDeploymentError,
    WrongGenerationError,
)
from app.deployments.ledger import Ledger
from app.deployments.service import Aim, Ask, Deployments, Quota

__all__ = [
    "Aim",
    "Ask",
    "DeploymentConflictError",
    "Deployments",
    "Ledger",
    "Quota",
    "QuotaExceededError",
    "StaleRevisionError",
    "UnknownDeploymentError",
    "WrongGenerationError",
]
