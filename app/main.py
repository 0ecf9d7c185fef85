"""The application: settings in, a FastAPI application out. Nothing runs at import."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import anyio
import structlog
from fastapi import FastAPI

from app import __version__
from app.api import beats, deployments, models, nodes, openapi, plans, problems, system
from app.api.deps import Services
from app.catalog import Catalog
from app.db import open_journal
from app.deployments import Deployments, Ledger, Quota
from app.planning import Planner
from app.registry import Registry, Rules
from app.schemas.catalog import PutModelIn
from app.schemas.deployments import ConfirmIn, DeployIn, ReplanIn
from app.schemas.nodes import OverridesIn
from app.schemas.plans import PlanIn, SimulateIn
from app.schemas.problems import InvalidRequestOut, ProblemOut
from app.schemas.reports import BatchIn, HeartbeatIn, ReportIn
from app.settings import Settings

DESCRIPTION = """
Which node runs which layers of a model, so that every stage fits its node's memory and the pipeline is balanced.

Node agents report what each machine has (`POST /nodes/register`); an orchestrator asks where to put a model
(`POST /plan`); the answer is one contiguous layer range per node, with the bytes estimated and budgeted.
Errors are problem documents (RFC 9457). `Accept: text/plain` gives tables.
"""

PLANNING_THREADS = 2

BODIES = (ReportIn, BatchIn, HeartbeatIn, OverridesIn, PutModelIn, PlanIn, SimulateIn, DeployIn, ConfirmIn, ReplanIn)
"""What routes read themselves, for the OpenAPI document."""

log = structlog.get_logger("cleave")


class SystemClock:
    """This machine's clocks."""

    def monotonic(self) -> float:
        """Seconds since some moment; never set."""
        return time.monotonic()

    def now(self) -> datetime:
        """The wall clock, aware, UTC."""
        return datetime.now(UTC)


def create_app(settings: Settings) -> FastAPI:
    """The service with these settings; its store is opened when it starts."""
    app = FastAPI(
        title="Cleave",
        version=__version__,
        summary="Places models on machines, layer by layer.",
        description=DESCRIPTION.strip(),
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        servers=[{"url": "/", "description": "This server"}],
        openapi_tags=[
            {"name": "nodes", "description": "What machines there are."},
            {"name": "models", "description": "What models cost."},
            {"name": "plans", "description": "Where to put a model."},
            {"name": "deployments", "description": "Plans whose memory is kept."},
            {"name": "system", "description": "Probes, build, explanations."},
        ],
        docs_url=None,
        redoc_url=None,
        lifespan=lambda app: _running(app, settings),
        separate_input_output_schemas=False,
        redirect_slashes=False,
    )
    routers = [module.router for module in (nodes, models, plans, deployments, system)]
    problems.install(app, [route for router in routers for route in router.routes])
    openapi.install(app, *BODIES, ProblemOut, InvalidRequestOut)
    beats.install(app)
    for router in routers:
        app.include_router(router)
    return app


@contextlib.asynccontextmanager
async def _running(app: FastAPI, settings: Settings) -> AsyncIterator[None]:
    """Everything that lives as long as the server: the store, the registry, its ticking."""
    rules = Rules(
        heartbeat_interval_s=settings.heartbeat_interval_s,
        ttl_s=settings.ttl_s,
        retention_s=settings.retention_s,
        max_nodes=settings.max_nodes,
        default_reserve_bytes=settings.default_reserve_bytes,
    )
    clock = SystemClock()
    with open_journal(settings.database_url) as journal:
        stored = journal.load()
        journal.start(asyncio.get_running_loop())
        ledger = Ledger(journal, clock, stored.deployments)
        registry = Registry(rules, clock, journal, stored, ledger)
        catalog = Catalog(journal, clock.now, stored.models)
        planner = Planner(registry, catalog, settings.default_reserve_bytes, clock.now, lambda: secrets.token_hex(8))
        quota = Quota(settings.max_deployments_per_caller, settings.max_deployments)
        promises = Deployments(ledger, registry, planner, journal, clock, quota)
        app.state.services = Services(
            registry, catalog, planner, promises, settings.default_policy, anyio.CapacityLimiter(PLANNING_THREADS)
        )
        ticking = asyncio.create_task(_tick(registry, ledger))
        log.info(
            "started",
            version=__version__,
            nodes=len(stored.nodes),
            models=len(stored.models),
            deployments=len(stored.deployments),
            revision=stored.revision,
        )
        try:
            yield
        finally:
            log.info("stopping", revision=registry.revision)
            ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking


async def _tick(registry: Registry, ledger: Ledger) -> None:
    """Let time pass; an error there is logged and time goes on."""
    while True:
        await asyncio.sleep(registry.tick_interval_s)
        try:
            for node_id, what in registry.tick():
                log.info(what, node_id=node_id)
            for name, what in ledger.lapse():
                log.info(what, name=name)
        except Exception:
            log.exception("tick failed")
