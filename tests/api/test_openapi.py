"""The OpenAPI document is a golden file: what changes it needs a version and a line in the changelog."""

import json
from pathlib import Path

from app import __version__
from app.main import create_app
from app.settings import Settings

ROOT = Path(__file__).parents[2]


def test_the_document_is_the_golden_file() -> None:
    golden = json.loads((ROOT / "openapi/openapi.json").read_text())
    assert create_app(Settings()).openapi() == golden, "make openapi, and say in CHANGELOG.md what changed"


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_operation_says_what_it_takes_and_refuses() -> None:
    document = create_app(Settings()).openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["description"] or operation["summary"], path
            assert ("requestBody" in operation) == (method in {"post", "patch", "put"}), path
            assert "500" in operation["responses"], path
