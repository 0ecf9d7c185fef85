"""A real server, killed and frozen: what was acknowledged is there, and nobody dies of the server's own deafness."""

import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.api.requests import GIB, ask, model, report
from tests.conftest import Server, StartServer

pytestmark = pytest.mark.exhaustive

ROUNDS = 10
WRITERS = 4


def write_until_killed(server: Server, writer: int, round_number: int, acknowledged: list[str]) -> None:
    """Register nodes; note what was acknowledged until the server is gone."""
    with httpx.Client(base_url=server.url) as http:
        for number in range(100_000):
            name = f"r{round_number}-w{writer}-n{number}"
            try:
                answer = http.post("/nodes/register", json=report(name, gflops=1.0))
            except httpx.TransportError:
                return
            assert answer.status_code == 201
            acknowledged.append(name)


def test_no_acknowledged_registration_is_lost_to_ten_kills_under_four_writers(start_server: StartServer) -> None:
    acknowledged: list[str] = []
    for round_number in range(ROUNDS):
        server = start_server()
        writers = [
            threading.Thread(target=write_until_killed, args=(server, number, round_number, acknowledged))
            for number in range(WRITERS)
        ]
        for writer in writers:
            writer.start()
        before, end = len(acknowledged), time.monotonic() + 20
        while len(acknowledged) < before + 30 + 7 * round_number and time.monotonic() < end:
            time.sleep(0.001)
        server.kill()
        for writer in writers:
            writer.join()
    assert len(acknowledged) >= 30 * ROUNDS
    kept: set[str] = set()
    with httpx.Client(base_url=start_server().url) as http:
        cursor = ""
        while True:
            body = http.get(f"/nodes?limit=1000{cursor}").json()
            kept |= {n["node_id"] for n in body["nodes"]}
            if body["next_cursor"] is None:
                break
            cursor = f"&cursor={body['next_cursor']}"
    assert set(acknowledged) - kept == set()


def test_overrides_changes_and_departures_survive_a_kill_too(start_server: StartServer) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url) as http:
        for name in "abc":
            assert http.post("/nodes/register", json=report(name)).status_code == 201
        assert http.patch("/nodes/a", json={"role": "draining"}).status_code == 200
        assert http.post("/nodes/register", json=report("b", gflops=7.0)).status_code == 200
        assert http.delete("/nodes/c").status_code == 204
    server.kill()
    with httpx.Client(base_url=start_server().url) as http:
        nodes = {n["node_id"]: n for n in http.get("/nodes").json()["nodes"]}
    assert nodes.keys() == {"a", "b"}
    assert nodes["a"]["config"]["role"] == "draining"
    assert nodes["b"]["gflops"] == 7.0


def deploy_until_killed(server: Server, round_number: int, acknowledged: dict[str, str]) -> None:
    """Deploy a GiB, confirm or release some of them; note in which state each was acknowledged."""
    with httpx.Client(base_url=server.url) as http:
        for number in range(100_000):
            name = f"r{round_number}-{number}"
            try:
                made = http.post("/deployments", json=ask(name=name, model=model(1), policy="auto"))
                assert made.status_code == 201
                acknowledged[name] = "pending"
                if number % 3 == 1:
                    confirmation = {"state": "loaded", "generation": made.json()["generation"]}
                    assert http.put(f"/deployments/{name}", json=confirmation).status_code == 200
                    acknowledged[name] = "loaded"
                if number % 3 == 2:
                    assert http.delete(f"/deployments/{name}").status_code == 204
                    acknowledged[name] = "released"
            except httpx.TransportError:
                return


def test_no_acknowledged_deployment_is_lost_or_booked_twice_by_a_kill(start_server: StartServer) -> None:
    """Five kills among 200 deployments of a GiB each on a node whose owner gives 1,000, whatever beats call free."""
    acknowledged: dict[str, str] = {}
    settings = {"MAX_DEPLOYMENTS_PER_CALLER": 10_000, "MAX_DEPLOYMENTS": 10_000}
    for round_number in range(5):
        server = start_server(**settings)
        with httpx.Client(base_url=server.url) as http:
            node = report("n", 1_000, config={"device": "cpu", "max_ram_gb": 1_000 * GIB / 1e9})
            assert http.post("/nodes/register", json=node).status_code in {200, 201}
        before = len(acknowledged)
        writer = threading.Thread(target=deploy_until_killed, args=(server, round_number, acknowledged))
        writer.start()
        end = time.monotonic() + 20
        while len(acknowledged) < before + 40 and time.monotonic() < end:
            time.sleep(0.001)
        server.kill()
        writer.join()
    with httpx.Client(base_url=start_server(**settings).url) as http:
        kept = {d["name"]: d["state"] for d in http.get("/deployments?limit=1000").json()["deployments"]}
        plan = http.post("/plan", json=ask(model=model(1), policy="auto")).json()
    assert len(acknowledged) >= 200
    order = ["pending", "loaded", "released"]
    assert [name for name, state in acknowledged.items() if order.index(kept[name]) < order.index(state)] == []
    held = sum(state != "released" for state in kept.values())
    assert plan["assignments"][0]["budget_bytes"] == (1_000 - held) * GIB


def test_nobody_expires_before_a_whole_ttl_after_the_server_froze_for_ten(start_server: StartServer) -> None:
    ttl_s = 1.2
    server = start_server(HEARTBEAT_INTERVAL_S=0.4, TTL_S=ttl_s)
    with httpx.Client(base_url=server.url) as http:
        for name in "ab":
            http.post("/nodes/register", json=report(name))
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(10 * ttl_s)
        server.process.send_signal(signal.SIGCONT)
        heard_again = time.monotonic()
        first_expired = None
        while first_expired is None and time.monotonic() < heard_again + 10:
            states = {n["state"] for n in http.get("/nodes").json()["nodes"]}
            if "expired" in states:
                first_expired = time.monotonic()
            time.sleep(0.02)
    assert first_expired is not None
    assert first_expired - heard_again >= ttl_s


def test_a_restarted_server_gives_everybody_one_ttl(start_server: StartServer) -> None:
    settings = {"HEARTBEAT_INTERVAL_S": 0.4, "TTL_S": 1.2}
    server = start_server(**settings)
    with httpx.Client(base_url=server.url) as http:
        http.post("/nodes/register", json=report("a"))
    server.kill()
    time.sleep(1.3)
    with httpx.Client(base_url=start_server(**settings).url) as http:
        assert http.get("/nodes/a").json()["state"] == "ready"
        time.sleep(1.5)
        assert http.get("/nodes/a").json()["state"] == "expired"


def test_five_thousand_nodes_come_back_at_once(start_server: StartServer, tmp_path: Path) -> None:
    """Compared with the start of an empty server in the same run, as machines differ."""
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=30) as http:
        for batch in range(5):
            nodes = [report(f"n{batch}-{i}") for i in range(1_000)]
            assert http.post("/nodes/register/batch", json={"nodes": nodes}).status_code == 200
    server.kill()
    begun = time.monotonic()
    start_server(DATABASE_URL=f"sqlite:///{tmp_path}/empty.db")
    empty_s = time.monotonic() - begun
    begun = time.monotonic()
    full = start_server()
    full_s = time.monotonic() - begun
    assert len(httpx.get(f"{full.url}/nodes?limit=1000").json()["nodes"]) == 1_000
    assert full_s < 2 * empty_s + 0.5
