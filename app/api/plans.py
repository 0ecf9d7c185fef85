"""Plans: on the registry, and on nodes that a request brings along."""

import time
from typing import Annotated
from zlib import compress, decompress

import structlog
from fastapi import APIRouter, Query, Request, Response

from app.api import problems
from app.api.deps import answer, not_modified, off_loop, read, services
from app.api.nodes import BODY_ERRORS
from app.api.openapi import accepts
from app.api.problems import OverloadedError
from app.api.tables import plan_text, plans_text
from app.placement.errors import DoesNotFitError, ManualRangesError, NoNodesError, OverBudgetError
from app.planning import KeptPlan, Outcome, Plan, UnknownPlanError
from app.ports import UnknownModelError, UnknownNodeError
from app.schemas.fields import PLAN_MAX_BYTES, SIMULATION_MAX_BYTES
from app.schemas.parsing import InvalidRequestError
from app.schemas.plans import PlanIdPath, PlanIn, PlanItemOut, PlanOut, PlansOut, PlansQuery, SimulateIn

log = structlog.get_logger("cleave.api")

router = APIRouter(tags=["plans"])

REFUSALS = (
    *BODY_ERRORS,
    UnknownModelError,
    ManualRangesError,
    NoNodesError,
    DoesNotFitError,
    OverBudgetError,
    OverloadedError,
)


@router.post(
    "/plan",
    response_model=PlanOut,
    responses=problems.responses(*REFUSALS, UnknownNodeError),
    openapi_extra=accepts(PlanIn),
)
async def create_plan(request: Request) -> Response:
    """Place a model on the registered nodes as they are now. Reserves nothing."""
    body = await read(request, PlanIn, PLAN_MAX_BYTES)
    use = services(request)
    began_at = time.perf_counter()
    plan = await off_loop(request, use.planner.prepare(body.to_request(use.default_policy)))
    _say(plan, time.perf_counter() - began_at)
    await use.registry.settled(plan.revision)
    written, packed = await off_loop(request, lambda: _written(plan))
    use.planner.recent.keep(KeptPlan.of(plan, packed))
    return _plan(request, written)


@router.post(
    "/plan/simulate",
    response_model=PlanOut,
    responses=problems.responses(*REFUSALS),
    openapi_extra=accepts(SimulateIn),
)
async def simulate_plan(request: Request) -> Response:
    """Place a model on nodes whose reports stand in the request: no registry, no state, equal answers to equals."""
    body = await read(request, SimulateIn, SIMULATION_MAX_BYTES)
    use = services(request)
    nodes, warnings = await off_loop(request, body.to_nodes)
    plan = await off_loop(request, use.planner.prepare_simulation(body.to_request(use.default_policy), nodes))
    return _plan(request, (await off_loop(request, lambda: _written(plan, warnings)))[0])


@router.get("/plans", response_model=PlansOut, responses=problems.responses(InvalidRequestError))
async def list_plans(request: Request, query: Annotated[PlansQuery, Query()]) -> Response:
    """List recent plans, newest first."""
    page, more = services(request).planner.recent.page(query.cursor, query.limit)
    body = PlansOut(plans=[PlanItemOut.of(p) for p in page], next_cursor=page[-1].plan_id if more else None)
    return answer(request, body, lambda: plans_text(body))


@router.get(
    "/plans/{plan_id}",
    response_model=PlanOut,
    responses=problems.responses(UnknownPlanError, InvalidRequestError, OverloadedError),
)
async def get_plan(request: Request, plan_id: PlanIdPath) -> Response:
    """Show a recent plan, or that of a deployment, as it was returned; it never changes."""
    deployed = services(request).deployments.ledger.of_plan(plan_id)
    packed = services(request).planner.recent.get(plan_id).packed if deployed is None else deployed.answer
    if (unchanged := not_modified(request, f'"{plan_id}"')) is not None:
        return unchanged
    return _plan(request, await off_loop(request, lambda: unpack(packed)))


def pack(plan: Plan) -> bytes:
    """The plan's answer, packed."""
    return _written(plan)[1]


def unpack(packed: bytes) -> PlanOut:
    """The answer that was packed."""
    return PlanOut.model_validate_json(decompress(packed))


def _written(plan: Outcome, warnings: tuple[str, ...] = ()) -> tuple[PlanOut, bytes]:
    """The plan's answer, and the same packed. A thousand stages take milliseconds, so it is done beside the loop."""
    body = PlanOut.of(plan, warnings)
    return body, compress(body.model_dump_json().encode(), 1)


def _say(plan: Plan, duration_s: float) -> None:
    stages = len(plan.placement.assignments)
    log.info("planned", plan_id=plan.plan_id, policy=plan.policy, stages=stages, duration_s=round(duration_s, 4))


def _plan(request: Request, body: PlanOut) -> Response:
    headers = {} if body.plan_id is None else {"ETag": f'"{body.plan_id}"'}
    return answer(request, body, lambda: plan_text(body), headers=headers)
