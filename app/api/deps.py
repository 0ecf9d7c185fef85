"""What routes need of a request: the services of this application, a body read within its bounds, an answer."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
from fastapi import Request, Response

from app.api.negotiation import prefers_text
from app.api.problems import OverloadedError, PayloadTooLargeError, PreconditionFailedError, UnsupportedMediaTypeError
from app.catalog import Catalog
from app.deployments import Deployments
from app.placement.reference import Policy
from app.planning import Planner
from app.registry import Registry
from app.schemas.fields import REPORT_MAX_BYTES
from app.schemas.parsing import Model, Out, parse

JSON = "application/json"
MAX_WAITING = 64
"""A plan takes up to two seconds of a core, so that this many is already a minute."""

MERGE_PATCH = "application/merge-patch+json"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases of one application, found at ``app.state.services``."""

    registry: Registry
    catalog: Catalog
    planner: Planner
    deployments: Deployments
    default_policy: Policy
    planning_threads: anyio.CapacityLimiter


def services(request: Request) -> Services:
    """The use cases that serve this request."""
    found: Services = request.app.state.services
    return found


async def read(request: Request, model: type[Model], max_bytes: int, *media_types: str) -> Model:
    """The request's body as ``model``. Large ones are read on another thread, so that beats go on.

    Raises UnsupportedMediaTypeError, PayloadTooLargeError, MalformedJsonError, InvalidRequestError.
    """
    _check_media_type(request, media_types or (JSON,))
    raw = await _body(request, max_bytes)
    if len(raw) <= REPORT_MAX_BYTES:
        return parse(model, raw)
    return await anyio.to_thread.run_sync(partial(parse, model, raw))


async def off_loop(request: Request, work: Callable[[], T]) -> T:
    """Run planning beside the event loop; at most a few at once, and not too many waiting. Raises OverloadedError."""
    if services(request).planning_threads.statistics().tasks_waiting >= MAX_WAITING:
        raise OverloadedError(f"{MAX_WAITING} plans are waiting for their turn; ask again")
    return await anyio.to_thread.run_sync(work, limiter=services(request).planning_threads, abandon_on_cancel=True)


def answer(
    request: Request,
    body: Out,
    text: Callable[[], str],
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    """The answer as JSON, or as the table that ``text`` draws where the client prefers text."""
    headers = {"Vary": "Accept", **(headers or {})}
    if prefers_text(request):
        return Response(text(), status, headers, "text/plain; charset=utf-8")
    return Response(body.__pydantic_serializer__.to_json(body), status, headers, JSON)


def not_modified(request: Request, etag: str) -> Response | None:
    """304 where the client has this version already, as ``If-None-Match`` says; None where it needs the answer."""
    known = request.headers.get("if-none-match")
    if known is None or not _matches(known.replace("W/", ""), etag):  # compared weakly, RFC 9110, section 13.1.2
        return None
    return Response(status_code=304, headers={"ETag": etag, "Vary": "Accept"})


def check_preconditions(request: Request, etag: str | None) -> None:
    """Raise PreconditionFailedError where ``If-Match`` or ``If-None-Match`` rules the present version out.

    ``etag`` is None where there is nothing yet: then ``If-Match`` fails whatever it names, as RFC 9110 has it.
    """
    present = "there is nothing yet" if etag is None else f"the present version is {etag}"
    if (wanted := request.headers.get("if-match")) is not None and not _matches(wanted, etag):
        raise PreconditionFailedError(present)
    if (unwanted := request.headers.get("if-none-match")) is not None and _matches(unwanted, etag):
        raise PreconditionFailedError(present)


def _matches(tags: str, etag: str | None) -> bool:
    return etag is not None and (tags.strip() == "*" or etag in (tag.strip() for tag in tags.split(",")))


def _check_media_type(request: Request, allowed: tuple[str, ...]) -> None:
    media_type, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    charset = parameters.replace('"', "").partition("charset=")[2].partition(";")[0].strip()
    encoded = request.headers.get("content-encoding", "identity").lower() != "identity"
    if media_type.strip() not in allowed or charset not in {"", "utf-8"} or encoded:
        raise UnsupportedMediaTypeError(f"the body must be {' or '.join(allowed)} in UTF-8; say so in Content-Type")


async def _body(request: Request, max_bytes: int) -> bytes:
    """All of the body, given up on as soon as it exceeds its bound."""
    too_large = PayloadTooLargeError(f"the body may have {max_bytes} bytes")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > max_bytes:
        raise too_large
    chunks, size = [], 0
    async for chunk in request.stream():
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            raise too_large
    return b"".join(chunks)
