"""What all commands share: where the server is, files and standard input, errors for the reader."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import jiter
import typer

from app.checkpoints.tensors import CheckpointError
from app.cli.errors import RefusalError
from app.client import ProblemError, UnreachableError

Url = Annotated[str, typer.Option(envvar="CLEAVE_URL", help="Where the server is.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

say: Callable[[str], None] = typer.echo


@contextmanager
def plain_errors() -> Iterator[None]:
    """Refusals are for the reader, not for a debugger: the message on stderr, exit code 1."""
    try:
        yield
    except (ProblemError, UnreachableError, RefusalError, CheckpointError) as error:
        typer.echo(str(error).rstrip(), err=True)
        raise typer.Exit(error.exit_code if isinstance(error, RefusalError) else 1) from None


def read(name: str) -> bytes:
    """What a file or standard input holds, as it stands. Raises RefusalError."""
    try:
        return typer.get_binary_stream("stdin").read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise RefusalError(f"can't read {name}: {error.strerror}") from None


def parsed(name: str) -> Any:
    """JSON from a file or standard input, as strictly as the server reads it. Raises RefusalError."""
    try:
        return jiter.from_json(read(name), allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise RefusalError(f"{name} is not JSON: {error}") from None
