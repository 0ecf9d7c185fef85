"""Slow, silent and broken clients against a real server with short deadlines."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import uvicorn

from app.api.protocol import DeadlineProtocol

HEAD_S, BODY_S = 0.5, 1.5
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class HastyProtocol(DeadlineProtocol):
    head_s, body_s = HEAD_S, BODY_S


released = threading.Event()


async def reads_and_answers(scope: Any, receive: Any, send: Any) -> None:
    """An application that wants the whole body first."""
    if scope["type"] == "lifespan":
        return
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            released.set()
            return
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def serving(**options: Any) -> Iterator[tuple[int, uvicorn.Server]]:
    """The port of a server in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        reads_and_answers, loop="uvloop", lifespan="off", log_config=None, **({"http": HastyProtocol} | options)
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield listener.getsockname()[1], server
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@pytest.fixture
def port() -> Iterator[int]:
    with serving() as (number, _):
        yield number


def connect(port: int) -> closing[socket.socket]:
    return closing(socket.create_connection(("127.0.0.1", port), timeout=5))


def read_all(connection: socket.socket) -> bytes:
    """What the server says until it closes."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def took_s(call: Callable[[], object]) -> float:
    started = time.monotonic()
    call()
    return time.monotonic() - started


def trickle(connection: socket.socket, data: bytes, seconds: float) -> None:
    """One byte now and then, for as long as the server listens."""
    end = time.monotonic() + seconds
    for byte in data:
        if time.monotonic() > end:
            return
        try:
            connection.sendall(bytes([byte]))
        except OSError:
            return
        time.sleep(0.02)


def test_who_never_says_a_word_is_let_go(port: int) -> None:
    with connect(port) as connection:
        assert HEAD_S / 2 < took_s(lambda: read_all(connection)) < 10 * HEAD_S


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\nX: ", b"\r\n"])
def test_a_head_that_trickles_is_cut_off_however_steady(port: int, start: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(start)
        trickle(connection, b"a" * 1_000, 10 * HEAD_S)
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n") or (start == b"\r\n" and b" 400 " in answer)
        assert b"application/problem+json" in answer


def test_blank_lines_and_silence_hold_no_connection(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(GET)
        assert b"200 OK" in connection.recv(1_000)
        connection.sendall(b"\r\n")
        assert took_s(lambda: read_all(connection)) < 10 * HEAD_S


def test_a_body_that_stalls_is_cut_off_and_its_application_released(port: int) -> None:
    released.clear()
    with connect(port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"/problems/request-timeout"' in answer
    assert released.wait(2)


def test_a_body_that_takes_longer_than_a_head_may_is_welcome(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
        time.sleep(1.4 * HEAD_S)
        connection.sendall(b"b")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")


def test_an_open_connection_may_rest_between_requests_longer_than_a_head_may_take(port: int) -> None:
    with connect(port) as connection:
        for _ in range(3):
            connection.sendall(GET)
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")
            time.sleep(2 * HEAD_S)


def test_two_requests_in_one_packet_are_both_answered_and_a_third_half_is_cut_off(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(GET + GET + GET[:10])
        answer = read_all(connection)
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert b"HTTP/1.1 408 " in answer


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40_000,
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 6_000 + b"\r\n",
    ],
    ids=["one header", "unfinished", "target", "many headers"],
)
def test_a_head_without_measure_is_refused(port: int, head: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(head)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"/problems/head-too-large"' in answer


def test_a_large_body_behind_a_small_head_is_no_large_head(port: int) -> None:
    body = b"x" * 100_000
    with connect(port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + body)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")


def test_what_is_not_http_gets_a_problem(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"/problems/malformed-request"' in answer


def test_an_offer_to_upgrade_is_answered_in_http_1(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")


def test_a_body_behind_an_offer_of_http_2_is_read(port: int) -> None:
    with connect(port) as connection:
        offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n" + offer + b"Content-Length: 5\r\n\r\nab")
        connection.sendall(b"cde")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")


def test_trailers_are_not_kept() -> None:
    headers: list[tuple[bytes, bytes]] = []

    class Seeing(HastyProtocol):
        def on_message_complete(self) -> None:
            headers.extend(self.headers)
            super().on_message_complete()

    with serving(http=Seeing) as (port, _), connect(port) as connection:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + b"1\r\na\r\n0\r\nAccept: text/plain\r\n\r\n")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")
    assert [name for name, _ in headers] == [b"host", b"transfer-encoding"]


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does, for ten seconds at most."""
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def test_more_connections_than_the_limit_get_a_problem_and_the_time_to_come_back() -> None:
    with serving(limit_concurrency=2) as (port, server), connect(port) as one, connect(port) as two:
        for connection in (one, two):
            connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
        until(lambda: len(server.server_state.tasks) == 2)
        with connect(port) as three:
            three.sendall(GET)
            answer = read_all(three)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1\r\n" in answer
    assert b'"/problems/overloaded"' in answer


def test_a_stalled_client_does_not_hold_a_shutdown() -> None:
    with serving(timeout_graceful_shutdown=5) as (port, server), connect(port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
        until(lambda: len(server.server_state.tasks) == 1)
        server.should_exit = True
        assert took_s(lambda: read_all(connection)) < 4 * BODY_S
