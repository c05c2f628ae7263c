"""Processes: signals, what is loaded when, and what a terminal sees."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import IO

import pytest

from .conftest import Project

FORBIDDEN = ("pydantic_ai", "starlette", "opentelemetry", "openai", "sqlite3", "yaml", "jinja2")
RESUME = "recorded results are kept; resume: loopwright resume one\n"


def until(stream: IO[str] | None, text: str) -> list[str]:
    """Read lines up to one that begins with `text`."""
    assert stream is not None
    lines: list[str] = []
    for line in stream:
        lines.append(line.rstrip("\n"))
        if line.startswith(text):
            return lines
    raise AssertionError(f"{text!r} never came: {lines}")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_one_signal_leaves_a_run_that_can_go_on(project: Project, name: str) -> None:
    """Exit code 130, the command to go on with on stderr, and no effect is done twice by it."""
    process = project.start("run", "steps:waits", "--run-id", "one")
    until(process.stdout, "waits 2")
    process.send_signal(getattr(signal, name))
    out, err = process.communicate()
    assert process.returncode == 130
    assert out.startswith(f"Interrupted: stopped by {name} (2 iterations, ")
    assert err.endswith(RESUME)
    assert project.call("runs", "--json").json["runs"][0]["status"] == "interrupted"
    (project.folder / "go.txt").touch()
    answer = project.call("resume", "one", "--json")
    assert (answer.code, answer.json["iterations"]) == (0, 3)  # the judge passes the third
    assert project.effects() == ["waiting 1", "waiting 2", "waiting 3"]
    rows = [line for line in answer.err.splitlines() if line.startswith(("waits ", "waits:"))]
    assert rows[0] == "waits: resuming run one in sqlite:.loopwright/runs.db"
    assert [row[:7] for row in rows[1:]] == ["waits 1", "waits 2", "waits 3"]


SLOW = """
schema: loopwright/1
name: slow
steps:
  - name: act
    shell: test -e go.txt || { echo begun > begun; sleep 60; }
"""


def test_a_signal_in_a_command_leaves_one_command_to_type(project: Project) -> None:
    """A command that had begun may have acted; the printed line runs it again without another question."""
    (project.folder / "slow.yaml").write_text(SLOW)
    os.mkfifo(project.folder / "begun")
    process = project.start("run", "slow.yaml", "--yes", "--run-id", "one")
    assert (project.folder / "begun").read_text() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    line = "loopwright resume one --in-doubt rerun"
    assert f"resume: {line}\nslow/act had begun and may have acted; it runs again" in err
    assert f"resume: {line}\n" in project.call("show", "one").out
    # A question that was asked meanwhile needs no answer then, and is not shown as one.
    assert project.call("resume", "one", "--yes").code == 4
    (project.folder / "go.txt").touch()
    answer = project.call(*line.split()[1:], "--yes")
    assert (answer.code, "asks a person" in answer.out) == (0, False)


def test_a_signal_after_the_journal_is_deleted_does_not_deny_the_entries(project: Project) -> None:
    """The message never claims that nothing had been recorded, whichever side notices the loss first."""
    process = project.start("run", "steps:waits", "--run-id", "one")
    until(process.stdout, "waits 2")
    for file in (project.folder / ".loopwright").glob("runs.db*"):
        file.unlink()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode in (1, 130)
    assert "before anything was recorded" not in err


def test_an_interrupted_run_is_one_object_too(project: Project) -> None:
    """Under --json stdout holds what is on record so far, with the status cancelled."""
    process = project.start("run", "steps:waits", "--run-id", "one", "--json")
    until(process.stderr, "waits 2")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    data = json.loads(out)
    assert process.returncode == 130
    assert (data["run_id"], data["status"], data["iterations"]) == ("one", "cancelled", 2)
    assert data["best"] == {"iteration": 2, "score": 0.5}
    assert data["output"] == 2


def test_a_second_signal_ends_at_once(project: Project) -> None:
    """A step that will not be cancelled cannot hold the process; what is recorded stays."""
    process = project.start("run", "steps:stubborn", "--run-id", "one")
    until(process.stdout, "begun")
    process.send_signal(signal.SIGINT)
    until(process.stdout, "not I")
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert project.call("show", "one", "--json").json["status"] == "interrupted"


def test_a_blocked_thread_does_not_hold_the_process(project: Project) -> None:
    """A plain function that never returns is left behind at the first signal."""
    process = project.start("run", "steps:blocking", "--run-id", "one")
    until(process.stdout, "begun")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.endswith(RESUME)


def test_cancel_ends_a_run_for_good(project: Project) -> None:
    """The owner ends it as cancelled: both commands say so, and it is not interrupted."""
    process = project.start("run", "steps:waits", "--run-id", "one")
    until(process.stdout, "waits 2")
    answer = project.call("cancel", "one")
    out, _ = process.communicate()
    assert (answer.code, answer.out) == (0, "one was running and is now cancelled\n")
    assert process.returncode == 130
    assert "Cancelled: cancelled by a person (3 iterations, " in out
    assert project.call("show", "one", "--json").json["status"] == "cancelled"


def test_a_run_that_runs_elsewhere_is_locked(project: Project) -> None:
    """Nobody goes on with it, and the sentence says how to end it."""
    process = project.start("run", "steps:waits", "--run-id", "one")
    until(process.stdout, "waits 2")
    answer = project.call("resume", "one")
    process.kill()
    process.communicate()
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.endswith("or stop it with: loopwright cancel one\n")


def test_a_killed_run_shows_what_was_in_flight(project: Project) -> None:
    """No farewell is needed: what was acknowledged is there, and the rest is told as in doubt."""
    process = project.start("run", "steps:waits", "--run-id", "one")
    until(process.stdout, "waits 2")
    process.kill()
    process.wait()
    out = project.call("show", "one").out
    assert "Interrupted: its process has ended; the recorded results are kept (2 iter" in out
    assert out.endswith("resume: loopwright resume one\n")
    last = project.call("show", "one", "--trace").out.splitlines()[-1]
    assert "check evaluate  0.50 round 2 is long" in last or "in flight" in last
    (project.folder / "go.txt").touch()
    assert project.call("resume", "one", "--json").json["iterations"] == 3
    assert project.effects() == ["waiting 1", "waiting 2", "waiting 3"]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["runs", "--name", "one"], ["show", "last"]]
)
def test_a_short_command_loads_no_library_that_it_does_not_need(
    project: Project, arguments: list[str]
) -> None:
    """Neither the libraries of models, documents and pages nor rich and pydantic are loaded to print help or runs."""
    names = {*FORBIDDEN, "rich", "pydantic"}
    script = (
        "import sys; from loopwright.ui.cli import main\n"
        f"main({arguments!r})\n"
        f"print(sorted(set(sys.modules) & {names!r}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=project.folder,
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_run_of_python_steps_loads_no_model_library(project: Project) -> None:
    """What a run does not use it does not pay for."""
    script = (
        "import sys; from loopwright.ui.cli import main\n"
        "main(['run', 'steps:short', '--journal', 'memory:'])\n"
        f"print(sorted(set(sys.modules) & {set(FORBIDDEN)!r}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        cwd=project.folder, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "[]"


def test_completion_knows_options_of_commands(project: Project) -> None:
    """A shell is told a command's options, though its module is loaded only when it is called."""
    answer = project.run(
        _LOOPWRIGHT_COMPLETE="complete_bash", COMP_WORDS="loopwright show --tra", COMP_CWORD="2"
    )
    assert answer.out.split() == ["--trace", "--traceback"]


def on_terminal(project: Project, *arguments: str, **environ: str) -> tuple[int, str]:
    """Run a command on a terminal of 80 columns and return its code and all that was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "loopwright", *arguments],
        cwd=project.folder, env=project.environ({"COLUMNS": "80", "TERM": "xterm", **environ}),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the terminal is gone once its last process is
        while read := os.read(ours, 65536):
            shown += read
    os.close(ours)
    return process.wait(), shown.decode()


def test_a_terminal_sees_rows_with_bars(project: Project) -> None:
    """Rows in colour as rounds end, what is in flight below them, the cursor back at the end."""
    code, shown = on_terminal(project, "run", "steps:refine", "--input", "x")
    assert code == 0
    assert "█████████░" in shown
    assert "✓ passed" in shown
    assert "s total" in shown
    assert "\x1b[32m" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert "Satisfied: score 0.9 is at least 0.9" in shown


def test_no_color_and_plain_encodings_are_respected(project: Project) -> None:
    """NO_COLOR leaves the rows without colours, ASCII without blocks."""
    _, shown = on_terminal(
        project, "run", "steps:refine", NO_COLOR="1", PYTHONUTF8="0", PYTHONIOENCODING="ascii"
    )
    assert "#########. 0.90" in shown
    assert "\x1b[32m" not in shown
    assert shown.isascii()


def test_a_dumb_terminal_gets_plain_lines(project: Project) -> None:
    """Where nothing can be redrawn nothing is."""
    _, shown = on_terminal(project, "run", "steps:refine", TERM="dumb")
    assert "\x1b" not in shown
    assert "refine 1: score 0.25, not yet" in shown


def test_the_command_and_the_module_are_the_same_program(project: Project) -> None:
    """`loopwright` calls what `python -m loopwright` calls."""
    (entry,) = metadata.entry_points(group="console_scripts", name="loopwright")
    assert entry.value == "loopwright_command:main"
    assert project.run("--version").out == f"loopwright {metadata.version('loopwright')}\n"


def test_commands_to_copy_name_the_program_as_it_was_called(project: Project) -> None:
    """A program that is on nobody's path is named as it was typed, one that is found by its name."""
    script = Path(sys.executable).with_name("loopwright")
    there = project.folder / "bin"
    there.symlink_to(script.parent)

    def called(path: str) -> str:
        done = subprocess.run(
            ["bin/loopwright", "run", "steps:echo", "--input", "x", "--run-id", "one"],
            cwd=project.folder, env=project.environ({"PATH": path}), capture_output=True,
            encoding="utf-8", check=True,
        )  # fmt: skip
        return done.stdout.splitlines()[-1]

    assert called("/usr/bin:/bin") == "details: bin/loopwright show one"
    assert called(f"{script.parent}:/usr/bin:/bin") == "details: loopwright show one"


@pytest.mark.parametrize("width", [40, 49, 53, 54, 56, 57, 61, 80])
def test_a_row_of_runs_is_never_wider_than_the_terminal(project: Project, width: int) -> None:
    """Whatever is left out, no blanks run over the edge and put an empty line between the rows."""
    run_id = "20261121-100714-4t4ln8"
    project.call("run", "steps:echo", "--input", "x", "--run-id", run_id)
    _, shown = on_terminal(project, "runs", COLUMNS=str(width), NO_COLOR="1")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert max(len(line) for line in plain.splitlines()) <= width


@pytest.mark.parametrize(
    "module", ["loopwright.conditions", "loopwright.ui.cli.options", "loopwright.documents"]
)
def test_ctrl_c_during_an_import_prints_no_traceback(
    project: Project, module: str, tmp_path: Path
) -> None:
    """Exit code 130 and no text, whatever is imported when the signal comes, the package itself included."""
    # A module that stops the import in its middle; the interpreter looks for it first.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    done = subprocess.run(
        [str(Path(sys.executable).with_name("loopwright")), "check", "none.yaml"],
        cwd=project.folder, env=project.environ({"PYTHONPATH": str(tmp_path)}), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
