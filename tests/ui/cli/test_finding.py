"""Runs are found: filters, orders, tags, a list that fits the terminal, and the address of the page."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from loopwright import Usage
from loopwright._home import Home
from loopwright.journal import Entry, RunInfo
from loopwright.journal.open import open_journal
from loopwright.records import Evaluation, Iteration
from loopwright.ui.cli.ui import KeptToken, listen
from loopwright.ui.formatting import ago

from .conftest import Project
from .test_views import watched

URL = "sqlite:.loopwright/runs.db"
REASON = "refine/2/execute: the model refused the request of this person"


async def _fill(count: int) -> None:
    now = time.time()
    async with open_journal(URL) as journal:
        for number in range(count):
            begun = now - 3 * 86400 * (number == 0) - 60 * (count - number)
            name = f"a workflow with quite a long name {number}" if number % 2 else "polish"
            stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(begun))
            log = await journal.open(
                RunInfo(f"{stamp}-{number:06}", name, created=begun, updated=begun)
            )
            said = Evaluation(number / 10, feedback=f"feedback {number} on the moon")
            log.append(Entry("iteration", "refine", 1.0, Iteration(1, "in", f"out {number}", said)))
            status, reason = ("failed", "error") if number % 2 else ("satisfied", "score")
            fields = {"status": status, "reason": reason, "detail": REASON, "score": number / 10}
            usage = Usage(calls=number, usd=0.5 / (number + 1))
            await log.close(replace(log.info, iterations=number + 1, usage=usage, **fields))


@pytest.fixture
def filled(project: Project) -> Project:
    """A folder with eight runs, of which the first one began three days ago."""
    asyncio.run(_fill(8))
    return project


def numbers(project: Project, *words: str) -> str:
    """Return the numbers of the runs that `runs` lists."""
    rows = project.call("runs", "--json", *words).json["runs"]
    return "".join(row["run_id"][-1] for row in rows)


def test_runs_are_filtered_and_sorted(filled: Project) -> None:
    """Each option alone and with others; JSON says how many match."""
    assert numbers(filled) == "76543210"
    assert numbers(filled, "--since", "2h") == "7654321"
    assert (
        numbers(filled, "--since", time.strftime("%Y-%m-%d", time.localtime(time.time() + 86400)))
        == ""
    )
    assert numbers(filled, "--status", "failed,cancelled") == "7531"
    assert numbers(filled, "--sort", "cost") == "01234567"
    assert numbers(filled, "--sort", "-score", "--limit", "2") == "01"
    assert (
        numbers(filled, "--sort", "iterations", "--status", "satisfied", "--since", "2h") == "642"
    )
    assert numbers(filled, "--search", "MOON") == "76543210"
    assert numbers(filled, "--search", "out 3") == "3"
    assert numbers(filled, "--search", "feedback 5", "--name", "polish") == ""
    assert filled.call("runs", "--json", "--limit", "3").json["total"] == 8
    assert filled.call("runs", "--json", "--status", "failed", "--limit", "1").json["total"] == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sort", "scor"), "--sort: 'scor' is not an order; did you mean 'score'?"),
        (("--sort", "-x"), "--sort: '-x' is not an order; use one of started, updated, name,"),
        (("--status", "failed,quued"), "--status: 'quued' is not a status; did you mean 'queued'?"),
        (("--since", "2y"), "--since: '2y' is not a time. Use an age such as 12h, 30d or 8w, or a date"),
        (("--tag", "a b"), "--tag: 'a b' is not a name; use 1 to 64 letters, digits, _, -, . and /"),
    ],
)  # fmt: skip
def test_a_wrong_filter_is_one_sentence(
    project: Project, words: tuple[str, ...], message: str
) -> None:
    """It names the option, what is wrong and what is right, with exit code 2."""
    refused = project.call("runs", *words)
    assert refused.code == 2
    assert refused.err.startswith(f"loopwright: {message}")
    assert refused.err.count("\n") == 1


def test_tags_are_given_changed_shown_and_kept(project: Project) -> None:
    """By `run`, `tag` and a resume; a fork and a moved journal have them; a key of the environment is refused."""
    words = (
        "run",
        "steps:refine",
        "-i",
        "x",
        "--run-id",
        "one",
        "--tag",
        "team=search",
        "--tag",
        "pr=7",
    )
    assert project.call(*words).code == 0
    assert project.call(*words[:-4], "--tag", "more=yes").code == 0
    assert project.call("tag", "one", "team=the ops", "pr=").out == "one: more=yes team=the ops\n"
    assert "tags: more=yes team=the ops\n" in project.call("show", "one").out
    assert project.call("runs").out.rstrip().endswith("[more=yes team=the ops]")
    assert project.call("fork", "one", "refine/2", "--run-id", "two").code == 0
    assert project.call("journal", "move", "sqlite:moved.db").code == 0
    for journal in (URL, "sqlite:moved.db"):
        found = project.call(
            "runs", "--tag", "team=the ops", "--tag", "more", "--json", "--journal", journal
        )
        assert [row["run_id"] for row in found.json["runs"]] == ["two", "one"]
        assert found.json["runs"][0]["tags"] == {"more": "yes", "team": "the ops"}
    assert project.call("runs", "--tag", "team=ops").err.startswith("no run matches in ")
    for wrong in ("team", "=x", "team=\n"):
        assert project.call("tag", "one", wrong).err.startswith("loopwright: --tag: ")
        assert project.call("run", "steps:echo", "-i", "x", "--tag", wrong).code == 2
    assert project.call("tag", "three", "a=b").err.startswith("loopwright: there is no run 'three'")
    assert len(project.call("runs", "--json").json["runs"]) == 2


def test_a_key_is_no_tag(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag is recorded, and no record holds a key."""
    project.call("run", "steps:echo", "-i", "x", "--run-id", "one")
    monkeypatch.setenv("SOME_API_KEY", "sk-1234567890abcdefghij")
    for words in (("tag", "one", "key=sk-1234567890abcdefghij"),):
        refused = project.call(*words)
        assert (refused.code, "it contains the value of SOME_API_KEY" in refused.err) == (2, True)


def test_many_runs_are_selected_by_tags_and_time(filled: Project) -> None:
    """`cancel` takes the same filters, and says which ones there are."""
    filled.call("run", "steps:asking", "-i", "x", "--run-id", "asks", "--tag", "team=search")
    assert (
        filled.call("cancel", "--since", "2h", "--search", "nothing").err == "no open run matches\n"
    )
    done = filled.call("cancel", "--tag", "team", "--yes", "--json").json
    assert done == {"matched": 1, "cancelled": ["asks"]}
    refused = filled.call("cancel")
    assert (
        "select runs with --queue, --status, --name, --since, --tag, --search or --source"
        in refused.err
    )


def test_a_narrow_terminal_has_every_column(
    filled: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns: a header, aligned figures, relative times, a cut reason, and beginnings of IDs that find runs."""
    code, shown = watched(monkeypatch, "runs", "-n", "5")
    lines = shown.splitlines()
    assert code == 0
    assert lines[0].split() == ["Run", "Status", "Name", "Iter", "Score", "Cost", "Started", "Why"]
    assert len(lines) == 6 and max(map(len, lines)) <= 80
    for line, number in zip(lines[1:6], "76543", strict=True):
        name, status = line.split()[:2]
        assert status == ("failed" if number in "753" else "satisfied")
        assert filled.call("show", name, "--json").json["run_id"].endswith(number)
        assert "min ago" in line and "refine/2" in line and line.endswith("…")
    for title in ("Iter", "Score", "Cost", "Started"):
        end = lines[0].index(title) + len(title)
        assert all(line[end - 1] != " " and line[end] == " " for line in lines[1:6]), title


def test_a_list_says_how_many_more_there_are(filled: Project) -> None:
    """With the command that lists them, under the same filters and in the same order."""
    told = {
        ("--status", "failed", "--sort", "-cost"): "2 more: loopwright runs --status failed --sort -cost --limit 4\n",
        ("--search", "moon"): "there may be more: loopwright runs --search moon --limit 20\n",
        ("--status", "failed", "--since", "2h", "-n", "4"): "",
    }  # fmt: skip
    for words, more in told.items():
        assert filled.call("runs", "-n", "2", *words).err == more


def test_the_head_of_a_run_fits_the_terminal(
    filled: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line with the name, the run and its start; a pipe gets the whole name and the exact time."""
    _, shown = watched(monkeypatch, "show", "last")
    first = shown.splitlines()[0]
    assert len(first) <= 80
    assert first.endswith("started 1 min ago") and "…  run 2" in first
    piped = filled.call("show", "last").out.splitlines()[0]
    assert piped.startswith("a workflow with quite a long name 7  run ") and "ago" not in piped


def test_a_pipe_gets_whole_ids_and_exact_times(filled: Project) -> None:
    """No header, all columns, whatever the width; the rest of the runs is named on stderr."""
    listed = filled.call("runs", "-n", "2")
    rows = [line.split("  ") for line in listed.out.splitlines()]
    assert [len(row[0]) for row in rows] == [22, 22]
    assert REASON in listed.out and "ago" not in listed.out
    assert listed.err == "6 more: loopwright runs --limit 8\n"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (7100, "1 h ago"),
        (86400 * 2, "2 d ago"),
    ],
)
def test_times_are_relative(seconds: float, told: str) -> None:
    """In whole units; after a month it is the date."""
    assert ago(time.time() - seconds) == told
    assert ago(time.time() - 90 * 86400)[4] == "-"


def test_the_address_of_the_page_stays(project: Project) -> None:
    """Its token and port are kept outside of the project, for its owner alone, until another token is wanted."""
    Home(Path(".loopwright")).make()
    notes: list[str] = []
    kept = KeptToken.of(URL)
    assert kept.read(notes.append) == ("", 0)
    token = kept.make(4321)
    assert KeptToken.of(URL).read(notes.append) == (token, 4321)
    assert KeptToken.of("sqlite:other.db").read(notes.append) == ("", 0)
    assert (
        KeptToken.of("postgres://me:secret@db/runs").name
        == KeptToken.of("postgres://me:x@db/runs").name
    )
    [file] = (project.folder / "state").rglob("*.ui-runs.db")
    assert token not in "".join(
        one.read_text() for one in Path(".loopwright").rglob("*") if one.is_file()
    )
    file.chmod(0o640)
    assert kept.read(notes.append) == ("", 0)
    assert notes == [f"{file} could be read by others, so there is a new token"]
    assert kept.make(1) != token
    kept.forget()
    assert not file.exists()


def test_a_taken_port_is_replaced(project: Project) -> None:
    """The kept port is used if it is free; else another one, unless a person asked for it."""
    with listen(0) as first:
        port = first.getsockname()[1]
        with listen(0, port) as second:
            assert second.getsockname()[1] != port
    with listen(0, port) as again:
        assert again.getsockname()[1] == port
