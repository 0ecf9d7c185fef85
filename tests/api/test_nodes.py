"""Nodes over HTTP: reports, beats, lists, the operator's word."""

from datetime import datetime
from typing import Any

import httpx
import pytest

from tests.api.requests import GIB, report

pytestmark = pytest.mark.anyio


async def register(api: httpx.AsyncClient, *reports: dict[str, Any]) -> None:
    for each in reports:
        answer = await api.post("/nodes/register", json=each)
        assert answer.is_success, answer.text


async def test_a_first_report_is_created_and_answered_with_all_that_an_agent_needs(api: httpx.AsyncClient) -> None:
    answer = await api.post("/nodes/register", json=report("a"))
    assert answer.status_code == 201
    assert answer.headers["location"] == "/nodes/a"
    body = answer.json()
    registered, expires = (datetime.fromisoformat(body.pop(k)) for k in ("registered_at", "expires_at"))
    assert 29.9 < (expires - registered).total_seconds() <= 30.1
    assert body == {
        "node_id": "a",
        "addr": "a:9100",
        "state": "ready",
        "revision": 1,
        "heartbeat_interval_s": 10.0,
        "ttl_s": 30.0,
        "budget_bytes": 20 * GIB - 6_000_000_000,
        "warnings": [],
    }
    assert (await api.post("/nodes/register", json=report("a"))).status_code == 200


async def test_a_worker_s_own_print_out_is_a_report(api: httpx.AsyncClient) -> None:
    """The reference's NodeCaps as flat JSON, without any of our optional fields."""
    caps = {
        "addr": "10.0.0.5:9100",
        "os": "linux",
        "cores": 32,
        "ram_total": 137438953472,
        "ram_avail": 120259084288,
        "disk_free": 500000000000,
        "gflops": 900.0,
        "io_mbps": 2100.0,
        "devices": [{"device": "cpu", "name": "EPYC", "mem_bytes": 0, "unified": False}],
        "config": {"device": "cuda+cpu", "max_ram_gb": None, "layers": None, "ssh": "gpu-a", "rng_seed": None},
    }
    answer = await api.post("/nodes/register", json=caps)
    assert answer.status_code == 201
    assert answer.json()["node_id"] == "10.0.0.5:9100"


async def test_what_is_odd_about_a_report_is_said(api: httpx.AsyncClient) -> None:
    odd = report("a", gib=0.01, ram_avail=GIB, memory_pressure="high", config={"device": "cpu", "nice": 1})
    odd["devices"] = [{"device": "npu9000", "colour": "red"}]
    warnings = (await api.post("/nodes/register", json=odd | {"addr": "169.254.1.1:1"})).json()["warnings"]
    assert "ram_avail is above ram_total and counts as ram_total" in warnings
    assert any("are these MiB?" in w for w in warnings)
    assert any("link-local" in w for w in warnings)
    assert any("npu9000 is not known" in w for w in warnings)
    assert "unknown fields ignored: memory_pressure, config.nice, devices[0].colour" in warnings


async def test_names_that_nobody_can_read_are_escaped_and_counted(api: httpx.AsyncClient) -> None:
    odd = report("a") | {f"x\u202e{i}": 1 for i in range(12)}
    warning = (await api.post("/nodes/register", json=odd)).json()["warnings"][0]
    assert "\u202e" not in warning
    assert "x\\u202e0" in warning
    assert warning.endswith("and 2 more")


async def test_a_loopback_address_from_elsewhere_is_warned_of(api: httpx.AsyncClient) -> None:
    """Httpx's transport says that it calls from 127.0.0.1, so only the name of another peer shows it."""
    quiet = await api.post("/nodes/register", json=report("a", addr="127.0.0.1:1"))
    assert quiet.json()["warnings"] == []
    transport = api._transport  # noqa: SLF001  # the peer's address is a property of the transport
    assert isinstance(transport, httpx.ASGITransport)
    transport.client = ("192.0.2.1", 5)
    loud = await api.post("/nodes/register", json=report("b", addr="localhost:1"))
    assert "loopback" in loud.json()["warnings"][0]


async def test_a_small_beat_moves_free_memory(api: httpx.AsyncClient) -> None:
    cards = [
        {"device": "cuda", "mem_bytes": 10 * GIB, "mem_avail": 9 * GIB},
        {"device": "rocm", "mem_bytes": 10 * GIB, "mem_avail": 8 * GIB},
        {"device": "cuda", "mem_bytes": 10 * GIB, "mem_avail": 7 * GIB},
    ]
    await register(api, report("a", devices=cards))
    moved = {
        "ram_avail": 99 * GIB,
        "disk_free": 5,
        "resident": {"llama": 3},
        "devices": [{"device": "cuda", "mem_avail": 1}, {"device": "cuda", "name": "second", "mem_avail": None}],
    }
    answer = await api.post("/nodes/a/heartbeat", json=moved)
    assert answer.json()["warnings"] == ["ram_avail is above ram_total and counts as ram_total"]
    node = (await api.get("/nodes/a")).json()
    assert (node["ram_avail"], node["disk_free"], node["resident"]) == (40 * GIB, 5, {"llama": 3})
    assert [d["mem_avail"] for d in node["devices"]] == [1, 8 * GIB, None]
    assert node["revision"] == 1


async def test_a_small_beat_that_leaves_everything_out_keeps_a_node_alive(api: httpx.AsyncClient) -> None:
    await register(api, report("a"))
    assert (await api.post("/nodes/a/heartbeat", json={})).json()["state"] == "ready"
    assert (await api.get("/nodes/a")).json()["ram_avail"] == 20 * GIB


async def test_a_small_beat_with_another_count_of_devices_is_refused_and_moves_nothing(api: httpx.AsyncClient) -> None:
    await register(api, report("a", devices=[{"device": "cuda", "mem_bytes": 1, "mem_avail": 1}]))
    two = {"ram_avail": 1, "devices": [{"device": "cuda", "mem_avail": 1}, {"device": "cuda", "mem_avail": 1}]}
    answer = await api.post("/nodes/a/heartbeat", json=two)
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"pointer": "/devices", "message": "names 2 cuda devices, the report had 1"}]
    assert (await api.get("/nodes/a")).json()["ram_avail"] == 20 * GIB


async def test_a_beat_of_nobody_is_told_to_register(api: httpx.AsyncClient) -> None:
    answer = await api.post("/nodes/ghost/heartbeat", json={"ram_avail": 1})
    assert answer.status_code == 404
    assert answer.json()["type"] == "/problems/unknown-node"
    assert "POST /nodes/register" in answer.json()["detail"]


async def test_a_batch_s_reports_are_accepted_or_refused_one_by_one(api: httpx.AsyncClient) -> None:
    await register(api, report("a"))
    broken = report("b") | {"ram_total": "64GB"}
    clone = report("a", addr="elsewhere:1")
    answer = await api.post("/nodes/register/batch", json={"nodes": [report("a"), broken, clone, report("c"), 7]})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [r["status"] for r in results] == [200, 422, 409, 201, 422]
    assert results[0]["node_id"] == "a"
    assert results[1]["errors"][0]["pointer"] == "/ram_total"
    assert results[2]["type"] == "/problems/node-conflict"
    assert results[3]["expires_at"]
    assert {n["node_id"] for n in (await api.get("/nodes")).json()["nodes"]} == {"a", "c"}


async def test_a_thousand_reports_go_in_one_batch(api: httpx.AsyncClient) -> None:
    reports = [report(f"n{i}", os=None) for i in range(1_000)]
    answer = await api.post("/nodes/register/batch", json={"nodes": reports})
    assert {r["status"] for r in answer.json()["results"]} == {201}
    too_many = await api.post("/nodes/register/batch", json={"nodes": [*reports, report("x")]})
    assert too_many.status_code == 422


async def test_lists_are_paged_and_filtered(api: httpx.AsyncClient) -> None:
    await register(
        api,
        report("c", labels={"zone": "a"}),
        report("a", labels={"zone": "b"}, config={"device": "metal"}),
        report("b"),
    )

    async def names(query: str) -> tuple[list[str], str | None]:
        body = (await api.get(f"/nodes?{query}")).json()
        return [n["node_id"] for n in body["nodes"]], body["next_cursor"]

    first, cursor = await names("limit=2")
    assert first == ["a", "b"]
    assert await names(f"limit=2&cursor={cursor}") == (["c"], None)
    assert await names("label=zone") == (["a", "c"], None)
    assert await names("label=zone=b") == (["a"], None)
    assert await names("device=metal") == (["a"], None)
    assert await names("state=expired") == ([], None)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "/query/limit"),
        ("state=dead", "/query/state"),
        ("sate=ready", "/query/sate"),
        ("cursor=%25", "/query/cursor"),
        ("cursor=_w==", "/query/cursor"),
    ],
)
async def test_a_mistyped_question_is_no_empty_answer(api: httpx.AsyncClient, query: str, pointer: str) -> None:
    answer = await api.get(f"/nodes?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_an_operator_s_word_is_merged_and_lifted(api: httpx.AsyncClient) -> None:
    await register(api, report("a", labels={"zone": "agent"}))
    patch = {"role": "draining", "max_ram_gb": 12, "labels": {"zone": "op", "rack": "7"}}
    node = (await api.patch("/nodes/a", json=patch)).json()
    assert (node["config"]["role"], node["config"]["max_ram_gb"]) == ("draining", 12.0)
    assert node["labels"] == {"zone": "op", "rack": "7"}
    assert node["budget_bytes"] == 6_000_000_000
    assert node["limit"] == "max_ram_gb"
    await register(api, report("a", labels={"zone": "agent"}))
    node = (await api.patch("/nodes/a", json={"role": None, "labels": {"zone": None}})).json()
    assert node["overrides"] == {"role": None, "max_ram_gb": 12.0, "labels": {"rack": "7"}}
    assert node["labels"] == {"zone": "agent", "rack": "7"}
    node = (await api.patch("/nodes/a", json={"labels": None})).json()
    assert node["overrides"] == {"role": None, "max_ram_gb": 12.0, "labels": {}}


async def test_overrides_may_come_as_a_merge_patch(api: httpx.AsyncClient) -> None:
    await register(api, report("a"))
    headers = {"content-type": "application/merge-patch+json"}
    assert (await api.patch("/nodes/a", content='{"role": "standby"}', headers=headers)).status_code == 200


async def test_labels_stay_within_their_bound_over_many_patches(api: httpx.AsyncClient) -> None:
    await register(api, report("a"))
    for part in range(2):
        labels = {f"k{part}-{i}": "v" for i in range(16)}
        assert (await api.patch("/nodes/a", json={"labels": labels})).status_code == 200
    answer = await api.patch("/nodes/a", json={"labels": {"one": "more"}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/labels"


async def test_who_decides_on_an_old_version_is_told(api: httpx.AsyncClient) -> None:
    await register(api, report("a"))
    etag = (await api.get("/nodes/a")).headers["etag"]
    assert (await api.patch("/nodes/a", json={"role": "standby"}, headers={"if-match": etag})).status_code == 200
    for call in (
        api.patch("/nodes/a", json={"role": "draining"}, headers={"if-match": etag}),
        api.delete("/nodes/a", headers={"if-match": etag}),
    ):
        answer = await call
        assert answer.status_code == 412
        assert answer.json()["type"] == "/problems/precondition-failed"
    assert (await api.get("/nodes/a")).json()["config"]["role"] == "standby"
    assert (await api.delete("/nodes/a", headers={"if-match": '"9", "2"'})).status_code == 204


async def test_a_beat_leaves_the_version_alone(api: httpx.AsyncClient) -> None:
    await register(api, report("a"))
    etag = (await api.get("/nodes/a")).headers["etag"]
    await register(api, report("a", ram_avail=1))
    assert (await api.get("/nodes/a")).headers["etag"] == etag


async def test_who_leaves_is_gone(api: httpx.AsyncClient) -> None:
    await register(api, report("a"))
    answer = await api.delete("/nodes/a")
    assert (answer.status_code, answer.content) == (204, b"")
    for call in (api.get("/nodes/a"), api.delete("/nodes/a"), api.patch("/nodes/a", json={"role": None})):
        assert (await call).status_code == 404


async def test_a_clone_is_refused_with_both_addresses(api: httpx.AsyncClient) -> None:
    await register(api, report("a", instance_id="1"))
    answer = await api.post("/nodes/register", json=report("a", addr="b:1", instance_id="2"))
    assert answer.status_code == 409
    body = answer.json()
    assert (body["addr"], body["registered_addr"]) == ("b:1", "a:9100")
