"""`watch`: a run of another process is followed to its end, and none of its iterations is missed."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from loopwright import Iteration, MemoryJournal
from loopwright.errors import JournalUnavailable
from loopwright.journal import Entry, RunInfo
from loopwright.ui.cli.live import LiveView
from loopwright.ui.cli.output import Output
from loopwright.ui.cli.watch import _follow

from .conftest import Project


def test_a_run_of_another_process_is_followed_to_its_end(project: Project) -> None:
    """Two watchers see every iteration and the end, with the run's own exit code."""
    process = project.start("run", "steps:waits", "--input", "x", "--run-id", "one")
    assert process.stdout is not None
    process.stdout.readline()
    early = project.start("watch", "one")
    late = project.start("watch", "one", "--json")
    assert early.stdout is not None
    first = early.stdout.readline()
    assert first.startswith("waits: run one in sqlite:")
    while not early.stdout.readline().startswith("waits 2"):
        pass
    (project.folder / "go.txt").touch()
    process.send_signal(signal.SIGINT)  # it waits for ever: the next process goes on with the file
    process.wait()
    out, err = early.communicate()
    assert early.returncode == late.wait() == 130
    assert "resume: loopwright resume one" in err
    assert "Interrupted: " in out


def test_a_finished_run_is_shown_whole(project: Project) -> None:
    """Who comes late sees all of it, and the exit code of the run."""
    project.call("run", "steps:short", "--input", "x", "--run-id", "one")
    done = project.call("watch", "one")
    assert done.code == 3
    assert re.findall(r"^short \d", done.out, re.MULTILINE) == ["short 1", "short 2"]
    assert "Exhausted: 2 of 2 iterations used" in done.out
    data = project.call("watch", "one", "--json")
    assert (data.code, data.json["iterations"]) == (3, 2)
    assert project.call("watch", "two").code == 2


class Broken(MemoryJournal):
    """A journal that cannot be read every other time, and of which each look sees a little more."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self.looks = 0
        self.total = total

    async def find(self, run_id: str) -> RunInfo:
        self.looks += 1
        if self.looks % 2:
            raise JournalUnavailable("the disk is away")
        status = "running" if self.looks < 2 * self.total else "satisfied"
        return RunInfo(run_id, "l", status=status)

    async def entries(self, run_id: str, *, after: int = 0, limit: int = 0) -> list[Entry]:
        known = range(1, min(self.total, self.looks) + 1)
        found = [Entry("iteration", "l", 1.0, Iteration(n, output=n), seq=n) for n in known]
        return found[after:]


async def test_a_journal_that_comes_and_goes_loses_no_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each entry is heard once and in order, however the looks fall."""
    monkeypatch.setattr("loopwright.ui.cli.watch.POLL_SECONDS", 0.0)
    heard: list[Any] = []
    view = LiveView(Output())
    monkeypatch.setattr(view, "show_entry", lambda entry: heard.append(entry.value.number))
    info, entries = await _follow(Broken(40), "r", view)
    assert heard == list(range(1, 41))
    assert (info.status, len(entries)) == ("satisfied", 40)
