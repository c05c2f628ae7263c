"""`signal` and `resume --due`: an event of another process ends the wait of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopwright.journal.signal_urls import signal_url
from warm_python import warm_python

from .conftest import Project

RELEASE = """schema: loopwright/1
name: release
steps:
  - name: ci
    wait: {event: done, timeout: 2h}
  - {name: report, set: "{{ ci.value }} by {{ ci.ended }}"}
"""


@pytest.fixture
def waiting(project: Project) -> Project:
    """A folder with a run that waits for an event, and has left its process."""
    (project.folder / "release.yaml").write_text(RELEASE)
    answer = project.call("run", "release.yaml", "--run-id", "r", "--on-wait", "leave")
    assert answer.code == 4, answer.err
    return project


def test_a_waiting_run_says_how_its_wait_ends(waiting: Project) -> None:
    """`show` names the event, its key and the command that continues the run, and `runs` what it waits for."""
    shown = waiting.call("show", "r").out
    assert "Suspended: release/ci waits for the event done until" in shown
    assert "\nsend the event: loopwright signal done --run r\n" in shown
    assert shown.endswith("continue when it is over: loopwright resume --due\n")
    assert "release/ci waits for the event done" in waiting.call("runs").out
    assert waiting.call("resume", "--due").err == "no wait of a suspended run is over\n"


def test_a_value_that_does_not_fit_is_refused_while_a_run_waits(project: Project) -> None:
    """Nothing is stored; without a run that waits, it is stored and judged later."""
    text = RELEASE.replace("event: done,", "event: done, key: k, schema: {type: object},")
    (project.folder / "release.yaml").write_text(text)
    project.call("run", "release.yaml", "--run-id", "r", "--on-wait", "leave")
    answer = project.call("signal", "done", "--key", "k", "--data", '"green"')
    assert (answer.code, "its value does not fit" in answer.err) == (2, True)
    assert project.call("signal", "done", "--key", "k", "--data", "{}").out.startswith("stored; 1")
    assert project.call("signal", "done", "--key", "other", "--data", '"x"').code == 0
    empty = project.call("signal", "done", "--key", "")
    assert (empty.code, "give one of --key and --run" in empty.err) == (2, True)


def test_a_run_in_its_process_shows_what_it_waits_for(waiting: Project) -> None:
    """Also after its process was killed."""
    process = waiting.start("run", "release.yaml", "--run-id", "stays")
    line = "release/ci waits for the event done"
    while line not in waiting.call("show", "stays").out:
        assert process.poll() is None
    process.kill()
    process.wait()
    assert line in waiting.call("show", "stays").out


def test_an_event_ends_the_wait_of_a_run(waiting: Project) -> None:
    """It is stored once, and `resume --due` continues the run."""
    send = ("signal", "done", "--run", "r", "--data", '"green"', "--event-id", "x")
    assert waiting.call(*send).out == "stored; 1 run waits for it\n"
    assert waiting.call(*send).out.startswith("received before, at 20")
    answer = waiting.call("resume", "--due")
    assert (answer.code, answer.out) == (
        0,
        "r: satisfied: release completed\n1 run: 1 satisfied\n",
    )
    assert waiting.call("show", "r", "--json").json["output"] == "green by event"
    assert waiting.call("resume", "--due").err == "no wait of a suspended run is over\n"


def test_a_wait_whose_process_was_killed_continues(waiting: Project) -> None:
    """`resume --due` has a run of which nobody took what ended its wait."""
    opened = """
import asyncio, os
from loopwright.journal import open_journal
async def main():
    journal = open_journal("sqlite:.loopwright/runs.db")
    await journal.open(await journal.find("r"), resume=True)
    os._exit(9)
asyncio.run(main())
"""
    assert warm_python().run(["-c", opened], cwd=waiting.folder).returncode == 9
    waiting.call("signal", "done", "--run", "r")
    assert waiting.call("resume", "--due").out.startswith("r: satisfied: release completed\n")


def test_a_cancelled_wait_waits_no_longer(waiting: Project) -> None:
    """`cancel` ends the run where it lies, and an event finds no run."""
    assert waiting.call("cancel", "r").code == 0
    assert waiting.call("signal", "done", "--key", "r").out == "stored; no run waits for it\n"
    assert waiting.call("resume", "--due").err == "no wait of a suspended run is over\n"


def test_a_held_run_names_the_command_that_continues_it(waiting: Project) -> None:
    """It is no question with an answer, its event does not wake it, and after the hold it still has to be resumed."""
    assert waiting.call("hold", "r").out == "r is held\n"
    waiting.call("signal", "done", "--run", "r", "--data", "1")
    assert waiting.call("resume", "--due").err == "no wait of a suspended run is over\n"
    held = waiting.call("resume", "r").out
    assert held.endswith("continue: loopwright continue r\n")
    assert "answer:" not in held
    assert waiting.call("show", "r").out.endswith("continue: loopwright continue r\n")
    assert waiting.call("continue", "r").out.startswith("r is not held any more\nresume: ")
    assert "goes on when you resume it" in waiting.call("continue", "r").err
    assert waiting.call("resume", "--due").out.startswith("r: satisfied")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["done"], "give one of --key and --run"),
        (["done", "--key", "k", "--run", "r"], "give one of --key and --run"),
        (["a b", "--key", "k"], "'a b' is not a name"),
        (["done", "--key", "k", "--data", "{"], "--data: it is not JSON"),
        (["done", "--key", "k", "--data", "NaN"], "--data: it is not JSON"),
        (["done", "--key", "k", "--file", "none.json"], "--file: 'none.json' cannot be read"),
        (["done", "--run", "other"], "there is no run 'other'"),
    ],
)
def test_wrong_events_are_refused(waiting: Project, words: list[str], said: str) -> None:
    """Nothing is stored, and the sentence says what is expected."""
    answer = waiting.call("signal", *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_an_event_needs_a_journal(project: Project) -> None:
    """A journal that does not exist is not made by a misspelt path."""
    answer = project.call("signal", "done", "--key", "k", "--journal", "sqlite:none/runs.db")
    assert answer.code == 2
    assert not Path(project.folder, "none").exists()


ADDRESSES = """schema: loopwright/1
name: addresses
steps:
  - {name: url, set: "{{ signal_url('done') }}"}
  - {name: ci, wait: {event: done, timeout: 2h}}
  - {name: report, set: "{{ url }} {{ signal_url('ci', ci.value.n) }}"}
"""


def test_a_document_makes_the_addresses_of_its_events(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is that of its run, a resume renders the same, and no export has its token."""
    monkeypatch.setenv("LOOPWRIGHT_PUBLIC_URL", "https://ci.example/")
    (project.folder / "a.yaml").write_text(ADDRESSES)
    assert project.call("run", "a.yaml", "--run-id", "r", "--on-wait", "leave").code == 4
    project.call("signal", "done", "--run", "r", "--data", '{"n": 7}')
    project.call("resume", "--due")
    first, second = project.call("show", "r", "--json").json["output"].split()
    assert (first, second) == (signal_url("r", "done"), signal_url("r", "ci", "7"))
    assert first.startswith("https://ci.example/signal/r/done/r?token=")
    for form in ("json", "jsonl", "csv", "html"):
        text = project.call("export", "r", "--format", form).out
        assert not any(url.partition("token=")[2][:20] in text for url in (first, second))
        assert form == "csv" or "/signal/r/ci/7?token=[redacted]" in text


def test_an_address_needs_to_be_public(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` notes it at its place, and a run says which variable is missing."""
    monkeypatch.delenv("LOOPWRIGHT_PUBLIC_URL", raising=False)
    (project.folder / "a.yaml").write_text(ADDRESSES)
    said = project.call("check", "a.yaml").err
    assert said.startswith("note: a.yaml:4:22: steps[0].set: no_public_url: signal_url() fails")
    answer = project.call("run", "a.yaml")
    assert answer.code == 1
    assert "signal_url() needs LOOPWRIGHT_PUBLIC_URL" in answer.out
    monkeypatch.setenv("LOOPWRIGHT_PUBLIC_URL", "https://ci.example")
    assert "no_public_url" not in project.call("check", "a.yaml").err
    (project.folder / "a.yaml").write_text(ADDRESSES.replace("'done'", "'no name'"))
    assert "'no name' is not a name" in project.call("run", "a.yaml").out


def test_a_pause_for_a_quota_ends_at_its_time(project: Project) -> None:
    """`resume --due` continues the run then, and not before."""
    (project.folder / "quota.py").write_text("""
from pathlib import Path
from loopwright import Reason, Stop, step
from loopwright.errors import Suspended

async def asks(value):
    until = float(Path("until.txt").read_text())
    if until:
        raise Suspended(Stop(Reason.QUOTA, "later"), path="asks", request={"until": until})
    return value

asks = step(asks, name="asks", fingerprint="asks/1", idempotent=True)
""")
    until = project.folder / "until.txt"
    for time, said in (("9e9", "no wait of a suspended run is over\n"), ("1", "")):
        until.write_text(time)
        assert project.call("run", "quota:asks", "--input", "x", "--run-id", f"r{time}").code == 4
        until.write_text("0")
        assert project.call("resume", "--due", "--yes").err == said
    assert project.call("show", "r1", "--json").json["status"] == "satisfied"
    assert project.call("show", "r9e9", "--json").json["status"] == "suspended"
