"""The short way for beats, which are most of the load.

A beat needs none of what the framework prepares for a request (dependencies, telemetry, five layers that only pass it
on), and that preparation takes about as long as the beat itself. So ``POST /nodes/register`` is answered before it.
Its decorated route in ``api.nodes`` runs the same function and is what the OpenAPI document knows.
"""

from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.nodes import register_node
from app.api.problems import gone, mistake, respond
from app.placement.errors import CleaveError

PATH = "/nodes/register"


def install(app: FastAPI) -> None:
    """Put the short way in front of the application's middleware."""
    build = app.build_middleware_stack
    app.build_middleware_stack = lambda: ShortWay(build())  # type: ignore[method-assign]  # the stack's only seam


class ShortWay:
    """An ASGI application that answers beats and passes on everything else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        await (await self._answer(request))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            return await register_node(request)
        except CleaveError as refusal:
            return respond(request, refusal)
        except ClientDisconnect:
            return gone()
        except Exception as error:  # noqa: BLE001  # the outermost handler: a bug must not end the connection
            return mistake(request, error)
