"""Probes, explanations, text for terminals, and what happens when the server itself is at fault."""

from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from app.api import problems
from app.api.negotiation import prefers_page, prefers_text
from app.main import create_app
from app.placement.errors import CleaveError
from app.settings import Settings
from tests.api.requests import ask, report

pytestmark = pytest.mark.anyio

TEXT = {"accept": "text/plain"}


def kinds_of(error: type[CleaveError]) -> set[type[CleaveError]]:
    below = {kind for child in error.__subclasses__() for kind in kinds_of(child)}
    return below or {error}


def test_every_error_has_its_place_in_the_table() -> None:
    assert kinds_of(CleaveError) == set(problems.KINDS)


async def test_every_kind_of_problem_has_a_page(api: httpx.AsyncClient) -> None:
    for name, kind in problems.PAGES.items():
        page = await api.get(f"/problems/{name}")
        assert page.json() == {
            "type": f"/problems/{name}",
            "title": kind.title,
            "status": kind.status,
            "explanation": kind.page,
        }
        assert kind.title in (await api.get(f"/problems/{name}", headers=TEXT)).text
        html = await api.get(f"/problems/{name}", headers={"accept": "text/html,*/*;q=0.8"})
        assert html.headers["content-type"].startswith("text/html")
    assert (await api.get("/problems/none-such")).status_code == 404


async def test_probes_and_version(api: httpx.AsyncClient) -> None:
    assert (await api.get("/livez")).json() == {"status": "ok"}
    assert (await api.get("/readyz")).json() == {"status": "ok", "checks": None}
    assert (await api.get("/readyz?verbose")).json()["checks"] == {"store": "ok", "liveness": "ok"}
    assert (await api.get("/version")).json()["name"] == "cleave"


async def test_a_server_whose_store_fails_is_not_ready_and_says_when_to_come_back(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = api._transport.app.state.services  # type: ignore[attr-defined]  # noqa: SLF001  # the app under test
    monkeypatch.setattr(services.registry._journal, "healthy", False)  # noqa: SLF001  # as after a failed commit
    answer = await api.get("/readyz?verbose")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-unavailable")
    assert answer.json()["checks"] == {"store": "store-unavailable", "liveness": "ok"}
    assert answer.headers["retry-after"] == "2"


async def test_a_full_registry_says_so(tmp_path: Path) -> None:
    app = create_app(Settings(database_url=f"sqlite:///{tmp_path}/x.db", max_nodes=1))
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://t") as api:
        await api.post("/nodes/register", json=report("a"))
        answer = await api.post("/nodes/register", json=report("b"))
    assert (answer.status_code, answer.json()["type"], answer.json()["max_nodes"]) == (503, "/problems/overloaded", 1)


@pytest.mark.parametrize(("method", "path"), [("POST", "/nodes/register"), ("GET", "/nodes")])
async def test_a_bug_is_a_500_without_a_word_of_its_cause(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    app = api._transport.app  # type: ignore[attr-defined]  # noqa: SLF001  # the app under test
    monkeypatch.setattr(app.state, "services", SimpleNamespace())
    answer = await api.request(method, path, json=report("a"))
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/internal-error")
    assert "SimpleNamespace" not in answer.text


async def test_terminals_get_tables(api: httpx.AsyncClient) -> None:
    beat = await api.post("/nodes/register", json=report("a", labels={"zone": "x"}, colour=1), headers=TEXT)
    assert beat.headers["content-type"] == "text/plain; charset=utf-8"
    assert "a at a:9100: ready, budget 14.41 GiB, beat every 10 s" in beat.text
    assert "warning: unknown fields ignored: colour" in beat.text
    card = {"device": "cuda", "mem_bytes": 1}
    await api.post("/nodes/register", json=report("bb", gib=5, devices=[card]))
    await api.patch("/nodes/bb", json={"role": "draining"})
    table = (await api.get("/nodes?limit=1", headers=TEXT)).text.splitlines()
    assert table[0].split()[:6] == ["NODE", "STATE", "ROLE", "ADDR", "DEVICE", "RAM"]
    assert table[1].split()[:3] == ["a", "ready", "active"]
    assert table[-1].startswith("more: ?cursor=")
    one = (await api.get("/nodes/bb", headers=TEXT)).text
    assert "overrides: {'role': 'draining'}" in one
    assert "AVAILABLE" in one
    plan = await api.post("/plan", json=ask(nodes=["a", "bb"]), headers=TEXT)
    assert "0:10" in plan.text
    assert "draining" in plan.text
    assert (await api.get("/plans?limit=1", headers=TEXT)).text.startswith("PLAN")
    batch = {"nodes": [report("a"), report("x") | {"ram_total": 0}]}
    assert "422" in (await api.post("/nodes/register/batch", json=batch, headers=TEXT)).text
    assert (await api.get("/livez", headers=TEXT)).text == "ok\n"
    assert "liveness  ok" in (await api.get("/readyz?verbose", headers=TEXT)).text
    assert (await api.get("/version", headers=TEXT)).text.startswith("cleave ")


async def test_terminals_get_errors_as_text_with_their_figures(api: httpx.AsyncClient) -> None:
    await api.post("/nodes/register", json=report("a", gib=7))
    refused = (await api.post("/plan", json=ask(), headers=TEXT)).text
    assert refused.startswith("409 The model does not fit these nodes\nmodel (10 layers")
    assert "shortfall_bytes: 3221225472" in refused
    assert "a:9100" in refused
    faulty = (await api.post("/plan", json=ask(reserve_byte=1), headers=TEXT)).text
    assert "/reserve_byte" in faulty
    unknown = (await api.post("/plan", json=ask(nodes=["b"]), headers=TEXT)).text
    assert "nodes: b" in unknown
    await api.patch("/nodes/a", json={"role": "draining"})
    nobody = (await api.post("/plan", json=ask(), headers=TEXT)).text
    assert "EXCLUDED" in nobody


@pytest.mark.parametrize(
    ("accept", "text"),
    [
        (None, False),
        ("*/*", False),
        ("application/json", False),
        ("text/plain", True),
        ("text/plain;q=0.5, application/json", False),
        ("text/plain, application/json;q=0.5", True),
        ("text/plain;q=0.9, */*;q=0.1", True),
        ("text/plain;q=x", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
    ],
)
def test_text_is_for_who_prefers_it(accept: str | None, text: bool) -> None:  # noqa: FBT001  # drawn
    headers = {} if accept is None else {"accept": accept}
    request = SimpleNamespace(headers=headers)
    assert prefers_text(request) == text  # type: ignore[arg-type]  # only its headers are looked at
    assert prefers_page(request) == (accept is not None and accept.startswith("text/html"))  # type: ignore[arg-type]  # the same
