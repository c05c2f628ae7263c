"""`runs`: the list of runs, or of agent executions."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ... import agents
from ...errors import ConfigurationError, RunNotFound, nearest
from ...journal import Journal, RunInfo, surviving
from ...journal.protocol import shown_url
from ...journal.questions import pending
from ...journal.replay import RecordedRun
from ...journal.views import Wanted, step_outcomes
from ...records import Status, StepOutcome
from ...records.codec import Json
from .. import formatting as texts
from ..journals import DEFAULT, MAX_ROWS, command_line, folder_of, reading
from ..run_files import UNRECORDED, unrecorded_folders
from ..submitted import returns_of, waiting_text
from .live import steps_text
from .options import AsJson, JournalUrl
from .output import Output, Part

if TYPE_CHECKING:
    from ...agents.reasoning.executions import Execution

_LATEST = 500  # runs whose queues are names for a hint
_MOST_NAMES = 10  # names that a message lists
STATUSES = ("queued", "running", "interrupted", *(status.value for status in Status))
STYLES = {
    "queued": "cyan", "running": "bold cyan", "satisfied": "green", "exhausted": "yellow", "suspended": "cyan",
    "interrupted": "yellow", "failed": "red", "cancelled": "red",
}  # fmt: skip


def runs(
    journal: JournalUrl = DEFAULT,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MAX_ROWS, help="Maximum number of runs.")
    ] = 20,
    status: Annotated[
        str,
        typer.Option(
            "--status", metavar="STATUS", help=f"Only runs with this status: {', '.join(STATUSES)}."
        ),
    ] = "",
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Only runs with this name.")
    ] = "",
    queue: Annotated[
        str, typer.Option("--queue", metavar="NAME", help="Only runs submitted to this queue.")
    ] = "",
    worker: Annotated[
        str,
        typer.Option(
            "--worker",
            metavar="NAME",
            help="Only runs that this worker holds: HOST:PID, as `workers` lists it.",
        ),
    ] = "",
    executions: Annotated[
        bool, typer.Option("--executions", help="List the executions of reasoning agents instead.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """List the runs in the journal, newest first."""
    wanted = Wanted(name, status, limit=limit, queue=queue, worker=worker)
    if executions:
        return _executions(journal, wanted, as_json=as_json)
    _check_status(status, STATUSES)
    with Output(as_json=as_json) as output:
        try:
            rows, questions, steps = reading(journal, lambda store: _run_rows(store, wanted))
        except RunNotFound:  # the journal does not exist yet
            rows, questions, steps = [], {}, {}
        if as_json:
            output.write_json({"runs": [_json(row, questions, steps) for row in rows]})
        elif not rows:
            output.note(f"no runs in {shown_url(journal)}")
        else:
            _write(rows, questions, steps, output)
            if any(questions.values()):
                waiting = next(row.run_id for row in rows if questions.get(row.run_id))
                output.write(("answer: ", "dim"), command_line("approve", waiting, journal))
    return 0


def _check_status(status: str, statuses: Sequence[str]) -> None:
    if status and status not in statuses:
        hint = nearest(status, statuses) or f"; use one of {', '.join(statuses)}"
        raise ConfigurationError(f"--status: {status!r} is not a status{hint}")


async def _listed(store: Journal, wanted: Wanted, status: str) -> list[RunInfo]:
    """Return the rows of a list. Raises ConfigurationError for an unknown queue or worker."""
    rows = await store.runs(
        limit=wanted.limit,
        name=wanted.name,
        status=status,
        queue=wanted.queue,
        worker=wanted.worker,
    )
    if not rows:
        await _check_filters(store, queue=wanted.queue, worker=wanted.worker)
    return rows


async def _run_rows(
    store: Journal, wanted: Wanted
) -> tuple[list[RunInfo], dict[str, int], dict[str, list[StepOutcome]]]:
    """Return runs, the number of open questions of suspended ones, and the steps of those without
    iterations."""
    rows, steps = [], {}
    listed = await _listed(store, wanted, wanted.status)
    returns = await returns_of(store, listed)
    for row in listed:
        if waits := waiting_text(row, returns):
            row = replace(row, detail=waits)
        if row.status == "interrupted":
            entries = await store.entries(row.run_id)
            if unrecorded_folders(row, entries, folder_of(store)):
                row = replace(row, detail=UNRECORDED)
        if row.status == "running" or not row.iterations:  # the row is complete at the end of a run
            entries = await store.entries(row.run_id)
            row = replace(row, iterations=RecordedRun(surviving(entries)).iterations)
            if not row.iterations:
                steps[row.run_id] = step_outcomes(row, entries)
        rows.append(row)
    # Only suspended runs have open questions, and each list of questions reads a journal.
    waiting = [row.run_id for row in rows if row.status == Status.SUSPENDED]
    return rows, {run_id: len(await pending(store, run_id)) for run_id in waiting}, steps


def _json(
    row: RunInfo, questions: Mapping[str, int], steps: Mapping[str, Sequence[StepOutcome]]
) -> dict[str, Json]:
    data = row.to_json()
    if outcomes := steps.get(row.run_id):
        data["outcomes"] = {one.name: one.to_json() for one in outcomes}
    return {**data, "questions": questions[row.run_id]} if row.run_id in questions else data


def _write(
    rows: Sequence[RunInfo],
    questions: Mapping[str, int],
    steps: Mapping[str, Sequence[StepOutcome]],
    output: Output,
) -> None:
    """Write a line per run. A terminal gets the columns that fit, a pipe gets all of them."""
    ids = max(len(row.run_id) for row in rows)
    longest = max(texts.width(row.name) for row in rows)
    # 15 cells for the status and the gaps: on a narrow terminal the name gives way, never the ID.
    narrow = min(24, longest, max(8, output.width - ids - 15))
    names = narrow if output.terminal else longest
    for row in rows:
        name = texts.fit(texts.one_line(row.name), names, output.signs)
        line: list[tuple[str, str]] = [
            (f"{row.run_id:{ids}}", "bold"),
            (f"{row.status:11}", STYLES.get(row.status, "")),
            (name + " " * (names - texts.width(name)), ""),
            (f"{_extent(row, steps.get(row.run_id, ())):>13}", ""),
            (f"{texts.score(row.score):5}", ""),
            (texts.when(row.created), "dim"),
            (f"{texts.cost(row.usage):>8}", "dim"),
            (_detail(row, questions.get(row.run_id)), "dim"),
        ]
        output.write(*_columns(line, output))


def _extent(row: RunInfo, steps: Sequence[StepOutcome]) -> str:
    return steps_text(steps) if steps else texts.plural(row.iterations, "iteration")


def _detail(row: RunInfo, questions: int | None) -> str:
    detail = texts.one_line(row.detail or texts.place(row))
    if questions is None:
        return detail
    if questions:
        return f"{texts.plural(questions, 'question')}: {detail}"
    # A worker brings back an answered run, so a submitted one that stays suspended waits for something else.
    return detail if row.queue else f"answered, ready to resume: {detail}"


def _columns(line: Sequence[tuple[str, str]], output: Output) -> list[Part]:
    """Return the columns with gaps; on a terminal, without the last ones that do not fit."""
    room: float = output.width if output.terminal else math.inf
    parts: list[Part] = []
    for index, (text, style) in enumerate(line):
        gap = "  " if parts else ""
        room -= len(gap)
        if index == len(line) - 1 and 10 < room < math.inf:
            text = texts.fit(text, int(room), output.signs)
        if texts.width(text) > room:
            break
        parts += [gap, (text, style)]
        room -= texts.width(text)
    return parts


def _executions(url: str, wanted: Wanted, *, as_json: bool) -> int:
    """Write the executions of reasoning agents in the latest runs, newest run first."""
    status = wanted.status  # of an execution, not of its run
    _check_status(status, agents.STATUSES)

    async def read(store: Journal) -> list[Execution]:
        rows = await _listed(store, wanted, status="")
        every = [one for r in rows for one in agents.execution_of(r, await store.entries(r.run_id))]
        return [one for one in every if not status or one.status == status]

    with Output(as_json=as_json) as output:
        try:
            executions = reading(url, read)
        except RunNotFound:  # the journal does not exist yet
            executions = []
        if as_json:
            output.write_json({"executions": [one.to_json() for one in executions]})
            return 0
        if not executions:
            output.note(f"no executions of agents in {shown_url(url)}")
        for one in executions:
            result = texts.one_line(one.error or texts.value_line(one.result))
            started = texts.when(one.started_at) if one.started_at is not None else ""
            count = f"{texts.plural(one.interaction_count, 'interaction'):>15}"
            head = f"  {one.status:9}  {one.agent}  {count}  {started}  "
            room = max(10, output.width - len(one.run_id) - len(head))
            text = texts.fit(f"{texts.one_line(one.prompt)} -> {result}", room, output.signs)
            output.write((one.run_id, "bold"), head, (text, "dim"))
    return 0


async def _check_filters(store: Journal, *, queue: str, worker: str) -> None:
    """Check the filters of a list without runs. Raises ConfigurationError for an unknown name."""
    if not queue and not worker:
        return
    queues, workers = await _queues_and_workers(store)
    # A list can be empty because of another filter, such as a status.
    if queue and queue not in queues and not await store.runs(limit=1, queue=queue):
        raise _unknown_name("queue", queue, queues)
    if worker and worker not in workers and not await store.runs(limit=1, worker=worker):
        raise _unknown_name("worker", worker, workers)


async def _queues_and_workers(store: Journal) -> tuple[set[str], set[str]]:
    """Return the names of queues and of workers, among them those without runs."""
    # The package of workers takes a third of a second to load, which other lists do not need.
    from ...cluster.shared_runs import open_runs

    # The latest runs only: queues have no index, and a journal may have millions of runs.
    queues = {row.queue for row in await store.runs(limit=_LATEST)} - {""}
    workers = {row.owner for row in await store.runs(limit=_LATEST, status="running")}
    try:
        shared = open_runs(store)
    except ConfigurationError:  # a journal of one machine has no list of workers
        return queues, workers
    try:
        await shared.prepare()
        for one in await shared.workers():
            workers.add(one.owner)
            queues |= {served.rpartition("=")[0] for served in one.queues.split()}
        return queues | {one.name for one in await shared.queues()}, workers
    finally:
        await shared.close()


def _unknown_name(kind: str, name: str, names: Collection[str]) -> ConfigurationError:
    valid = f"; use one of {', '.join(sorted(names)[:_MOST_NAMES])}" if names else ""
    hint = nearest(name, names) or valid or f"; it has no {kind}s"
    return ConfigurationError(f"--{kind}: {name!r} is not a {kind} of this journal{hint}")
