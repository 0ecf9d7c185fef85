"""Each import contract holds, and is seen to break once on a planted import."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PLANTED = {
    "Layers": ("app/registry/liveness.py", "import app.planning"),
    "Placement is pure": ("app/placement/cost.py", "import time"),
    "Settings are read at the edge": ("app/api/deps.py", "import app.settings"),
    "One module knows httpx": ("app/cli/commands.py", "import httpx"),
    "The database is spoken to in db": ("app/main.py", "import sqlalchemy"),
    "Pydantic lives in schemas and settings": ("app/api/deps.py", "import pydantic"),
}

MAY = {
    "Settings are read at the edge": {"settings", "main", "cli", "agent"},
    "One module knows httpx": {"client"},
    "The database is spoken to in db": {"db"},
    "Pydantic lives in schemas and settings": {"schemas", "settings"},
}
"""Who may do what a contract forbids to everybody else."""


def contracts() -> dict[str, set[str]]:
    """Each contract's name, with the modules that it binds where it names some."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return {c["name"]: {m.removeprefix("app.") for m in c.get("source_modules", ())} for c in linter["contracts"]}


def lint(folder: Path) -> str:
    """What import-linter says of the package in ``folder``."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "app", tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_no_contract_goes_without_a_planted_import() -> None:
    assert contracts().keys() == PLANTED.keys()


@pytest.mark.parametrize("contract", MAY)
def test_a_new_module_is_bound_by_the_contract_too(contract: str) -> None:
    modules = {p.stem for p in (ROOT / "app").iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert contracts()[contract] == modules - {"__init__"} - MAY[contract]


def test_every_contract_holds(copy: Path) -> None:
    said = lint(copy)
    for contract in PLANTED:
        assert f"{contract} KEPT" in said, said


@pytest.mark.parametrize("contract", PLANTED)
def test_a_planted_import_breaks_its_contract(copy: Path, contract: str) -> None:
    file, line = PLANTED[contract]
    (copy / file).write_text(f"{line}\n{(copy / file).read_text()}")
    assert f"{contract} BROKEN" in lint(copy)


def test_a_module_outside_of_the_layers_breaks_them(copy: Path) -> None:
    (copy / "app/helpers.py").write_text('"""Planted."""\n')
    assert "Layers BROKEN" in (said := lint(copy)) or "exhaustive" in said


def test_placement_needs_nothing_but_the_standard_library() -> None:
    for file in (ROOT / "app/placement").rglob("*.py"):
        for found in re.findall(r"^\s*(?:from|import) ([a-z_A-Z0-9]+)(\.placement)?", file.read_text(), re.MULTILINE):
            assert found == ("app", ".placement") or found[0] in sys.stdlib_module_names, (file, found)


def test_placement_reaches_for_no_clock_chance_or_world_through_builtins() -> None:
    for file in (ROOT / "app/placement").rglob("*.py"):
        assert re.search(r"\b(open|print|input|__import__)\(", file.read_text()) is None, file
