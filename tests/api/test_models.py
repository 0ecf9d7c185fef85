"""Named models over HTTP."""

import httpx
import pytest

from tests.api.requests import GIB, ask, model, report

pytestmark = pytest.mark.anyio

LAYERS = [
    {"count": 2, "bytes": GIB, "kv_bytes_per_token": 4096},
    {"count": 2, "bytes": GIB, "kv_bytes_per_token": 4096, "kv_window": 1024},
]


async def test_a_cost_is_named_shown_replaced_and_forgotten(api: httpx.AsyncClient) -> None:
    made = await api.put("/models/m", json=model(10, name="free text", params=5_000_000_000))
    assert (made.status_code, made.headers["location"], made.headers["etag"]) == (201, "/models/m", '"1"')
    body = made.json()
    assert (body["name"], body["version"], body["total_bytes"], body["notes"]) == ("m", 1, 10 * GIB, [])
    assert body["created_at"] == body["updated_at"]
    shown = await api.get("/models/m")
    assert (shown.status_code, shown.json()) == (200, body)
    replaced = await api.put("/models/m", json=model(11))
    assert (replaced.status_code, replaced.headers["etag"]) == (200, '"2"')
    assert (await api.delete("/models/m")).status_code == 204
    missing = await api.get("/models/m")
    assert (missing.status_code, missing.json()["type"]) == (404, "/problems/unknown-model")
    assert (await api.delete("/models/m")).status_code == 404


async def test_the_same_cost_again_keeps_its_version(api: httpx.AsyncClient) -> None:
    await api.put("/models/m", json=model(10))
    again = await api.put("/models/m", json=model(10))
    assert (again.status_code, again.headers["etag"]) == (200, '"1"')


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-Match": '"1"'}, 200),
        ({"If-Match": '"7", "1"'}, 200),
        ({"If-Match": "*"}, 200),
        ({"If-Match": '"7"'}, 412),
        ({"If-None-Match": "*"}, 412),
        ({"If-None-Match": '"1"'}, 412),
        ({"If-None-Match": '"7"'}, 200),
    ],
)
async def test_conditions_decide_whether_a_name_is_given_another_cost(
    api: httpx.AsyncClient, headers: dict[str, str], status: int
) -> None:
    await api.put("/models/m", json=model(10))
    answer = await api.put("/models/m", json=model(11), headers=headers)
    assert answer.status_code == status
    assert (await api.get("/models/m")).json()["n_layers"] == (11 if status == 200 else 10)


async def test_conditions_hold_for_a_name_that_is_new(api: httpx.AsyncClient) -> None:
    refused = await api.put("/models/m", json=model(10), headers={"If-Match": "*"})
    assert (refused.status_code, refused.json()["detail"]) == (412, "there is nothing yet")
    assert (await api.put("/models/m", json=model(10), headers={"If-None-Match": "*"})).status_code == 201


async def test_a_model_is_deleted_only_in_the_version_that_is_meant(api: httpx.AsyncClient) -> None:
    await api.put("/models/m", json=model(10))
    assert (await api.delete("/models/m", headers={"If-Match": '"7"'})).status_code == 412
    assert (await api.delete("/models/m", headers={"If-Match": '"1"'})).status_code == 204


async def test_the_list_goes_by_names_page_by_page(api: httpx.AsyncClient) -> None:
    for name in ("c", "a", "b"):
        await api.put(f"/models/{name}", json=model(10, source="by hand", params=7))
    first = (await api.get("/models", params={"limit": 2})).json()
    assert [m["name"] for m in first["models"]] == ["a", "b"]
    assert first["models"][0] | {"updated_at": None} == {
        "name": "a",
        "version": 2,
        "n_layers": 10,
        "total_bytes": 10 * GIB,
        "params": 7,
        "source": "by hand",
        "updated_at": None,
    }
    rest = (await api.get("/models", params={"cursor": first["next_cursor"]})).json()
    assert ([m["name"] for m in rest["models"]], rest["next_cursor"]) == (["c"], None)
    assert (await api.get("/models", params={"cursor": "!"})).status_code == 422


async def test_a_plan_by_name_is_the_plan_of_its_cost_and_says_which_version(api: httpx.AsyncClient) -> None:
    await api.post("/nodes/register", json=report("a"))
    cost = {"n_layers": 4, "embed_bytes": 0, "head_bytes": 0, "layers": LAYERS}
    await api.put("/models/m", json=cost)
    by_name = (await api.post("/plan", json=ask(model={"ref": "m"}, policy="auto"))).json()
    by_cost = (await api.post("/plan", json=ask(model=cost, policy="auto"))).json()
    assert by_name["assignments"] == by_cost["assignments"]
    assert (by_name["model"]["ref"], by_name["model"]["version"]) == ("m", 2)
    assert (by_cost["model"]["ref"], by_cost["model"]["version"]) == (None, None)
    assert (await api.get("/plans")).json()["plans"][1]["model"] == "m"


async def test_the_first_variant_that_fits_is_planned(api: httpx.AsyncClient) -> None:
    await api.put("/models/m-bf16", json=model(30))
    await api.put("/models/m-q8", json=model(16))
    asked = ask(model={"refs": ["m-bf16", "m-q8"]}, nodes=[report("a")], policy="auto")
    planned = (await api.post("/plan/simulate", json=asked)).json()
    assert (planned["model"]["ref"], planned["model"]["n_layers"], planned["model"]["estimated"]) == ("m-q8", 16, False)
    refused = await api.post("/plan/simulate", json=asked | {"nodes": [report("a", 10)]})
    assert refused.status_code == 409
    assert refused.json()["detail"].startswith("none of m-bf16, m-q8 fits; of the last: model (16 layers, ")
    assert refused.json()["required_bytes"] == 16 * GIB


@pytest.mark.parametrize(
    ("said", "pointer"),
    [
        ({"ref": "no such"}, "/model/ref"),
        ({"ref": ".."}, "/model/ref"),
        ({"ref": 7}, "/model/ref"),
        ({"refs": []}, "/model/refs"),
        ({"ref": "m", "n_layers": 3}, "/model/n_layers"),
        ({"n_layers": 3, "embed_bytes": 0}, "/model/head_bytes"),
        ("m", "/model"),
    ],
)
async def test_a_model_that_is_said_wrongly_is_pointed_at(api: httpx.AsyncClient, said: object, pointer: str) -> None:
    refused = await api.post("/plan", json=ask(model=said))
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == pointer


async def test_a_name_without_a_model_is_a_404_that_says_how_to_give_it_one(api: httpx.AsyncClient) -> None:
    refused = await api.post("/plan", json=ask(model={"ref": "m"}))
    assert (refused.status_code, refused.json()["type"]) == (404, "/problems/unknown-model")
    assert refused.json()["detail"] == "no model is named m. Name its cost first: PUT /models/m"


async def test_terminals_get_tables(api: httpx.AsyncClient) -> None:
    text = {"Accept": "text/plain"}
    cost = {"n_layers": 4, "embed_bytes": GIB, "head_bytes": GIB, "layers": LAYERS, "params": 8_030_000_000}
    made = (await api.put("/models/m", json=cost, headers=text)).text
    assert made == (
        "model m version 1\n"
        "4 layers, 6.00 GiB, 8.03 G parameters\n"
        "embedding 1.00 GiB, head 1.00 GiB\n\n"
        "LAYERS  COUNT     BYTES  EXPERTS  ACTIVE  KV B/TOKEN  WINDOW  STATE B  FLOPS/TOKEN\n"
        "0:2         2  1.00 GiB        -       -        4096       -        0            1\n"
        "2:4         2  1.00 GiB        -       -        4096    1024        0            1\n"
    )
    assert "m            1       4  6.00 GiB      8.03 G" in (await api.get("/models", headers=text)).text
    await api.post("/nodes/register", json=report("a"))
    plan = await api.post("/plan", json=ask(model={"ref": "m"}, policy="auto"), headers=text)
    assert "model m version 1: 4 layers" in plan.text
