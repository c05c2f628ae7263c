"""What an operator sees of workers and queues on the command line, and says to them."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from loopwright import Loop, MaxIterations
from loopwright.cluster import InMemoryDeliverer, Worker
from loopwright.cluster.shared_runs import SharedRuns, SweepInfo, WorkerInfo
from loopwright.journal import Journal, open_journal
from loopwright.ui.cluster_state import ClusterState

from .conftest import Answer, Project
from .test_trust import on_terminal

HERE = f"{socket.gethostname()}:{os.getpid()}"
SUBMIT = ("submit", "steps:refine", "--input", "x")
count = Loop(lambda n: n + 1, until=MaxIterations(1), name="count")


@pytest.fixture
def shared(project: Project, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder whose commands use a journal in PostgreSQL."""
    monkeypatch.setenv("LOOPWRIGHT_JOURNAL", postgres_url)
    return project


def beside_a_worker(
    url: str, work: Callable[[Journal, SharedRuns], Awaitable[None]], **queues: int
) -> None:
    """Call `work` while a worker of some queues has entered, but serves nothing."""

    async def called() -> None:
        async with open_journal(url) as journal:
            worker = Worker(journal=journal, deliverer=InMemoryDeliverer(), queues=queues or None)
            async with worker:
                assert worker.runs is not None
                await work(journal, worker.runs)

    asyncio.run(called())


def test_workers_shows_the_sweep_and_who_is_draining(shared: Project, postgres_url: str) -> None:
    """Who swept and when, as text and as JSON; a worker that was told to end is marked, an unknown one refused."""
    shown: list[Answer] = []

    async def look(_: Journal, runs: SharedRuns) -> None:
        await runs.beat(0, swept=True)
        words = [
            ("list",),
            ("list", "--json"),
            ("drain", "elsewhere:1"),
            ("drain", HERE),
            ("list",),
        ]
        shown.extend([await asyncio.to_thread(shared.call, "worker", *one) for one in words])
        assert (await runs.beat(0)).drains

    beside_a_worker(postgres_url, look)
    first, data, unknown, drained, last = shown
    assert f"s ago by {HERE}\n" in first.out
    assert f"{HERE}  active, since" in first.out
    assert data.json["sweep"]["worker"] == HERE
    assert unknown.code == 2
    assert "no worker 'elsewhere:1' is active; list them with: loopwright worker list" in unknown.err  # fmt: skip
    assert (
        drained.out
        == f"{HERE} takes no new runs, and ends after those in progress, or after its --drain seconds\n"
    )
    assert f"{HERE}  ends, since" in last.out


def test_a_late_sweep_is_a_warning(shared: Project, postgres_url: str) -> None:
    """It is one while workers are alive; without any, the note that none serves is enough."""
    shown: list[Answer] = []

    async def look(_: Journal, runs: SharedRuns) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as db:
            db.execute("UPDATE loopwright_queue.sweeper SET swept = now() - interval '2 hours'")
        shown.append(await asyncio.to_thread(shared.call, "worker", "list"))

    beside_a_worker(postgres_url, look)
    assert f"no worker has swept for 2h 00m, last by {HERE}: scheduled runs" in shown[0].out
    assert "swept" not in shared.call("worker", "list").out
    silent = WorkerInfo("host:1", alive=False)
    lost = ClusterState([silent], [], [], {}, {}, SweepInfo("", 40.0), time.time())
    assert not lost.is_sweep_late


def test_an_operator_pauses_a_queue_and_lets_it_continue(
    shared: Project, postgres_url: str
) -> None:
    """`queues` lists, pauses and continues; what is paused is listed without a run too."""
    shared.call(*SUBMIT, "--queue", "nightly")
    paused = shared.call("worker", "queues", "nightly", "--pause")
    assert paused.out == "nightly is paused: workers take none of its runs\n"
    assert (
        shared.call("worker", "queues", "nightly", "--pause").out == "nightly is paused already\n"
    )
    line = "nightly  1 waiting, the oldest for "
    for command in ("queues", "list"):
        listed = shared.call("worker", command).out
        assert line in listed
        assert listed.endswith("0 suspended; paused\n")
    shared.call("cancel", "last")
    assert shared.call("worker", "queues", "nightly", "--json").json == {
        "queues": [
            {"name": "nightly", "waiting": 0, "scheduled": 0, "running": 0, "suspended": 0, "oldest": 0.0, "paused": True}
        ]
    }  # fmt: skip
    assert shared.call("worker", "queues", "nightly", "--continue").out == "nightly continues\n"
    assert "no submitted run is open" in shared.call("worker", "queues").err


def test_a_queue_that_does_not_exist_is_refused(shared: Project, postgres_url: str) -> None:
    """The nearest queue is named: one with runs, or one that a worker serves."""
    shared.call("journal", "init")
    shown: list[Answer] = []

    async def look(_: Journal, __: SharedRuns) -> None:
        words = [
            ("nightli", "--pause"),
            ("--pause",),
            ("nightly", "--pause", "--continue"),
            ("nightly", "--pause"),
        ]
        shown.extend(
            [await asyncio.to_thread(shared.call, "worker", "queues", *one) for one in words]
        )

    beside_a_worker(postgres_url, look, nightly=2)
    unknown, unnamed, both, served = shown
    assert [one.code for one in shown] == [2, 2, 2, 0]
    assert "no queue 'nightli' has runs or a worker; did you mean 'nightly'?" in unknown.err
    assert "Name the queue: loopwright worker queues QUEUE --pause" in unnamed.err
    assert "--pause and --continue exclude each other" in both.err
    assert "is paused" in served.out


def test_submit_names_the_command_that_lets_the_run_start(
    shared: Project, postgres_url: str
) -> None:
    """Nobody serves the queue, or it is paused: a note on stderr, and the submission is done."""
    for words in [(), ("--in", "1h"), ("--json",)]:
        alone = shared.call(*SUBMIT, "--queue", "nightly", *words)
        assert alone.code == 0
        assert (
            "no worker serves the queue nightly; start one: loopwright worker start --queue nightly "
            in alone.err
        )
    assert len(alone.json["runs"]) == 1
    shown: list[Answer] = []

    async def look(_: Journal, runs: SharedRuns) -> None:
        shown.append(await asyncio.to_thread(shared.call, *SUBMIT, "--queue", "nightly"))
        await runs.pause_queue("nightly", on=True)
        shown.append(await asyncio.to_thread(shared.call, *SUBMIT, "--queue", "nightly"))
        shown.append(await asyncio.to_thread(shared.call, "show", "last"))

    beside_a_worker(postgres_url, look, nightly=1)
    served, paused, show = shown
    assert "nightly" not in served.err
    assert (
        "the queue nightly is paused; let it continue: loopwright worker queues nightly --continue "
        in paused.err
    )
    assert "Queued: the queue nightly is paused" in show.out


def test_runs_are_cancelled_by_a_filter(shared: Project) -> None:
    """The number and the first five are shown first; without a terminal --yes is needed, and others stay."""
    for number in range(7):
        shared.call(*SUBMIT, "--queue", "nightly", "--id", f"night {number}")
    shared.call(*SUBMIT, "--id", "day")
    refused = shared.call("cancel", "--queue", "nightly", "--status", "queued")
    assert refused.code == 2
    lines = refused.err.splitlines()
    assert lines[0] == "cancel 7 runs:"
    assert lines[1].startswith("  night-0-")
    assert lines[6] == "  and 2 more"
    assert "Without a terminal, look at these runs and repeat with --yes" in lines[7]
    assert len(shared.call("runs", "--status", "queued", "--json").json["runs"]) == 8
    done = shared.call("cancel", "--queue", "nightly", "--name", "refine", "--yes")
    assert done.out == "cancelled 7 runs\n"
    [left] = shared.call("runs", "--status", "queued", "--json").json["runs"]
    assert left["run_id"].startswith("day-")
    again = shared.call("cancel", "--queue", "nightly", "--yes")
    assert (again.code, again.out, again.err) == (0, "", "no open run matches\n")
    data = shared.call("cancel", "--status", "queued", "--yes", "--json").json
    assert data == {"matched": 1, "cancelled": [left["run_id"]]}


def test_a_terminal_is_asked_before_runs_are_cancelled(shared: Project, postgres_url: str) -> None:
    """The question comes after the runs that match; anything but yes cancels nothing."""
    shared.call(*SUBMIT, "--queue", "nightly", "--id", "night")

    def cancel(answer: str) -> tuple[int, str]:
        return on_terminal(
            shared, answer, "cancel", "--queue", "nightly", "--journal", postgres_url
        )

    for answer in ("n\n", "\n", "\x04"):
        code, shown = cancel(answer)
        assert code == 2
        assert "no run was changed" in shown
        assert shown.index("  night-") < shown.index("Do it? [y/N]")
    assert shared.call("runs", "--json").json["runs"][0]["status"] == "queued"
    code, shown = cancel("y\n")
    assert (code, "cancelled 1 run" in shown) == (0, True)
    assert shared.call("runs", "--json").json["runs"][0]["status"] == "cancelled"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Name either a RUN, or select runs with --queue, --status, --name, --since, --tag, --search or --source."),
        (("r", "--queue", "nightly"), "Name either a RUN, or select runs"),
        (("r", "--yes"), "--yes is for --queue, --status, --name, --since, --tag, --search or --source; a RUN needs none."),
        (("--status", "failed"), "--status: this is not for failed runs; use one of queued, running"),
        (("--status", "queud"), "--status: 'queud' is not a status; did you mean 'queued'?"),
        (("--queue", "nightli", "--yes"), "--queue: 'nightli' is not a queue of this journal; did you mean 'nightly'?"),
    ],
)  # fmt: skip
def test_a_filter_with_a_mistake_cancels_nothing(
    shared: Project, words: tuple[str, ...], message: str
) -> None:
    """One sentence names what is wrong, with exit code 2."""
    shared.call(*SUBMIT, "--queue", "nightly")
    refused = shared.call("cancel", *words)
    assert refused.code == 2
    assert message in refused.err
    assert shared.call("runs", "--json").json["runs"][0]["status"] == "queued"


def test_schedules_are_listed_paused_and_continued(shared: Project) -> None:
    """The next time is shown, or that it is paused, also by `show`; an ended or unknown one is refused."""
    nightly = (*SUBMIT, "--id", "nightly", "--cron")
    [run_id] = shared.call(*nightly, "0 6 * * *", "--json").json["runs"]
    shared.call(*SUBMIT, "--id", "weekly", "--cron", "0 7 * * 1", "--queue", "slow")
    listed = shared.call("worker", "schedules").out.splitlines()
    assert [line.partition(", queue")[2] for line in listed] == [" default", " slow"]
    assert listed[0].startswith("nightly  0 6 * * *  next: ")
    assert "06:00" in listed[0]
    assert (
        shared.call("worker", "schedules", "nightly", "--pause").out
        == "nightly  0 6 * * *  paused, queue default\n"
    )
    assert (
        "nightly is paused already" in shared.call("worker", "schedules", "nightly", "--pause").err
    )
    assert "Queued: its schedule is paused" in shared.call("show", "nightly").out
    assert "its schedule is paused" in shared.call("runs").out
    one = shared.call("worker", "schedules", "nightly", "--json").json["schedules"][0]
    assert (one["run_id"], one["paused"], one["next"]) == (run_id, True, 0.0)
    assert shared.call("worker", "schedules", "nightly", "--continue").out == listed[0] + "\n"
    assert (
        "nightly was not paused" in shared.call("worker", "schedules", "nightly", "--continue").err
    )
    shared.call("worker", "schedules", "nightly", "--pause")
    # A repeated submission lets it continue, with the same run.
    assert shared.call(*nightly, "0 6 * * *", "--json").json["runs"] == [run_id]
    assert shared.call("worker", "schedules", "nightly").out == listed[0] + "\n"
    shared.call("cancel", "nightly")
    ended = shared.call("worker", "schedules", "nightly", "--pause")
    assert ended.code == 2
    assert "no schedule 'nightly' has a next run" in ended.err


def test_a_filter_says_which_schedules_end(shared: Project) -> None:
    """The queued run of a schedule is its future, so that is said before it is cancelled."""
    shared.call(*SUBMIT, "--id", "nightly", "--cron", "0 6 * * *")
    refused = shared.call("cancel", "--status", "queued")
    assert "\nthis ends the schedules nightly\n" in refused.err
    assert shared.call("cancel", "--status", "queued", "--yes").out == "cancelled 1 run\n"


def test_times_that_have_passed_are_backfilled_once(shared: Project) -> None:
    """Each time gets one run, in the queue of its schedule; repeating it creates none twice."""
    shared.call(*SUBMIT, "--id", "nightly", "--cron", "0 6 * * *", "--queue", "slow")
    days = (
        "worker",
        "schedules",
        "nightly",
        "--backfill",
        "2026-01-01T06:00Z",
        "--to",
        "2026-01-03T06:00Z",
    )
    assert shared.call(*days).out == "created 3 runs of nightly\n"
    again = shared.call(*days[:-1], "2026-01-04T07:00Z").out.splitlines()
    assert again[0] == "created 1 run of nightly"
    assert again[1].startswith("3 runs existed already: nightly-2026-01-01T06-00Z-")
    assert shared.call(*days, "--json").json["created"] == []
    waiting = shared.call("worker", "queues").out
    assert waiting.startswith("slow  4 waiting")
    assert "1 scheduled" in waiting
    # Its name stands for the run of the next time all the same, and cancelling it ends all that wait.
    assert "it starts at" in shared.call("show", "nightly").out
    assert "the schedule nightly has ended" in shared.call("cancel", "nightly").out
    assert "no submitted run is open" in shared.call("worker", "queues").err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nightli", "--pause"), "no schedule 'nightli' has a next run; did you mean 'nightly'?"),
        (("nightli",), "did you mean 'nightly'?"),
        (("--pause",), "Name the schedule: loopwright worker schedules NAME --pause"),
        (("nightly", "--pause", "--continue"), "--pause, --continue and --backfill exclude each other"),
        (("nightly", "--to", "2026-01-01"), "--to needs --backfill FROM"),
        (("nightly", "--backfill", "yesterday"), "--backfill: 'yesterday' is not a time"),
        (("nightly", "--backfill", "2026-01-02", "--to", "2026-01-01"), "the first moment must come before"),
        (("nightly", "--backfill", "1d", "--to", "2999-01-01"), "neither may be later than now"),
        (("nightly", "--backfill", "2020-01-01"), "more than 1,000 times between these moments"),
    ],
)  # fmt: skip
def test_a_mistake_about_a_schedule_changes_nothing(
    shared: Project, words: tuple[str, ...], message: str
) -> None:
    """One sentence with exit code 2."""
    shared.call(*SUBMIT, "--id", "nightly", "--cron", "0 6 * * *")
    refused = shared.call("worker", "schedules", *words)
    assert refused.code == 2
    assert message in refused.err
    assert len(shared.call("runs", "--json").json["runs"]) == 1
