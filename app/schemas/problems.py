"""Errors on the wire: RFC 9457 problem documents."""

from pydantic import ConfigDict

from app.schemas.parsing import Fault, Out


class ProblemOut(Out):
    """Why a request was not met.

    ``type`` is a page of this server that explains the kind; further members carry the figures, by kind.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    title: str
    status: int
    detail: str


class InvalidRequestOut(ProblemOut):
    """A request with faults, each with a JSON pointer into the body."""

    errors: list[Fault]
