"""uvicorn's HTTP protocol with deadlines and bounds for what arrives, and problem documents where uvicorn has text.

uvicorn itself waits for ever for the rest of a head or body. Here the first byte of a request starts a clock that only
its last byte stops: however slowly a client trickles, it can't hold a connection, and it can't hold a shutdown.
"""

import asyncio
import re
from http import HTTPStatus
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.api.problems import (
    CONTENT_TYPE,
    HeadTooLargeError,
    HttpError,
    MalformedRequestError,
    OverloadedError,
    RequestTimeoutError,
    render,
)

HEAD_MAX_BYTES = 32 * 1024

UPGRADE = re.compile(rb"(^|\r\n)upgrade[ \t]*:", re.IGNORECASE)
"""An offer of another protocol (some clients offer h2c with every request), which RFC 9110 lets a server ignore. The
parser can't: it takes what follows the head for the other protocol, and the body would be lost."""


class DeadlineProtocol(HttpToolsProtocol):
    """One connection. Seconds; the head's time starts with the connection or its first byte, the body's behind it."""

    head_s = 10.0
    body_s = 20.0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """As uvicorn makes it; the limit of concurrency is checked here instead of there."""
        super().__init__(config, server_state, app_state, _loop)
        self._max_connections, self.limit_concurrency = self.limit_concurrency, None
        self._deadline_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """The head's time starts, also for a client that never says a word."""
        super().connection_made(transport)
        self._deadline_at = self.loop.time() + self.head_s
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Take bytes in; whatever they leave unfinished has a deadline."""
        if not self._deadline_at:
            self._deadline_at = self.loop.time() + self.head_s
        self._head_bytes += len(data)
        if self._in_head and UPGRADE.search(data):
            head, blank, body = data.partition(b"\r\n\r\n")
            data = UPGRADE.sub(rb"\1X-Declined-Upgrade:", head) + blank + body
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_MAX_BYTES and not self.transport.is_closing():
            self._refuse(HeadTooLargeError(f"the head may have {HEAD_MAX_BYTES} bytes"))
        if self._deadline_at and self._timer is None:
            self._watch()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers behind a chunked body are discarded, as RFC 9110 allows, and bound nothing."""
        if self._in_head:
            super().on_header(name, value)

    def on_message_begin(self) -> None:
        """A request starts; its head is next."""
        super().on_message_begin()
        self._in_head = True
        if not self._deadline_at:  # it follows the end of another one in the same packet
            self._deadline_at = self.loop.time() + self.head_s

    def on_headers_complete(self) -> None:
        """The head is there; the body has a time of its own."""
        if self._head_bytes > HEAD_MAX_BYTES:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > HEAD_MAX_BYTES:
                raise ValueError("head too large")  # for the parser only; answered in send_400_response
        self._in_head, self._head_bytes = False, 0
        self._deadline_at = self.loop.time() + self.body_s
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All has arrived in time."""
        self._deadline_at, self._head_bytes, self._in_head = 0.0, 0, True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refused."""
        if self._in_head and self._head_bytes > HEAD_MAX_BYTES:
            self._refuse(HeadTooLargeError(f"the head may have {HEAD_MAX_BYTES} bytes"))
        else:
            self._refuse(MalformedRequestError(msg))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Run the application, or the refusal where there are too many at once."""
        bound = self._max_connections
        crowded = bound is not None and max(len(self.connections), len(self.tasks)) > bound
        super()._start_asgi_task(cycle, _overloaded if crowded else app)

    def _unsupported_upgrade_warning(self) -> None:
        """A client that offers HTTP/2 or a websocket gets its HTTP/1.1 answer; that is no news for the log."""

    def _watch(self) -> None:
        self._timer = self.loop.call_at(self._deadline_at, self._check)

    def _check(self) -> None:
        """The clock's turn: nothing to wait for, not yet due, or too late."""
        self._timer = None
        if not self._deadline_at or self.transport.is_closing():
            return
        if self.loop.time() < self._deadline_at:
            self._watch()
        elif self._nothing_came():
            self.transport.close()
        else:
            self._refuse(RequestTimeoutError("the request did not arrive in time"))

    def _nothing_came(self) -> bool:
        return not hasattr(self.cycle, "scope") and not self._head_bytes

    def _refuse(self, error: HttpError) -> None:
        """Answer, unless an answer has begun, and close; an application that waits for the body is released."""
        self._deadline_at = 0.0
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(self._answer(error))
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()

    def _answer(self, error: HttpError) -> bytes:
        kind, body = render(error)
        lines = [f"HTTP/1.1 {kind.status} {HTTPStatus(kind.status).phrase}".encode()]
        lines += [name + b": " + value for name, value in self.server_state.default_headers]
        lines += [f"content-type: {CONTENT_TYPE}".encode(), b"content-length: %d" % len(body), b"connection: close"]
        return b"\r\n".join([*lines, b"", body])


async def _overloaded(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001  # an ASGI application's signature
    """An application that says that the server is overloaded, and closes."""
    kind, body = render(OverloadedError("too many connections at once"))
    headers = [
        (b"content-type", CONTENT_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"retry-after", b"%d" % (kind.retry_after_s or 1)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": kind.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
