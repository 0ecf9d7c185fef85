"""Running the server: what must hold before it listens, and what it says when it does."""

import ipaddress
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import uvicorn

from app.api.protocol import DeadlineProtocol
from app.cli import logs
from app.cli.errors import USAGE, RefusalError
from app.db import StoreError, open_journal
from app.main import create_app
from app.settings import Settings, SettingsError, read_settings, unknown_settings

log = structlog.get_logger("cleave")

MAX_CONNECTIONS = 12_000
"""One kept open by each of the most nodes that register by default, and some."""

SPARE_FILES = 100

GREETING = """\
Cleave listens on {url}, its state is in {database}. Try:

  curl {url}/nodes/register -H 'Content-Type: application/json' -d '{{
    "addr": "10.0.0.5:9100", "ram_total": 137438953472, "ram_avail": 120259084288, "gflops": 900}}'

  curl {url}/plan -H 'Content-Type: application/json' -H 'Accept: text/plain' -d '{{
    "model": {{"n_layers": 32, "per_layer_bytes": 436224000, "embed_bytes": 1050673152, "head_bytes": 1050681344}}}}'

Every call is described at {url}/openapi.json, every command by cleave --help; to stop it, press Ctrl-C.
"""


def serve_forever(host: str, port: int, *, insecure: bool) -> None:
    """Serve until told to stop. Raises RefusalError."""
    if not insecure and not _is_loopback(host):
        raise RefusalError(
            f"--host {host} lets anybody on the network register nodes and plan, and there are no tokens yet. "
            "Listen on 127.0.0.1, or say --insecure if the network itself is trusted"
        )
    try:
        settings = read_settings()
    except SettingsError as error:
        raise RefusalError(str(error), USAGE) from None
    logs.configure(settings.log_format)
    for name in unknown_settings():
        log.warning("unknown setting", name=name)
    with _listen(host, port) as listener:
        _serve_on(listener, settings)


def _serve_on(listener: socket.socket, settings: Settings) -> None:
    config = uvicorn.Config(
        create_app(settings),
        loop="uvloop",
        http=DeadlineProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_raise_file_limit(),
        timeout_keep_alive=75,  # longer than agents' intervals, so that a beat finds its connection open
        timeout_graceful_shutdown=5,
    )
    try:
        with open_journal(settings.database_url) as journal:
            journal.load()  # says what is wrong with the store before the server starts, in words
        _Server(config, _greeting(listener, settings)).run(sockets=[listener])
    except StoreError as error:
        raise RefusalError(str(error)) from None


class _Server(uvicorn.Server):
    """uvicorn's server, greeting once it listens."""

    def __init__(self, config: uvicorn.Config, greeting: str) -> None:
        super().__init__(config)
        self._greeting = greeting

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Being told to stop and stopping is success; uvicorn would die of the signal in the end."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            sys.stdout.write(self._greeting)
            sys.stdout.flush()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no such host"
        raise RefusalError(f"can't listen on {host} port {port}: {why}; try another --port") from None


def _raise_file_limit() -> int:
    """Let the process hold as many connections as it may; returns how many it takes. Raises RefusalError."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE_FILES
    soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft <= 2 * SPARE_FILES:
        raise RefusalError(f"this process may open {soft} files, too few to serve; raise the limit (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft - SPARE_FILES


def _greeting(listener: socket.socket, settings: Settings) -> str:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return GREETING.format(url=f"http://{shown}:{port}", database=settings.database_url)
