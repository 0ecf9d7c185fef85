"""The client against a real server, and against what answers in its place."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from app.client import Client, ProblemError, UnreachableError
from tests.api.requests import ask, report
from tests.conftest import Server, StartServer

ANSWERS = {
    "page": (200, "text/html", b"<html>"),
    "broken": (200, "application/json", b"{"),
    "newer": (200, "application/json", b'{"nodes": [{}], "next_cursor": null}'),
    "gateway": (502, "text/html", b""),
    "moved": (302, "", b""),
    "half": (500, "application/problem+json", b"{"),
    "list": (500, "application/problem+json", b"[]"),
    "": (407, "text/html", b""),  # to a proxy's client, whose path is a whole URL
}


class Stranger(BaseHTTPRequestHandler):
    """Answers by the first part of the path, as no Cleave does."""

    def do_GET(self) -> None:
        status, kind, body = ANSWERS[self.path.split("/")[1]]
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's own name
        """Nothing."""


@pytest.fixture
def server(start_server: StartServer) -> Server:
    return start_server()


@pytest.fixture
def stranger() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Stranger) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def test_every_call_answers_in_its_own_type(server: Server) -> None:
    with Client(server.url) as client:
        beat = client.register(report("a", gib=5))
        assert (beat.node_id, beat.state) == ("a", "ready")
        odd = report("[fe80::1]:9100")
        assert client.node(client.register(odd).node_id).ram_total == odd["ram_total"]
        assert client.node("a").budget_bytes == beat.budget_bytes
        with pytest.raises(ProblemError):
            client.node("a?")
        only_a = ask(nodes=["a"], model=ask()["model"] | {"n_layers": 5})
        plans = [client.plan(only_a) for _ in range(3)]
        assert [a.node_id for a in plans[0].assignments] == ["a"]
        assert [p.plan_id for p in client.plans(limit="1")] == [p.plan_id for p in reversed(plans)]
        assert client.simulate(ask(nodes=[report("x")])).plan_id is None


def test_a_problem_carries_its_figures_and_its_words(server: Server) -> None:
    with Client(server.url) as client:
        client.register(report("a", gib=5))
        with pytest.raises(ProblemError) as refused:
            client.plan(ask())
        with pytest.raises(ProblemError, match="409 The model does not fit these nodes") as in_words:
            client.raw("POST", "/plan", as_json=False, body=ask())
        with pytest.raises(ProblemError) as no_json:
            client.plan(ask(reserve_ram_gb=float("nan")))
    problem = refused.value
    assert (problem.status, problem.name, problem.title) == (409, "does-not-fit", "The model does not fit these nodes")
    assert (problem.detail, problem.document["capacity_layers"]) == (problem.document["detail"], 5)
    assert (in_words.value.status, in_words.value.document, in_words.value.name) == (409, {}, "")
    assert no_json.value.name == "malformed-json"


def test_all_nodes_come_page_by_page_as_values_and_as_tables(server: Server) -> None:
    names = [f"n{number}" for number in range(5)]
    with Client(server.url) as client:
        for name in names:
            client.register(report(name))
        assert [n.node_id for n in client.nodes(limit="2")] == names
        tables = list(client.tables("/nodes", limit="2"))
        assert "".join(client.tables("/nodes")) == client.raw("GET", "/nodes", as_json=False)
    listed = [line.split()[0] for table in tables for line in table.splitlines() if not line.startswith("NODE")]
    assert (len(tables), listed) == (3, names)
    assert "cursor" not in "".join(tables)


def test_a_body_of_bytes_is_sent_as_it_stands(server: Server) -> None:
    with Client(server.url) as client, pytest.raises(ProblemError, match="a key stands twice"):
        client.raw("POST", "/plan/simulate", as_json=True, body=b'{"nodes": [], "nodes": []}')


@pytest.mark.parametrize("which", ["page", "broken", "newer", "gateway", "moved"])
def test_who_answers_unlike_cleave_is_named_and_not_believed(stranger: str, which: str) -> None:
    with Client(f"{stranger}/{which}") as client, pytest.raises(UnreachableError, match=stranger):
        list(client.nodes())


def test_a_stranger_s_page_is_no_table(stranger: str) -> None:
    with Client(f"{stranger}/page") as client, pytest.raises(UnreachableError, match="answers 200 with text/html"):
        list(client.tables("/nodes"))


@pytest.mark.parametrize("which", ["half", "list"])
def test_a_problem_document_that_is_none_leaves_the_status_and_the_text(stranger: str, which: str) -> None:
    with Client(f"{stranger}/{which}") as client, pytest.raises(ProblemError) as refused:
        list(client.nodes())
    assert (refused.value.status, refused.value.document) == (500, {})
    assert refused.value.text == ANSWERS[which][2].decode()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "https://127.0.0.1:9"])
def test_where_nobody_answers_the_command_that_starts_a_server_is_named(url: str) -> None:
    with Client(url) as client, pytest.raises(UnreachableError, match="start one with: cleave serve"):
        client.register(report("a"))


@pytest.mark.parametrize("url", ["http://127.0.0.1:port", "http://\0", "nonsense", "127.0.0.1:8000", "ftp://x", ""])
def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(UnreachableError, match=r"can't call|is no URL of a server"):
        Client(url)


def test_loopback_is_called_past_any_proxy_and_others_through_it(
    stranger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Client(f"{stranger}/half") as client, pytest.raises(ProblemError):
        list(client.nodes())
    monkeypatch.setenv("http_proxy", stranger)
    with Client("http://cleave.invalid") as client, pytest.raises(UnreachableError, match="answers 407"):
        list(client.nodes())
    monkeypatch.setenv("http_proxy", "socks9://127.0.0.1:9")
    with pytest.raises(UnreachableError, match="can't call"):
        Client("http://cleave.invalid")
