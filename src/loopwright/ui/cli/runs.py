"""`runs`: the list of runs, or of agent executions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

import typer

from ... import agents
from ...errors import JournalDamaged, RunNotFound
from ...journal import Journal, RunInfo, surviving
from ...journal.protocol import DAMAGED, shown_url
from ...journal.questions import pending
from ...journal.replay import RecordedRun
from ...journal.views import ORDERS, Wanted, step_outcomes
from ...records import Reason, Status, StepOutcome
from .. import formatting as texts
from ..finding import check_status
from ..journals import DEFAULT, MAX_ROWS, command_line, folder_of, reading
from ..run_files import UNRECORDED, unrecorded_folders
from ..run_summary import returns_of, waiting_text
from .filters import ListFilter, matching
from .live import steps_text
from .options import AsJson, JournalUrl, expanded
from .output import STYLES, Output, Part

if TYPE_CHECKING:
    from ...agents.final_answer import Execution

_SHORTEST = 6  # characters of the beginning of an ID
_SHORTENED = 50  # rows of which the IDs are shortened: each is looked for in the journal
_NARROW = 100  # cells of a terminal below which columns have one cell between them
_REASON = 20  # cells that the reason has at least


@expanded
def runs(
    options: ListFilter,
    journal: JournalUrl = DEFAULT,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MAX_ROWS, help="Maximum number of rows.")
    ] = 20,
    sort: Annotated[
        str,
        typer.Option(
            "--sort",
            metavar="ORDER",
            help=f"Order: {', '.join(ORDERS)}; - before it reverses it.  [default: started]",
            autocompletion=lambda incomplete: [o for o in ORDERS if o.startswith(incomplete)],
        ),
    ] = "",
    worker: Annotated[
        str,
        typer.Option(
            "--worker",
            metavar="NAME",
            help="Only runs that this worker holds: HOST:PID, as `worker list` names it.",
        ),
    ] = "",
    executions: Annotated[
        bool, typer.Option("--executions", help="List the executions of reasoning agents instead.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """List the runs in the journal, newest first, and say how many more there are.

    On a terminal the IDs are shortened to beginnings that commands accept, and times are relative.

    Examples:
        loopwright runs
        loopwright runs --status failed,exhausted --since 3d --sort cost
        loopwright runs --name polish --search moon --json
    """
    if executions:
        check_status(options.status, agents.STATUSES)
        wanted = replace(
            replace(options, status="").wanted(sort=sort, worker=worker), status=options.status
        )
        return _executions(journal, replace(wanted, limit=limit), as_json=as_json)
    wanted = replace(options.wanted(sort=sort, worker=worker), limit=limit)
    with Output(as_json=as_json) as output:
        try:
            found = reading(journal, lambda store: _read(store, wanted, short=output.terminal))
        except RunNotFound:  # the journal does not exist yet
            found = RunList()
        if as_json:
            shown = []
            for row in found.rows:
                data = row.to_json()
                if outcomes := found.steps.get(row.run_id):
                    data["outcomes"] = {one.name: one.to_json() for one in outcomes}
                if row.run_id in found.questions:
                    data["questions"] = found.questions[row.run_id]
                shown.append(data)
            output.write_json({"runs": shown, "total": found.total})
            return 0
        if not found.rows:
            which = "no run matches" if wanted != Wanted(limit=limit, sort=sort) else "no runs"
            output.note(f"{which} in {shown_url(journal)}")
            return 0
        if output.terminal:
            _table(found, output)
        else:
            _lines(found, output)
        if len(found.rows) == limit and found.total != limit:
            words = [
                *options.options,
                *(("--sort", sort) if sort else ()),
                *(("--worker", worker) if worker else ()),
            ]
            line = command_line(
                "runs", "", journal, *words, "--limit", str(found.total or 10 * limit)
            )
            more = "there may be more" if found.total is None else f"{found.total - limit:,} more"
            output.note(f"{more}: {line}")
        if any(found.questions.values()):
            waiting = next(row.run_id for row in found.rows if found.questions.get(row.run_id))
            output.write(("answer: ", "dim"), command_line("approve", waiting, journal))
    return 0


@dataclass
class RunList:
    """The runs of a list.

    Args:
        rows: the runs.
        questions: the number of open questions of suspended ones.
        steps: the steps of those without iterations.
        total: how many runs match; None if that is unknown.
        names: the beginnings of their IDs that no other run has.
    """

    rows: list[RunInfo] = field(default_factory=list)
    questions: dict[str, int] = field(default_factory=dict)
    steps: dict[str, list[StepOutcome]] = field(default_factory=dict)
    total: int | None = 0
    names: dict[str, str] = field(default_factory=dict)


async def _read(store: Journal, wanted: Wanted, *, short: bool) -> RunList:
    """Return a list of runs; `short` also finds the beginnings of their IDs."""
    found = RunList()
    rows, steps, questions = found.rows, found.steps, found.questions
    listed = await matching(store, wanted)
    returns = await returns_of(store, listed)
    for row in listed:
        if waits := waiting_text(row, returns):
            row = replace(row, detail=waits)
        try:
            if row.status == "interrupted":
                entries = await store.entries(row.run_id)
                if unrecorded_folders(row, entries, folder_of(store)):
                    row = replace(row, detail=UNRECORDED)
            # The row is complete at the end of a run.
            if row.status == "running" or not (row.iterations or row.status == DAMAGED):
                entries = await store.entries(row.run_id)
                row = replace(row, iterations=RecordedRun(surviving(entries)).iterations)
                if not row.iterations:
                    steps[row.run_id] = step_outcomes(row, entries)
            # Only suspended runs have open questions, and each list of questions reads a journal.
            if row.status == Status.SUSPENDED:
                questions[row.run_id] = len(await pending(store, row.run_id))
        except JournalDamaged as error:
            row = row.as_damaged(error)
        rows.append(row)
    found.total = len(rows)
    if len(rows) == wanted.limit:
        found.total = await store.listing(replace(wanted, limit=1), lambda page: page.total)
    if short and len(rows) <= _SHORTENED:
        found.names = await _beginnings(store, [row.run_id for row in rows])
    return found


async def _beginnings(store: Journal, ids: Sequence[str]) -> dict[str, str]:
    """Return the shortest beginnings, of 6 characters or more, that tell the runs of a list apart and find them."""
    length = next(n for n in range(_SHORTEST, 99) if len({i[:n] for i in ids}) == len(ids))
    names = {}
    for run_id in ids:
        name = run_id[:length]
        while len(name) < len(run_id):
            try:
                if (await store.find(name)).run_id == run_id:
                    break
            except (RunNotFound, JournalDamaged):  # of several runs, or of a damaged one
                pass
            name = run_id[: len(name) + 4]
        names[run_id] = name
    return names


def _lines(found: RunList, output: Output) -> None:
    """Write a line per run with all columns, for a pipe."""
    ids = max(len(row.run_id) for row in found.rows)
    names = max(texts.width(row.name) for row in found.rows)
    for row in found.rows:
        name = texts.one_line(row.name)
        outcomes = found.steps.get(row.run_id)
        extent = steps_text(outcomes) if outcomes else texts.plural(row.iterations, "iteration")
        line = [
            f"{row.run_id:{ids}}",
            f"{row.status:11}",
            name + " " * (names - texts.width(name)),
            f"{extent:>13}",
            f"{texts.score(row.score):5}",
            texts.when(row.created),
            f"{texts.cost(row.usage, scripted=row.scripted):>8}",
            _detail(row, found.questions.get(row.run_id)),
        ]
        output.write("  ".join(line))


@dataclass
class _Column:
    """A column of a table on a terminal; `order` says which of them are left out first where there is no room."""

    title: str
    cells: list[str]
    right: bool = False
    order: int = 0

    def __post_init__(self) -> None:
        self.width = max(map(texts.width, (self.title, *self.cells)))


def _table(found: RunList, output: Output) -> None:
    """Write a line per run below a header. Columns without a value are left out, and names shrink for the reason."""
    rows = found.rows
    outcomes = [found.steps.get(row.run_id) for row in rows]
    extents = [
        steps_text(one).replace(" of ", "/").partition(" ")[0] if one else str(row.iterations or "")
        for row, one in zip(rows, outcomes, strict=True)
    ]
    run = _Column("Run", [found.names.get(row.run_id, row.run_id) for row in rows])
    status = _Column("Status", [row.status for row in rows])
    name = _Column("Name", [texts.fit(texts.one_line(row.name), 24, output.signs) for row in rows])
    others = [
        _Column("Iter", extents, right=True, order=1),
        _Column("Score", [texts.score(row.score) for row in rows], right=True, order=3),
        _Column(
            "Cost",
            [texts.cost(row.usage, scripted=row.scripted) for row in rows],
            right=True,
            order=2,
        ),
        _Column("Started", [texts.ago(row.created) for row in rows], right=True, order=4),
    ]
    others = [column for column in others if any(column.cells)]
    reasons = [_detail(row, found.questions.get(row.run_id)) for row in rows]
    gap = 1 if output.width < _NARROW else 2

    def room() -> int:
        columns = [run, status, name, *others]
        return output.width - sum(column.width + gap for column in columns)

    name.width = max(min(8, name.width), min(name.width, name.width + room() - _REASON))
    while others and room() < _REASON // 2:
        others.remove(min(others, key=lambda column: column.order))
    columns = [run, status, name, *others, _Column("Why", reasons)]
    columns[-1].width = max(8, room())
    styles = ["bold", "", "", *("dim" for _ in others), "dim"]
    for at in range(-1, len(rows)):
        line: list[Part] = []
        for column, style in zip(columns, styles, strict=True):
            text = column.title if at < 0 else column.cells[at]
            text = texts.fit(text, column.width, output.signs)
            space = " " * (column.width - texts.width(text))
            text = space + text if column.right else text + space
            of_status = STYLES.get(rows[at].status, "") if column is status else style
            if column is columns[-1]:
                text = text.rstrip()
            line += [(text, "dim" if at < 0 else of_status), " " * gap]
        output.write(*line[:-1])


def _detail(row: RunInfo, questions: int | None) -> str:
    tags = " ".join(f"{name}={value}" for name, value in row.tags.items())
    reason = texts.one_line(row.detail or texts.place(row))
    detail = f"{reason} [{tags}]".lstrip() if tags else reason
    if questions is None or row.reason == Reason.WAITING:
        return detail
    if questions:
        return f"{texts.plural(questions, 'question')}: {detail}"
    # A worker brings back an answered run, so a submitted one that stays suspended waits for something else.
    return detail if row.queue else f"answered, ready to resume: {detail}"


def _executions(url: str, wanted: Wanted, *, as_json: bool) -> int:
    """Write the executions of reasoning agents in the latest runs, newest run first."""
    status = wanted.status  # of an execution, not of its run
    check_status(status, agents.STATUSES)

    async def read(store: Journal) -> list[Execution]:
        rows = await matching(store, replace(wanted, status=""))
        every = [
            one
            for r in rows
            if r.status != DAMAGED
            for one in agents.execution_of(r, await store.entries(r.run_id))
        ]
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
