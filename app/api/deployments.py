"""Deployments: plans whose memory is kept for those who asked."""

from typing import Annotated

import structlog
from fastapi import APIRouter, Header, Query, Request, Response

from app.api import problems
from app.api.cursors import cursor_of, place_of
from app.api.deps import answer, check_preconditions, not_modified, off_loop, read, services
from app.api.nodes import BODY_ERRORS
from app.api.openapi import accepts
from app.api.plans import REFUSALS, pack, unpack
from app.api.problems import OverloadedError, PreconditionFailedError
from app.api.tables import deployment_text, deployments_text, replan_text
from app.deployments import (
    Aim,
    Ask,
    DeploymentConflictError,
    QuotaExceededError,
    StaleRevisionError,
    UnknownDeploymentError,
    WrongGenerationError,
)
from app.ports import DeploymentRecord, StoreUnavailableError, UnknownNodeError
from app.schemas.deployments import (
    ConfirmIn,
    DeployIn,
    DeploymentItemOut,
    DeploymentNamePath,
    DeploymentOut,
    DeploymentsOut,
    DeploymentsQuery,
    ReplanIn,
    ReplanOut,
)
from app.schemas.fields import PLAN_MAX_BYTES, REPORT_MAX_BYTES
from app.schemas.parsing import InvalidRequestError

log = structlog.get_logger("cleave.api")

router = APIRouter(prefix="/deployments", tags=["deployments"])

IdempotencyKey = Annotated[
    str | None, Header(max_length=255, pattern=r"^[\x21-\x7e]+$", description="Known to repeats alone")
]


@router.post(
    "",
    status_code=201,
    response_model=DeploymentOut,
    responses={
        200: {"model": DeploymentOut, "description": "A repeat: the deployment that the same request made"},
        **problems.responses(
            *REFUSALS,
            UnknownNodeError,
            DeploymentConflictError,
            QuotaExceededError,
            StaleRevisionError,
            StoreUnavailableError,
        ),
    },
    openapi_extra=accepts(DeployIn),
)
async def create_deployment(request: Request, idempotency_key: IdempotencyKey = None) -> Response:
    """Plan, and keep the memory for the plan: until it is released, or for ``ttl_s`` if nobody confirms it.

    Two at once never get the same bytes. The same request again is answered with the deployment that it made.
    """
    body = await read(request, DeployIn, PLAN_MAX_BYTES)
    use = services(request)
    ask = Ask(
        body.name,
        request.client.host if request.client else "local",
        idempotency_key,
        body.model_dump_json(warnings=False),  # they can't tell by which spelling a model was given
        body.to_request(use.default_policy),
        body.ttl_s,
    )
    record, created = await use.deployments.create(ask, lambda work: off_loop(request, work), pack)
    if created:
        log.info("deployed", name=record.name, generation=record.generation, stages=len(record.stages))
    return await _deployment(request, record, created=created)


@router.get("", response_model=DeploymentsOut, responses=problems.responses(InvalidRequestError))
async def list_deployments(request: Request, query: Annotated[DeploymentsQuery, Query()]) -> Response:
    """List deployments in order of names; released ones are kept for a while."""
    ledger = services(request).deployments.ledger
    page, more = ledger.page(place_of(query.cursor), query.limit, query.state)
    body = DeploymentsOut(
        deployments=[DeploymentItemOut.of(record) for record in page],
        next_cursor=cursor_of(page[-1].name) if more else None,
    )
    return answer(request, body, lambda: deployments_text(body))


@router.get(
    "/{name}",
    response_model=DeploymentOut,
    responses=problems.responses(UnknownDeploymentError, InvalidRequestError, OverloadedError),
)
async def get_deployment(request: Request, name: DeploymentNamePath) -> Response:
    """Show a deployment. The ETag is its generation."""
    record = services(request).deployments.ledger.get(name)
    return not_modified(request, _etag(record)) or await _deployment(request, record)


@router.put(
    "/{name}",
    response_model=DeploymentOut,
    responses=problems.responses(
        *BODY_ERRORS,
        UnknownDeploymentError,
        WrongGenerationError,
        PreconditionFailedError,
        OverloadedError,
        StoreUnavailableError,
    ),
    openapi_extra=accepts(ConfirmIn),
)
async def confirm_deployment(request: Request, name: DeploymentNamePath) -> Response:
    """Confirm that a generation is loaded. It no longer lapses, and counts as resident with the next beats.

    A generation that is over is refused: its memory may be another's by now.
    """
    body = await read(request, ConfirmIn, REPORT_MAX_BYTES)
    use = services(request).deployments
    check_preconditions(request, _etag(use.ledger.get(name)))
    record = await use.confirm(name, body.generation)
    log.info("deployment loaded", name=name, generation=record.generation)
    return await _deployment(request, record)


@router.delete(
    "/{name}",
    status_code=204,
    response_class=Response,
    responses=problems.responses(
        UnknownDeploymentError, InvalidRequestError, PreconditionFailedError, StoreUnavailableError
    ),
)
async def release_deployment(request: Request, name: DeploymentNamePath) -> Response:
    """Release a deployment's memory. The deployment can still be looked at for a while."""
    use = services(request).deployments
    check_preconditions(request, _etag(use.ledger.get(name)))
    record = await use.release(name)
    log.info("deployment released", name=name, generation=record.generation)
    return Response(status_code=204)


@router.post(
    "/{name}/replan",
    response_model=ReplanOut,
    responses=problems.responses(
        *REFUSALS, UnknownDeploymentError, WrongGenerationError, StaleRevisionError, StoreUnavailableError
    ),
    openapi_extra=accepts(ReplanIn),
)
async def replan_deployment(request: Request, name: DeploymentNamePath) -> Response:
    """Plan a deployment again on the nodes as they are, near what is loaded: what is valid stays.

    Of all plans within the tolerance of the best one, one that moves the fewest bytes; its own memory is free to
    itself. Where something moves or was lost, the new plan is to be confirmed. A refusal leaves it as it is.
    """
    body = await read(request, ReplanIn, REPORT_MAX_BYTES)
    use = services(request)
    asked = DeployIn.model_validate_json(use.deployments.ledger.get(name).request).to_request(use.default_policy)
    aim = Aim(body.tolerance, body.dry_run)
    record, moved = await use.deployments.replan(name, asked, aim, lambda work: off_loop(request, work), pack)
    log.info(
        "deployment planned anew", name=name, generation=record.generation, moves=len(moved.moves), dry=body.dry_run
    )
    plan = await off_loop(request, lambda: unpack(record.answer))
    out = ReplanOut.near(record, plan, moved, dry_run=body.dry_run)
    return answer(request, out, lambda: replan_text(out), headers={"ETag": _etag(record)})


async def _deployment(request: Request, record: DeploymentRecord, *, created: bool = False) -> Response:
    plan = await off_loop(request, lambda: unpack(record.answer))
    body = DeploymentOut.made(record, plan)
    headers = {"ETag": _etag(record)} | ({"Location": f"/deployments/{record.name}"} if created else {})
    return answer(request, body, lambda: deployment_text(body), status=201 if created else 200, headers=headers)


def _etag(record: DeploymentRecord) -> str:
    return f'"{record.generation}"'
