"""The one table from errors to HTTP, and every error answer of the service (RFC 9457).

Whatever is not in the table is a bug: 500, logged, without detail.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match, Route

from app.api.negotiation import prefers_text
from app.api.tables import problem_text
from app.catalog import CatalogFullError
from app.deployments import (
    DeploymentConflictError,
    QuotaExceededError,
    StaleRevisionError,
    UnknownDeploymentError,
    WrongGenerationError,
)
from app.placement.errors import (
    CleaveError,
    DoesNotFitError,
    InvalidFieldError,
    ManualRangesError,
    NoNodesError,
    OverBudgetError,
)
from app.planning import UnknownPlanError
from app.ports import StoreUnavailableError, UnknownModelError, UnknownNodeError
from app.registry import NodeConflictError, RegistryFullError
from app.schemas.parsing import InvalidRequestError, MalformedJsonError, faults
from app.schemas.problems import InvalidRequestOut, ProblemOut

CONTENT_TYPE = "application/problem+json"

log = structlog.get_logger("cleave.api")


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of error looks to clients; ``page`` explains it to a person."""

    status: int
    name: str
    title: str
    page: str
    retry_after_s: int | None = None


@dataclass(eq=False)
class HttpError(CleaveError):
    """A refusal by HTTP's own rules; the subclasses are the kinds."""

    detail: str


class NotFoundError(HttpError):
    """No such path."""


class MethodNotAllowedError(HttpError):
    """The path doesn't take this method."""


class PayloadTooLargeError(HttpError):
    """The body is over its bound."""


class UnsupportedMediaTypeError(HttpError):
    """The body isn't declared as JSON."""


class PreconditionFailedError(HttpError):
    """``If-Match`` names a version that has been replaced since."""


class MalformedRequestError(HttpError):
    """Not HTTP."""


class HeadTooLargeError(HttpError):
    """More header than anybody needs."""


class RequestTimeoutError(HttpError):
    """The request didn't arrive in time."""


@dataclass(eq=False)
class NotReadyError(HttpError):
    """A check of readiness fails."""

    checks: dict[str, str]


class OverloadedError(HttpError):
    """More at once than the server takes on."""


KINDS: dict[type[CleaveError], Kind] = {
    MalformedJsonError: Kind(
        400,
        "malformed-json",
        "The body is not JSON",
        "The body could not be read as JSON (RFC 8259). NaN and Infinity are not JSON, a key may stand in an object "
        "only once, text is UTF-8 without a byte order mark, and nesting is bounded. The detail names line and column.",
    ),
    MalformedRequestError: Kind(
        400, "malformed-request", "The request is not HTTP", "The bytes that arrived could not be read as HTTP/1.1."
    ),
    UnknownNodeError: Kind(
        404,
        "unknown-node",
        "No such node is registered",
        "The node never registered, left, was superseded by another node at its address, or was forgotten after the "
        "retention. An agent that gets this answer to a beat registers again with its whole report: "
        "POST /nodes/register.",
    ),
    UnknownPlanError: Kind(
        404,
        "unknown-plan",
        "No such plan is kept",
        "Plans are kept as they were returned, the newest thousand, until the server restarts. Plan again.",
    ),
    UnknownModelError: Kind(
        404,
        "unknown-model",
        "No such model is named",
        "A plan may refer to a model by name once its cost is known: PUT /models/{name}, or cleave models put.",
    ),
    UnknownDeploymentError: Kind(
        404,
        "unknown-deployment",
        "No such deployment is kept",
        "No deployment has this name, or it was released so long ago that it is forgotten.",
    ),
    NotFoundError: Kind(404, "not-found", "No such resource", "The path is none of this server's: see /openapi.json."),
    MethodNotAllowedError: Kind(
        405, "method-not-allowed", "The resource does not take this method", "The Allow header lists those it takes."
    ),
    RequestTimeoutError: Kind(
        408,
        "request-timeout",
        "The request did not arrive in time",
        "Head and body of a request each have a deadline, so that stalled clients can't hold the server.",
    ),
    NoNodesError: Kind(
        409,
        "no-nodes",
        "There is no node to plan on",
        "No node is registered that is ready or suspect and that the request admits. excluded says why those that are "
        "there don't count: a role, a device that isn't usable, beats that stopped.",
    ),
    DoesNotFitError: Kind(
        409,
        "does-not-fit",
        "The model does not fit these nodes",
        "The nodes' memory can't hold the model. required_bytes is what it needs, usable_bytes the sum of the budgets, "
        "shortfall_bytes their difference (0 where only fragments don't fit), capacity_layers how many layers would "
        "fit. nodes says for each node its budget, the limit that bounds it, the layers that it could take, and why it "
        "was left out if it was.",
    ),
    OverBudgetError: Kind(
        409,
        "over-budget",
        "A stage needs more memory than its node has",
        "Ranges given by hand (policy manual) were added up and one or more don't fit. nodes has the figures. "
        '"allow_over_budget": true plans them all the same and marks them.',
    ),
    NodeConflictError: Kind(
        409,
        "node-conflict",
        "Two live machines claim one node_id",
        "A node_id belongs to one machine. The one that holds it is alive at another address, so this report was "
        "refused and changed nothing. Cloned disks often clone ids: give one machine another node_id. A node that "
        "really moved sends the same instance_id, or waits until its old self is suspect.",
    ),
    DeploymentConflictError: Kind(
        409,
        "deployment-conflict",
        "The name belongs to another deployment",
        "A deployment that isn't released has this name, or was made with this Idempotency-Key, by another request. "
        "Release it, or choose another name. The same request again would have been answered with the deployment.",
    ),
    WrongGenerationError: Kind(
        409,
        "wrong-generation",
        "The deployment has changed since",
        "What was loaded is not, or is no longer, what is promised: the promise lapsed, was released or planned anew, "
        "or a node of it was lost. generation and state are the present ones. Don't run what was loaded: its memory "
        "may be another's. Read the deployment again and go by its present plan.",
    ),
    StaleRevisionError: Kind(
        409,
        "stale-revision",
        "Others were faster",
        "Memory is promised once. Each plan that was made for this request was overtaken by other deployments or by "
        "beats before it could be entered. Ask again.",
        retry_after_s=1,
    ),
    QuotaExceededError: Kind(
        409,
        "quota-exceeded",
        "There are enough deployments",
        "A caller, and all together, may hold so many deployments that aren't released (CLEAVE_MAX_DEPLOYMENTS, "
        "CLEAVE_MAX_DEPLOYMENTS_PER_CALLER). Release some.",
    ),
    PreconditionFailedError: Kind(
        412,
        "precondition-failed",
        "The resource has changed since",
        "If-Match named a version that has been replaced, or If-None-Match one that is there. Read the resource again "
        "and decide anew.",
    ),
    PayloadTooLargeError: Kind(
        413,
        "payload-too-large",
        "The body is too large",
        "A report may have 64 KiB, a plan request or a batch 1 MiB, a simulation 4 MiB, a model 16 MiB.",
    ),
    UnsupportedMediaTypeError: Kind(
        415,
        "unsupported-media-type",
        "The body must be JSON",
        'Send the header "Content-Type: application/json" (curl: --json, or -H). The charset, if given, is utf-8.',
    ),
    InvalidRequestError: Kind(
        422,
        "invalid-request",
        "The request has faults",
        "errors names each fault with a JSON pointer into the body (/query/.. for a query parameter). Numbers are "
        "numbers, not strings; integers are within 2^63-1; an unknown field is a fault wherever it could hide a typo.",
    ),
    ManualRangesError: Kind(
        422,
        "manual-ranges",
        "The ranges given by hand don't cover the model",
        "Policy manual takes each node's config.layers. They must cover all layers in node order, without gap, overlap "
        "or empty range. nodes lists the node_ids at fault.",
    ),
    HeadTooLargeError: Kind(
        431, "head-too-large", "The request's head is too large", "Request line and headers are bounded to 32 KiB."
    ),
    StoreUnavailableError: Kind(
        503,
        "store-unavailable",
        "The store can't be written",
        "What is acknowledged must survive a crash, and the database can't be written now (a full disk, for example). "
        "The change is kept in memory and tried again. Ask again later.",
        retry_after_s=2,
    ),
    RegistryFullError: Kind(
        503,
        "overloaded",
        "The server has taken on all it can",
        "As many nodes or models are kept, or as many requests are in progress, as the server is set to bear.",
        retry_after_s=10,
    ),
    CatalogFullError: Kind(
        503,
        "overloaded",
        "The server has taken on all it can",
        "As many nodes or models are kept, or as many requests are in progress, as the server is set to bear.",
        retry_after_s=10,
    ),
    OverloadedError: Kind(
        503,
        "overloaded",
        "The server has taken on all it can",
        "As many nodes or models are kept, or as many requests are in progress, as the server is set to bear.",
        retry_after_s=1,
    ),
}
KINDS[InvalidFieldError] = KINDS[InvalidRequestError]
KINDS[NotReadyError] = KINDS[StoreUnavailableError]

BUG = Kind(
    500,
    "internal-error",
    "The server made a mistake",
    "This is a bug of the server. Its log has the cause. Nothing of it is in the answer.",
)

MALFORMED_STATUS = KINDS[MalformedRequestError].status

PAGES: dict[str, Kind] = {kind.name: kind for kind in (*KINDS.values(), BUG)}


def document(error: CleaveError) -> dict[str, Any]:
    """The problem document of an error: the four standard members, then the error's own figures."""
    kind = KINDS[type(error)]
    return {**_head(kind, error.detail), **_figures(error)}


def render(error: CleaveError) -> tuple[Kind, bytes]:
    """Status and body of an error, for answers given outside of the application."""
    return KINDS[type(error)], to_json(document(error))


def bug() -> tuple[Kind, bytes]:
    """Status and body where the server itself is at fault: no detail, which may be a secret or an attacker's text."""
    return BUG, to_json(_head(BUG, "the cause is in the server's log"))


def respond(request: Request, error: CleaveError, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request that met this error."""
    return _response(request, KINDS[type(error)], document(error), headers or {})


def mistake(request: Request, error: Exception) -> Response:
    """The answer where the server itself is at fault: the cause goes to the log and to nobody else."""
    log.error("unhandled error", path=request.url.path, method=request.method, exc_info=error)
    kind, body = bug()
    return Response(body, kind.status, media_type=CONTENT_TYPE)


def gone() -> Response:
    """The answer that nobody waits for any more: the client left before its request was whole."""
    return Response(status_code=MALFORMED_STATUS)


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Make every error of the application, which serves these routes, a problem document."""

    @app.exception_handler(CleaveError)
    async def _refused(request: Request, error: CleaveError) -> Response:
        return respond(request, error)

    @app.exception_handler(ClientDisconnect)
    async def _left(_request: Request, _error: ClientDisconnect) -> Response:
        return gone()

    @app.exception_handler(RequestValidationError)
    async def _bad_parameters(request: Request, error: RequestValidationError) -> Response:
        return respond(request, InvalidRequestError(faults(error.errors())))

    @app.exception_handler(HTTPException)
    async def _by_the_framework(request: Request, error: HTTPException) -> Response:
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = ", ".join(sorted(_methods((*app.routes, *routes), request)))
            refusal = MethodNotAllowedError(f"{request.method} is not allowed here; allowed: {allowed}")
            return respond(request, refusal, {"Allow": allowed})
        if error.status_code == HTTPStatus.NOT_FOUND:
            return respond(request, NotFoundError("there is nothing at this path"))
        return respond(request, MalformedRequestError("the request could not be read"))

    @app.exception_handler(Exception)
    async def _bug(request: Request, error: Exception) -> Response:
        return mistake(request, error)


def responses(*errors: type[CleaveError]) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's responses for what an operation can refuse."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in (*[KINDS[error] for error in errors], BUG):
        model = InvalidRequestOut if kind.name == "invalid-request" else ProblemOut
        entry = found.setdefault(kind.status, {"description": kind.title, "content": {CONTENT_TYPE: {}}})
        entry["content"][CONTENT_TYPE]["schema"] = {"$ref": f"#/components/schemas/{model.__name__}"}
        if kind.title not in entry["description"]:
            entry["description"] += f"; or: {kind.title}"
    return found


def _methods(routes: Iterable[BaseRoute], request: Request) -> set[str]:
    """What the path takes, over all of its routes; the framework names only the first one's."""
    fitting = [r for r in routes if isinstance(r, Route) and r.matches(request.scope)[0] is not Match.NONE]
    literal = [r for r in fitting if r.path == request.scope["path"]]
    return {method for route in literal or fitting for method in route.methods or ()}


def _head(kind: Kind, detail: str) -> dict[str, Any]:
    return {"type": f"/problems/{kind.name}", "title": kind.title, "status": kind.status, "detail": detail}


def _figures(error: CleaveError) -> dict[str, Any]:
    if isinstance(error, InvalidFieldError):
        return {"errors": [{"pointer": error.pointer, "message": error.detail}]}
    names = [f.name for f in fields(error) if f.name != "detail"]  # type: ignore[arg-type]  # every kind is a dataclass
    return {name: _plain(getattr(error, name)) for name in names}


def _plain(value: Any) -> Any:
    """Values as JSON has them; tuples of figures become lists of objects."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


def _response(request: Request, kind: Kind, body: dict[str, Any], headers: dict[str, str]) -> Response:
    if kind.retry_after_s is not None:
        headers = {**headers, "Retry-After": str(kind.retry_after_s)}
    headers = {"Vary": "Accept", **headers}
    if prefers_text(request):
        return Response(problem_text(body), kind.status, headers, "text/plain; charset=utf-8")
    return Response(to_json(body), kind.status, headers, CONTENT_TYPE)
