"""Problems: every wrong command is one sentence on stderr and an exit code, never a traceback."""

from __future__ import annotations

import os

import pytest

from loopwright.errors import (
    ConfigurationError,
    DocumentError,
    JournalDamaged,
    JournalUnavailable,
    OwnershipLost,
    Problem,
    ReplayMismatch,
    RunLocked,
    RunNotFound,
)
from loopwright.ui.cli.output import error_text, exit_code_of, report_error

from .conftest import Project

DEFECT = "(a defect of Loopwright; LOOPWRIGHT_DEBUG=1 prints the traceback)"
WRONG = {
    "rnu": "there is no command 'rnu'; did you mean 'run'?",
    "xyzzy": "there is no command 'xyzzy'; see: loopwright --help",
    "run": "missing argument 'FILE'; see: loopwright run --help",
    "run steps:echo --jsn": "there is no option '--jsn'; did you mean '--json'?",
    "run steps:echo --frobnicate": "there is no option '--frobnicate'; see: loopwright run --help",
    "run nothing.yaml": "there is no file 'nothing.yaml'; "
    "name a document, or package.module:attribute",
    "run step.py": "there is no file 'step.py'; did you mean 'steps.py'?",
    "run steps.py": "steps.py is a Python file, not a document. Name a step in it: steps:NAME",
    "run .": ". is a folder. Name a document in it.",
    "run nowhere:x": "nowhere cannot be imported: ModuleNotFoundError: No module named 'nowhere'",
    "run steps:refin": "steps:refin: there is no 'refin'; did you mean 'refine'?",
    "run steps:not_a_step": "steps:not_a_step: a list is not a step. "
    "Name a Loop, a Workflow or a function.",
    "run steps:Loop": "steps:Loop: a class is not a step. Name a Loop, a Workflow or a function.",
    "run steps:echo --set a": "--set: 'a' is not NAME=VALUE",
    "run steps:echo --set a=b": "--set is for documents; steps:echo is a Python step",
    "run steps:echo --input a --input-file b": "give only one of --input and --input-file",
    "run steps:echo --input-file no.txt": "--input-file: 'no.txt' cannot be read: "
    "No such file or directory",
    "runs --status fail": "--status: 'fail' is not a status; did you mean 'failed'?",
    "runs --status x": "--status: 'x' is not a status; use one of queued, running, interrupted, "
    "satisfied, exhausted, failed, impossible, suspended, cancelled",
    "show x --diff 1": "option '--diff' requires 2 arguments; see: loopwright show --help",
    "show last": "there is no journal at .loopwright/runs.db yet; loopwright run creates it",
    "show x --iteration 1 --trace": "give only one of --iteration, --item, --diff, --trace, --failed, "
    "--lifecycle, --traceback, --output and --files",
    "resume x --journal sqlite:no.db": "there is no journal at no.db yet; loopwright run creates it",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_command_is_one_sentence_and_exit_code_2(project: Project, words: str) -> None:
    """Stdout is empty, stderr says what is wrong and what to do, nothing is made."""
    answer = project.call(*words.split())
    assert (answer.code, answer.out, answer.err) == (2, "", f"loopwright: {WRONG[words]}\n")


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ("run steps:echo --max-usd nan", "loopwright: budget: usd: nan"),
        ("run steps:echo --run-id a/b", "loopwright: run_id: 'a/b'"),
        ("run steps:echo --journal sqlit:x", "loopwright: journal: 'sqlit"),
        ("runs --journal nothing", "loopwright: journal: 'nothing'"),
    ],
)
def test_what_other_layers_refuse_is_passed_on(project: Project, words: str, start: str) -> None:
    """Their sentence is the command's, with the exit code of a wrong command line."""
    answer = project.call(*words.split())
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(start)
    assert answer.err.count("\n") == 1


def test_a_document_is_a_file_with_a_name(project: Project) -> None:
    """A pipe could be read once only; neither it nor an empty name is called a missing file or a folder."""
    os.mkfifo(project.folder / "pipe")
    for place in ("pipe", "/dev/null"):
        told = project.call("run", place).err
        assert told.startswith(f"loopwright: {place} is not a regular file, and a document is read")
    assert project.call("check", "").err.startswith("the name of the document is empty; ")


def test_a_module_that_breaks_on_import_is_told(project: Project) -> None:
    """The user's module may raise anything, even leave: it is a sentence."""
    (project.folder / "breaks.py").write_text("import sys\nsys.exit(7)\n")
    answer = project.call("run", "breaks:step")
    assert (answer.code, answer.err) == (
        2,
        "loopwright: breaks cannot be imported: SystemExit: 7\n",
    )


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigurationError("x: is wrong"), 2, "loopwright: x: is wrong"),
        (RunNotFound("no run"), 2, "loopwright: no run"),
        (
            DocumentError(
                [Problem("a.yaml", 2, 1, "b", "two"), Problem("a.yaml", 1, 5, "a", "one")]
            ),
            2,
            "a.yaml:1:5: a: one\na.yaml:2:1: b: two",
        ),
        (
            ReplayMismatch("changed; give accept_changes", path="", recorded="a", now="b"),
            2,
            "loopwright: changed; give accept_changes; on the command line: --accept-changes",
        ),
        (  # another input: what is accepted would be the output for the input on record
            ReplayMismatch("its input was 1", path="", recorded="a", now="b"),
            2,
            "loopwright: its input was 1",
        ),
        (RunLocked("locked"), 1, "loopwright: locked"),
        (JournalDamaged("damaged"), 1, "loopwright: damaged"),
        (JournalUnavailable("gone"), 1, "loopwright: gone"),
        (OwnershipLost("taken over"), 1, "loopwright: taken over"),
        (FileNotFoundError(2, "No such file", "x"), 1, "loopwright: x: No such file"),
        (
            ZeroDivisionError("by zero"),
            1,
            f"loopwright: ZeroDivisionError: by zero {DEFECT}",
        ),
    ],
)
def test_every_kind_of_error_has_its_words_and_code(
    error: BaseException, code: int, text: str
) -> None:
    """2 is what the caller can mend, 1 a journal out of reach or a defect."""
    assert (exit_code_of(error), error_text(error)) == (code, text)


def test_the_traceback_is_shown_to_those_who_ask(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """LOOPWRIGHT_DEBUG=1 shows where an error came from."""
    monkeypatch.setenv("LOOPWRIGHT_DEBUG", "1")
    with pytest.raises(ConfigurationError) as caught:
        raise ConfigurationError("x: is wrong")
    assert report_error(caught.value) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last)")
    assert "x: is wrong" in err
