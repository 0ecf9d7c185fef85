"""The command line: in this process where arguments matter, as a process of its own where the server does."""

import json
import logging
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner, Result

from app import __version__
from app.cli import demo, logs, main, serve
from app.cli.commands import app
from app.cli.errors import RefusalError
from app.client import Client
from app.settings import Settings, SettingsError, read_settings
from tests.api.requests import ask, report
from tests.checkpoints.test_architectures import LLAMA
from tests.conftest import ROOT, Server, StartServer


def cleave(*words: str, stdin: str = "", **env: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(app, [*words], input=stdin, env=env)


def process(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command as a process that ends by itself."""
    command = [sys.executable, "-m", "app.cli", *words]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def undone() -> Iterator[None]:
    """What ``serve`` changes in its process is put back: logging, and how many files may be open."""
    loggers = [logging.getLogger(name) for name in (None, "uvicorn.error", "alembic")]
    handlers, levels = list(loggers[0].handlers), [logger.level for logger in loggers]
    said, files = structlog.get_config(), resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    loggers[0].handlers = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    structlog.configure(**said)
    resource.setrlimit(resource.RLIMIT_NOFILE, files)


@pytest.fixture
def server(start_server: StartServer) -> Server:
    return start_server()


def test_another_address_than_loopback_is_refused_with_the_reason(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    refused = process("serve", "--host", "0.0.0.0", "--port", "0", CLEAVE_DATABASE_URL=url)  # noqa: S104  # the point
    assert refused.returncode == 1
    assert "--insecure" in refused.stderr
    assert not (tmp_path / "x.db").exists()


def test_an_insecure_server_listens_where_it_was_told(start_server: StartServer) -> None:
    assert "http://0.0.0.0:" in start_server("--host", "0.0.0.0", "--insecure").greeting  # noqa: S104  # the point


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("x.example", False),
    ],
)
def test_only_loopback_is_loopback(host: str, loopback: bool) -> None:  # noqa: FBT001  # drawn
    assert serve._is_loopback(host) == loopback  # noqa: SLF001  # small and decisive


def test_settings_that_cannot_work_are_named_and_end_as_wrong_usage_does(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    refused = process("serve", CLEAVE_TTL_S="20", CLEAVE_MAX_NODES="7", CLEAVE_DATABASE_URL=url)
    assert refused.returncode == 2
    assert "CLEAVE_TTL_S=20 is less than 3 x CLEAVE_HEARTBEAT_INTERVAL_S=10" in refused.stderr
    assert "Traceback" not in refused.stderr
    both = cleave("serve", CLEAVE_MAX_NODES="many", CLEAVE_LOG_FORMAT="loud", CLEAVE_DATABASE_URL=url)
    assert (both.exit_code, "CLEAVE_MAX_NODES" in both.stderr, "CLEAVE_LOG_FORMAT" in both.stderr) == (2, True, True)
    assert list(tmp_path.iterdir()) == []


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEAVE_MAX_NODES", "7")
    assert read_settings().max_nodes == 7
    monkeypatch.setenv("CLEAVE_DEFAULT_POLICY", "magic")
    with pytest.raises(SettingsError, match="CLEAVE_DEFAULT_POLICY"):
        read_settings()


@pytest.mark.usefixtures("undone")
def test_a_busy_port_and_a_busy_store_are_said_in_a_line(server: Server, tmp_path: Path) -> None:
    port = server.url.rpartition(":")[2]
    busy = cleave("serve", "--port", port, CLEAVE_DATABASE_URL=f"sqlite:///{tmp_path}/other.db")
    assert (busy.exit_code, "try another --port" in busy.stderr) == (1, True)
    twice = cleave("serve", "--port", "0", CLEAVE_DATABASE_URL=f"sqlite:///{tmp_path}/cleave.db")
    assert (twice.exit_code, "another server uses" in twice.stderr) == (1, True)
    assert busy.stderr.count("\n") == twice.stderr.count("\n") == 1


@pytest.mark.usefixtures("undone")
def test_what_keeps_a_server_from_starting_is_a_line_and_an_exit_code(tmp_path: Path) -> None:
    url, missing = f"sqlite:///{tmp_path}/x.db", f"sqlite:///{tmp_path}/missing/x.db"
    for host, database, why in (
        ("10.0.0.1", url, "there are no tokens yet"),
        ("127.0.0.1", missing, "can't write beside the database"),
        ("127.0.0.1", "mysql://x/y", "SQLite only"),
        ("127.0.0.1", "nonsense", "is not a database URL"),
    ):
        refused = cleave("serve", "--host", host, "--port", "0", CLEAVE_DATABASE_URL=database)
        assert (refused.exit_code, refused.stdout, why in refused.stderr) == (1, "", True), refused.stderr
        assert refused.stderr.count("\n") == 1


@pytest.mark.usefixtures("undone")
def test_a_server_takes_no_more_connections_than_it_may_have_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    bound = serve._raise_file_limit()  # noqa: SLF001  # small and decisive
    soft, still_hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (still_hard, soft - bound) == (hard, serve.SPARE_FILES)
    assert 0 < bound <= serve.MAX_CONNECTIONS


def test_an_ipv6_server_is_greeted_with_brackets(start_server: StartServer) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert "curl http://[::1]:" in start_server("--host", "::1").greeting


def test_what_the_greeting_says_to_try_works_as_printed(server: Server) -> None:
    lines = server.greeting.partition("Try:\n")[2].strip()
    for command in lines.split("\n\n"):
        done = subprocess.run(["bash", "-c", command.strip()], capture_output=True, text=True, check=True)
        assert "10.0.0.5:9100" in done.stdout
    assert "0:32" in done.stdout
    server.process.terminate()
    assert server.process.stdout is not None
    assert f"{server.url}/openapi.json" in server.process.stdout.read()


def test_a_terminated_server_ends_at_once_and_in_peace(server: Server) -> None:
    idle = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(6) == 0
    idle.close()


def test_logs_are_json_lines_when_no_terminal_reads_them(start_server: StartServer, tmp_path: Path) -> None:
    start_server()
    lines = [json.loads(line) for line in (tmp_path / "server.log").read_text().splitlines()]
    assert lines[0]["event"] == "started"
    assert lines[0]["level"] == "info"
    assert lines[0]["logger"] == "cleave"


def test_logs_may_be_text(start_server: StartServer, tmp_path: Path) -> None:
    start_server(LOG_FORMAT="text")
    assert "started" in (tmp_path / "server.log").read_text()
    assert not (tmp_path / "server.log").read_text().startswith("{")


def test_nodes_are_listed(server: Server) -> None:
    with Client(server.url) as client:
        for name in ("a", "b"):
            assert client.register(report(name, labels={"zone": name})).state == "ready"
    listed = cleave("nodes", "--url", server.url)
    assert listed.stdout.startswith("NODE")
    assert "a:9100" in listed.stdout
    as_json = cleave("nodes", "--json", "--label", "zone=b", CLEAVE_URL=server.url)
    assert [n["node_id"] for n in json.loads(as_json.stdout)] == ["b"]


def test_a_model_is_planned_from_figures_a_file_or_standard_input(server: Server, tmp_path: Path) -> None:
    with Client(server.url) as client:
        client.register(report("a"))
        client.register(report("b"))
    model = ask()["model"]
    (tmp_path / "model.json").write_text(json.dumps(model))
    figures = ["--layers", "10", "--layer-bytes", str(2**30), "--reserve-gb", "0", "--nodes", "b,a"]
    by_figures = cleave("plan", "--url", server.url, *figures)
    assert "0:5" in by_figures.stdout
    by_file = cleave("plan", "--url", server.url, "--model", str(tmp_path / "model.json"), "--json")
    assert len(json.loads(by_file.stdout)["assignments"]) == 2
    by_stdin = cleave("plan", "--url", server.url, "--model", "-", "--policy", "throughput", stdin=json.dumps(model))
    assert "policy throughput" in by_stdin.stdout
    simulated = cleave("simulate", "-", "--url", server.url, stdin=json.dumps(ask(nodes=[report("x")])))
    assert "(simulated)" in simulated.stdout


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--layers", "10"),
        ("--layer-bytes", "10", "--embed-bytes", "1", "--head-bytes", "1"),
        ("--model", "x", "--layers", "1", "--layer-bytes", "1"),
        ("--model", "x", "--layers", "1"),
        ("--model", "x", "--embed-bytes", "0"),
    ],
)
def test_a_model_is_given_in_one_way(words: tuple[str, ...]) -> None:
    assert cleave("plan", *words).exit_code == 2


def test_refusals_are_said_on_stderr_with_exit_code_1(server: Server, tmp_path: Path) -> None:
    refused = cleave("plan", "--url", server.url, "--layers", "1", "--layer-bytes", "1")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("409 There is no node to plan on")
    (tmp_path / "broken").write_text("{")
    for words, said in (
        (("plan", "--model", str(tmp_path / "broken")), "is not JSON"),
        (("simulate", str(tmp_path / "missing")), "can't read"),
        (("nodes", "--url", "http://127.0.0.1:9"), "start one with: cleave serve"),
        (("nodes", "--url", "nonsense"), "it starts with http://"),
    ):
        result = cleave(*words)
        assert (result.exit_code, said in result.stderr) == (1, True), result.stderr


def test_the_demo_shows_every_policy_and_cleans_up() -> None:
    shown = cleave("demo")
    assert shown.exit_code == 0, shown.stderr
    for word in ("gpu-box", "ram_balanced", "throughput", "(optimal)", "manual", "0:10", "is stopped"):
        assert word in shown.stdout
    assert "OVER BUDGET" not in shown.stdout


def test_the_version_is_said() -> None:
    assert cleave("--version").stdout == f"cleave {__version__}\n"


def test_a_setting_that_nobody_knows_is_logged(start_server: StartServer, tmp_path: Path) -> None:
    start_server(TTLS="30", PORT="1")
    said = (tmp_path / "server.log").read_text()
    assert "unknown setting" in said
    assert "CLEAVE_TTLS" in said
    assert "CLEAVE_PORT" not in said


def test_models_are_inspected_named_planned_and_forgotten(server: Server, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    shown = cleave("inspect", str(tmp_path))
    assert shown.exit_code == 0
    assert "2 layers, 0.00 GiB, 1352 parameters" in shown.stdout
    cost = json.loads(cleave("inspect", str(config), "--json", "--kv-dtype", "f32").stdout)
    assert (cost["per_layer_bytes"], cost["kv_bytes_per_layer_token"]) == (1184, 32)
    at = ("--url", server.url)
    assert "model small version 1" in cleave("models", "put", "small", str(config), *at).stdout
    assert json.loads(cleave("models", "show", "small", "--json", *at).stdout)["per_layer_bytes"] == 1184
    piped = cleave("models", "put", "piped", "-", *at, stdin=json.dumps(cost))
    assert "model piped version 2" in piped.stdout, piped.stderr
    as_config = cleave("models", "put", "alone", "-", "--dtype", "f32", *at, stdin=config.read_text())
    assert "0:2         2" in as_config.stdout, as_config.stderr
    listed = json.loads(cleave("models", "list", "--json", *at).stdout)
    assert [model["name"] for model in listed] == ["alone", "piped", "small"]
    assert "small" in cleave("models", "list", *at).stdout
    with Client(server.url) as client:
        client.register(report("a"))
        assert client.model("small").version == 1
    planned = cleave("plan", "--ref", "small", "--ref", "piped", *at)
    assert "model small version 1: 2 layers" in planned.stdout, planned.stderr
    assert cleave("models", "delete", "small", *at).exit_code == 0
    assert cleave("models", "show", "small", *at).stderr.startswith("404")
    assert "nobody" in cleave("models", "put", "x", "-", *at, stdin='{"model_type": "nobody"}').stderr
    assert cleave("models", "put", "x", "-", *at, stdin="[]").stderr == "standard input is no JSON object\n"
    assert cleave("inspect", str(tmp_path / "no")).exit_code == 1


def test_an_empty_list_of_nodes_is_not_all_of_them(server: Server) -> None:
    with Client(server.url) as client:
        client.register(report("a"))
        client.register(report("b"))
    figures = ("plan", "--url", server.url, "--layers", "1", "--layer-bytes", "1", "--nodes")
    assert cleave(*figures, "").stderr.startswith("422")
    assert "0:1" in cleave(*figures, " b , a").stdout


def test_files_that_are_nearly_json_are_refused_in_words(server: Server, tmp_path: Path) -> None:
    url, file = ("--url", server.url), str(tmp_path / "x.json")
    for text in ('{"n_layers": NaN}', '{"name": "\\ud800"}', '{"name": 1, "name": 2}', "[" * 100_000, "\xff"):
        Path(file).write_text(text, "latin-1")
        planned = cleave("plan", *url, "--model", file)
        assert (planned.exit_code, planned.stderr.startswith(f"{file} is not JSON: ")) == (1, True), planned.output
        simulated = cleave("simulate", file, *url)
        assert (simulated.exit_code, simulated.stderr.startswith("400 The body is not JSON")) == (1, True)
    for reserve in ("nan", "inf"):
        refused = cleave("plan", *url, "--layers", "1", "--layer-bytes", "1", "--reserve-gb", reserve)
        assert (refused.exit_code, refused.stderr.startswith("400 The body is not JSON")) == (1, True)


def test_the_demo_is_kept_from_strangers_settings_and_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app/__init__.py").write_text("raise SystemExit('another app than ours')")
    monkeypatch.chdir(tmp_path)
    shown = cleave("demo", CLEAVE_MAX_NODES="1", CLEAVE_TTL_S="1")
    assert (shown.exit_code, shown.stdout.count("--- POST /plan")) == (0, 4), shown.stderr


def test_a_demo_that_is_told_to_end_takes_its_server_along(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "app.cli", "demo"]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().partition("127.0.0.1:")[2].partition(".")[0])
        process.terminate()
        assert process.wait(10) == 128 + signal.SIGTERM
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    assert list(tmp_path.iterdir()) == []


def test_a_demo_whose_server_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "demo.db").mkdir()
    with pytest.raises(RefusalError, match="can't use"), demo._server(tmp_path):  # noqa: SLF001  # where it can't be had
        pytest.fail("it started")


def test_the_openapi_document_is_printed() -> None:
    golden = json.loads((ROOT / "openapi/openapi.json").read_text())
    assert json.loads(cleave("openapi").stdout) == golden


def test_main_is_the_console_entry(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["cleave", "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "serve" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        runpy.run_module("app.cli", run_name="__main__", alter_sys=True)
    assert "serve" in capsys.readouterr().out


def test_a_traceback_that_was_logged_is_not_logged_again(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    logs.configure("json")
    logging.getLogger("uvicorn.error").error("Exception in ASGI application\n")
    logging.getLogger("uvicorn.error").error("something else")
    logging.getLogger("x").error("failed", exc_info=ValueError("planted"))
    said = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["event"] for line in said] == ["something else", "failed"]
    assert "ValueError: planted" in said[1]["exception"]


def test_defaults_are_the_contract_s() -> None:
    defaults = Settings(_env_file=None)
    assert defaults.database_url == "sqlite:///cleave.db"
    assert (defaults.heartbeat_interval_s, defaults.ttl_s, defaults.retention_s) == (10, 30, 86_400)
    assert (defaults.default_reserve_bytes, defaults.max_nodes) == (6_000_000_000, 10_000)
    assert defaults.default_policy == "ram_balanced"
