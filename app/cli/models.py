"""Models: what a checkpoint costs, and costs under names."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app.api.tables import cost_text
from app.checkpoints.caches import DEFAULT
from app.checkpoints.costs import Priced
from app.checkpoints.inspection import inspect
from app.cli.errors import RefusalError
from app.cli.terminal import AsJson, Url, parsed, plain_errors, say
from app.client import DEFAULT_URL, Client
from app.schemas.models import CostOut, cost_fields

models = typer.Typer(help="Costs under names, for plans to refer to.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The model's name.")]
KvDtype = Annotated[
    str,
    typer.Option(help="What the caches are stored in: f32 f16 bf16 fp8 q8_0 q4_0 .., or keys/values apart: q8_0/f16"),
]
Dtype = Annotated[str | None, typer.Option(help="What the weights are stored in, for a config alone: f32 f16 bf16")]


def inspect_model(
    path: Annotated[
        Path, typer.Argument(help="A folder, a safetensors file or index, a GGUF file, or a config.json alone.")
    ],
    kv_dtype: KvDtype = DEFAULT,
    dtype: Dtype = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show what a model costs: bytes, caches and FLOPs of its layers, from headers only."""
    with plain_errors():
        made = inspect(path, kv_dtype=kv_dtype, dtype=dtype)
        if as_json:
            say(json.dumps(_request(made), indent=2))
            _say_notes(made)
        else:
            say(f"model {made.cost.name}\n{cost_text(CostOut(**cost_fields(made.cost)))}".rstrip())
            _say_notes(made)


@models.command("list")
def list_models(*, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the named models."""
    with plain_errors(), Client(url) as client:
        if as_json:
            say(json.dumps([model.model_dump(mode="json") for model in client.models(limit="1000")]))
        else:
            for table in client.tables("/models", limit="1000"):
                say(table)


@models.command("show")
def show_model(name: Name, *, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show a named model's cost."""
    with plain_errors(), Client(url) as client:
        say(client.raw("GET", Client.model_path(name), as_json=as_json))


@models.command("put")
def put_model(
    name: Name,
    path: Annotated[str, typer.Argument(help="What cleave inspect takes; or - for JSON: a cost, or a config.json.")],
    kv_dtype: KvDtype = DEFAULT,
    dtype: Dtype = None,
    *,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Give a model a name on the server, with the cost that its files or its config tell."""
    with plain_errors():
        if path == "-":
            said = _said(parsed("-"), kv_dtype, dtype)
        else:
            made = inspect(Path(path), kv_dtype=kv_dtype, dtype=dtype)
            said = _request(made)
            _say_notes(made)
        with Client(url) as client:
            say(client.raw("PUT", Client.model_path(name), as_json=as_json, body=said))


@models.command("delete")
def delete_model(name: Name, *, url: Url = DEFAULT_URL) -> None:
    """Forget a named model."""
    with plain_errors(), Client(url) as client:
        client.delete_model(name)


def _request(made: Priced) -> dict[str, Any]:
    """The cost as a request has it, without what is left out or follows."""
    shown = CostOut(**cost_fields(made.cost)).model_dump(exclude={"total_bytes"}, exclude_none=True)
    empty = ("per_layer_bytes", "per_layer_flops") if made.cost.layers else ()
    return {key: value for key, value in shown.items() if key not in empty}


def _said(value: Any, kv_dtype: str, dtype: str | None) -> dict[str, Any]:
    """A request from what came by standard input: a config.json is one by itself, anything else stands as it is."""
    if not isinstance(value, dict):
        raise RefusalError("standard input is no JSON object")
    if "model_type" in value or "ssm_cfg" in value:
        return {"config": value, "kv_dtype": kv_dtype} | ({} if dtype is None else {"dtype": dtype})
    return value


def _say_notes(made: Priced) -> None:
    for note in made.notes:
        typer.echo(f"note: {note}", err=True)
