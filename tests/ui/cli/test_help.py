"""The help: its groups, its examples, and options that mean the same in every command."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from loopwright.ui.cli import COMMANDS, FAMILIES, GROUPS, main
from loopwright.ui.cli.parser import documented, leaf, parser

from ..asking import ASKS
from .conftest import Project
from .test_next_commands import SATISFIED
from .test_remembering import MODULE

POLISH = Path(__file__).parents[3] / "examples" / "polish_text"
EXAMPLES = {
    command.name: [shlex.split(line) for line in documented(command.load())[1]]
    for command in COMMANDS
}
# What an example needs that a machine without keys, agents, workers and a database does not have.
NEEDS = {
    "a model": ("run polish.yaml", "measure judge polish.yaml#improve", "measure judge duel.yaml"),
    "a coding agent": ("until pytest", "until make", "agents try"),
    "a database": ("worker", "submit", "journal init postgres", "journal move postgres", "journal prune"),
    "a data set": ("eval",),
    "a person or a server": ("ui", "mcp", "serve", "doctor"),
    "a folder from elsewhere": ("journal adopt backup",),
    "a run that failed, see test_retrying.py": ("retry",),
}  # fmt: skip


def test_the_help_shows_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    """The groups are in the order of the table; a family is one row that names its commands."""
    assert main(["--help"]) == 0
    sections = re.split(r"\n\n(?=[A-Z][a-z ]+:\n)", capsys.readouterr().out)
    shown = {text.partition(":\n")[0]: " ".join(text.split()) for text in sections[1:]}
    assert list(shown) == ["Options", *GROUPS]
    for title, commands in GROUPS.items():
        for command in commands:
            first, *rest = command.name.split()
            row = (
                rf"{first} [^.]*\b{rest[0]}\b" if rest else re.escape(f"{first} {command.summary}")
            )
            assert re.search(row, shown[title]), command.name


@pytest.mark.parametrize("family", FAMILIES)
def test_the_help_of_a_family_lists_its_commands(
    family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a command the sentence names the help."""
    assert main([family, "--help"]) == 0
    rows = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert [row.split()[0] for row in rows] == [
        command.name.split()[1] for command in COMMANDS if command.name.startswith(f"{family} ")
    ]
    assert main([family]) == 2
    assert f"missing command; see: loopwright {family} --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["workers"], "there is no command 'workers'; did you mean 'worker'?"),
        (["worker", "stat"], "there is no command 'stat'; did you mean 'start'?"),
        (["files", "merge"], "there is no command 'merge'; see: loopwright files --help"),
        (["tune", "last"], "there is no command 'tune'; see: loopwright --help"),
    ],
)
def test_an_unknown_command_names_the_nearest_one(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a family it is one of the family."""
    assert main(words) == 2
    assert capsys.readouterr().err == f"loopwright: {sentence}\n"


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_command_has_examples_that_parse(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There are two or three, the help ends with them as they are written, and the parser takes each."""
    monkeypatch.setenv("COLUMNS", "40")
    assert len(EXAMPLES[name]) in (2, 3)
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out.partition("\nExamples:\n")[2].splitlines()
    assert [shlex.split(line) for line in shown] == EXAMPLES[name]
    for words in EXAMPLES[name]:
        assert words[: 1 + len(name.split())] == ["loopwright", *name.split()]
        _parse(_of_shell(words))


def _of_shell(words: list[str]) -> list[str]:
    """Return the words of this program, without the name and what the shell does with the output."""
    return [*takewhile(lambda word: not word.startswith(">"), words[1:])]


def _parse(words: list[str]) -> None:
    """Parse a command line as `main` does, and call nothing."""
    command: Any = parser()
    context = command.make_context("loopwright", [], resilient_parsing=True)
    name: Any = "loopwright"
    while hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(context, words)
    command.make_context(name, words, parent=context)


def _polished(project: Project) -> None:
    words = ["run", "polish.yaml", "--input-file", "draft.txt", "--replies", "replies.yaml"]
    for run_id in ("first", "latest"):
        assert project.call(*words, "--run-id", run_id).code == 0


def _asking(project: Project) -> None:
    (project.folder / "asks.yaml").write_text(ASKS.replace("name: asks", "name: polish"))
    assert project.call("run", "asks.yaml", "-i", "x").code == 4


def _two_asking(project: Project) -> None:
    asks = ASKS.replace("name: asks", "name: polish")
    (project.folder / "asks.yaml").write_text(asks)
    (project.folder / "hint.txt").write_text("Name the date.")
    for run_id in ("first", "latest"):
        assert project.call("run", "asks.yaml", "-i", "x", "--run-id", run_id).code == 4


def _held(project: Project) -> None:
    _two_asking(project)
    for run_id in ("first", "latest"):
        assert project.call("hold", run_id).code == 0


def _exhausted(project: Project) -> None:
    (project.folder / "grows.yaml").write_text(SATISFIED.replace('"2"', '"99"'))
    assert project.call("run", "grows.yaml").code == 3


def _remembering(project: Project) -> None:
    (project.folder / "remembers.py").write_text(MODULE.replace("desk", "writing"))
    assert project.call("run", "remembers:loop", "--input", "x").code == 3


def _coding(project: Project) -> None:
    for line in ("init -q", "add .", "-c user.name=x -c user.email=x@x commit -qm x"):
        subprocess.run(["git", *line.split()], cwd=project.folder, check=True)
    words = ["until", "test -e part2", "--yes", "--workspace", "copy", "--no-merge", "--", "sh"]
    assert project.call(*words, "-c", 'touch "part$LOOPWRIGHT_ITERATION"').code == 0


# The latest run where it is not that of `polish.yaml`.
STATES: dict[str, Callable[[Project], None]] = {
    "approve": _asking,
    "cancel": _asking,
    "continue": _held,
    "files": _coding,
    "hold": _two_asking,
    "limits": _asking,
    "memory": _remembering,
    "resume": _exhausted,
    "steer": _two_asking,
}


def _runs(words: list[str]) -> bool:
    line = " ".join(words[1:])
    needs = tuple(start for starts in NEEDS.values() for start in starts)
    return "--replies" in line or not line.startswith(needs)


RUN: dict[str, list[list[str]]] = {}
for _name, _lines in EXAMPLES.items():
    RUN.setdefault(_name.split()[0], []).extend(filter(_runs, _lines))


@pytest.mark.parametrize("word", [word for word, lines in RUN.items() if lines])
def test_examples_run(word: str, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that need nothing else are called one after the other in the folder that they stand for."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for file in ("polish.yaml", "draft.txt", "replies.yaml"):
        shutil.copy(POLISH / file, project.folder)
    with (project.folder / "cases.jsonl").open("w") as file:
        for number in range(40):
            label = number % 2 == 0
            case = {"id": f"c{number}", "output": f"Text {number}", "label": label}
            print(json.dumps({**case, "votes": [label] * 3}), file=file)
    STATES.get(word, _polished)(project)
    for words in RUN[word]:
        done = project.call(*_of_shell(words))
        assert done.code in (0, 3, 4), (words, done)


# Options whose value has another form in one command, by the longest of their names.
FORMS = {
    ("--model", "agents"): "agents have names of their own for models",
    ("--out", "convert"): "several documents",
    ("--out", "measure limits"): "several files",
    ("--resume", "eval"): "the run",
    ("--queue", "worker start"): "how many runs it takes of the queue",
}


def test_an_option_means_the_same_in_every_command() -> None:
    """Its help begins with the same words, its value has the same form, and its short name is the same."""
    uses: dict[str, dict[str, list[str]]] = {}
    for command in COMMANDS:
        for one in leaf(command).params:
            if one.param_type_name != "option":
                continue
            long, short = max(one.opts, key=len), min(one.opts, key=len)
            meaning = re.split(r"[:;,.](?: |$)|  \[", one.help)[0]
            form = (one.metavar or "").removesuffix("|clear")
            facts = {"help": meaning, "value": form, "short": short if len(short) == 2 else ""}
            if (long, command.name) in FORMS:
                del facts["value"]
            for fact, text in facts.items():
                uses.setdefault(f"{fact} of {long}", {}).setdefault(text, []).append(command.name)
    different = {name: use for name, use in uses.items() if len(use) > 1}
    assert different == {}


def test_a_command_of_a_family_is_loaded_alone(tmp_path: Path) -> None:
    """The list of workers loads no worker, no other command with a cost, and no pydantic."""
    program = (
        "import sys\nfrom loopwright.ui.cli import main\nassert main(['worker', 'list', '--help']) == 0\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "loopwright.ui.cli.worker.list" in loaded
    assert not loaded & {"loopwright.cluster.worker", "loopwright.ui.cli.worker.start", "pydantic"}
