"""`loopwright until` in a real terminal: the question, the end, and Ctrl-C once and twice."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from .conftest import Project

CHECK = "cat answer.txt && grep -q 42 answer.txt"
FIRST = [{"write": {"answer.txt": "41"}}, {"say": "Done."}]
SECOND = [{"write": {"answer.txt": "42"}}, {"say": "Fixed."}]
LIMIT = 60.0  # seconds for a text on a busy machine


class Terminal:
    """A command on a terminal that it controls, so that Ctrl-C is a character."""

    def __init__(self, project: Project, *arguments: str) -> None:
        self.shown = ""
        self.pid, self._file = pty.fork()
        if self.pid == 0:  # the child process
            os.chdir(project.folder)
            words = [sys.executable, "-m", "loopwright", *arguments]
            os.execve(words[0], words, project.environ({"TERM": "xterm", "COLUMNS": "120"}))

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._file, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until a text is shown."""
        until = time.monotonic() + LIMIT
        while text not in self.shown:
            assert time.monotonic() < until, self.shown
            self._read()

    def wait(self) -> int:
        """Return the exit code."""
        with suppress(OSError):  # the end of the terminal
            while True:
                self._read()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> None:
        assert select.select([self._file], [], [], LIMIT)[0], self.shown
        data = os.read(self._file, 65536)
        if not data:
            raise OSError
        self.shown += data.decode(errors="replace")


@pytest.fixture
def folder(project: Project) -> Iterator[Project]:
    """A folder with a fake agent whose calls the test writes."""
    script = str(project.folder / "calls.json")  # not the one in the copy, which the agent works in
    words = [
        sys.executable,
        "-m",
        "loopwright.testing.fake_agent",
        "--as",
        "claude",
        "--script",
        script,
    ]
    manifest = {"extends": "claude", "program": words, "tested": []}
    (project.folder / "mine.yaml").write_text(yaml.safe_dump(manifest))
    calls(project, FIRST, SECOND)
    yield project
    # A failed test must not leave the agent.
    for pid in sleepers(project.folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def calls(project: Project, *items: object) -> None:
    (project.folder / "calls.json").write_text(json.dumps(items))


def start(project: Project, *options: str) -> Terminal:
    words = ["until", CHECK, "--workspace", "snapshot", "--no-merge", "--run-id", "one", *options]
    # A sandbox would hide the script, which is a temporary file.
    words += ["--sandbox", "none"]
    return Terminal(project, *words, "--", "./mine.yaml", "write the answer")


def sleepers(folder: Path) -> list[int]:
    """Return the processes that have the folder in their command line."""
    result = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"sleep 600; : {folder}".encode() in entry.read_bytes():
                result.append(int(entry.parent.name))
    return result


def files(project: Project) -> dict[str, str]:
    """Return the files of the workspace that the agent may have written."""
    # Clones of git have more in this folder than the tree.
    place = next((project.folder / ".loopwright" / "trees" / "one").glob("*"))
    names = ("answer.txt", "later.txt")
    return {name: (place / name).read_text() for name in names if (place / name).exists()}


def test_the_first_use_asks(folder: Project) -> None:
    """The question shows folder, sandbox, limits and commands; no runs nothing, yes is remembered."""
    refused = start(folder)
    refused.wait_for("[y/N]")
    for text in ("snapshot of ", "sandbox: ", "at most 10 iterations, 2h", CHECK, "mine.yaml"):
        assert text in refused.shown
    refused.type("n\n")
    assert refused.wait() == 2
    assert not (folder.folder / ".loopwright" / "trees").exists()
    agreed = start(folder)
    agreed.wait_for("[y/N]")
    agreed.type("y\n")
    assert agreed.wait() == 0
    assert "Satisfied" in agreed.shown and files(folder) == {"answer.txt": "42"}
    again = start(folder)
    assert again.wait() == 0 and "[y/N]" not in again.shown


def test_exhausted(folder: Project) -> None:
    """Exit code 3, and the best files in place."""
    calls(folder, FIRST, [{"write": {"later.txt": "x"}}, {"say": "no"}])
    terminal = start(folder, "--yes", "--max", "2")
    assert terminal.wait() == 3
    assert "Exhausted" in terminal.shown and "41" in files(folder)["answer.txt"]


def test_ctrl_c_once_and_resume(folder: Project) -> None:
    """The agent is ended, its files are captured, the best ones are put in place; a resumed run is satisfied."""
    wait = {
        "run": f"sh -c 'trap \"touch asked.txt\" INT; touch later.txt; echo begun; sleep 600; : {folder.folder}'"
    }
    calls(folder, FIRST, [wait])
    terminal = start(folder, "--yes")
    deadline = time.monotonic() + LIMIT
    while not sleepers(folder.folder):
        assert time.monotonic() < deadline, terminal.shown
        select.select([], [], [], 0.05)
    terminal.type("\x03")
    assert terminal.wait() == 130
    assert "loopwright resume one" in terminal.shown and "1 iteration" in terminal.shown
    assert not sleepers(folder.folder)
    assert files(folder) == {"answer.txt": "41"}
    calls(folder, FIRST, SECOND)
    resumed = Terminal(folder, "resume", "one")
    assert resumed.wait() == 0 and "2 iterations" in resumed.shown
    assert files(folder) == {"answer.txt": "42"}


def test_ctrl_c_twice(folder: Project) -> None:
    """The second one ends the program at once, and the supervisor ends the agent."""
    stubborn = {"run": f"sh -c 'trap \"\" INT TERM; sleep 600; : {folder.folder}'"}
    calls(folder, [{"ignore_signals": True}, stubborn])
    terminal = start(folder, "--yes")
    deadline = time.monotonic() + LIMIT
    while not sleepers(folder.folder):
        assert time.monotonic() < deadline, terminal.shown
        select.select([], [], [], 0.05)
    terminal.type("\x03\x03")
    assert terminal.wait() == 130
    deadline = time.monotonic() + 10
    while sleepers(folder.folder) and time.monotonic() < deadline:
        select.select([], [], [], 0.05)
    assert not sleepers(folder.folder)
