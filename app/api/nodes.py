"""Nodes: reports and beats from agents, looks and overrides from operators."""

from collections.abc import Callable
from typing import Annotated

import structlog
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from app.api import problems
from app.api.cursors import cursor_of, place_of
from app.api.deps import JSON, MERGE_PATCH, answer, check_preconditions, read, services
from app.api.openapi import accepts
from app.api.problems import (
    PayloadTooLargeError,
    PreconditionFailedError,
    UnsupportedMediaTypeError,
    document,
)
from app.api.tables import batch_text, beat_text, node_text, nodes_text
from app.placement.errors import CleaveError
from app.placement.nodes import Node
from app.ports import State, StoreUnavailableError, UnknownNodeError
from app.registry import NodeConflictError, NodeView, RegistryFullError
from app.schemas.fields import PLAN_MAX_BYTES, REPORT_MAX_BYTES
from app.schemas.nodes import BatchBeatOut, BatchOut, BeatOut, NodeIdPath, NodeOut, NodesOut, NodesQuery, OverridesIn
from app.schemas.parsing import InvalidRequestError, MalformedJsonError
from app.schemas.problems import ProblemOut
from app.schemas.reports import BatchIn, HeartbeatIn, RefusedReport, ReportIn, loopback_warning

log = structlog.get_logger("cleave.api")

router = APIRouter(prefix="/nodes", tags=["nodes"])

BODY_ERRORS = (MalformedJsonError, PayloadTooLargeError, UnsupportedMediaTypeError, InvalidRequestError)
FEW = 50
"""Nodes that are written on the event loop; a thousand take a tenth of a second."""

REGISTER_ERRORS = (*BODY_ERRORS, NodeConflictError, StoreUnavailableError, RegistryFullError)


@router.post(
    "/register",
    status_code=201,
    response_model=BeatOut,
    responses={200: {"model": BeatOut, "description": "The node was known"}, **problems.responses(*REGISTER_ERRORS)},
    openapi_extra=accepts(ReportIn),
)
async def register_node(request: Request) -> Response:
    """Report a node, whole. The first report registers it; every further one is a beat and replaces the last."""
    node, warnings = (await read(request, ReportIn, REPORT_MAX_BYTES)).to_node()
    view = await services(request).registry.register(node, warnings + loopback_warning(node, _peer(request)))
    if view.created:
        log.info("node registered", node_id=node.node_id, addr=node.addr, revision=view.revision)
    return _beat(request, view)


@router.post(
    "/register/batch",
    response_model=BatchOut,
    responses=problems.responses(*BODY_ERRORS, StoreUnavailableError),
    openapi_extra=accepts(BatchIn),
)
async def register_nodes(request: Request) -> Response:
    """Report up to 1,000 nodes at once. Each is accepted or refused on its own: see the status in its result."""
    batch = await read(request, BatchIn, PLAN_MAX_BYTES)
    peer = _peer(request)
    reports = [r.to_node() for r in batch.entries if isinstance(r, ReportIn)]
    outcomes = iter(
        await services(request).registry.register_many([(n, w + loopback_warning(n, peer)) for n, w in reports])
    )
    results = [
        _result(InvalidRequestError(tuple(r.errors)) if isinstance(r, RefusedReport) else next(outcomes))
        for r in batch.entries
    ]
    return answer(request, BatchOut(results=results), lambda: batch_text([r.model_dump() for r in results]))


@router.post(
    "/{node_id}/heartbeat",
    response_model=BeatOut,
    responses=problems.responses(*BODY_ERRORS, UnknownNodeError, StoreUnavailableError),
    openapi_extra=accepts(HeartbeatIn),
)
async def beat_node(request: Request, node_id: NodeIdPath) -> Response:
    """Report only what moves. A node that isn't known is told to register: 404."""
    body = await read(request, HeartbeatIn, REPORT_MAX_BYTES)
    return _beat(request, await services(request).registry.beat(node_id, body.apply))


@router.get("", response_model=NodesOut, responses=problems.responses(InvalidRequestError))
async def list_nodes(request: Request, query: Annotated[NodesQuery, Query()]) -> Response:
    """List nodes in order of node_id.

    A node that is registered all the while is seen exactly once, whatever comes and goes between two pages.
    """
    page = services(request).registry.page(place_of(query.cursor), query.limit, _filter(query))
    views = page.nodes
    items = (
        list(map(NodeOut.of, views)) if len(views) <= FEW else await to_thread.run_sync(list, map(NodeOut.of, views))
    )
    body = NodesOut.model_construct(nodes=items, next_cursor=cursor_of(page.next_after))
    return answer(request, body, lambda: nodes_text(body))


@router.get("/{node_id}", response_model=NodeOut, responses=problems.responses(UnknownNodeError, InvalidRequestError))
async def get_node(request: Request, node_id: NodeIdPath) -> Response:
    """Show a node as it stands. The ETag names its last durable change; free memory moves without one."""
    return _node(request, services(request).registry.get(node_id))


@router.patch(
    "/{node_id}",
    response_model=NodeOut,
    responses=problems.responses(*BODY_ERRORS, UnknownNodeError, PreconditionFailedError, StoreUnavailableError),
    openapi_extra=accepts(OverridesIn, JSON, MERGE_PATCH),
)
async def override_node(request: Request, node_id: NodeIdPath) -> Response:
    """Decide about a node, against what its agent says and until lifted: role, max_ram_gb, labels. Null lifts."""
    body = await read(request, OverridesIn, REPORT_MAX_BYTES, JSON, MERGE_PATCH)
    registry = services(request).registry
    check_preconditions(request, _etag(registry.get(node_id)))
    view = await registry.override(node_id, body.apply)
    log.info("node overridden", node_id=node_id, revision=view.revision)
    return _node(request, view)


@router.delete(
    "/{node_id}",
    status_code=204,
    response_class=Response,
    responses=problems.responses(UnknownNodeError, InvalidRequestError, PreconditionFailedError, StoreUnavailableError),
)
async def remove_node(request: Request, node_id: NodeIdPath) -> Response:
    """Let a node leave. It comes back with its next whole report."""
    registry = services(request).registry
    check_preconditions(request, _etag(registry.get(node_id)))
    await registry.remove(node_id)
    log.info("node left", node_id=node_id, revision=registry.revision)
    return Response(status_code=204)


def _beat(request: Request, view: NodeView) -> Response:
    body = BeatOut.of(view)
    headers = {"Location": f"/nodes/{view.node.node_id}"} if view.created else None
    return answer(request, body, lambda: beat_text(body), status=201 if view.created else 200, headers=headers)


def _node(request: Request, view: NodeView) -> Response:
    body = NodeOut.of(view)
    return answer(request, body, lambda: node_text(body), headers={"ETag": _etag(view)})


def _etag(view: NodeView) -> str:
    return f'"{view.revision}"'


def _result(outcome: NodeView | CleaveError) -> BatchBeatOut | ProblemOut:
    if isinstance(outcome, CleaveError):
        return ProblemOut(**document(outcome))
    return BatchBeatOut.of(outcome)


def _peer(request: Request) -> str | None:
    return request.client.host if request.client else None


def _filter(query: NodesQuery) -> Callable[[Node, State], bool]:
    key, has_value, value = (query.label or "").partition("=")

    def wanted(node: Node, state: State) -> bool:
        return (
            (query.state is None or state == query.state)
            and (query.device is None or node.primary_device == query.device)
            and (query.label is None or (key in node.labels and (not has_value or node.labels[key] == value)))
        )

    return wanted
