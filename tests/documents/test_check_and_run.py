"""`check` and `run` agree: what one refuses, the other refuses with the same words, and all of it at once."""

from __future__ import annotations

import functools
import itertools
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from documents.corpus import projects
from documents.fuzz import document
from documents.wrong_documents import FILES, WRONG
from loopwright import run_sync
from loopwright.documents import Loaded, Settings, load
from loopwright.errors import DocumentError
from loopwright.models.providers.endpoints import PROVIDER_NAMES
from loopwright.testing import Deadlock, dry_run, run_virtual

# A check may run on a machine without the file that defines the servers, so it is a note there and refuses a run only.
NEEDS = ("no file defines the server",)
# What an import does is known to a run only, and `check` imports nothing.
IMPORTS = ("importing ", " is of type ", " has no ", "cannot be imported")
KNOWN = functools.cache(projects)
RULES = [{"output": "yes"}, {"replies": ["yes", "yes", "yes"]}]


def read(file: Path, *, execute: bool) -> tuple[Loaded | None, list[str]]:
    """Load a document as `check` does, or as `run` does, and return it or its problems."""
    try:
        return load(file, Settings(execute=execute, providers=PROVIDER_NAMES)), []
    except DocumentError as error:
        return None, [str(problem) for problem in error.problems]


def agree(file: Path) -> None:
    """Check that both say the same of a document, and that a valid one starts."""
    checked, told = read(file, execute=False)
    loaded, refused = read(file, execute=True)
    # An import happens only if nothing else is wrong, so it adds problems to a document that `check` accepts.
    if not told and refused:
        assert all(any(word in problem for word in IMPORTS) for problem in refused), refused
        return
    assert [one for one in refused if not any(word in one for word in NEEDS)] == told
    if loaded is None:
        return
    assert checked is not None and checked.plan() == loaded.plan()
    # Its effects are replaced; an exception instead of a result is a refusal.
    # A step that waits for another thread has started too.
    with suppress(Deadlock):
        run_virtual(dry_run(loaded, loaded.default_input, replies=RULES))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the wrong documents name."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_and_run_refuse_wrong_documents_with_the_same_words(folder: Path) -> None:
    """Every document of the corpora of wrong ones."""
    for name, (text, _) in WRONG.items():
        (folder / "document.yaml").write_text(text)
        _, told = read(folder / "document.yaml", execute=False)
        _, refused = read(folder / "document.yaml", execute=True)
        if told:
            assert refused == told, name
        else:
            assert all(any(word in problem for word in IMPORTS) for problem in refused), name


def write(folder: Path, number: int) -> Path:
    """Write a mutated document with the files that it names, and return it."""
    known = KNOWN()
    made = document(11, number, [next(iter(project.values())) for project in known])
    place = folder / str(number)
    for name, text in known[made.project].items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    file = place / next(iter(known[made.project]))
    file.write_bytes(made.text.encode("utf-8", "surrogatepass"))
    return file


@pytest.mark.parametrize("first", range(0, 80, 40))
def test_check_and_run_agree_on_mutated_documents(
    folder: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """A sample of what the fuzzer makes of valid documents."""
    for number in range(first, first + 40):
        file = write(folder, number)
        monkeypatch.chdir(file.parent)
        agree(file)


TOOLS = '''
from loopwright import tool
from loopwright.tools import command_tool

@tool(idempotent=True, timeout=10)
def population(city: str) -> int:
    """Return the number of people."""
    return {"Berlin": 3}[city]

listing = command_tool("listing", [["ls"]])
'''


def test_tools_of_a_module_are_tools_of_a_document(tmp_path: Path) -> None:
    """A decorated function keeps its options unless the document sets others, and its name is that in the document."""
    (tmp_path / "own_tools.py").write_text(TOOLS)
    file = tmp_path / "tools.yaml"
    file.write_text(
        "schema: loopwright/1\nname: tools\ntools:\n  people: {python: 'own_tools:population', approve: false}\n"
        "  files: {python: 'own_tools:listing'}\n"
        "steps:\n  - {name: berlin, tool: people, arguments: {city: Berlin}}\n"
    )
    agree(file)
    loaded, _ = read(file, execute=True)
    assert loaded is not None
    assert run_sync(loaded).output == 3


MISTAKES = {
    "unknown key": ("  - {{name: s{n}, prompt: hi, fooo{n}: 1}}\n", ["fooo{n}"]),
    "undefined name": ("  - {{name: s{n}, set: '{{{{ zork{n} }}}}'}}\n", ["zork{n}"]),
    "both in one step": (
        "  - {{name: s{n}, prompt: '{{{{ zork{n} }}}}', temperature: 7{n}, fooo{n}: 1}}\n",
        ["zork{n}", "7{n}", "fooo{n}"],
    ),
    "inside of a loop": (
        "  - name: s{n}\n    loop:\n      foop{n}: 1\n      execute: {{prompt: '{{{{ zork{n} }}}}'}}\n"
        "      evaluate: {{check: {{max_words: -{n}}}}}\n      until: [passd{n}, {{max_iteration{n}: 4}}]\n",
        ["foop{n}", "zork{n}", "-{n}", "passd{n}", "max_iteration{n}"],
    ),
    "no such step": ("  - {{name: s{n}, set: 1, needs: [nobody{n}], fooo{n}: 2}}\n", ["nobody{n}", "fooo{n}"]),
    "repeated name": (
        "  - {{name: t{n}, set: 1}}\n  - {{name: t{n}, set: '{{{{ zork{n} }}}}'}}\n",
        ["'t{n}' is already the name", "zork{n}"],
    ),
    "a value in a command": (
        "  - {{name: s{n}, shell: [echo, '{{{{ input }}}}'], env: {{A: '{{{{ zork{n} }}}}'}}, cwd: ../..{n}}}\n",
        ["commands cannot contain", "zork{n}", "../..{n}"],
    ),
    "no such tool": ("  - {{name: s{n}, prompt: hi, tools: [nix{n}], fooo{n}: 1}}\n", ["nix{n}", "fooo{n}"]),
    "no such function": ("  - {{name: s{n}, python: 'steps:nix{n}', fooo{n}: 1}}\n", ["nix{n}", "fooo{n}"]),
    "no such document": ("  - {{name: s{n}, workflow: nix{n}.yaml}}\n", ["nix{n}.yaml"]),
}  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(sorted(MISTAKES)), min_size=1, max_size=6))
def test_independent_mistakes_are_reported_in_one_go(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str]
) -> None:
    """A document with several mistakes reports each of them, once, and nothing else."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "steps.py").write_text(str(FILES["steps.py"]))
    text, expected = "schema: loopwright/1\nname: x\nmodel: openai:gpt-4o\nsteps:\n", []
    for n, kind in enumerate(kinds, 1):
        steps, words = MISTAKES[kind]
        text += steps.format(n=n)
        expected += [word.format(n=n) for word in words]
    file = folder / "document.yaml"
    file.write_text(text)
    _, told = read(file, execute=False)
    assert len(told) == len(expected), told
    left = list(told)
    for word in expected:
        found = [problem for problem in left if word in problem]
        assert found, (word, told)
        left.remove(found[0])


@pytest.mark.parametrize(
    "kinds", list(itertools.permutations(["inside of a loop", "both in one step"]))
)
def test_eight_mistakes_need_one_round(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """Unknown keys do not hide what is wrong with the rest of their steps."""
    text = "schema: loopwright/1\nname: x\nmodel: openai:gpt-4o\nsteps:\n"
    text += "".join(MISTAKES[kind][0].format(n=n) for n, kind in enumerate(kinds, 1))
    (tmp_path / "document.yaml").write_text(text)
    _, told = read(tmp_path / "document.yaml", execute=True)
    assert len(told) == 8, told
