"""The OpenAPI document's every promise, tried on a running server with all of schemathesis's checks."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, StartServer

pytestmark = pytest.mark.exhaustive


def test_a_fuzzer_that_believes_the_document_finds_nothing(start_server: StartServer) -> None:
    server = start_server()
    fuzzer = Path(sys.executable).with_name("schemathesis")
    words = ["run", f"{server.url}/openapi.json", "--checks=all", "--max-examples=12", "--seed=1", "--no-color"]
    done = subprocess.run([fuzzer, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5_000:]
    assert "Tested: 25" in done.stdout
