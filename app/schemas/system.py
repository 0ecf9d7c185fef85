"""Probes, build, and pages about problems."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from app.schemas.parsing import Out

ProblemNamePath = Annotated[str, Field(max_length=64, pattern=r"^[a-z-]+$", description="The last part of a type")]


class LiveOut(Out):
    """The process answers."""

    status: str


class ReadyQuery(BaseModel):
    """How much a probe wants to know."""

    model_config = ConfigDict(extra="forbid")

    verbose: Annotated[str, Field(max_length=5)] | None = Field(None, description="Present: show each check")


class ReadyOut(Out):
    """Whether requests can be met, and with ``?verbose`` each check by name (else null)."""

    status: str
    checks: dict[str, str] | None


class VersionOut(Out):
    """What is running."""

    name: str
    version: str
    python: str


class ProblemPageOut(Out):
    """A kind of problem, explained."""

    type: str
    title: str
    status: int
    explanation: str
