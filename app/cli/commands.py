"""What ``cleave`` can be told to do.

The server is imported only where it runs: that takes a second, which ``cleave nodes`` needn't wait for.
"""

import json
from typing import Annotated, Any

import typer

from app import __version__
from app.cli import demo as demonstration
from app.cli.models import inspect_model, models
from app.cli.terminal import AsJson, Url, parsed, plain_errors, read, say
from app.client import DEFAULT_URL, Client

app = typer.Typer(
    name="cleave",
    help="Places models on machines, layer by layer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(models, name="models")


def _say_version(asked: bool) -> None:  # noqa: FBT001  # typer's way to call it
    if asked:
        say(f"cleave {__version__}")
        raise typer.Exit


app.command("inspect")(inspect_model)


Version = Annotated[bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version.")]


@app.callback()
def _options(*, _version: Version = False) -> None:
    """Places models on machines, layer by layer."""


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")] = 8000,
    *,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond loopback although anybody may call.")
    ] = False,
) -> None:
    """Run the server. Settings come from the environment, CLEAVE_*."""
    from app.cli.serve import serve_forever  # noqa: PLC0415  # see the top

    with plain_errors():
        serve_forever(host, port, insecure=insecure)


@app.command()
def nodes(
    state: Annotated[str | None, typer.Option(help="ready, suspect or expired")] = None,
    label: Annotated[str | None, typer.Option(help="key, or key=value")] = None,
    device: Annotated[str | None, typer.Option(help="Primary device")] = None,
    *,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List the registered nodes."""
    wanted = {"state": state, "label": label, "device": device, "limit": "1000"}
    with plain_errors(), Client(url) as client:
        if as_json:
            say(json.dumps([node.model_dump(mode="json") for node in client.nodes(**wanted)]))
        else:
            for table in client.tables("/nodes", **wanted):
                say(table)


@app.command()
def plan(
    model: Annotated[str | None, typer.Option(help="File with the model's cost as JSON, - for standard input.")] = None,
    layers: Annotated[int | None, typer.Option(help="Number of layers, instead of a file.")] = None,
    layer_bytes: Annotated[int | None, typer.Option(help="Bytes of a layer.")] = None,
    embed_bytes: Annotated[int | None, typer.Option(help="Bytes of the embedding, 0 if left out.")] = None,
    head_bytes: Annotated[int | None, typer.Option(help="Bytes of the head, 0 if left out.")] = None,
    ref: Annotated[
        list[str] | None, typer.Option(help="Name of a model; of several the first that fits is planned.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="auto, ram_balanced, throughput or manual")] = None,
    engine: Annotated[str | None, typer.Option(help="plain, rlx, llama.cpp, vllm or sglang")] = None,
    optimize: Annotated[str | None, typer.Option(help="With auto: throughput, latency or memory")] = None,
    context: Annotated[int | None, typer.Option(help="Tokens of each sequence that the caches must hold.")] = None,
    nodes: Annotated[str | None, typer.Option(help="node_ids in pipeline order, with commas")] = None,
    reserve_gb: Annotated[float | None, typer.Option(help="Decimal gigabytes to keep free on each node.")] = None,
    *,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Place a model on the registered nodes."""
    shape = {"n_layers": layers, "per_layer_bytes": layer_bytes, "embed_bytes": embed_bytes, "head_bytes": head_bytes}
    figures = {key: value for key, value in shape.items() if value is not None}
    ways = (model is not None) + bool(ref) + bool(figures)
    if ways != 1 or (figures and not {"n_layers", "per_layer_bytes"} <= figures.keys()):
        raise typer.BadParameter("give one of --model FILE, --ref NAME, or --layers and --layer-bytes")
    with plain_errors():
        request = {
            "model": _model(model, ref, figures),
            "policy": policy,
            "engine": engine,
            "objective": {k: v for k, v in (("optimize", optimize), ("context", context)) if v is not None} or None,
            "nodes": None if nodes is None else [name.strip() for name in nodes.split(",")],
            "reserve_ram_gb": reserve_gb,
        }
        body = {key: value for key, value in request.items() if value is not None}
        with Client(url) as client:
            say(client.raw("POST", "/plan", as_json=as_json, body=body))


@app.command()
def simulate(
    file: Annotated[str, typer.Argument(help="The body of POST /plan/simulate as JSON, - for standard input.")],
    *,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Place a model on nodes that needn't be registered."""
    with plain_errors(), Client(url) as client:
        say(client.raw("POST", "/plan/simulate", as_json=as_json, body=read(file)))


@app.command()
def demo() -> None:
    """Show all of it on a server of its own: four unlike nodes, one plan per policy."""
    with plain_errors():
        demonstration.run(say)


@app.command()
def openapi() -> None:
    """Print the OpenAPI document of this version."""
    from app.main import create_app  # noqa: PLC0415  # see the top
    from app.settings import Settings  # noqa: PLC0415  # see the top

    say(json.dumps(create_app(Settings()).openapi(), indent=2))


def main() -> None:
    """The console entry."""
    app()


def _model(file: str | None, refs: list[str] | None, figures: dict[str, int]) -> Any:
    """What a plan request says of its model. Raises RefusalError."""
    if file is not None:
        return parsed(file)
    return {"refs": refs} if refs else {"embed_bytes": 0, "head_bytes": 0, **figures}
