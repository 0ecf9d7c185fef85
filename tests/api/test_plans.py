"""Plans over HTTP."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api import deps
from tests.api.requests import GIB, ask, model, report
from tests.placement import vectors

pytestmark = pytest.mark.anyio


async def test_a_plan_names_its_circumstances_and_every_stage(api: httpx.AsyncClient) -> None:
    for name in "ab":
        await api.post("/nodes/register", json=report(name))
    answer = await api.post("/plan", json=ask(model=model(10, name="m", per_layer_flops=1e9)))
    assert answer.status_code == 200
    body = answer.json()
    assert answer.headers["etag"] == f'"{body["plan_id"]}"'
    assert (body["revision"], body["policy"], body["engine"]) == (2, "ram_balanced", "plain")
    assert body["model"]["total_bytes"] == 10 * GIB
    first, last = body["assignments"]
    assert first == {
        "node_id": "a",
        "addr": "a:9100",
        "ssh": None,
        "device": "cpu",
        "layers": {"start": 0, "end": 5},
        "first": True,
        "last": False,
        "est_bytes": 5 * GIB,
        "est_weight_bytes": 5 * GIB,
        "est_kv_bytes": 0,
        "est_overhead_bytes": 0,
        "est_disk_bytes": 0,
        "experts_paged": False,
        "est_stage_s": 0.005,
        "budget_bytes": 20 * GIB,
        "over_budget": False,
        "role": "active",
        "backs": None,
    }
    assert last["layers"] == {"start": 5, "end": 10}
    assert body["summary"] == {
        "stages": 2,
        "objective_value": 0.005,
        "lower_bound": None,
        "optimal": False,
        "best_value": 0.005,
        "best_stages": 2,
        "bottleneck_node": "a",
        "max_context": None,
        "headroom_bytes": 15 * GIB,
        "precision": None,
    }
    assert body["objective"]["context"] == 4096
    assert body["explain"] is None
    assert (body["idle"], body["warnings"]) == ([], [])


async def test_the_default_reserve_is_kept_and_either_unit_overrides_it(api: httpx.AsyncClient) -> None:
    await api.post("/nodes/register", json=report("a"))

    async def budget(**reserve: Any) -> int:
        answer = await api.post("/plan", json={"model": model(1), **reserve})
        found: int = answer.json()["assignments"][0]["budget_bytes"]
        return found

    assert await budget() == 20 * GIB - 6_000_000_000
    assert await budget(reserve_bytes=1) == 20 * GIB - 1
    assert await budget(reserve_ram_gb=0.5) == 20 * GIB - 500_000_000
    both = await api.post("/plan", json={"model": model(1), "reserve_bytes": 1, "reserve_ram_gb": 1})
    assert both.status_code == 422


async def test_a_refusal_has_its_numbers_per_node(api: httpx.AsyncClient) -> None:
    await api.post("/nodes/register", json=report("a", gib=7))
    await api.post("/nodes/register", json=report("b", config={"device": "cpu", "role": "draining"}))
    answer = await api.post("/plan", json=ask())
    assert answer.status_code == 409
    body = answer.json()
    assert body == {
        "type": "/problems/does-not-fit",
        "title": "The model does not fit these nodes",
        "status": 409,
        "detail": "model (10 layers, 10.7 GB) does not fit the cluster (capacity 7 layers). "
        "Lower precision, add a node, raise max_ram, or reduce reserve.",
        "required_bytes": 10 * GIB,
        "usable_bytes": 7 * GIB,
        "shortfall_bytes": 3 * GIB,
        "capacity_layers": 7,
        "proven": True,
        "suggestions": [
            {
                "change": "nodes",
                "value": 3 * GIB,
                "detail": "one more node with 3221225472 bytes (3.2 GB) beside its reserve would do",
            }
        ],
        "nodes": [
            {
                "node_id": "a",
                "addr": "a:9100",
                "budget_bytes": 7 * GIB,
                "limit": "ram_avail",
                "layer_cap": 7,
                "excluded": None,
            },
            {
                "node_id": "b",
                "addr": "b:9100",
                "budget_bytes": 20 * GIB,
                "limit": "ram_avail",
                "layer_cap": 0,
                "excluded": "draining",
            },
        ],
    }


async def test_nobody_registered_is_no_nodes(api: httpx.AsyncClient) -> None:
    answer = await api.post("/plan", json=ask())
    assert (answer.status_code, answer.json()["type"], answer.json()["detail"]) == (
        409,
        "/problems/no-nodes",
        "no nodes",
    )


async def test_named_nodes_that_nobody_has_are_not_found(api: httpx.AsyncClient) -> None:
    answer = await api.post("/plan", json=ask(nodes=["a", "b"]))
    assert (answer.status_code, answer.json()["nodes"]) == (404, ["a", "b"])


async def test_a_node_named_twice_is_refused(api: httpx.AsyncClient) -> None:
    await api.post("/nodes/register", json=report("a"))
    answer = await api.post("/plan", json=ask(nodes=["a", "a"]))
    assert answer.json()["errors"] == [{"pointer": "/nodes/1", "message": "the node is named twice"}]
    answer = await api.post("/plan/simulate", json=ask(nodes=[report("a"), report("a")]))
    assert answer.json()["errors"] == [{"pointer": "/nodes/1/node_id", "message": "the node is named twice"}]


async def test_ranges_given_by_hand_are_refused_by_kind(api: httpx.AsyncClient) -> None:
    def nodes(*ranges: str, gib: float = 20) -> list[dict[str, Any]]:
        return [report(f"n{i}", gib, config={"layers": r}) for i, r in enumerate(ranges)]

    gap = await api.post("/plan/simulate", json=ask(policy="manual", nodes=nodes("0:4", "5:10")))
    assert (gap.status_code, gap.json()["type"], gap.json()["nodes"]) == (422, "/problems/manual-ranges", ["n0", "n1"])
    tight = await api.post("/plan/simulate", json=ask(policy="manual", nodes=nodes("0:4", "4:10", gib=5)))
    assert (tight.status_code, tight.json()["type"]) == (409, "/problems/over-budget")
    assert tight.json()["nodes"] == [
        {"node_id": "n1", "est_bytes": 6 * GIB, "budget_bytes": 5 * GIB, "excess_bytes": GIB}
    ]
    anyway = await api.post(
        "/plan/simulate", json=ask(policy="manual", nodes=nodes("0:4", "4:10", gib=5), allow_over_budget=True)
    )
    assert [a["over_budget"] for a in anyway.json()["assignments"]] == [False, True]


async def test_a_simulation_leaves_no_trace_and_equals_itself(api: httpx.AsyncClient) -> None:
    body = ask(nodes=[report("a", colour="red"), report("b")])
    first, second = [await api.post("/plan/simulate", json=body) for _ in range(2)]
    assert first.content == second.content
    assert [first.json()[k] for k in ("plan_id", "created_at", "revision")] == [None, None, None]
    assert first.json()["warnings"] == ["a: unknown fields ignored: colour"]
    assert (await api.get("/plans")).json()["plans"] == []
    assert (await api.get("/nodes")).json()["nodes"] == []


async def test_memory_that_adds_up_beyond_the_integers_is_refused(api: httpx.AsyncClient) -> None:
    huge = [report(n, ram_total=2**63 - 1) for n in "ab"]
    answer = await api.post("/plan/simulate", json=ask(nodes=huge))
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/nodes")
    for one in huge:
        assert (await api.post("/nodes/register", json=one)).status_code == 201
    answer = await api.post("/plan", json=ask(model=model(2, 2**31)))
    assert answer.json()["usable_bytes"] == 40 * GIB


async def test_recent_plans_stay_as_they_were_returned(api: httpx.AsyncClient) -> None:
    await api.post("/nodes/register", json=report("a"))
    made = [await api.post("/plan", json=ask()) for _ in range(3)]
    await api.delete("/nodes/a")
    ids = [m.json()["plan_id"] for m in made]
    kept = await api.get(f"/plans/{ids[0]}")
    assert kept.content == made[0].content
    unchanged = await api.get(f"/plans/{ids[0]}", headers={"if-none-match": kept.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    page = (await api.get("/plans?limit=2")).json()
    assert [p["plan_id"] for p in page["plans"]] == [ids[2], ids[1]]
    rest = (await api.get(f"/plans?limit=2&cursor={page['next_cursor']}")).json()
    assert ([p["plan_id"] for p in rest["plans"]], rest["next_cursor"]) == ([ids[0]], None)
    assert rest["plans"][0]["stages"] == 1
    assert (await api.get("/plans/nope")).json()["type"] == "/problems/unknown-plan"


@pytest.mark.exhaustive
async def test_every_vector_is_reproduced_over_http(api: httpx.AsyncClient, shared: Path) -> None:
    kinds = {"no nodes": (409, "no-nodes"), "model (": (409, "does-not-fit"), "node ": (422, "manual-ranges")}
    played = 0
    for row in vectors.read(shared / "vectors/reference.jsonl.gz"):
        answer = await api.post("/plan/simulate", json=row["request"])
        body, want = answer.json(), row["expect"]
        if "error" in want:
            status, name = next(v for k, v in kinds.items() if want["error"].startswith(k))
            got = (answer.status_code, body["type"], body["detail"])
            assert got == (status, f"/problems/{name}", want["error"]), row["id"]
        else:
            assert answer.status_code == 200, row["id"]
            stages = [{k: a[k] for k in w} for a, w in zip(body["assignments"], want["assignments"], strict=True)]
            assert stages == want["assignments"], row["id"]
            assert want["fits"] == (not any(a["over_budget"] for a in body["assignments"])), row["id"]
        played += 1
    assert played == 1_502


@pytest.mark.exhaustive
async def test_without_leave_every_answer_keeps_the_promise_over_http(api: httpx.AsyncClient, shared: Path) -> None:
    planned = 0
    for row in vectors.read(shared / "vectors/reference.jsonl.gz"):
        request = {k: v for k, v in row["request"].items() if k != "allow_over_budget"}
        answer = await api.post("/plan/simulate", json=request)
        assert answer.status_code in {200, 409, 422}
        if answer.status_code != 200:
            continue
        planned += 1
        stages = answer.json()["assignments"]
        assert all(a["est_bytes"] <= a["budget_bytes"] and not a["over_budget"] for a in stages), row["id"]
        layers = [i for a in stages for i in range(a["layers"]["start"], a["layers"]["end"])]
        assert layers == list(range(row["request"]["model"]["n_layers"])), row["id"]
    assert planned > 900


@pytest.mark.parametrize(
    ("file", "key", "order"),
    [
        ("auto", "optimum", None),
        ("auto_engines", "optimum", None),
        ("clusters_a", "optimum", None),
        ("clusters_a", "optimum_given_order", "given"),
    ],
)
@pytest.mark.exhaustive
async def test_every_optimum_of_the_oracle_is_met_and_proven_over_http(
    api: httpx.AsyncClient, shared: Path, file: str, key: str, order: str | None
) -> None:
    played = 0
    for row in vectors.read(shared / f"vectors/{file}.jsonl.gz"):
        request = row["request"]
        if order is not None:
            request["objective"]["order"] = order
        answer = await api.post("/plan/simulate", json=request)
        body, want = answer.json(), row[key]
        if want is None:
            assert (answer.status_code, body["type"]) == (409, "/problems/does-not-fit"), row["id"]
            assert body["proven"], row["id"]
        else:
            assert answer.status_code == 200, row["id"]
            assert body["summary"]["objective_value"] == pytest.approx(want, rel=1e-9), row["id"]
            assert body["summary"]["optimal"], row["id"]
        played += 1
    assert played in {200, 300}


async def test_any_order_of_equal_input_gives_a_byte_identical_answer(api: httpx.AsyncClient) -> None:
    nodes = [report(f"n{i}", gib=5 + i % 3, gflops=100.0 + 50 * (i % 2)) for i in range(7)]
    orders = (nodes, nodes[::-1], nodes[3:] + nodes[:3])
    for layers in (20, 2000):  # a plan with idle nodes, and a refusal
        asked = ask(policy="auto", model=model(layers), explain=True)
        answers = [await api.post("/plan/simulate", json=asked | {"nodes": order}) for order in orders]
        assert {answer.content for answer in answers} == {answers[0].content}
        assert answers[0].status_code == (200 if layers == 20 else 409)


async def test_an_engine_is_named_or_given_with_its_options(api: httpx.AsyncClient) -> None:
    nodes = [report("a"), report("b")]

    async def simulate(**given: Any) -> httpx.Response:
        return await api.post("/plan/simulate", json=ask(policy="auto", nodes=nodes, **given))

    plain = (await simulate()).json()
    named = (await simulate(engine="llama.cpp")).json()
    given = (await simulate(engine={"name": "llama.cpp", "overhead_bytes": 7})).json()
    assert (plain["engine"], plain["objective"]["optimize"]) == ("plain", "throughput")
    assert (named["engine"], named["objective"]["optimize"]) == ("llama.cpp", "latency")
    assert plain["assignments"][0]["est_overhead_bytes"] == 0
    assert named["assignments"][0]["est_overhead_bytes"] == 600_000_000
    assert given["assignments"][0]["est_overhead_bytes"] == 7
    unknown = await simulate(engine="ollama")
    assert (unknown.status_code, unknown.json()["errors"][0]["pointer"]) == (422, "/engine/name")
    foreign = await simulate(engine={"name": "vllm", "kv_pad": 256})
    assert (foreign.status_code, foreign.json()["errors"][0]["pointer"]) == (422, "/engine/kv_pad")


async def test_the_precision_ladder_is_stepped_down_and_the_estimate_is_said(api: httpx.AsyncClient) -> None:
    big = model(10, 4, params=20 * GIB)  # 40 GiB at 16 bits
    ladder = {"precision_ladder": ["fp8", "mxfp4", "f2e1m0"]}
    answer = await api.post(
        "/plan/simulate", json=ask(policy="auto", nodes=[report("a", 12)], model=big, objective=ladder)
    )
    body = answer.json()
    assert (body["summary"]["precision"], body["model"]["estimated"]) == ("mxfp4", True)
    assert body["model"]["per_layer_bytes"] == 4 * GIB * 4.25 / 16
    assert body["assignments"][0]["est_bytes"] <= 12 * GIB
    small = await api.post(
        "/plan/simulate", json=ask(policy="auto", nodes=[report("a", 50)], model=big, objective=ladder)
    )
    assert (small.json()["summary"]["precision"], small.json()["model"]["estimated"]) == (None, False)
    unknown = await api.post(
        "/plan/simulate", json=ask(policy="auto", nodes=[report("a", 12)], model=model(10, 4), objective=ladder)
    )
    assert (unknown.status_code, unknown.json()["capacity_layers"]) == (409, 3)
    assert "precision_ladder was not tried" in unknown.json()["detail"]
    never = await api.post(
        "/plan/simulate", json=ask(policy="auto", nodes=[report("a", 1)], model=big, objective=ladder)
    )
    assert (never.status_code, never.json()["required_bytes"]) == (409, 40 * GIB)


async def test_a_plan_explains_itself_where_asked(api: httpx.AsyncClient) -> None:
    nodes = [report("a", 8), report("b", 8), report("tiny", 0.5)]
    body = ask(policy="auto", nodes=nodes, explain=True, model=model(12, kv_bytes_per_layer_token=1024))
    plan = (await api.post("/plan/simulate", json=body)).json()
    facts = {f["node_id"]: f for f in plan["explain"]}
    assert facts["tiny"] == {
        "node_id": "tiny",
        "budget_bytes": GIB // 2,
        "limit": "ram_avail",
        "layer_cap": 0,
        "layers": None,
        "headroom_bytes": GIB // 2,
        "reason": "cannot hold a layer",
    }
    assert facts["a"]["layers"] == {"start": 0, "end": 6}
    assert plan["summary"]["max_context"] == 2 * GIB // 6 // 1024
    table = await api.post("/plan/simulate", json=body, headers={"accept": "text/plain"})
    assert "(optimal), bottleneck a, context 4096 x 1, fits up to a context of" in table.text
    assert "LAYERS FIT" in table.text


async def test_suggestions_were_planned_before_they_are_made(api: httpx.AsyncClient) -> None:
    heavy = model(10, kv_bytes_per_layer_token=2**20)
    body = ask(policy="auto", nodes=[report("a", 12)], model=heavy, objective={"context": 8192, "sequences": 2})
    refused = (await api.post("/plan/simulate", json=body)).json()
    found = {s["change"]: s["value"] for s in refused["suggestions"]}
    assert found["objective.context"] == 102  # 2 GiB / (10 layers x 1 MiB x 2 sequences)
    taken = body | {"objective": {"context": 102, "sequences": 2}}
    assert (await api.post("/plan/simulate", json=taken)).status_code == 200
    taken = body | {"objective": {"context": 103, "sequences": 2}}
    assert (await api.post("/plan/simulate", json=taken)).status_code == 409


async def test_a_queue_of_plans_has_an_end(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deps, "MAX_WAITING", 0)
    refused = await api.post("/plan/simulate", json=ask(nodes=[report("a")]))
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/overloaded")
    assert refused.headers["retry-after"] == "1"
