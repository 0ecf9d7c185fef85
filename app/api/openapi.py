"""The OpenAPI document. Routes read their bodies themselves, so what they accept is declared here."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.placement.units import INT_MAX
from app.schemas.parsing import components


def accepts(model: type, *media_types: str) -> dict[str, Any]:
    """What an operation takes as its body, for a route's ``openapi_extra``."""
    schema = {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
    kinds = media_types or ("application/json",)
    return {"requestBody": {"required": True, "content": dict.fromkeys(kinds, schema)}}


def install(app: FastAPI, *models: type) -> None:
    """Let the application's document include the ``models`` that its routes refer to."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title,
                version=app.version,
                summary=app.summary,
                description=app.description,
                routes=app.routes,
                tags=app.openapi_tags,
                license_info=app.license_info,
                servers=app.servers,
            )
            schema["components"]["schemas"] = {**components(*models), **schema["components"]["schemas"]}
            _bound_integers(schema)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _bound_integers(value: Any) -> None:
    """Say of every integer what holds for all of them: it is within 64 bits, signed."""
    if isinstance(value, dict):
        if value.get("type") == "integer":
            value.setdefault("format", "int64")
            value.setdefault("minimum", -INT_MAX - 1)
            value.setdefault("maximum", INT_MAX)
        for part in value.values():
            _bound_integers(part)
    elif isinstance(value, list):
        for part in value:
            _bound_integers(part)
