"""``cleave demo``: four unlike machines, one plan per policy, on a server that goes when it is done."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.cli.errors import RefusalError
from app.client import Client

GIB = 2**30

# Llama-3.1-70B in bf16, from its published configuration: hidden size h 8192, intermediate size 28672, 64 query and
# 8 key/value heads of 128, vocabulary 128256, tables not tied.
#   layer = 2 h^2 (query, output) + 2 h 1024 (key, value) + 3 h 28672 (MLP) + 2 h (norms) = 855,654,400 parameters
#   embedding = 128256 h = 1,050,673,152 parameters; the head is as large and carries the final norm, h
MODEL = {
    "name": "Llama-3.1-70B bf16",
    "n_layers": 80,
    "per_layer_bytes": 855_654_400 * 2,
    "embed_bytes": 1_050_673_152 * 2,
    "head_bytes": (1_050_673_152 + 8_192) * 2,
    "per_layer_flops": 855_654_400 * 2.0,
}

NODES: tuple[dict[str, Any], ...] = (
    {
        "node_id": "gpu-box",
        "addr": "10.0.0.11:9100",
        "os": "linux",
        "ram_total": 128 * GIB,
        "ram_avail": 110 * GIB,
        "gflops": 5200.0,
        "devices": [{"device": "cuda", "name": "RTX 4090", "mem_bytes": 25_757_220_864, "mem_gbps": 980.0}],
        "config": {"device": "cuda", "gpu_memory": "dedicated", "layers": "0:10"},
    },
    {
        "node_id": "mac-studio",
        "addr": "10.0.0.12:9100",
        "os": "macos",
        "ram_total": 64 * GIB,
        "ram_avail": 52 * GIB,
        "gflops": 2700.0,
        "devices": [{"device": "metal", "name": "M2 Max", "mem_bytes": 48 * GIB, "unified": True, "mem_gbps": 380.0}],
        "config": {"device": "metal", "gpu_fraction": 1.0, "layers": "10:34"},
    },
    {
        "node_id": "big-ram",
        "addr": "10.0.0.13:9100",
        "os": "linux",
        "ram_total": 256 * GIB,
        "ram_avail": 240 * GIB,
        "gflops": 900.0,
        "devices": [{"device": "cpu", "name": "EPYC", "mem_gbps": 150.0}],
        "config": {"device": "cpu", "layers": "34:76"},
    },
    {
        "node_id": "mini-pc",
        "addr": "10.0.0.14:9100",
        "os": "linux",
        "ram_total": 32 * GIB,
        "ram_avail": 26 * GIB,
        "gflops": 180.0,
        "devices": [{"device": "cpu", "name": "N100", "mem_gbps": 35.0}],
        "config": {"device": "cpu", "layers": "76:80"},
    },
)

POLICIES = {
    "ram_balanced": "layers in proportion to the memory that each node can give",
    "throughput": "layers in proportion to speed, as far as they fit",
    "auto": "the best plan there is, proven: here the smallest time of the slowest stage",
    "manual": "the ranges that the nodes' owners gave, checked before an engine sees them",
}


def run(say: Callable[[str], None]) -> None:
    """Show registration and planning over HTTP. Raises RefusalError where the server doesn't start."""
    with (
        _ends_when_told(),
        tempfile.TemporaryDirectory(prefix="cleave-demo-") as folder,
        _server(Path(folder)) as url,
        Client(url) as client,
    ):
        say(f"A server of its own is on {url}. Four unlike nodes report (POST /nodes/register):\n")
        for node in NODES:
            client.register(node)
        say(client.raw("GET", "/nodes", as_json=False))
        for policy, meaning in POLICIES.items():
            say(f"--- POST /plan, policy {policy}, 2 GB of each node kept free: {meaning}\n")
            request = {"model": MODEL, "policy": policy, "reserve_ram_gb": 2}
            say(client.raw("POST", "/plan", as_json=False, body=request))
    say("The server is stopped and its database is gone.")


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """The URL of a server with a database in ``folder``, ended on leaving.

    It has the default settings whatever the environment says, and imports from where this process does: ``-P`` keeps
    a stranger's ``app`` in the working directory out.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CLEAVE_")}
    path = os.pathsep.join(filter(None, sys.path))
    ours = {"CLEAVE_DATABASE_URL": f"sqlite:///{folder}/demo.db", "PYTHONPATH": path}
    command = [sys.executable, "-P", "-m", "app.cli", "serve", "--port", "0"]
    with (
        (folder / "log").open("w+") as log,
        subprocess.Popen(  # noqa: S603  # our own command
            command, env=kept | ours, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            greeting = process.stdout.readline() if process.stdout else ""
            match = re.search(r"http://\S+:\d+", greeting)
            if match is None:
                log.seek(0)
                raise RefusalError(f"the server did not start: {log.read()}")
            yield match[0]
        finally:
            process.terminate()


@contextmanager
def _ends_when_told() -> Iterator[None]:
    """SIGTERM unwinds what stands inside, so that it leaves no server behind."""
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
