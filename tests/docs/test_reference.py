"""The generated reference names everything that the code has, and nothing else."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest
import yaml

from loopwright import errors
from loopwright.conditions.base import TAGS
from loopwright.documents import export_schema
from loopwright.documents.schema.document import ACTIONS
from loopwright.records import Reason, Status
from loopwright.templates.filters import FILTERS, METHODS
from loopwright.ui.cli import COMMANDS

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "docs" / "scripts"


def script(name: str) -> ModuleType:
    """Import a script of the documentation."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


reference = script("reference")
PAGES: dict[str, str] = reference.pages()
SVG = "{http://www.w3.org/2000/svg}"
# Generators of warnings, each with a code.
WITH_CODES = {"documents/lints.py", "engine/loop.py"}


def section(page: str, heading: str) -> str:
    """Return the text below a second-level heading."""
    return PAGES[page].partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def first_cells(text: str) -> set[str]:
    """Return the names in the first column of the tables of a text."""
    return set(re.findall(r"^\| `([^`]+)`", text, re.MULTILINE))


def test_every_key_of_the_schema_is_in_its_section() -> None:
    """Each part of the JSON Schema has a section with its keys, and settings of models have one of their own."""
    schema = export_schema()
    assert set(reference.PARTS) | reference.WITHIN == {"Document", *schema["$defs"]}
    for name, (heading, _) in reference.PARTS.items():
        part = schema if name == "Document" else schema["$defs"][name]
        text = section("yaml.md", heading)
        keys = set(part["properties"])
        if "#settings-of-models" in text:
            keys -= set(reference.SETTINGS)
        assert first_cells(text) == keys, heading
    assert first_cells(section("yaml.md", "Settings of models")) == set(reference.SETTINGS)


def test_every_key_has_a_description() -> None:
    """The reference shows the descriptions that editors show, so each key of the schema has one."""
    schema = export_schema()
    parts = {"Document": schema, **schema["$defs"]}
    keys = [(name, *item) for name, part in parts.items() for item in part["properties"].items()]
    assert [f"{name}.{key}" for name, key, field in keys if not field.get("description")] == []


def test_actions_conditions_and_template_names_are_listed() -> None:
    """The tables that the schema does not have come from the code too."""
    actions = section("yaml.md", "Steps").partition("### Actions")[2].partition("### ")[0]
    assert first_cells(actions) == set(ACTIONS)
    assert first_cells(section("yaml.md", "Conditions")) == set(TAGS)
    templates = set(re.findall(r"`(\w+)`", section("yaml.md", "Templates")))
    assert {*FILTERS, *METHODS} <= templates


def test_every_command_and_option_is_listed() -> None:
    """The page has a section for each command, with the options that its help prints."""
    assert re.findall(r"^## (\w+(?: \w+)?)$", PAGES["cli.md"], re.MULTILINE) == [
        c.name for c in COMMANDS
    ]
    for command in COMMANDS:
        source = inspect.getsource(command.load())
        text = section("cli.md", command.name)
        for option in re.findall(r'typer\.Option\(\s*"(--[a-z-]+)"', source):
            assert f"`{option}`" in text, (command.name, option)


def test_every_status_reason_and_error_is_listed() -> None:
    """A new status, reason, error class or kind needs a sentence before the page can be made."""
    assert first_cells(section("outcomes.md", "Statuses")) == {status.value for status in Status}
    assert first_cells(section("outcomes.md", "Reasons")) == {reason.value for reason in Reason}
    codes = re.findall(r"^\| (\d+)", section("outcomes.md", "Exit codes"), re.MULTILINE)
    assert {int(code) for code in codes} == {2, *(status.exit_code for status in Status)}
    classes = {kind.__name__ for kind in reference.error_classes()}
    assert classes == {
        name
        for name in errors.__all__
        if isinstance(getattr(errors, name), type)
        and issubclass(getattr(errors, name), BaseException)
    }
    assert first_cells(section("errors.md", "Classes")) == classes
    assert first_cells(section("errors.md", "Kinds of failed model calls")) == set(
        errors.MODEL_ERROR_KINDS
    )


def test_every_warning_has_a_code_of_the_reference() -> None:
    """The source warns with a code in every place, the tables list each of them and no other, and the page has both tables."""
    used, without = codes_of_warnings()
    assert without == {
        "prompts/settings.py",
        "agents/capabilities.py",
    }  # the reply has the codes
    warnings, notes = set(reference.CODES["warnings"]), set(reference.CODES["notes"])
    assert used == warnings | notes
    assert not warnings & notes
    assert first_cells(section("warnings.md", "Warnings of a run")) == warnings
    assert first_cells(section("warnings.md", "Notes of check")) == notes


def codes_of_warnings() -> tuple[set[str], set[str]]:
    """Return the codes in the source, and the files with a warning that has none.

    A code is an argument `code` of a warning, the second member of a note that is yielded, or the
    first word of a warning about a reply. A constant of any module stands for its value.
    """
    root = ROOT / "src" / "loopwright"
    trees = {
        file.relative_to(root).as_posix(): ast.parse(file.read_text("utf-8"))
        for file in root.rglob("*.py")
    }
    nodes = [(file, node) for file, tree in trees.items() for node in ast.walk(tree)]
    constants = {
        (file if target.id.startswith("_") else "", target.id): node.value.value
        for file, node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    }

    def text(file: str, node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return str(constants.get((file if node.id.startswith("_") else "", node.id), ""))
        if isinstance(node, ast.JoinedStr):
            node = node.values[0]
        return str(node.value) if isinstance(node, ast.Constant) else ""

    used: set[str] = set()
    without: set[str] = set()
    for file, node in nodes:
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
            parts = node.value.elts
            if file in WITH_CODES and (len(parts) == 3 or isinstance(parts[0], ast.Name)):
                used.add(text(file, parts[-2]))
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        code = next((text(file, word.value) for word in node.keywords if word.arg == "code"), None)
        if name in ("warn", "LoopwrightWarning", "problem", "Problem") and code is not None:
            used.add(code)
        elif name == "warn" and ast.unparse(node.func) != "warnings.warn":
            without.add(file)
        elif name == "append" and file.startswith("models/"):
            used |= set(re.findall(r"^([a-z]+_[a-z0-9_]+): ", text(file, node.args[0])))
    constant = {constants["", name] for name in ("BUDGET_TOO_SMALL", "PHASES_CAPPED")}
    return (used | constant) - {""}, without


@pytest.mark.parametrize("module", reference.MODULES)
def test_every_public_name_is_on_a_page_with_a_docstring(module: str) -> None:
    """Each name in `__all__` is in the reference, and what can be documented is."""
    file = f"python/{module.removeprefix('loopwright.').replace('.', '_')}.md"
    for name in reference.public_names(module):
        place = re.escape(reference.place_of(module, name))
        assert re.search(rf"^::: {place}$|^(?:\| |## )`{name}`", PAGES[file], re.MULTILINE), name
        value = getattr(import_module(module), name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{module}.{name}"


def test_internal_methods_exist_and_are_hidden() -> None:
    """The list of hidden methods names methods only, and the pages hide them."""
    classes = {value.__name__: value for value in documented_classes()}
    for name, methods in reference.INTERNAL.items():
        assert [method for method in methods if not hasattr(classes[name], method)] == [], name
        place = f"{classes[name].__module__}.{name}"
        block = "".join(PAGES.values()).partition(f"::: {place}\n")[2].partition("\n:::")[0]
        assert all(re.search(rf"[(|]{method}[|)]", block) for method in methods), name


def documented_classes() -> Iterator[type]:
    """Iterate over the classes on the pages."""
    for module in reference.MODULES:
        for name in reference.public_names(module):
            if inspect.isclass(value := getattr(import_module(module), name)):
                yield value


def test_the_navigation_has_every_generated_page() -> None:
    """A page outside of the navigation is not reachable."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    listed = set(re.findall(r"reference/([\w/-]+\.md)", text.partition("\nnav:")[2]))
    assert listed - {"index.md"} == set(PAGES)
    assert yaml.safe_load(text)["theme"]["font"] is False


def test_the_check_of_a_site_reports_foreign_addresses_broken_links_and_unread_fences(
    tmp_path: Path,
) -> None:
    """Links to other hosts may lead anywhere; scripts, styles, fonts and images may not, and links inside must lead to a heading."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "own.png").touch()
    (tmp_path / "other.html").write_text('<h2 id="here">x</h2>')
    (tmp_path / "index.html").write_text(
        '<a href="https://example.org">x</a><link rel="canonical" href="https://example.org">'
        '<img src="images/own.png"><script src="//cdn.example.org/x.js"></script>'
        '<a href="other.html#here">x</a><a href="other.html#gone">x</a><a href="gone.html">x</a>'
        '<p><code>console skip="a"\n$ ls</code></p><p>```python skip="b"</p><pre>```python\n</pre>'
    )
    (tmp_path / "site.css").write_text("@import url('https://fonts.example.org/a.css');")
    problems = [line.partition(": ")[2] for line in script("site").problems(tmp_path)]
    assert problems == [
        "loads //cdn.example.org/x.js",
        'Markdown is not rendered: console skip="a"',
        'Markdown is not rendered: ```python skip="b"',
        "broken anchor other.html#gone",
        "broken link gone.html",
        "loads https://fonts.example.org/a.css",
    ]


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    """As `make docs`, which uses another builder too: no warning, no broken link, no missing page, no other host.

    Skipped loudly where the dependency group is not installed; in CI, `make test` installs it.
    """
    program = Path(sys.executable).parent / "zensical"
    if not program.exists():
        lack = "the documentation site needs its dependency group: run `make docs-tools`"
        pytest.fail(lack) if os.environ.get("CI") else pytest.skip(f"NOT TESTED: {lack}")
    for name in ("docs", "src", "mkdocs.yml", "CHANGELOG.md"):
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    for name, text in PAGES.items():
        target = tmp_path / "docs" / "reference" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    done = subprocess.run(
        [program, "build", "--clean", "--strict"], cwd=tmp_path,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(script("site").problems(tmp_path / "site")) == []
    sources = {page.relative_to(tmp_path / "docs") for page in (tmp_path / "docs").rglob("*.md")}
    html = {page: (tmp_path / "site" / page).with_suffix(".html") for page in sources}
    html |= {
        page: file.with_name("index.html") for page, file in html.items() if page.stem == "README"
    }
    assert [page for page, file in html.items() if not file.exists()] == []


def test_the_recording_shows_commands_that_exist_and_loads_nothing() -> None:
    """The animated drawing of the terminal is small, has no script and no address, and its commands are on the command line."""
    file = ROOT / "docs" / "images" / "terminal.svg"
    assert file.stat().st_size <= 40_000
    lines = ["".join(line.itertext()) for line in ET.parse(file).iter(f"{SVG}text")]
    commands = [line.split()[2] for line in lines if line.startswith("$ loopwright ")]
    assert commands == ["run", "resume"]
    assert set(commands) <= {command.name for command in COMMANDS}
    drawing = file.read_text("utf-8").replace(SVG.strip("{}"), "")
    assert not re.search(r"<script|href|://", drawing)
