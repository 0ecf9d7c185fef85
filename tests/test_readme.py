"""The README's commands work as printed, and answer what it says they answer."""

import json
import re
import subprocess

from app.settings import Settings
from tests.conftest import ROOT, StartServer

MOVING = re.compile(r'plan [0-9a-f]{16}|"(registered_at|expires_at)":"[^"]+"')


def test_the_readme_s_curl_lines_answer_what_it_says(start_server: StartServer) -> None:
    readme = (ROOT / "README.md").read_text()
    server = start_server()
    commands = [c for c in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL) if c.startswith("curl")]
    assert len(commands) == 4
    answers = [
        subprocess.run(
            ["bash", "-c", command.replace("http://127.0.0.1:8000", server.url)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for command in commands
    ]
    printed_json = re.findall(r"```json\n(.*?)```", readme, re.DOTALL)[0]
    printed_tables = re.findall(r"```\n(plan .*?)```", readme, re.DOTALL)
    assert MOVING.sub("", answers[0].strip()) == MOVING.sub("", printed_json.strip())
    assert json.loads(answers[1])["node_id"] == "mac"
    assert [MOVING.sub("", table) for table in answers[2:]] == [MOVING.sub("", table) for table in printed_tables]


def test_the_readme_names_every_setting_and_every_call() -> None:
    readme = (ROOT / "README.md").read_text()
    for name in Settings.model_fields:
        assert f"`CLEAVE_{name.upper()}`" in readme
    document = json.loads((ROOT / "openapi/openapi.json").read_text())
    for path in document["paths"]:
        assert path in readme or path.removeprefix("/problems") != path, path
