"""What is refused about deployments."""

from dataclasses import dataclass, field

from app.placement.errors import CleaveError


@dataclass(eq=False)
class UnknownDeploymentError(CleaveError):
    """A name that no deployment has."""

    name: str
    detail: str = field(init=False)

    def __post_init__(self) -> None:
        """Where deployments come from."""
        self.detail = f"no deployment is named {self.name}; POST /deployments makes one"


@dataclass(eq=False)
class DeploymentConflictError(CleaveError):
    """The name, or the Idempotency-Key, belongs to a deployment of another request."""

    name: str
    detail: str


@dataclass(eq=False)
class WrongGenerationError(CleaveError):
    """The deployment has changed since the generation that the caller speaks of, or can't be what the caller says."""

    name: str
    generation: int
    state: str
    detail: str


@dataclass(eq=False)
class StaleRevisionError(CleaveError):
    """Others took the memory of every plan between its making and its reservation."""

    attempts: int
    detail: str = field(init=False)

    def __post_init__(self) -> None:
        """What happened, and what to do about it."""
        self.detail = f"{self.attempts} plans in a row were overtaken by other deployments or beats; ask again"


@dataclass(eq=False)
class QuotaExceededError(CleaveError):
    """As many deployments are held as there may be, by this caller or by all together."""

    held: int
    most: int
    detail: str
