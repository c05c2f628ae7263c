"""Submitted runs on the command line: why they wait, when they start, and that workers continue them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import psycopg
import pytest

from loopwright import MemoryJournal, Status
from loopwright.cluster import InMemoryDeliverer, submit
from loopwright.cluster.shared_runs import SharedRuns, open_runs
from loopwright.cluster.sweeper import suspend
from loopwright.journal import Journal, RunInfo, open_journal
from loopwright.ui.cli.live import LinesView
from loopwright.ui.cli.output import Output
from loopwright.ui.cli.submit import SubmitOptions, _waited
from loopwright.ui.cli.watch import _follow

from .conftest import Project
from .test_approving import ASKS

REASON = "the document is not trusted"


@pytest.fixture
def shared(project: Project, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder whose commands use a journal in PostgreSQL, far from UTC."""
    monkeypatch.setenv("LOOPWRIGHT_JOURNAL", postgres_url)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield project
    monkeypatch.undo()
    time.tzset()


def change(url: str, work: Callable[[Journal, SharedRuns], Awaitable[None]]) -> None:
    """Change a journal as a worker does."""

    async def changed() -> None:
        async with open_journal(url) as journal:
            runs = open_runs(journal)
            await runs.prepare()
            await work(journal, runs)
            await runs.close()

    asyncio.run(changed())


def test_the_reason_why_a_run_waits_is_shown(shared: Project, postgres_url: str) -> None:
    """`worker list`, `runs` and `show` name the reason and the attempts of a returned run, and count it as waiting."""
    run_id = shared.call("submit", "steps:refine", "--input", "x", "--json").json["runs"][0]
    assert "Queued: no worker serves the queue default" in shared.call("show", run_id).out

    async def put_back(_: Journal, runs: SharedRuns) -> None:
        for _ in range(2):
            await runs.put_back(run_id, delay=60.0, reason=REASON)

    change(postgres_url, put_back)
    text = f"no worker could run it in 2 attempts: {REASON}"
    listed = shared.call("worker", "list").out
    assert f"1 run  {text}\n  {run_id}\n" in listed
    assert "default  1 waiting" in listed
    assert "0 scheduled" in listed
    data = shared.call("worker", "list", "--json").json["delayed"]
    assert [(row["run_id"], row["reason"], row["attempts"]) for row in data] == [
        (run_id, REASON, 2)
    ]
    assert f"Queued: {text}" in shared.call("show", run_id).out
    assert shared.call("show", run_id, "--json").json["returned"]["attempts"] == 2
    assert shared.call("runs").out.rstrip().endswith(text)


def test_a_queue_that_no_worker_serves_is_named(shared: Project, postgres_url: str) -> None:
    """`worker list` says so beside the queue, because its name may be mistyped; a worker of another queue does not count."""
    for queue in ("default", "nightli"):
        shared.call("submit", "steps:refine", "--input", "x", "--queue", queue)
    shown = []

    async def enter(_: Journal, runs: SharedRuns) -> None:
        await runs.enter({"default": 1, "nightly": 1})
        shown.append(await asyncio.to_thread(shared.call, "worker", "list"))

    change(postgres_url, enter)
    listed = [line for line in shown[0].out.splitlines() if " waiting" in line]
    assert [line.endswith("; no worker serves it") for line in listed] == [False, True]


def test_a_run_that_ended_its_workers_is_listed(shared: Project, postgres_url: str) -> None:
    """`worker list` and `show` count the workers; once it is suspended, `show` names the command that starts it again."""

    async def end_workers(journal: Journal, runs: SharedRuns) -> None:
        row = RunInfo("bad", "bad", status="queued", queue="default", created=1.0)
        await journal.create([row])
        log = await journal.open(row, resume=True)
        await log.close(replace(log.info, status="interrupted"))
        for _ in range(3):
            await runs.counted("bad")

    change(postgres_url, end_workers)
    text = "it started 3 times without a new result; after 5 it is suspended"
    assert f"1 run  {text}\n  bad\n" in shared.call("worker", "list").out
    assert shared.call("worker", "list", "--json").json["delayed"][0]["deliveries"] == 3
    shown = shared.call("show", "bad").out
    assert f"Interrupted: {text}" in shown
    assert "a worker continues it; watch: loopwright watch bad" in shown
    change(postgres_url, lambda journal, _: _suspend(journal, "bad", detail="5 workers ended"))
    assert shared.call("runs").out.rstrip().endswith("  5 workers ended")
    assert "start it again: loopwright submit --again bad" in shared.call("show", "bad").out
    assert shared.call("cancel", "bad").out == "bad was suspended and is now cancelled\n"
    assert shared.call("worker", "list", "--json").json["queues"] == []


async def _suspend(journal: Journal, run_id: str, *, detail: str) -> None:
    await suspend(journal, await journal.find(run_id), detail)


def test_the_start_of_a_scheduled_run_is_shown(shared: Project) -> None:
    """`submit`, `show` and `runs` name the local time and UTC; a time that has passed is noted."""
    done = shared.call(
        "submit", "steps:refine", "--input", "x", "--at", "2099-01-31T06:00", "--id", "a"
    )
    start = "2099-01-31 06:00 (2099-01-30 21:00 UTC)"
    assert done.out.splitlines()[0].endswith(f" to the queue default; start: {start}")
    assert f"Queued: it starts at {start}" in shared.call("show", "last").out
    assert f"it starts at {start}" in shared.call("runs").out
    late = shared.call("submit", "steps:refine", "--input", "x", "--at", "2020-01-31T06:00Z")
    assert late.code == 0
    assert "--at: 2020-01-31 15:00 (2020-01-31 06:00 UTC) has passed" in late.err
    assert "start:" not in late.out


def test_a_cancelled_schedule_has_ended(shared: Project) -> None:
    """`cancel` says so; a second one finds nothing to cancel, and the name stands for the latest run then."""
    nightly = ("submit", "steps:refine", "--input", "x", "--id", "nightly", "--cron")
    replaced = shared.call(*nightly, "0 5 * * *", "--json").json["runs"][0]
    [run_id] = shared.call(*nightly, "0 6 * * *", "--json").json["runs"]
    done = shared.call("cancel", "nightly")
    assert done.out == f"{run_id} was queued and is now cancelled; the schedule nightly has ended\n"
    again = shared.call("cancel", "nightly")
    ended = f"the schedule nightly has ended; its latest run {run_id} is cancelled"
    assert (again.code, again.err) == (1, f"loopwright: {ended}\n")
    assert run_id in shared.call("show", "nightly").out
    assert f"{replaced} is cancelled; no process" in shared.call("cancel", replaced).err
    [other] = shared.call(*nightly, "0 7 * * *", "--json").json["runs"]
    assert shared.call("cancel", other, "--json").json["ended_schedule"] == "nightly"


def test_an_answer_to_a_submitted_run_names_the_worker(shared: Project) -> None:
    """A worker continues it, so no command to resume it here is printed."""
    (shared.folder / "asks.py").write_text(ASKS)
    sys.modules.pop("asks", None)
    [run_id] = shared.call("submit", "asks:two", "--input", "x", "--json").json["runs"]
    assert shared.call("resume", run_id).code == 4
    questions = json.loads(shared.call("approve", run_id, "--json").out)["questions"]
    for question in questions:
        answer = ["--value", "Ann"] if question["path"].endswith("name") else ["--yes"]
        answered = shared.call("approve", run_id, question["path"], *answer)
    assert f"a worker continues it; watch: loopwright watch {run_id}" in answered.out
    assert "resume" not in answered.out


class Interrupted(MemoryJournal):
    """A journal whose run waits for a worker for two reads, and then ends."""

    reads = 0

    async def find(self, run_id: str) -> RunInfo:
        self.reads += 1
        status = ("queued", "interrupted", "interrupted", "running", "satisfied")
        return RunInfo(run_id, "l", status=status[min(self.reads, 5) - 1], queue="default")

    async def entries(self, run_id: str, *, after: int = 0, limit: int = 0) -> list[object]:
        return []


async def test_a_submitted_run_is_watched_while_no_worker_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its worker ends and another one takes it: `watch` writes a line for each wait, and continues."""
    monkeypatch.setattr("loopwright.ui.cli.watch.POLL_SECONDS", 0.0)
    monkeypatch.setattr("loopwright.ui.cli.watch.WAITING_SECONDS", 0.0)
    with Output() as output:
        info, _ = await _follow(Interrupted(), "one", LinesView(output), shared=True)
    assert info.status == "satisfied"
    lines = [line.rpartition("loopwright: ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["waiting for a worker", "its worker ended; waiting for another worker"]


class Notes(Output):
    """Keeps the notes of a command, of which a test waits for the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)

    async def until(self, text: str) -> None:
        async with asyncio.timeout(30):
            while self.lines[-1:] != [text]:
                await asyncio.sleep(0.01)


async def test_a_submission_that_waits_writes_the_reason_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`submit --wait` writes the reason of `show`, and a line for each other reason, not for each attempt."""
    monkeypatch.setattr("loopwright.ui.cli.submit.REASON_SECONDS", 0.0)
    async with open_journal(postgres_url) as journal:
        run_id = await submit(str.upper, "a", journal=journal, deliverer=InMemoryDeliverer())
        runs, output = open_runs(journal), Notes()
        options = SubmitOptions(journal=postgres_url, as_json=True)
        waiting = asyncio.create_task(_waited([run_id], journal, options, output))
        await output.until("queued: no worker serves the queue default")
        await runs.enter({"default": 1})
        await output.until("waiting for a worker")
        await runs.pin(run_id, "elsewhere")
        await output.until("queued: its workspace is on elsewhere; it waits for a worker there")
        await runs.unpin(run_id)
        await runs.put_back(run_id, delay=60.0, reason=REASON)
        await output.until(f"queued: no worker could run it in 1 attempt: {REASON}")
        await runs.put_back(run_id, delay=60.0, reason=REASON)
        await runs.put_back(run_id, delay=60.0, reason="the budget is spent")
        await output.until("queued: no worker could run it in 3 attempts: the budget is spent")
        await journal.cancel(run_id)
        assert await waiting == Status.CANCELLED.exit_code
        await runs.close()
    assert len({*output.lines}) == 6


@pytest.mark.parametrize(
    ("names", "stopped"),
    [
        (("one",), "the run continues; watch: loopwright watch one --journal memory:"),
        (("one", "two"), "the runs continue; workers: loopwright worker list --journal memory:"),
    ],
)
async def test_a_submission_that_stops_waiting_names_the_runs(
    names: tuple[str, ...], stopped: str
) -> None:
    """Ctrl-C stops `submit --wait` and not the runs, so it writes how to follow them."""
    journal, output = MemoryJournal(), Notes()
    await journal.create([RunInfo(name, name, status="queued", queue="default") for name in names])
    waiting = asyncio.create_task(_waited(names, journal, SubmitOptions(journal="memory:"), output))
    await output.until(f"waiting for {'one' if len(names) == 1 else '2 runs'} in memory:")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert output.lines[1:] == [f"stopped waiting; {stopped}"]


async def test_a_reason_is_read_after_a_restart_of_the_database(postgres_url: str) -> None:
    """A command that waits for a run reads again when its connection was lost."""
    async with open_journal(postgres_url) as journal:
        runs = open_runs(journal)
        await runs.prepare()
        with psycopg.connect(postgres_url) as db:
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert await runs.workers() == []
        await runs.close()


def _terminate(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def _terminate_while_preparing(_: InMemoryDeliverer) -> None:
    _terminate()


@pytest.mark.parametrize("early", [True, False])
def test_a_worker_that_a_signal_stops_at_its_start_ends_with_0(
    project: Project, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    """SIGTERM while the packages load, or while the engine creates its tables, is written and exits with 0."""
    if early:
        monkeypatch.setattr("loopwright.ui.cli.Command.load", _terminate)
    else:
        monkeypatch.setattr(InMemoryDeliverer, "prepare", _terminate_while_preparing)
    before = signal.getsignal(signal.SIGTERM)
    done = project.call("worker", "start", "--journal", "memory:", "--deliverer", "memory")
    assert done.code == 0
    assert "SIGTERM: stopped before any run" in done.err or "SIGTERM: no new runs" in done.err
    assert signal.getsignal(signal.SIGTERM) is before


def test_runs_are_listed_by_queue_and_worker(shared: Project, postgres_url: str) -> None:
    """Both filters of `runs` select rows; an unknown name is reported with the nearest one, a known one without runs is not."""

    async def fill(journal: Journal, runs: SharedRuns) -> None:
        rows = [
            RunInfo(f"r{n}", "count", queue=queue, created=1e9)
            for n, queue in enumerate(("slow", "fast", "fast"))
        ]
        await journal.create(rows)
        await runs.enter({"fast": 1, "nightly": 1})
        log = await journal.open(rows[1], resume=True)
        [worker] = await runs.workers()
        for words, run_id in ((("--queue", "slow"), "r0"), (("--worker", worker.owner), "r1")):
            listed = await asyncio.to_thread(shared.call, "runs", *words, "--json")
            assert [row["run_id"] for row in listed.json["runs"]] == [run_id]
        listed = await asyncio.to_thread(shared.call, "runs", "--queue", "fast")
        # 2001-09-09 01:46:40 UTC, in Tokyo
        waits, runs_there = listed.out.splitlines()
        assert waits.endswith("waiting in the queue fast since 2001-09-09 10:46")
        assert runs_there.endswith(f"  on {worker.owner}, queue fast")
        both = ("runs", "--queue", "slow", "--worker", worker.owner)
        for words in (("runs", "--queue", "nightly"), both):
            empty = await asyncio.to_thread(shared.call, *words)
            assert (empty.code, empty.out) == (0, "")
        for option, wrong, hint in (
            ("--queue", "slwo", "slow"),
            ("--queue", "nihgtly", "nightly"),
            ("--worker", f"{worker.owner}0", worker.owner),
        ):
            unknown = await asyncio.to_thread(shared.call, "runs", option, wrong)
            assert unknown.code == 2
            assert f"{option}: {wrong!r}" in unknown.err
            assert f"did you mean {hint!r}?" in unknown.err
        await log.close(replace(log.info, status="interrupted"))

    change(postgres_url, fill)
