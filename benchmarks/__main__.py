"""``python -m benchmarks``: the ratio to a stock handler, the planners, plans over HTTP; about a minute in all."""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from timeit import repeat

from app.placement.budgets import Reserve
from app.placement.cost import ModelCost
from app.placement.nodes import Node, NodeConfig
from app.placement.planner import place
from app.placement.task import Task
from benchmarks.auto import bench_auto
from benchmarks.load import request_bytes, run

CONNECTIONS = 32
STOCK = ["uvicorn", "benchmarks.stock:app", "--loop=uvloop", "--http=httptools", "--no-access-log"]


def report(number: int, *, gflops: float = 900.0, free: int = 0) -> dict[str, object]:
    """A report of about 700 bytes."""
    card = {"device": "cuda", "name": "RTX 4090", "mem_bytes": 25757220864, "unified": False, "gflops": 5200.0}
    return {
        "node_id": f"node-{number}",
        "addr": f"10.{number // 65536}.{number // 256 % 256}.{number % 256}:9100",
        "os": "linux",
        "cores": 32,
        "ram_total": 137438953472,
        "ram_avail": 120259084288 - free,
        "disk_free": 500000000000,
        "gflops": gflops,
        "io_mbps": 2100.0,
        "devices": [
            {"device": "cpu", "name": "EPYC", "mem_bytes": 0, "unified": False, "mem_gbps": 90.0},
            {**card, "mem_gbps": 980.0, "mem_avail": 25000000000},
        ],
        "config": {"device": "cuda+cpu", "ssh": "gpu-a", "ckpt_dir": "/models/x", "precision": "bf16"},
        "labels": {"zone": "a"},
    }


@contextmanager
def serving(words: list[str], ready_path: str, **settings: str) -> Iterator[int]:
    """The port of a server of its own, run by this Python, ended when done."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", *words, "--port", str(port)]
    process = subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}{ready_path}")
        yield port
    finally:
        process.terminate()
        process.wait(10)


def _wait_until_ready(url: str) -> None:
    for _ in range(200):
        try:
            urllib.request.urlopen(url, timeout=1).close()  # noqa: S310  # loopback, our own server
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(url)


@contextmanager
def cleave(folder: Path, name: str) -> Iterator[int]:
    """A Cleave server with an empty database of its own."""
    with serving(["app.cli", "serve"], "/readyz", CLEAVE_DATABASE_URL=f"sqlite:///{folder}/{name}.db") as port:
        yield port


def bench_register(rounds: int, seconds: float) -> None:
    """``POST /nodes/register`` against the stock handler, in turn, so that drift hits both."""
    kinds: dict[str, Callable[[int], bytes]] = {
        "first registrations (each durable)": lambda i: request_bytes("/nodes/register", report(i)),
        "changed reports (each durable)": lambda i: request_bytes("/nodes/register", report(i % 500, gflops=i)),
        "plain beats (memory moves)": lambda i: request_bytes("/nodes/register", report(i % 500, free=i)),
    }
    print(f"POST /nodes/register, {CONNECTIONS} connections, {rounds} rounds of {seconds:g} s in turn")
    print(f"  {'':36} {'cleave/s':>9} {'stock/s':>9} {'ratio':>6}  p50 ms  p99 ms")
    with tempfile.TemporaryDirectory() as folder:
        for kind, make in kinds.items():
            name = kind.split()[0]
            with cleave(Path(folder), name) as ours, serving(STOCK, "/openapi.json") as stock:
                pairs = []
                for _ in range(rounds):
                    mine = run(ours, make, connections=CONNECTIONS, seconds=seconds)
                    theirs = run(stock, make, connections=CONNECTIONS, seconds=seconds)
                    pairs.append((mine, theirs))
                    if mine.errors or theirs.errors:
                        raise SystemExit(f"{kind}: {mine.errors} and {theirs.errors} errors")
            ratio = statistics.median(m.per_second / t.per_second for m, t in pairs)
            mine, theirs = pairs[-1]
            print(
                f"  {kind:36} {mine.per_second:9.0f} {theirs.per_second:9.0f} {ratio:6.2f}"
                f"  {mine.percentile_s(0.5) * 1e3:6.1f}  {mine.percentile_s(0.99) * 1e3:6.1f}"
            )


def bench_policies() -> None:
    """The pure function, best of five."""
    print("\npolicies, pure function")
    for n_nodes, n_layers, times in ((8, 80, 300), (200, 1_000, 10)):
        nodes = tuple(_node(i, n_layers, n_nodes) for i in range(n_nodes))
        model = ModelCost(n_layers, 10**9, 10**9, 10**9, 1e9)
        for policy in ("ram_balanced", "throughput", "manual"):
            task = Task(model, nodes, policy, Reserve(0, 0))
            best_s = min(repeat(partial(place, task), number=times, repeat=5)) / times
            print(f"  {policy:14} {n_nodes:4} x {n_layers:5}: {best_s * 1e6:9.0f} us")


def _node(at: int, n_layers: int, n_nodes: int) -> Node:
    layers = f"{at * n_layers // n_nodes}:{(at + 1) * n_layers // n_nodes}"
    return Node(
        f"n{at}", f"n{at}", 2 * 10**11, 10**11 + at * 10**9, gflops=100.0 + at, config=NodeConfig(layers=layers)
    )


def bench_plan(seconds: float) -> None:
    """``POST /plan`` over HTTP with a growing registry, one connection."""
    model = {"n_layers": 80, "per_layer_bytes": 10**9, "embed_bytes": 10**9, "head_bytes": 10**9}
    print(f"\nPOST /plan, one connection, {seconds:g} s each")
    with tempfile.TemporaryDirectory() as folder, cleave(Path(folder), "plan") as port:
        known = 0
        for nodes in (10, 100, 1_000):
            for i in range(known, nodes):
                run_once(port, request_bytes("/nodes/register", report(i)))
            known = nodes
            for policy in ("ram_balanced", "auto"):
                request = request_bytes("/plan", {"model": model, "policy": policy})
                result = run(port, partial(_same, request), connections=1, seconds=seconds)
                if result.errors:
                    raise SystemExit(f"/plan: {result.errors} errors")
                p50, p99 = result.percentile_s(0.5) * 1e3, result.percentile_s(0.99) * 1e3
                print(f"  {nodes:5} nodes, {policy:12}: p50 {p50:7.2f} ms, p99 {p99:7.2f} ms")


def _same(request: bytes, _: int) -> bytes:
    return request


def run_once(port: int, request: bytes) -> None:
    """Send one request and read its answer."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request)
        answer = connection.recv(65_536)
    if not answer.startswith(b"HTTP/1.1 20"):
        raise SystemExit(answer.decode())


def main() -> None:
    """Run all, or the quick variant that only proves that the benchmarks work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    bench_register(rounds=1 if quick else 5, seconds=0.3 if quick else 2.0)
    bench_policies()
    bench_auto(quick=quick)
    bench_plan(seconds=0.3 if quick else 3.0)


if __name__ == "__main__":
    main()
