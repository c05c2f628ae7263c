"""Every command on a journal in PostgreSQL, and the command for journals themselves."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from loopwright import Usage
from loopwright.cluster.shared_runs import open_runs
from loopwright.journal import RunInfo, open_journal
from loopwright.journal.postgres.connection import VERSION
from postgres_server import PostgresServer

from .conftest import Project
from .test_approving import ASKS
from .test_remembering import _remembers as remembers


@pytest.fixture
def shared(project: Project, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder whose commands use a journal in PostgreSQL."""
    monkeypatch.setenv("LOOPWRIGHT_JOURNAL", postgres_url)
    return project


def test_commands_on_a_run(shared: Project, postgres_url: str) -> None:
    """Run, list, show, export and rewind a run, and resume it."""
    done = shared.call("run", "steps:refine", "--input", "x", "--run-id", "one")
    assert done.code == 0
    assert f"journal: {postgres_url}" in done.out
    assert shared.call("runs").out.split()[:2] == ["one", "satisfied"]
    assert "Satisfied" in shared.call("show", "last").out
    lines = shared.call("export", "one", "--format", "jsonl").out.splitlines()
    assert json.loads(lines[-1])["kind"] == "ended"
    assert shared.call("rewind", "one", "refine/3").code == 0
    assert (
        shared.call("runs", "--status", "interrupted", "--json").json["runs"][0]["run_id"] == "one"
    )
    assert shared.call("resume", "one").code == 0
    assert shared.effects() == ["draft 1", "draft 2", "draft 3", "draft 3"]
    assert shared.call("watch", "one").code == 0


def test_questions_and_their_answers(shared: Project) -> None:
    """A question is listed and answered, and the run continues."""
    (shared.folder / "asks.py").write_text(ASKS)
    sys.modules.pop("asks", None)
    assert shared.call("run", "asks:two", "--input", "x", "--run-id", "one").code == 4
    assert shared.call("approve", "one", "two/sign/who", "--yes").code in (0, 4)
    assert shared.call("cancel", "one").code == 0
    assert shared.call("runs", "--json").json["runs"][0]["status"] == "cancelled"


def test_another_process_is_watched_and_cancelled(shared: Project, postgres_url: str) -> None:
    """A run of one process is cancelled by a second and followed by a third."""
    process = shared.start(
        "run", "steps:waits", "--input", "x", "--run-id", "one", LOOPWRIGHT_JOURNAL=postgres_url
    )
    until = time.monotonic() + 30
    while "waiting 2" not in shared.effects():
        assert time.monotonic() < until
        time.sleep(0.05)
    watching = shared.start("watch", "one", LOOPWRIGHT_JOURNAL=postgres_url)
    cancelled = shared.call("cancel", "one", "--json")
    assert cancelled.json["status"] == "cancelled"
    assert process.wait(30) == watching.wait(30) != 0


def test_the_memory_of_runs(shared: Project) -> None:
    """The spaces that runs remember are listed and shown."""
    remembers(shared)
    assert "desk" in shared.call("memory").out
    assert "mail comes at nine" in shared.call("memory", "desk").out


def test_a_journal_is_created_checked_moved_and_pruned(project: Project, postgres_url: str) -> None:
    """`init` creates the tables, `move` copies from a file, `check` reads all, `prune` deletes old runs."""
    assert (
        project.call("journal", "init", postgres_url).out
        == f"{postgres_url} is ready (format {VERSION})\n"
    )
    remembers(project)
    project.call("run", "steps:refine", "--input", "x", "--run-id", "two")
    project.call("rewind", "two", "refine/3")
    before = [row["run_id"] for row in project.call("runs", "--json").json["runs"]]
    moved = project.call("journal", "move", postgres_url, "--json").json
    assert (moved["copied"], moved["left"]) == (len(before), {})
    assert moved["spaces"] == 2
    again = project.call("journal", "move", postgres_url, "--json").json
    assert (again["copied"], set(again["left"].values())) == (0, {"it exists already"})
    there = ["--journal", postgres_url]
    shown = project.call("runs", "--json", *there).json["runs"]
    assert shown == project.call("runs", "--json").json["runs"]
    for run_id in before:
        own = project.call("export", run_id, "--format", "jsonl").out
        assert project.call("export", run_id, "--format", "jsonl", *there).out == own
    checked = project.call("journal", "check", postgres_url, "--json").json
    assert (checked["runs"], checked["problems"]) == (len(before), [])
    assert project.call("journal", "check").out.endswith("checked, 0 problems\n")
    assert project.call("journal", "prune", postgres_url, "--ended-before", "30d").out == (
        f"deleted 0 runs from {postgres_url}\n"
    )
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    pruned = project.call("journal", "prune", postgres_url, "--ended-before", tomorrow, "--json")
    assert pruned.json["deleted"] == len(before) - 1
    left = project.call("runs", "--json", *there).json["runs"]
    assert [row["run_id"] for row in left] == ["two"]


async def test_move_takes_pins_and_spending_along(
    project: Project, postgres_server: PostgresServer
) -> None:
    """Between two shared journals the host of a workspace and the spending of a run are copied once."""
    urls = [postgres_server.url_of(postgres_server.create_database()) for _ in range(2)]
    async with open_journal(urls[0]) as journal:
        await journal.create([RunInfo("one", "one", queue="slow")])
        runs = open_runs(journal)
        await runs.pin("one", "here")
        await runs.spend([("queue:slow", "one", Usage(calls=3, usd=0.25))])
        await runs.close()
    for _ in range(2):
        moved = await asyncio.to_thread(
            project.call, "journal", "move", urls[1], "--journal", urls[0]
        )
        assert moved.code == 0
    async with open_journal(urls[1]) as journal:
        runs = open_runs(journal)
        assert await runs.pinned() == {"here": ["one"]}
        assert await runs.spent() == {"queue:slow": Usage(calls=3, usd=0.25)}
        await runs.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["move"], "missing argument 'URL'; see: loopwright journal move --help"),
        (
            ["prune", "sqlite:x.db", "--ended-before", "soon"],
            "--ended-before: 'soon' is not a time. Use an age such as 12h, 30d or 8w, or a date such as "
            "2026-01-31.",
        ),
        (
            ["init", "memory:"],
            "journal: 'memory:' has no tables. Use sqlite:PATH or postgres://HOST/DATABASE.",
        ),
    ],
)
def test_what_the_command_refuses(project: Project, words: list[str], message: str) -> None:
    """A wrong action is one sentence and exit code 2."""
    refused = project.call("journal", *words)
    assert (refused.code, message in " ".join(refused.err.split())) == (2, True)


def test_the_password_is_never_shown(project: Project) -> None:
    """A password in a URL appears in no message."""
    done = project.call("runs", "--journal", "postgres://me:secret@127.0.0.1:1/x")
    assert done.code != 0
    assert "secret" not in done.out + done.err
    assert "postgres://me:***@127.0.0.1:1/x" in done.err
