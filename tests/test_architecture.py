"""The page on the architecture is true of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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
    shown = [set(re.findall(r"\w+", line[:36])) for line in diagram.splitlines()]
    assert [names for names in shown if names] == [names for names in expected if names]


@pytest.mark.parametrize("what", ADDED)
def test_the_page_says_how_to_add_each_thing(what: str) -> None:
    """Each of these has a row that names a place, the steps and a test to extend."""
    row = re.search(rf"^\| {what} \| `[\w/.]+`[^|]*\|.*$", PAGE, re.MULTILINE)
    assert row and re.search(r"Tests?:.*`tests/", row[0])


# The places that name modules of dialects, as text.
TABLES = {
    "documents/detect.py",
    "documents/compiler/compilation.py",
    "evaluators/judge_questions.py",
}
WORDS = re.compile(r"orka|loop[ _-]?nodes?\b|workflow.?v2|consensus|loop controller", re.IGNORECASE)
# The fields of the schema and who reads their parts, a kind of error, the output of `watch`, and the sources of figures.
NAMED = {
    "agents/lifecycle.py",
    "documents/plan.py",
    "documents/schema/document.py",
    "documents/schema/extensions.py",
    "documents/schema/traverse.py",
    "errors.py",
    "evaluators/rubric.py",
    "ui/cli/live.py",
}


def test_the_vocabulary_of_dialects_stays_in_its_package() -> None:
    """No other module names a module of a dialect or says its words, except those that are listed here."""
    texts = {
        str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.parts[len(PACKAGE.parts)] != "dialects"
    }
    assert {name for name, text in texts.items() if "dialects." in text} == TABLES
    assert {name for name, text in texts.items() if WORDS.search(text)} - TABLES == NAMED


def test_a_native_document_loads_no_dialect(tmp_path: Path) -> None:
    """`loopwright check` of a native document imports no module of a dialect, one of a dialect does."""
    (tmp_path / "native.yaml").write_text(
        "schema: loopwright/1\nname: native\nmodel: openai:m\nsteps:\n  - name: refine\n    loop:\n"
        "      execute: {prompt: 'Improve {{ input }}'}\n      evaluate: {judge: It is kind}\n"
        "      until: [passed, {max_iterations: 3}]\n",
        encoding="utf-8",
    )
    (tmp_path / "foreign.yaml").write_text(
        "orchestrator: {id: host, model: gpt-4o, agents: [a]}\n"
        "agents: [{id: a, type: openai-answer, prompt: '{{ input }}'}]\n",
        encoding="utf-8",
    )
    program = (
        "import sys\nfrom loopwright.ui.cli import main\n"
        "print(main(['check', sys.argv[1]]), sum(name.startswith('loopwright.dialects') for name in sys.modules))"
    )

    def loaded(name: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", program, name], cwd=tmp_path, capture_output=True, text=True,
            check=True, env={**os.environ, "OPENAI_API_KEY": "none"},
        )  # fmt: skip
        return done.stdout.split()[-2:]

    assert loaded("native.yaml") == ["0", "0"]
    code, count = loaded("foreign.yaml")
    assert code == "0" and int(count) > 0


# What a document with a command needs none of; `regex` and `jinja2` are packages of others.
UNDECLARED = {
    "jinja2",
    "loopwright.agents",
    "loopwright.coding.agents",
    "loopwright.coding.sealed",
    "loopwright.coding.until",
    "loopwright.evaluators",
    "loopwright.insight.recordings",
    "loopwright.models",
    "loopwright.prompts",
    "loopwright.templates.template",
    "regex",
}


def test_a_check_loads_what_its_document_declares(tmp_path: Path) -> None:
    """`loopwright check` of a document with a command loads no models, agents, evaluators, insight or templates."""
    (tmp_path / "shell.yaml").write_text(
        "schema: loopwright/1\nname: shell\nworkspace: {path: .}\nsteps:\n  - name: items\n    each:\n"
        '      items: \'["a", "b"]\'\n      execute: {shell: echo x}\n',
        encoding="utf-8",
    )
    program = (
        "import sys\nfrom loopwright.ui.cli import main\n"
        "assert main(['check', 'shell.yaml']) == 0\nprint(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "loopwright.documents.compiler.tools" in loaded
    assert not loaded & UNDECLARED
