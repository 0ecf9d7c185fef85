"""What all tests share: where the contract's vectors and cases are, an application in this process, a real server."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import create_app
from app.settings import Settings

ROOT = Path(__file__).parent.parent


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The contract's vectors, cases and configurations, which lie beside the checkout."""
    folder = Path(os.environ.get("CLEAVE_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir() and "CLEAVE_SHARED" in os.environ:
        pytest.fail(f"CLEAVE_SHARED names {folder}, which is no folder")
    if not folder.is_dir():
        pytest.skip("the contract's folder ../shared is not here")
    return folder


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """The application in this process, on a database of its own."""
    app = create_app(Settings(database_url=f"sqlite:///{tmp_path}/cleave.db"))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client


@dataclass
class Server:
    """A server in a process of its own."""

    url: str
    process: subprocess.Popen[str]
    greeting: str

    def kill(self) -> None:
        """End it as a power cut would, as far as a process can see."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


StartServer = Callable[..., Server]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts ``cleave serve`` on a free port; settings are CLEAVE_* without the prefix."""
    started: list[Server] = []

    def start(*words: str, **settings: Any) -> Server:
        chosen = {"DATABASE_URL": f"sqlite:///{tmp_path}/cleave.db", **settings}
        env = {k: v for k, v in os.environ.items() if not k.startswith("CLEAVE_")}
        env |= {f"CLEAVE_{name}": str(value) for name, value in chosen.items()}
        log = (tmp_path / "server.log").open("a")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", "app.cli", "serve", "--port", "0", *words],
                env=env,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert process.stdout is not None
        server = Server("", process, "")
        started.append(server)
        greeting = ""
        while "/plan" not in greeting:
            line = process.stdout.readline()
            assert line, (tmp_path / "server.log").read_text()
            greeting += line
        greeting += process.stdout.readline()
        found = re.search(r"http://\S+?:\d+", greeting)
        assert found is not None
        server.url, server.greeting = found[0], greeting
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.terminate()
            try:
                server.process.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
        assert server.process.stdout is not None
        server.process.stdout.close()
