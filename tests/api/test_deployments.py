"""Deployments over HTTP."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.api.requests import GIB, ask, model, report

pytestmark = pytest.mark.anyio


@pytest.fixture
async def one(api: httpx.AsyncClient) -> httpx.AsyncClient:
    """One node with 20 GiB free."""
    await api.post("/nodes/register", json=report("n"))
    return api


def deploy(name: str = "d", **given: Any) -> dict[str, Any]:
    """Ten GiB under a name."""
    return ask(name=name, policy="auto", **given)


async def budget(api: httpx.AsyncClient) -> int:
    found: int = (await api.post("/plan", json=ask(model=model(1), policy="auto"))).json()["assignments"][0][
        "budget_bytes"
    ]
    return found


async def test_a_plan_is_promised_confirmed_and_released(one: httpx.AsyncClient) -> None:
    made = await one.post("/deployments", json=deploy())
    body = made.json()
    assert (made.status_code, made.headers["location"]) == (201, "/deployments/d")
    assert made.headers["etag"] == f'"{body["generation"]}"'
    assert (body["name"], body["state"], body["ttl_s"], body["reason"], body["lost"]) == ("d", "pending", 600, None, [])
    assert body["expires_at"] > body["created_at"]
    assert [(a["node_id"], a["est_bytes"]) for a in body["assignments"]] == [("n", 10 * GIB)]
    assert await budget(one) == 10 * GIB
    confirmed = await one.put("/deployments/d", json={"state": "loaded", "generation": body["generation"]})
    assert confirmed.json()["state"] == "loaded"
    assert confirmed.json()["expires_at"] is None
    assert (await one.get("/deployments/d")).json() == confirmed.json()
    assert (await one.delete("/deployments/d")).status_code == 204
    assert (await one.get("/deployments/d")).json()["state"] == "released"
    assert (await one.get("/nodes/n")).status_code == 200


async def test_a_repeat_is_answered_with_what_is_there(one: httpx.AsyncClient) -> None:
    made = await one.post("/deployments", json=deploy(), headers={"Idempotency-Key": "k"})
    again = await one.post("/deployments", json=deploy(), headers={"Idempotency-Key": "k"})
    assert (made.status_code, again.status_code, again.json()) == (201, 200, made.json())
    other = await one.post("/deployments", json=deploy(ttl_s=5))
    assert (other.status_code, other.json()["type"], other.json()["name"]) == (
        409,
        "/problems/deployment-conflict",
        "d",
    )
    keyed = await one.post("/deployments", json=deploy("e"), headers={"Idempotency-Key": "k"})
    assert (keyed.status_code, keyed.json()["name"]) == (409, "d")


async def test_a_late_confirmation_names_the_present_generation(one: httpx.AsyncClient) -> None:
    made = (await one.post("/deployments", json=deploy())).json()
    await one.delete("/deployments/d")
    late = await one.put("/deployments/d", json={"state": "loaded", "generation": made["generation"]})
    assert (late.status_code, late.json()["type"]) == (409, "/problems/wrong-generation")
    assert (late.json()["state"], late.json()["generation"] > made["generation"]) == ("released", True)


async def test_conditions_hold_for_deployments(one: httpx.AsyncClient) -> None:
    made = await one.post("/deployments", json=deploy())
    unchanged = await one.get("/deployments/d", headers={"If-None-Match": made.headers["etag"]})
    assert unchanged.status_code == 304
    stale = await one.delete("/deployments/d", headers={"If-Match": '"0"'})
    assert (stale.status_code, stale.json()["type"]) == (412, "/problems/precondition-failed")


async def test_a_lost_node_is_named_with_its_layers(one: httpx.AsyncClient) -> None:
    await one.post("/deployments", json=deploy())
    await one.delete("/nodes/n")
    body = (await one.get("/deployments/d")).json()
    assert (body["state"], body["reason"]) == ("degraded", "n: gone")
    assert body["lost"] == [{"node_id": "n", "layers": {"start": 0, "end": 10}, "reason": "gone"}]
    text = (await one.get("/deployments/d", headers={"Accept": "text/plain"})).text
    assert text.startswith("deployment d: degraded, generation ")
    assert "LOST  LAYERS  WHY\nn     0:10    gone\n" in text


async def test_deployments_are_listed_by_name_and_state(one: httpx.AsyncClient) -> None:
    for name in "ba":
        await one.post("/deployments", json=deploy(name, model=model(1)))
    await one.delete("/deployments/a")
    page = (await one.get("/deployments?limit=1")).json()
    assert [d["name"] for d in page["deployments"]] == ["a"]
    rest = (await one.get(f"/deployments?cursor={page['next_cursor']}")).json()
    assert ([d["name"] for d in rest["deployments"]], rest["next_cursor"]) == (["b"], None)
    assert [d["name"] for d in (await one.get("/deployments?state=released")).json()["deployments"]] == ["a"]
    text = (await one.get("/deployments?limit=1", headers={"Accept": "text/plain"})).text
    assert text.startswith("DEPLOYMENT  STATE     GENERATION  PLAN ")
    assert "released by its owner" in text
    assert "more: ?cursor=" in text


async def test_a_deployments_plan_is_kept_with_it(one: httpx.AsyncClient) -> None:
    made = (await one.post("/deployments", json=deploy())).json()
    kept = (await one.get(f"/plans/{made['plan_id']}")).json()
    assert kept["assignments"] == made["assignments"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"ttl_s": 0}, "/ttl_s"),
        ({"ttl_s": 86_401}, "/ttl_s"),
        ({"name": ""}, "/name"),
        ({"name": None}, "/name"),
        ({"allow_over_budget": True}, "/allow_over_budget"),
        ({"state": "loaded"}, "/state"),
    ],
)
async def test_faults_of_a_request_are_named(one: httpx.AsyncClient, body: dict[str, Any], pointer: str) -> None:
    answer = await one.post("/deployments", json=deploy() | body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_what_nobody_deployed_is_unknown(api: httpx.AsyncClient) -> None:
    for answer in (
        await api.get("/deployments/d"),
        await api.delete("/deployments/d"),
        await api.put("/deployments/d", json={"state": "loaded", "generation": 1}),
    ):
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-deployment")


async def test_what_a_lost_node_ran_moves_and_is_to_be_confirmed(one: httpx.AsyncClient) -> None:
    """The model is a named one, which has another cost by now."""
    await one.put("/models/m", json=model(30))
    await one.post("/nodes/register", json=report("o"))
    body = deploy(model={"ref": "m"}, engine={"name": "plain", "overhead_bytes": 1})
    made = (await one.post("/deployments", json=body)).json()
    await one.put("/deployments/d", json={"state": "loaded", "generation": made["generation"]})
    await one.put("/models/m", json=model(1))
    await one.post("/nodes/register", json=report("p"))
    lost, kept = (a["node_id"] for a in made["assignments"])
    await one.delete(f"/nodes/{lost}")
    look = (await one.post("/deployments/d/replan", json={"dry_run": True})).json()
    assert (look["dry_run"], look["moved_bytes"], look["moved_least_bytes"]) == (True, 15 * GIB, 15 * GIB)
    assert look["moves"] == [{"layers": {"start": 0, "end": 15}, "from": None, "to": "p", "bytes": 15 * GIB}]
    text = (await one.post("/deployments/d/replan", json={"dry_run": True}, headers={"Accept": "text/plain"})).text
    assert text.startswith("not done, only looked at\nMOVE  FROM      TO    WEIGHTS\n0:15  (nobody)  p   15.00 GiB\n")
    done = await one.post("/deployments/d/replan", json={})
    assert (done.json()["state"], done.headers["etag"]) == ("pending", f'"{done.json()["generation"]}"')
    assert [a["node_id"] for a in done.json()["assignments"]] == ["p", kept]
    assert done.json()["model"]["ref"] == "m"
    again = (await one.post("/deployments/d/replan", json={}, headers={"Accept": "text/plain"})).text
    assert again.startswith("nothing moves\n")


async def test_of_sixteen_at_once_for_memory_that_fits_one_exactly_one_gets_it(one: httpx.AsyncClient) -> None:
    """Thirty rounds; the others are refused with figures, or told to ask again."""
    for round_number in range(30):
        asks = [one.post("/deployments", json=deploy(f"r{round_number}-{i}", model=model(20))) for i in range(16)]
        answers = await asyncio.gather(*asks)
        won = [answer.json()["name"] for answer in answers if answer.status_code == 201]
        kinds = {answer.json()["type"] for answer in answers if answer.status_code == 409}
        assert (len(won), len(answers)) == (1, 16)
        assert kinds <= {"/problems/does-not-fit", "/problems/stale-revision", "/problems/no-nodes"}
        assert (await one.delete(f"/deployments/{won[0]}")).status_code == 204


async def test_a_caller_may_hold_so_many(one: httpx.AsyncClient) -> None:
    for number in range(100):
        made = await one.post("/deployments", json=deploy(f"d{number}", model=model(1, 0.001)))
        assert made.status_code == 201
    more = await one.post("/deployments", json=deploy("more", model=model(1, 0.001)))
    assert (more.status_code, more.json()["type"], more.json()["most"]) == (409, "/problems/quota-exceeded", 100)
