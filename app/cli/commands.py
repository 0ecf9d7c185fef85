"""What ``cleave`` can be told to do.

The server is imported only where it runs: that takes a second, which ``cleave nodes`` needn't wait for.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import jiter
import typer

from app.cli import demo as demonstration
from app.cli.errors import RefusalError
from app.client import DEFAULT_URL, Client, ProblemError, UnreachableError

app = typer.Typer(
    name="cleave",
    help="Places models on machines, layer by layer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Url = Annotated[str, typer.Option(envvar="CLEAVE_URL", help="Where the server is.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


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

    with _plain_errors():
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
    with _plain_errors(), Client(url) as client:
        if as_json:
            _print(json.dumps([node.model_dump(mode="json") for node in client.nodes(**wanted)]))
        else:
            for table in client.nodes_text(**wanted):
                _print(table)


@app.command()
def plan(
    model: Annotated[str | None, typer.Option(help="File with the model's cost as JSON, - for standard input.")] = None,
    layers: Annotated[int | None, typer.Option(help="Number of layers, instead of a file.")] = None,
    layer_bytes: Annotated[int | None, typer.Option(help="Bytes of a layer.")] = None,
    embed_bytes: Annotated[int | None, typer.Option(help="Bytes of the embedding, 0 if left out.")] = None,
    head_bytes: Annotated[int | None, typer.Option(help="Bytes of the head, 0 if left out.")] = None,
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
    enough = not figures if model is not None else {"n_layers", "per_layer_bytes"} <= figures.keys()
    if not enough:
        raise typer.BadParameter("give either --model FILE, or --layers and --layer-bytes")
    with _plain_errors():
        request = {
            "model": {"embed_bytes": 0, "head_bytes": 0, **figures} if model is None else _parsed(model),
            "policy": policy,
            "engine": engine,
            "objective": {k: v for k, v in (("optimize", optimize), ("context", context)) if v is not None} or None,
            "nodes": None if nodes is None else [name.strip() for name in nodes.split(",")],
            "reserve_ram_gb": reserve_gb,
        }
        body = {key: value for key, value in request.items() if value is not None}
        with Client(url) as client:
            _print(client.raw("POST", "/plan", as_json=as_json, body=body))


@app.command()
def simulate(
    file: Annotated[str, typer.Argument(help="The body of POST /plan/simulate as JSON, - for standard input.")],
    *,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Place a model on nodes that needn't be registered."""
    with _plain_errors(), Client(url) as client:
        _print(client.raw("POST", "/plan/simulate", as_json=as_json, body=_read(file)))


@app.command()
def demo() -> None:
    """Show all of it on a server of its own: four unlike nodes, one plan per policy."""
    with _plain_errors():
        demonstration.run(_print)


@app.command()
def openapi() -> None:
    """Print the OpenAPI document of this version."""
    from app.main import create_app  # noqa: PLC0415  # see the top
    from app.settings import Settings  # noqa: PLC0415  # see the top

    _print(json.dumps(create_app(Settings()).openapi(), indent=2))


def main() -> None:
    """The console entry."""
    app()


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Refusals are for the reader, not for a debugger: the message on stderr, exit code 1."""
    try:
        yield
    except (ProblemError, UnreachableError, RefusalError) as error:
        typer.echo(str(error).rstrip(), err=True)
        raise typer.Exit(error.exit_code if isinstance(error, RefusalError) else 1) from None


def _read(name: str) -> bytes:
    """What a file or standard input holds, as it stands. Raises RefusalError."""
    try:
        return typer.get_binary_stream("stdin").read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise RefusalError(f"can't read {name}: {error.strerror}") from None


def _parsed(name: str) -> Any:
    """JSON from a file or standard input, as strictly as the server reads it. Raises RefusalError."""
    try:
        return jiter.from_json(_read(name), allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise RefusalError(f"{name} is not JSON: {error}") from None


_print: Callable[[str], None] = typer.echo
