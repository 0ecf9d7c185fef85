"""Probes, build, and the pages that explain problems."""

import html
import platform
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from app import __version__
from app.api import problems
from app.api.deps import answer, services
from app.api.negotiation import prefers_page
from app.api.problems import PAGES, NotFoundError, NotReadyError
from app.api.tables import status_text, version_text
from app.schemas.parsing import InvalidRequestError
from app.schemas.system import LiveOut, ProblemNamePath, ProblemPageOut, ReadyOut, ReadyQuery, VersionOut

router = APIRouter(tags=["system"])


@router.get("/livez", response_model=LiveOut, responses=problems.responses())
async def livez(request: Request) -> Response:
    """Answer as long as the process can."""
    body = LiveOut(status="ok")
    return answer(request, body, lambda: status_text(body))


@router.get("/readyz", response_model=ReadyOut, responses=problems.responses(NotReadyError, InvalidRequestError))
async def readyz(request: Request, query: Annotated[ReadyQuery, Query()]) -> Response:
    """Answer 200 where requests can be met, 503 where the store can't be written. ``?verbose`` shows each check."""
    checks = services(request).registry.checks()
    if checks["store"] != "ok":
        raise NotReadyError("the store can't be written; what was said since is kept in memory", checks)
    body = ReadyOut(status="ok", checks=checks if query.verbose is not None else None)
    return answer(request, body, lambda: status_text(body))


@router.get("/version", response_model=VersionOut, responses=problems.responses())
async def version(request: Request) -> Response:
    """Say what is running."""
    body = VersionOut(name="cleave", version=__version__, python=platform.python_version())
    return answer(request, body, lambda: version_text(body))


@router.get(
    "/problems/{name}",
    response_model=ProblemPageOut,
    responses=problems.responses(NotFoundError, InvalidRequestError),
)
async def explain_problem(request: Request, name: ProblemNamePath) -> Response:
    """Explain a kind of problem: what it means, and what to do."""
    kind = PAGES.get(name)
    if kind is None:
        raise NotFoundError("there is no such kind of problem")
    body = ProblemPageOut(type=f"/problems/{name}", title=kind.title, status=kind.status, explanation=kind.page)
    if prefers_page(request):
        title, text = html.escape(f"{kind.status} {kind.title}"), html.escape(kind.page)
        return HTMLResponse(f"<!doctype html><title>{title}</title><h1>{title}</h1><p>{text}</p>")
    return answer(request, body, lambda: f"{body.status} {body.title}\n\n{body.explanation}\n")
