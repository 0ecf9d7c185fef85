"""uvicorn's HTTP protocol with deadlines and bounds for what arrives, and problem documents where uvicorn has text.

uvicorn itself waits for ever for the rest of a head or body. Here the first byte of a request starts a clock that only
its last byte stops: however slowly a client trickles, it can't hold a connection, and it can't hold a shutdown.

Invariant: answers leave whole and in order. A request that is refused behind an unanswered one waits for its turn, and
nobody is late while it is the server that doesn't take the bytes. Meant for ``ws="none"``.
"""

import asyncio
from http import HTTPStatus
from typing import Any, Literal

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.api.problems import (
    CONTENT_TYPE,
    HeadTooLargeError,
    HttpError,
    Kind,
    MalformedRequestError,
    OverloadedError,
    RequestTimeoutError,
    bug,
    render,
)

HEAD_MAX_BYTES = 32 * 1024


class DeadlineProtocol(HttpToolsProtocol):
    """One connection. Seconds; the head's time starts with the connection or its first byte, the body's behind it.

    One timer a connection, started again only while a request is unfinished: most are one packet and cost none.
    """

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
        self._reading: Literal["nothing", "head", "body"] = "nothing"
        self._due_at = 0.0  # 0: the client owes nothing
        self._timer: asyncio.TimerHandle | None = None
        self._packet_bytes = 0
        self._bare_bytes = 0  # since the last byte of a body or end of a message, in whole packets
        self._last_words: bytes | None = None  # once refused: what is said when all before it is answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """The head's time starts, also for a client that never says a word."""
        super().connection_made(transport)
        self._due_at = self.loop.time() + self.head_s
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Take bytes in; whatever they leave unfinished has a deadline."""
        if self._last_words is not None:
            return
        self._unset_keepalive_if_required()
        if not self._due_at:
            self._due_at = self.loop.time() + self.head_s
        self._feed(data)
        if self._due_at and self._timer is None:
            self._watch()

    def on_message_begin(self) -> None:
        """A request starts; its head is next."""
        super().on_message_begin()
        self._reading = "head"
        if not self._due_at:  # it follows the end of another one in the same packet
            self._due_at = self.loop.time() + self.head_s

    def on_headers_complete(self) -> None:
        """The head is there; the body has a time of its own. Raises HttpError, to the parser."""
        if max(self._bare_bytes, self._packet_bytes) > HEAD_MAX_BYTES and len(self._head()) > HEAD_MAX_BYTES:
            raise _too_large()
        if self.parser.get_method() == b"CONNECT":
            raise MalformedRequestError("CONNECT is for proxies")
        if self.parser.should_upgrade():
            return  # it comes again: see _parse
        super().on_headers_complete()
        self._reading = "body"
        self._due_at = self.loop.time() + self.body_s
        self.headers = []  # trailers go here, not among the headers that the application has

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._bare_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All has arrived in time."""
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._reading, self._bare_bytes, self._due_at = "nothing", 0, 0.0

    def on_response_complete(self) -> None:
        """The next request's turn; the time that it waited for this answer doesn't count."""
        if self._due_at:
            self._due_at = self._later()
        if self._last_words is not None and not self.pipeline and not self.transport.is_closing():
            self._say_last_words()
        super().on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Run the application, or the refusal where there are too many at once."""
        cycle.__class__ = _Cycle  # uvicorn names its class where no subclass can reach
        bound = self._max_connections
        crowded = bound is not None and max(len(self.connections), len(self.tasks)) > bound
        super()._start_asgi_task(cycle, _overloaded if crowded else app)

    def _feed(self, data: bytes) -> None:
        self._packet_bytes = len(data)
        self._bare_bytes += len(data)
        rest = memoryview(data)
        try:
            while rest:
                rest = self._parse(rest)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, HttpError) else MalformedRequestError("the bytes are not HTTP/1.1"))
        else:
            if self._bare_bytes > HEAD_MAX_BYTES:
                self._refuse(_too_large())

    def _parse(self, data: memoryview) -> memoryview:
        """What is left to parse behind an offer of another protocol, mostly nothing.

        Behind such a head the parser reads no body, so the head is read again without the offer. Clients make it with
        any request (Java's offers HTTP/2 by default), and a server that doesn't take it up owes the usual answer.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self.parser.feed_data(self._head(without=b"upgrade"))
            return data[offer.args[0] :]
        return data[:0]

    def _head(self, without: bytes = b"") -> bytes:
        start = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        kept = [name + b": " + value for name, value in self.headers if name != without]
        return b"\r\n".join([start, *kept, b"", b""])

    def _watch(self) -> None:
        self._timer = self.loop.call_at(self._due_at, self._check)

    def _later(self) -> float:
        return self.loop.time() + (self.body_s if self._reading == "body" else self.head_s)

    def _check(self) -> None:
        """The clock's turn: nothing to wait for, not yet due, or too late."""
        self._timer = None
        if not self._due_at or self.transport.is_closing():
            return
        if self._is_held_up():
            self._due_at = self._later()
        if self.loop.time() < self._due_at:
            self._watch()
        elif self._reading == "nothing":
            self.transport.close()
        else:
            self._refuse(RequestTimeoutError("the request did not arrive in time"))

    def _is_held_up(self) -> bool:
        """Whether the rest may be missing because the server hasn't taken it, or hasn't asked for it yet."""
        asked = self._reading != "body" or not self.cycle.waiting_for_100_continue
        return self.flow.read_paused or not asked or not self._is_next()

    def _is_next(self) -> bool:
        """Whether all requests before the one that is arriving have been answered."""
        if self._reading == "body":
            return not self.pipeline  # what waits there ends with the newest
        newest: RequestResponseCycle | None = self.cycle
        return newest is None or newest.response_complete

    def _refuse(self, error: HttpError) -> None:
        """Answer in the request's turn, unless its answer has begun, and close.

        An application that waits for the body is released.
        """
        self._due_at = 0.0
        self._last_words = self._answer(error)
        is_next = self._is_next()
        if self._reading == "body" and not is_next:
            self.pipeline.popleft()
        elif self._reading == "body":
            if self.cycle.response_started:
                self._last_words = b""
            self.cycle.disconnected = not self.cycle.response_complete
            self.cycle.message_event.set()
        if is_next:
            self._say_last_words()

    def _say_last_words(self) -> None:
        self.transport.write(self._last_words or b"")
        self.transport.close()

    def _answer(self, error: HttpError) -> bytes:
        kind, body = render(error)
        lines = [f"HTTP/1.1 {kind.status} {HTTPStatus(kind.status).phrase}".encode()]
        lines += [name + b": " + value for name, value in (*self.server_state.default_headers, *_headers(kind, body))]
        return b"\r\n".join([*lines, b"", body])


class _Cycle(RequestResponseCycle):
    """A request and its answer."""

    async def send_500_response(self) -> None:
        """Answer where the application failed to."""
        await _send(self.send, *bug())


async def _overloaded(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001  # an ASGI application's signature
    """An application that says that the server is overloaded, and closes."""
    await _send(send, *render(OverloadedError("too many connections at once")))


async def _send(send: Any, kind: Kind, body: bytes) -> None:
    await send({"type": "http.response.start", "status": kind.status, "headers": _headers(kind, body)})
    await send({"type": "http.response.body", "body": body})


def _headers(kind: Kind, body: bytes) -> list[tuple[bytes, bytes]]:
    retry = [] if kind.retry_after_s is None else [(b"retry-after", b"%d" % kind.retry_after_s)]
    length = b"%d" % len(body)
    return [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", length), *retry, (b"connection", b"close")]


def _too_large() -> HeadTooLargeError:
    return HeadTooLargeError(f"the head may have {HEAD_MAX_BYTES} bytes")
