"""The page on the architecture is true of the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "loopwright"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`([\w./-]+(?:/|\.py|\.md|\.toml))`", PAGE)))
ADDED = [
    "a condition", "an evaluator", "a dialect", "a store", "a model provider", "a YAML step kind",
    "a command", "a page", "a change to the loop", "objects of a library", "a deliverer", "a coding agent",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_paths_on_the_page_exist(path: str) -> None:
    """Every path that the page names is a file or a folder of the package or of the repository."""
    found = PACKAGE / path if (PACKAGE / path).exists() else ROOT / path
    assert found.is_dir() if path.endswith("/") else found.is_file()


def test_every_package_has_a_line() -> None:
    """The table of packages names each package and module at the top, except `__init__`."""
    names = {
        f"{entry.name}/" if entry.is_dir() else entry.name
        for entry in PACKAGE.iterdir()
        if (entry / "__init__.py").exists() or entry.suffix == ".py"
    }
    lines = re.findall(r"^\| (`[^|]+`) \|", PAGE, re.MULTILINE)
    first = {name for line in lines for name in re.findall(r"`([^`]+)`", line)}
    assert names - {"__init__.py"} <= first


def test_the_diagram_is_the_contract() -> None:
    """The diagram shows the layers that import-linter holds, without the reserved ones."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(c for c in contracts if c["name"] == "Imports point down")["layers"]
    expected = [set(re.findall(r"(?<!\()\b\w+\b(?!\))", layer)) for layer in layers]
    diagram = PAGE.partition("```\n")[2].partition("```")[0]
    # Names stand in the first columns, what they are for in the later ones.
    shown = [set(re.findall(r"\w+", line[:35])) for line in diagram.splitlines()]
    assert [names for names in shown if names] == [names for names in expected if names]


@pytest.mark.parametrize("what", ADDED)
def test_the_page_says_how_to_add_each_thing(what: str) -> None:
    """Each of these has a row that names a place, the steps and a test to extend."""
    row = re.search(rf"^\| {what} \| `[\w/.]+`[^|]*\|.*$", PAGE, re.MULTILINE)
    assert row and re.search(r"Tests?:.*`tests/", row[0])
