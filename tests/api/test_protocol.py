"""Slow, silent and broken clients against a real server with short deadlines."""

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
import uvicorn

from app.api.protocol import HEAD_MAX_BYTES, DeadlineProtocol
from tests.conftest import StartServer

HEAD_S, BODY_S, KEEP_ALIVE_S = 0.3, 1.2, 1.5
SOON_S = 10  # for what happens at once, on however busy a machine
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
GARBAGE = b"\x16\x03\x01 hello\r\n\r\n"
HUGE = b"X: " + b"a" * 40_000 + b"\r\n"


def post(path: bytes, length: int, more: bytes = b"") -> bytes:
    """A head that promises a body of so many bytes."""
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n" % (path, length, more)


class HastyProtocol(DeadlineProtocol):
    head_s, body_s = HEAD_S, BODY_S


class App:
    """An application that says what it got: the names of the headers, then the body.

    ``/early`` answers before it reads, ``/held`` waits for ``let_go`` before, ``/begun`` in the middle of its answer,
    ``/big`` says more than a connection holds.
    """

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.released = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if path == "/bug":
            raise LookupError("a secret")
        if path == "/held":
            await asyncio.to_thread(self.let_go.wait, SOON_S)
        body = b"" if path in {"/early", "/begun"} else await self._body(receive)
        if body is None:
            self.released.set()
            return
        said = b",".join(name for name, _ in scope["headers"]) + b" " + body[:100]
        if path == "/big":
            said *= 10_000_000
        headers = [(b"content-length", b"%d" % len(said))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if path == "/begun":
            await asyncio.to_thread(self.let_go.wait, SOON_S)
        await send({"type": "http.response.body", "body": said})

    async def _body(self, receive: Any) -> bytes | None:
        parts = []
        while (message := await receive())["type"] == "http.request":
            parts.append(message["body"])
            if not message["more_body"]:
                return b"".join(parts)
        return None


@contextmanager
def serving(app: App, **options: Any) -> Iterator[tuple[int, uvicorn.Server]]:
    """The port of a server in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=HastyProtocol, ws="none", lifespan="off", log_config=None, **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        until(lambda: server.started)
        yield listener.getsockname()[1], server
    finally:
        app.let_go.set()
        server.should_exit = True
        thread.join(SOON_S)
        listener.close()


@pytest.fixture(scope="module")
def shared_server() -> Iterator[tuple[App, int, uvicorn.Server]]:
    app = App()
    with serving(app, loop="uvloop", server_header=False, timeout_keep_alive=KEEP_ALIVE_S) as (number, server):
        yield app, number, server


@pytest.fixture
def app(shared_server: tuple[App, int, uvicorn.Server]) -> App:
    return shared_server[0]


@pytest.fixture
def port(shared_server: tuple[App, int, uvicorn.Server]) -> Iterator[int]:
    """The shared server's; whatever a test did to it, no connection and no task is left."""
    app, number, server = shared_server
    app.let_go.clear()
    app.released.clear()
    yield number
    until(lambda: not server.server_state.connections and not server.server_state.tasks)


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + SOON_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def connect(port: int) -> closing[socket.socket]:
    return closing(socket.create_connection(("127.0.0.1", port), timeout=SOON_S))


def read_all(connection: socket.socket) -> bytes:
    """What the server says until it closes."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def answers(port: int, *packets: bytes) -> bytes:
    """All that the server says to these packets until it closes the connection, maybe before it has them all."""
    with connect(port) as connection:
        with suppress(ConnectionError):
            for packet in packets:
                connection.sendall(packet)
                time.sleep(0.02)
        return read_all(connection)


def is_problem(answer: bytes, status: int, name: str) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    return (
        head.startswith(b"HTTP/1.1 %d " % status)
        and b"content-type: application/problem+json\r\n" in head
        and b"connection: close" in head
        and f'"type":"/problems/{name}"'.encode() in body
        and answer.count(b"HTTP/1.1 ") == 1
    )


def trickle(connection: socket.socket) -> None:
    """A byte now and then, for as long as the server listens, which must end."""
    end = time.monotonic() + SOON_S
    with suppress(OSError):
        while time.monotonic() < end:
            connection.sendall(b"a")
            time.sleep(0.02)
        pytest.fail("never cut off")


@pytest.mark.parametrize("said", [b"", b"\r\n", b"\r\n\r\n"])
def test_who_never_says_a_word_is_let_go_without_one(port: int, said: bytes) -> None:
    started = time.monotonic()
    assert answers(port, said) == b""
    assert time.monotonic() - started > HEAD_S / 2


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\nX: ", post(b"/", 10_000)], ids=["head", "body"])
def test_what_trickles_is_cut_off_however_steady(port: int, start: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(start)
        trickle(connection)
        assert is_problem(read_all(connection), 408, "request-timeout")


def test_blank_lines_and_silence_hold_no_connection(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(GET)
        assert b"200 OK" in connection.recv(1_000)
        connection.sendall(b"\r\n")
        assert read_all(connection) == b""


def test_a_body_that_stalls_is_cut_off_and_its_application_released(port: int, app: App) -> None:
    assert is_problem(answers(port, post(b"/", 100) + b"abc"), 408, "request-timeout")
    assert app.released.wait(SOON_S)


def test_an_application_is_released_though_its_client_does_not_even_read(port: int, app: App) -> None:
    with connect(port) as connection:
        connection.sendall(GET.replace(b"/", b"/big", 1))
        connection.recv(1)
        connection.sendall(post(b"/", 5))
        assert app.released.wait(SOON_S)


def test_a_body_that_takes_longer_than_a_head_may_is_welcome(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(post(b"/", 2) + b"a")
        time.sleep(1.5 * HEAD_S)
        connection.sendall(b"b")
        assert connection.recv(1_000).endswith(b" ab")


def test_a_body_that_stalls_behind_its_answer_is_cut_off_without_a_second_one(port: int) -> None:
    answer = answers(port, post(b"/early", 100) + b"abc")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "request_",
    [post(b"/held", 300_000) + b"x" * 300_000, post(b"/held", 1, b"Expect: 100-continue\r\n")],
    ids=["not taken", "not asked for"],
)
def test_nobody_is_late_while_the_application_does_not_read(port: int, app: App, request_: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(GET)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")
        connection.sendall(request_)
        time.sleep(1.5 * BODY_S)
        app.let_go.set()
        answer = connection.recv(1_000)
        if b"100 Continue" in answer:
            connection.sendall(b"x")
            answer = connection.recv(1_000)
        assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_stray_blank_line_costs_the_request_before_it_nothing(port: int, app: App) -> None:
    with connect(port) as connection:
        connection.sendall(post(b"/held", 2) + b"ab")
        time.sleep(0.02)
        connection.sendall(b"\r\n")
        time.sleep(2 * HEAD_S)
        app.let_go.set()
        assert connection.recv(1_000).endswith(b" ab")


def test_an_open_connection_may_rest_between_requests_and_then_has_a_deadline_again(port: int) -> None:
    with connect(port) as connection:
        for _ in range(2):
            connection.sendall(GET)
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")
            time.sleep(2 * HEAD_S)
        connection.sendall(GET[:10])
        assert is_problem(read_all(connection), 408, "request-timeout")


def test_two_requests_in_one_packet_are_both_answered_and_a_third_half_is_cut_off(port: int) -> None:
    _, first, second, third = answers(port, GET + GET + GET[:10]).split(b"HTTP/1.1 ")
    assert [first[:4], second[:4], third[:4]] == [b"200 ", b"200 ", b"408 "]


@pytest.mark.parametrize(
    ("path", "behind", "least_s", "status", "name"),
    [
        (b"/held", GET[:-4], HEAD_S, 408, "request-timeout"),
        (b"/begun", post(b"/", 5) + b"a", BODY_S, 408, "request-timeout"),
        (b"/begun", GARBAGE, 0, 400, "malformed-request"),
        (b"/begun", CHUNKED[:-3] + b"no size\r\n", 0, 400, "malformed-request"),
        (b"/held", GET[:-2] + HUGE + b"\r\n", 0, 431, "head-too-large"),
    ],
    ids=["half a head", "half a body", "garbage", "broken body", "huge head"],
)
def test_a_refusal_waits_until_all_before_it_is_answered(
    port: int, app: App, path: bytes, behind: bytes, least_s: float, status: int, name: str
) -> None:
    """What is incomplete then has its time from there."""
    with connect(port) as connection:
        connection.sendall(GET.replace(b"/", path, 1) + behind)
        time.sleep(2.5 * HEAD_S)
        connection.sendall(b"a")
        let_go_at = time.monotonic()
        app.let_go.set()
        _, first, refusal = read_all(connection).split(b"HTTP/1.1 ")
    assert time.monotonic() - let_go_at > 0.9 * least_s
    assert first.startswith(b"200 ")
    assert first.endswith(b"host ")
    assert is_problem(b"HTTP/1.1 " + refusal, status, name)


@pytest.mark.parametrize(
    "head",
    [
        GET[:-2] + HUGE + b"\r\n",
        GET[:-2] + HUGE[:-2],
        GET.replace(b"/", b"/" + b"a" * 40_000, 1),
        GET[:-2] + b"X: y\r\n" * 6_000 + b"\r\n",
        GET[:-2] + OFFER + HUGE + b"\r\n",
        CHUNKED + HUGE * 20,  # more than one read, of which the first is not counted
    ],
    ids=["one header", "unfinished", "target", "many headers", "with an offer to upgrade", "trailers"],
)
def test_a_head_without_measure_is_refused(port: int, head: bytes) -> None:
    assert is_problem(answers(port, head), 431, "head-too-large")


@pytest.mark.parametrize("before", [b"", GET], ids=["first", "behind another"])
@pytest.mark.parametrize("over", [0, 1])
def test_a_head_may_have_so_many_bytes_and_no_more(port: int, before: bytes, over: int) -> None:
    padding = b"X: " + b"a" * (HEAD_MAX_BYTES - len(GET) - len(b"X: \r\n") + over) + b"\r\n"
    said = answers(port, before + GET[:-2] + padding + b"\r\n" + GARBAGE)
    assert [said.count(b" 200 OK"), said.count(b" 431 ")] == [(before != b"") + (not over), over]


def test_a_large_body_behind_a_small_head_is_no_large_head(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(post(b"/", 100_000) + b"x" * 100_000)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "said", [GARBAGE, b"CONNECT x:1 HTTP/1.1\r\n\r\n", b"CONNECT /x HTTP/1.1\r\nUpgrade: y\r\n\r\n"]
)
def test_what_is_not_http_gets_a_problem(port: int, said: bytes) -> None:
    assert is_problem(answers(port, said), 400, "malformed-request")


def test_a_bug_of_the_application_gets_a_problem_without_the_cause(port: int) -> None:
    answer = answers(port, GET.replace(b"/", b"/bug", 1))
    assert is_problem(answer, 500, "internal-error")
    assert b"secret" not in answer


@pytest.mark.parametrize("parts", [lambda head, body: [head + body], lambda *both: both], ids=["at once", "in two"])
@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
def test_an_offer_to_upgrade_is_answered_in_http_1_body_and_all(port: int, protocol: bytes, parts: Any) -> None:
    offer = OFFER.replace(b"h2c", protocol)
    with connect(port) as connection:
        for body in (b"hello", b"again"):
            for part in parts(post(b"/", 5, offer), body):
                connection.sendall(part)
                time.sleep(0.02)
            said = connection.recv(1_000)
            assert said.startswith(b"HTTP/1.1 200 ")
            assert said.endswith(b" " + body)


def test_a_packet_full_of_offers_to_upgrade_is_answered_one_by_one(port: int) -> None:
    one = GET[:-2] + OFFER + b"\r\n"
    assert answers(port, one * 2_000 + GARBAGE).count(b" 200 OK") == 2_000


def test_trailers_are_no_headers(port: int) -> None:
    said = answers(port, CHUNKED + b"X-Forged: 1\r\nX-Last: 2\r\n\r\n" + GET + GARBAGE)
    assert b"host,transfer-encoding hello" in said
    assert said.count(b" 200 OK") == 2
    assert b"x-" not in said


def test_more_connections_than_the_limit_get_a_problem_and_the_time_to_come_back() -> None:
    app = App()
    with serving(app, limit_concurrency=2) as (port, server), connect(port) as one, connect(port) as two:
        for connection in (one, two):
            connection.sendall(post(b"/held", 0))
        until(lambda: len(server.server_state.tasks) == 2)
        answer = answers(port, GET)
        app.let_go.set()
        assert [c.recv(1_000)[9:12] for c in (one, two)] == [b"200", b"200"]
    assert is_problem(answer, 503, "overloaded")
    assert b"retry-after: 1\r\n" in answer


def test_a_stalled_client_does_not_hold_a_shutdown() -> None:
    with serving(App()) as (port, server), connect(port) as connection:
        connection.sendall(post(b"/", 5))
        until(lambda: len(server.server_state.tasks) == 1)
        server.should_exit = True
        assert is_problem(read_all(connection), 408, "request-timeout")


def test_a_server_told_to_stop_stops_in_the_time_it_gives_itself(start_server: StartServer) -> None:
    server = start_server()
    with connect(int(server.url.rpartition(":")[2])) as connection:
        connection.sendall(post(b"/plan", 5, b"Content-Type: application/json\r\nExpect: 100-continue\r\n"))
        assert b"100 Continue" in connection.recv(1_000)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(DeadlineProtocol.body_s / 2) == 0
        assert b"/problems/internal-error" in read_all(connection)
