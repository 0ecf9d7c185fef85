"""The field cases of the contract, each against a server of its own.

What needs a later capability stands in PENDING. A case of that list that passes fails this test, so it only shrinks.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parent.parent

PENDING = {
    "tokens": ["AUTH-01b"],
}
"""By the capability that a case waits for, the id of the case."""


PLAYERS = 3
"""A case mostly waits, for its server to start and for time to pass."""


def play(files: list[Path], runner: Path) -> str:
    """What the contract's own runner says of these cases."""
    serve = f"{sys.executable} -m app.cli serve --port {{port}}"
    command = [sys.executable, str(runner), "--serve", serve, *map(str, files)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    played = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return played.stdout + played.stderr


def test_every_case_passes_that_waits_for_nothing(shared: Path) -> None:
    files = sorted((shared / "cases").glob("*.json"))
    with ThreadPoolExecutor(PLAYERS) as pool:
        parts = pool.map(play, [files[i::PLAYERS] for i in range(PLAYERS)], [shared / "cases/run.py"] * PLAYERS)
        said = "".join(parts)
    results = {case: word for word, case in re.findall(r"^(ok|FAIL) +(\S+)", said, re.MULTILINE)}
    waiting = {case for cases in PENDING.values() for case in cases}
    failed = {case for case, word in results.items() if word == "FAIL"}
    assert len(results) == len(files) >= 50, said
    assert failed - waiting == set(), said
    assert waiting - failed == set(), "these pass now: take them off the list"
