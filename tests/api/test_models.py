"""Named models over HTTP."""

import json

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


CONFIG = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 10,
    "tie_word_embeddings": False,
}
"""A layer has 592 parameters and caches 8 elements a token."""

TENSORS = [
    {"name": "model.embed_tokens.weight", "shape": [10, 8], "dtype": "BF16"},
    {"name": "model.layers.0.self_attn.k_proj.weight", "shape": [4, 8], "dtype": "BF16"},
    {"name": "model.layers.0.self_attn.v_proj.weight", "shape": [4, 8], "dtype": "BF16", "bytes": 64},
    {"name": "model.norm.weight", "shape": [8], "dtype": "f32"},
]


async def test_a_config_alone_is_a_cost(api: httpx.AsyncClient) -> None:
    made = (await api.put("/models/m", json={"config": CONFIG, "source": "by hand"})).json()
    assert (made["per_layer_bytes"], made["kv_bytes_per_layer_token"], made["params"]) == (1184, 16, 1352)
    assert made["source"] == "by hand"
    wider = (await api.put("/models/m", json={"config": CONFIG, "dtype": "f32", "kv_dtype": "fp8"})).json()
    assert (wider["per_layer_bytes"], wider["kv_bytes_per_layer_token"]) == (2368, 8)


async def test_tensors_are_a_cost_with_a_config_and_without(api: httpx.AsyncClient) -> None:
    alone = (await api.put("/models/m", json={"tensors": TENSORS})).json()
    assert (alone["embed_bytes"], alone["head_bytes"], alone["per_layer_bytes"]) == (160, 32 + 160, 128)
    assert alone["kv_bytes_per_layer_token"] == 16
    assert alone["notes"] == ["no config: caches by the shapes of the projections, without sliding windows"]
    config = CONFIG | {"num_hidden_layers": 1, "tie_word_embeddings": True}
    known = (await api.put("/models/m", json={"tensors": TENSORS, "config": config})).json()
    assert (known["per_layer_bytes"], known["per_layer_flops"]) == (128, 2.0 * 592)


@pytest.mark.parametrize(
    ("said", "pointer", "message"),
    [
        ({"config": {"model_type": "nobody"}}, "/config", "the architecture 'nobody' isn't known"),
        ({"config": CONFIG, "kv_dtype": "int3"}, "/config", "no cache type 'int3'"),
        ({"config": CONFIG, "kv_dtype": "INT3"}, "/kv_dtype", "has characters"),
        ({"config": CONFIG | {"hidden_size": 1e400}}, None, ""),
        ({"config": [CONFIG]}, "/config", "valid dictionary"),
        ({"config": CONFIG, "n_layers": 3}, "/n_layers", "is not a field"),
        ({"tensors": []}, "/tensors", "at least 1"),
        ({"tensors": [{"name": "a", "shape": [1]}]}, "/tensors/0", "give dtype, or bytes"),
        ({"tensors": [{"name": "a", "shape": [1], "dtype": "q9"}]}, "/tensors/0/dtype", "size isn't known"),
        ({"tensors": [{"name": "a", "shape": [-1], "bytes": 1}]}, "/tensors/0/shape/0", "greater than or equal to 0"),
        ({"tensors": [{"name": "a", "shape": [1], "bytes": 1}]}, "/tensors", "no tensor stands in a layer"),
        ({"tensors": [{"name": "a", "shape": [2**40] * 2, "dtype": "f32"}]}, "/tensors/0/shape", "beyond 2^63-1"),
        (
            {"tensors": [{"name": f"h.0.attn_{n}.weight", "shape": [1], "bytes": 2**62} for n in "kv"]},
            "/tensors",
            "the tensors together are beyond 2^63-1",
        ),
        ({}, "/n_layers", "is required"),
    ],
)
async def test_what_cannot_be_priced_is_pointed_at(
    api: httpx.AsyncClient, said: dict[str, object], pointer: str | None, message: str
) -> None:
    refused = await api.put("/models/m", content=json.dumps(said), headers={"Content-Type": "application/json"})
    assert refused.status_code == (400 if pointer is None else 422), refused.text
    if pointer is not None:
        assert refused.json()["errors"][0]["pointer"] == pointer
        assert message in refused.json()["errors"][0]["message"]
    assert (await api.get("/models/m")).status_code == 404


async def test_a_model_larger_than_any_is_refused_before_it_is_read(api: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/json"}
    refused = await api.put("/models/m", content=b" " * (16 * 2**20 + 1), headers=headers)
    assert refused.status_code == 413


async def test_no_path_and_no_address_that_a_client_names_is_opened(api: httpx.AsyncClient) -> None:
    for name in ("/etc/hostname", "http://127.0.0.1:1/"):
        refused = await api.put("/models/m", json={"config": name})
        assert refused.status_code == 422


async def test_who_has_a_version_already_is_told_that_it_still_holds(api: httpx.AsyncClient) -> None:
    await api.put("/models/m", json=model(10))
    for tags, status in (('"1"', 304), ('W/"1"', 304), ("*", 304), ('"2"', 200), ('"11"', 200)):
        answer = await api.get("/models/m", headers={"If-None-Match": tags})
        assert answer.status_code == status
        assert answer.headers["etag"] == '"1"'
    assert (await api.put("/models/m", json=model(11), headers={"If-Match": 'W/"1"'})).status_code == 412
