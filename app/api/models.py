"""Named models: what a model costs, worked out once and referred to by plans."""

from typing import Annotated

import structlog
from fastapi import APIRouter, Query, Request, Response

from app.api import problems
from app.api.cursors import cursor_of, place_of
from app.api.deps import answer, check_preconditions, not_modified, off_loop, read, services
from app.api.nodes import BODY_ERRORS
from app.api.openapi import accepts
from app.api.problems import OverloadedError, PreconditionFailedError
from app.api.tables import model_text, models_text
from app.catalog import CatalogFullError
from app.checkpoints.costs import Priced
from app.checkpoints.requests import priced
from app.ports import ModelRecord, StoreUnavailableError, UnknownModelError
from app.schemas.catalog import (
    ModelItemOut,
    ModelNamePath,
    ModelsOut,
    ModelsQuery,
    NamedModelOut,
    PutModelIn,
)
from app.schemas.fields import MODEL_MAX_BYTES
from app.schemas.parsing import InvalidRequestError

log = structlog.get_logger("cleave.api")

router = APIRouter(prefix="/models", tags=["models"])


@router.put(
    "/{name}",
    status_code=201,
    response_model=NamedModelOut,
    responses={
        200: {"model": NamedModelOut, "description": "The name was in use"},
        **problems.responses(
            *BODY_ERRORS, PreconditionFailedError, CatalogFullError, OverloadedError, StoreUnavailableError
        ),
    },
    openapi_extra=accepts(PutModelIn),
)
async def put_model(request: Request, name: ModelNamePath) -> Response:
    """Name a model's cost: as it stands, or worked out from the tensors of a checkpoint or from a config.json.

    Replaces what the name stood for; ``If-Match`` replaces only that version, ``If-None-Match: *`` only what is new.
    Nothing that a client names is opened or fetched.
    """
    body = await read(request, PutModelIn, MODEL_MAX_BYTES)
    made: Priced = await off_loop(request, lambda: priced(body.root))
    catalog = services(request).catalog
    known = catalog.find(name)
    check_preconditions(request, None if known is None else _etag(known))
    record = await catalog.put(name, made.cost)
    log.info("model named", name=name, version=record.version)
    return _model(request, record, made.notes, created=known is None)


@router.get("", response_model=ModelsOut, responses=problems.responses(InvalidRequestError))
async def list_models(request: Request, query: Annotated[ModelsQuery, Query()]) -> Response:
    """List the named models in order of names."""
    page, more = services(request).catalog.page(place_of(query.cursor), query.limit)
    body = ModelsOut(
        models=[ModelItemOut.of(record) for record in page],
        next_cursor=cursor_of(page[-1].name) if more else None,
    )
    return answer(request, body, lambda: models_text(body))


@router.get(
    "/{name}", response_model=NamedModelOut, responses=problems.responses(UnknownModelError, InvalidRequestError)
)
async def get_model(request: Request, name: ModelNamePath) -> Response:
    """Show a named model's cost. The ETag is its version."""
    record = services(request).catalog.get(name)
    return not_modified(request, _etag(record)) or _model(request, record)


@router.delete(
    "/{name}",
    status_code=204,
    response_class=Response,
    responses=problems.responses(
        UnknownModelError, InvalidRequestError, PreconditionFailedError, StoreUnavailableError
    ),
)
async def remove_model(request: Request, name: ModelNamePath) -> Response:
    """Forget a named model. Plans that were made with it stay as they are."""
    catalog = services(request).catalog
    check_preconditions(request, _etag(catalog.get(name)))
    await catalog.remove(name)
    log.info("model forgotten", name=name)
    return Response(status_code=204)


def _model(request: Request, record: ModelRecord, notes: tuple[str, ...] = (), *, created: bool = False) -> Response:
    body = NamedModelOut.of(record, notes)
    headers = {"ETag": _etag(record)} | ({"Location": f"/models/{record.name}"} if created else {})
    return answer(request, body, lambda: model_text(body), status=201 if created else 200, headers=headers)


def _etag(record: ModelRecord) -> str:
    return f'"{record.version}"'
