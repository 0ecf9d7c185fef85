"""Bad input is a clear 4xx that names the field, echoes nothing, and changes nothing."""

import json
from typing import Any

import httpx
import pytest

from tests.api.requests import ask, report

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
HUGE = "9" * 4_000


async def unchanged(api: httpx.AsyncClient) -> bool:
    body = (await api.get("/nodes")).json()
    return [(n["node_id"], n["revision"]) for n in body["nodes"]] == [("good", 1)]


def raw(**given: str) -> str:
    """A report as text, so that it may hold what no JSON library would write."""
    fields = {"addr": '"n9:1"', "ram_total": "1000000000", "ram_avail": "5", **given}
    return "{" + ", ".join(f'"{k}": {v}' for k, v in fields.items()) + "}"


MALFORMED = [
    "",
    "{",
    raw() + "x",
    raw(gflops="NaN"),
    raw(gflops="Infinity"),
    raw(gflops="-Infinity"),
    raw(os='"\\ud800"'),
    raw(ram_total="0x10"),
    raw(ram_total="01"),
    raw(os="'x'"),
    '{"addr": "a:1", "addr": "b:1", "ram_total": 9, "ram_avail": 9}',
    "[" * 1_000 + "]" * 1_000,
    '{"x": ' * 1_000 + "1" + "}" * 1_000,
    raw(ram_total="9" * 5_000),
]


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: body[:40])
@pytest.mark.parametrize("path", ["/nodes/register", "/plan/simulate"])
async def test_what_is_not_json_is_a_400(api: httpx.AsyncClient, path: str, body: str) -> None:
    await api.post("/nodes/register", json=report("good"))
    answer = await api.post(path, content=body, headers=JSON)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/malformed-json")
    assert "line 1 column" in answer.json()["detail"]
    assert await unchanged(api)


@pytest.mark.parametrize(
    "body", [b"\xef\xbb\xbf" + raw().encode(), raw().encode("utf-16"), b'{"addr": "\xff"}', b"\x00"]
)
async def test_what_is_not_plain_utf_8_is_a_400(api: httpx.AsyncClient, body: bytes) -> None:
    answer = await api.post("/nodes/register", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/malformed-json")


REPORT_FAULTS = [
    ("ram_total", raw(ram_total='"64GB"')),
    ("ram_total", raw(ram_total="true")),
    ("ram_total", raw(ram_total="0")),
    ("ram_total", raw(ram_total="-1")),
    ("ram_total", raw(ram_total="1.5")),
    ("ram_total", raw(ram_total="1e17")),
    ("ram_total", raw(ram_total="1e-3")),
    ("ram_total", raw(ram_total="18446744073709551616")),
    ("ram_total", raw(ram_total=HUGE)),
    ("ram_avail", raw(ram_avail="null")),
    ("ram_avail", raw(ram_avail="-5")),
    ("ram_avail", raw(ram_avail="[]")),
    ("ram_avail", '{"addr": "n9:1", "ram_total": 1}'),
    ("gflops", raw(gflops="1e400")),
    ("gflops", raw(gflops='"fast"')),
    ("gflops", raw(gflops="-0.5")),
    ("gflops", raw(gflops="true")),
    ("addr", raw(addr='""')),
    ("addr", raw(addr='"http://10.0.0.1:9100"')),
    ("addr", raw(addr='"10.0.0.1:9100 "')),
    ("addr", raw(addr='"a\\nb"')),
    ("addr", raw(addr='"host\\u202e:1"')),
    ("addr", raw(addr=json.dumps("a" * 256))),
    ("addr", raw(addr='"0.0.0.0:9100"')),
    ("addr", raw(addr='"[::]:9100"')),
    ("addr", raw(addr='"0:9100"')),
    ("addr", raw(addr='":9100"')),
    ("addr", raw(addr='"[::ffff:0.0.0.0]:9100"')),
    ("addr", raw(addr='"."')),
    ("devices", raw(devices=json.dumps([{"device": "cuda", "mem_bytes": 2**62}] * 2))),
    ("addr", raw(addr="7")),
    ("node_id", raw(node_id='"a b"')),
    ("node_id", raw(node_id='".."')),
    ("os", raw(os='"\\u0000"')),
    ("os", raw(os='"\\u001b[31m"')),
    ("os", raw(os='"\\u2066x"')),
    ("os", raw(os=json.dumps("x" * 256))),
    ("config", raw(config="7")),
    ("config/device", raw(config='{"device": "warp"}')),
    ("config/device", raw(config='{"device": "cpu+"}')),
    ("config/max_ram_gb", raw(config='{"max_ram_gb": -1}')),
    ("config/max_ram_gb", raw(config='{"max_ram_gb": 1e999}')),
    ("config/layers", raw(config='{"layers": "a:b"}')),
    ("config/gpu_fraction", raw(config='{"gpu_fraction": 0}')),
    ("config/role", raw(config='{"role": "boss"}')),
    ("devices", raw(devices="{}")),
    ("devices", raw(devices=json.dumps([{"device": "cpu"}] * 65))),
    ("devices/0/mem_bytes", raw(devices='[{"device": "cuda", "mem_bytes": "[N/A]"}]')),
    ("devices/0/device", raw(devices='[{"device": "a b"}]')),
    ("labels", raw(labels=json.dumps({str(i): "" for i in range(33)}))),
    ("labels/zone", raw(labels='{"zone": 7}')),
    ("labels/x~1y~0", raw(labels='{"x/y~": null}')),
    ("resident/llama", raw(resident='{"llama": -1}')),
    ("device_index", raw(device_index="-1")),
]


@pytest.mark.parametrize(("field", "body"), REPORT_FAULTS, ids=lambda value: str(value)[:60])
async def test_a_faulty_field_is_named_by_its_pointer_and_nothing_changes(
    api: httpx.AsyncClient, field: str, body: str
) -> None:
    await api.post("/nodes/register", json=report("good"))
    answer = await api.post("/nodes/register", content=body, headers=JSON)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["type"] == "/problems/invalid-request"
    assert [e["pointer"] for e in problem["errors"]] == [f"/{field}"]
    assert problem["detail"].startswith(f"/{field}: ")
    assert await unchanged(api)


async def test_each_fault_is_named_up_to_twenty(api: httpx.AsyncClient) -> None:
    labels = {f"k{i}": i for i in range(30)}
    answer = await api.post("/nodes/register", json=report("a", labels=labels))
    errors = answer.json()["errors"]
    assert len(errors) == 21
    assert errors[-1] == {"pointer": "", "message": "and 10 more"}


PLAN_FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("reserve_byte", ask(reserve_byte=1)),
    ("model/per_layer_byte", {"model": {**ask()["model"], "per_layer_byte": 1}}),
    ("model/n_layers", {"model": {**ask()["model"], "n_layers": 0}}),
    ("model/n_layers", {"model": {**ask()["model"], "n_layers": 10_001}}),
    ("model/n_layers", {"model": {**ask()["model"], "n_layers": "10"}}),
    ("model/per_layer_flops", {"model": {**ask()["model"], "per_layer_flops": 1e31}}),
    ("model", {"model": {**ask()["model"], "per_layer_bytes": 2**62}}),
    ("model", {"model": None}),
    ("policy", ask(policy="best")),
    ("reserve_bytes", ask(reserve_bytes=-1)),
    ("reserve_bytes", ask(reserve_bytes=True)),
    ("nodes", ask(nodes="a")),
    ("nodes/0", ask(nodes=["a b"])),
    ("selector/zone", ask(selector={"zone": 1})),
    ("allow_over_budget", ask(allow_over_budget=1)),
]


@pytest.mark.parametrize(("field", "body"), PLAN_FAULTS, ids=lambda value: str(value)[:60])
async def test_a_mistyped_plan_request_is_not_planned(api: httpx.AsyncClient, field: str, body: dict[str, Any]) -> None:
    await api.post("/nodes/register", json=report("good"))
    answer = await api.post("/plan", json=body)
    assert answer.status_code == 422, answer.text
    assert [e["pointer"] for e in answer.json()["errors"]] == [f"/{field}"]
    assert (await api.get("/plans")).json()["plans"] == []


async def test_overrides_and_small_beats_are_read_strictly_too(api: httpx.AsyncClient) -> None:
    await api.post("/nodes/register", json=report("good"))
    for method, path, body, pointer in (
        ("PATCH", "/nodes/good", {"roles": "draining"}, "/roles"),
        ("PATCH", "/nodes/good", {"max_ram_gb": "12"}, "/max_ram_gb"),
        ("PATCH", "/nodes/good", [], ""),
        ("POST", "/nodes/good/heartbeat", {"ram_avail": "1"}, "/ram_avail"),
        ("POST", "/nodes/good/heartbeat", {"devices": [{"device": "cpu"}]}, "/devices/0/mem_avail"),
        ("POST", "/nodes/register/batch", {"nodes": []}, "/nodes"),
    ):
        answer = await api.request(method, path, json=body)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert await unchanged(api)


async def test_no_value_is_echoed_however_long(api: httpx.AsyncClient) -> None:
    secret = "s3cr3t" * 5_000
    for body in (report("a") | {"ram_total": secret}, report("a") | {"addr": secret}):
        answer = await api.post("/nodes/register", json=body)
        assert "s3cr3t" not in answer.text
        assert len(answer.content) < 1_000
    long_key = await api.post("/plan", json=ask(**{"k" * 50_000: 1}))
    assert long_key.status_code == 422
    assert len(long_key.content) < 2_000
    twice = await api.post("/plan", content='{"s3cr3t": 1, "s3cr3t": 2}', headers=JSON)
    assert "s3cr3t" not in twice.text


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "json"],
)
async def test_a_body_that_is_not_declared_as_json_is_a_415(api: httpx.AsyncClient, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    answer = await api.post("/nodes/register", content=json.dumps(report("a")), headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (415, "/problems/unsupported-media-type")


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", 'Application/JSON; charset="UTF-8"'])
async def test_json_may_say_that_it_is_utf_8(api: httpx.AsyncClient, content_type: str) -> None:
    body = json.dumps(report("a"))
    answer = await api.post("/nodes/register", content=body, headers={"content-type": content_type})
    assert answer.status_code == 201


@pytest.mark.parametrize(
    ("path", "kib"),
    [("/nodes/register", 64), ("/plan", 1024), ("/nodes/register/batch", 1024), ("/plan/simulate", 4096)],
)
@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_its_bound_is_a_413(api: httpx.AsyncClient, path: str, kib: int, declared: bool) -> None:  # noqa: FBT001  # drawn
    body = b'{"x": "' + b"y" * kib * 1024 + b'"}'

    async def pieces() -> Any:
        for at in range(0, len(body), 65_536):
            yield body[at : at + 65_536]

    answer = await api.post(path, content=body if declared else pieces(), headers=JSON)
    assert (answer.status_code, answer.json()["type"]) == (413, "/problems/payload-too-large")


async def test_a_path_or_a_method_that_is_not_there_is_a_problem_too(api: httpx.AsyncClient) -> None:
    missing = await api.get("/nope")
    assert (missing.status_code, missing.json()["type"]) == (404, "/problems/not-found")
    assert missing.headers["content-type"] == "application/problem+json"
    wrong = await api.put("/nodes/a", json={})
    assert (wrong.status_code, wrong.json()["type"]) == (405, "/problems/method-not-allowed")
    assert wrong.headers["allow"] == "DELETE, GET, PATCH"
    assert (await api.get("/nodes/register/batch")).headers["allow"] == "POST"
    assert (await api.put("/nodes/register")).status_code == 405
    odd = await api.get("/nodes/%00")
    assert (odd.status_code, odd.json()["errors"][0]["pointer"]) == (422, "/path/node_id")


async def test_a_whole_number_may_be_written_as_a_float_that_holds_it_exactly(api: httpx.AsyncClient) -> None:
    answer = await api.post("/nodes/register", content=raw(ram_total="4e9", ram_avail="3.0"), headers=JSON)
    assert answer.status_code == 201
    node = (await api.get("/nodes/n9:1")).json()
    assert (node["ram_total"], node["ram_avail"]) == (4_000_000_000, 3)


@pytest.mark.parametrize(
    ("changes", "pointer", "message"),
    [
        ({"config": {"device": "nvidia"}}, "/config/device", "must be of ane, cpu, cuda"),
        ({"config": {"layers": "0-15"}}, "/config/layers", "must be start:end"),
        ({"addr": "http://a:1"}, "/addr", "may have letters, digits and . _ : [ ] - only"),
        ({"os": "a\u202eb"}, "/os", "no control characters"),
    ],
)
async def test_what_a_pattern_wants_is_said_in_words(
    api: httpx.AsyncClient, changes: dict[str, Any], pointer: str, message: str
) -> None:
    refused = await api.post("/nodes/register", json=report("a") | changes)
    (error,) = refused.json()["errors"]
    assert error["pointer"] == pointer
    assert message in error["message"]


async def test_a_precision_that_nobody_knows_is_answered_with_those_there_are(api: httpx.AsyncClient) -> None:
    refused = await api.post("/plan", json=ask(objective={"precision_ladder": ["q4"]}))
    assert refused.json()["errors"][0]["message"].startswith("must be of f32, f16, bf16")


async def test_a_small_beat_is_a_report_and_read_as_liberally(api: httpx.AsyncClient) -> None:
    """What a newer agent says beside is named and ignored; figures that look wrong are said as of a whole report."""
    devices = [{"device": "cuda", "mem_bytes": 2**34, "mem_avail": 2**33}]
    await api.post("/nodes/register", json=report("a", devices=devices))
    moved = [{"device": "cuda", "mem_bytes": 2**34, "mem_avail": 2**32, "heat": 80}]
    beat = await api.post("/nodes/a/heartbeat", json={"ram_avail": 1000, "mood": "good", "devices": moved})
    assert beat.status_code == 200
    said = " | ".join(beat.json()["warnings"])
    assert "ram_avail under 64 MiB; are these MiB?" in said
    assert "unknown fields ignored: mood, devices[0].mem_bytes, devices[0].heat" in said
    assert (await api.get("/nodes/a")).json()["devices"][0]["mem_avail"] == 2**32


@pytest.mark.parametrize("key", ["[zone]", "zon\u00e9", "a/b~c", "\u202e"])
async def test_a_client_s_own_key_is_pointed_at_whatever_it_is(api: httpx.AsyncClient, key: str) -> None:
    refused = await api.post("/nodes/register", json=report("a") | {"labels": {key: 5}})
    expected = {"a/b~c": "a~1b~0c", "\u202e": "\\u202e"}.get(key, key)
    assert refused.json()["errors"][0]["pointer"] == f"/labels/{expected}"
