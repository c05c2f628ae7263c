"""`runs`: what is in the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from ...errors import ConfigurationError, RunNotFound, nearest
from ...journal import Journal, RunInfo, surviving
from ...journal.questions import pending
from ...journal.replay import RecordedRun
from ...journal.views import step_outcomes
from ...records import Status, StepOutcome
from ...records.codec import Json as JsonValue
from .. import formatting as texts
from ..journals import DEFAULT, MOST_ROWS, again, reading, shown_url
from .executions import list_executions
from .live import steps_text
from .options import AsJson, JournalUrl
from .output import Output, Part

__all__ = ["runs"]

STATUSES = ("running", "interrupted", *(status.value for status in Status))
STYLES = {
    "running": "bold cyan", "satisfied": "green", "exhausted": "yellow", "suspended": "cyan",
    "interrupted": "yellow", "failed": "red", "cancelled": "red",
}  # fmt: skip


def runs(
    journal: JournalUrl = DEFAULT,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MOST_ROWS, help="At most so many.")
    ] = 20,
    status: Annotated[
        str, typer.Option("--status", metavar="STATUS", help=f"Only these: {', '.join(STATUSES)}.")
    ] = "",
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Only runs of it.")] = "",
    executions: Annotated[
        bool, typer.Option("--executions", help="The executions of agents in these runs instead.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """List the runs in the journal, newest first."""
    if executions:
        return list_executions(journal, limit, name, status, as_json=as_json)
    if status and status not in STATUSES:
        hint = nearest(status, STATUSES) or f"; the statuses are {', '.join(STATUSES)}"
        raise ConfigurationError(f"--status: {status!r} is no status{hint}")
    with Output(as_json=as_json) as output:
        try:
            found, asked, steps = reading(journal, lambda store: _found(store, limit, name, status))
        except RunNotFound:  # no journal yet: there are no runs in it
            found, asked, steps = [], {}, {}
        if as_json:
            output.give({"runs": [_json(row, asked, steps) for row in found]})
        elif not found:
            output.note(f"no runs in {shown_url(journal)}")
        else:
            _tell(found, asked, steps, output)
            if any(asked.values()):
                waiting = next(row.run_id for row in found if asked.get(row.run_id))
                output.say(("answer: ", "dim"), again("approve", waiting, journal))
    return 0


async def _found(
    store: Journal, limit: int, name: str, status: str
) -> tuple[list[RunInfo], dict[str, int], dict[str, list[StepOutcome]]]:
    """Return rows, how many questions those that wait for people ask, and the steps of those without
    iterations."""
    found = await store.runs(limit=limit, name=name, status=status)
    rows, steps = [], {}
    for row in found:
        if row.status == "running" or not row.iterations:  # the row is told at the end of a run
            entries = await store.entries(row.run_id)
            row = replace(row, iterations=RecordedRun(surviving(entries)).iterations)
            if not row.iterations:
                steps[row.run_id] = step_outcomes(row, entries)
        rows.append(row)
    waiting = [row.run_id for row in found if row.status == Status.SUSPENDED]
    return rows, {run_id: len(await pending(store, run_id)) for run_id in waiting}, steps


def _json(
    row: RunInfo, asked: Mapping[str, int], steps: Mapping[str, Sequence[StepOutcome]]
) -> dict[str, JsonValue]:
    data = row.to_json()
    if found := steps.get(row.run_id):
        data["outcomes"] = {one.name: one.to_json() for one in found}
    return {**data, "questions": asked[row.run_id]} if row.run_id in asked else data


def _tell(
    found: Sequence[RunInfo],
    asked: Mapping[str, int],
    steps: Mapping[str, Sequence[StepOutcome]],
    output: Output,
) -> None:
    """Write a line per run; what does not fit in a terminal is left out from the right.

    A program that reads the lines from a pipe gets all of them.
    """
    ids = max(len(row.run_id) for row in found)
    longest = max(texts.width(row.name) for row in found)
    narrow = min(24, longest, max(8, output.width - ids - 15))
    names = narrow if output.terminal else longest
    for row in found:
        name = texts.fit(texts.one_line(row.name), names, output.signs)
        line: list[tuple[str, str]] = [
            (f"{row.run_id:{ids}}", "bold"),
            (f"{row.status:11}", STYLES.get(row.status, "")),
            (name + " " * (names - texts.width(name)), ""),
            (f"{_extent(row, steps.get(row.run_id, ())):>13}", ""),
            (f"{texts.score(row.score):5}", ""),
            (texts.when(row.created), "dim"),
            (f"{texts.cost(row.usage):>8}", "dim"),
            (_detail(row, asked.get(row.run_id)), "dim"),
        ]
        output.say(*(_within(line, output) if output.terminal else _whole(line)))


def _extent(row: RunInfo, steps: Sequence[StepOutcome]) -> str:
    return steps_text(steps) if steps else texts.plural(row.iterations, "iteration")


def _detail(row: RunInfo, asked: int | None) -> str:
    detail = texts.one_line(row.detail)
    if asked is None:
        return detail
    told = texts.plural(asked, "question") if asked else "answered, to be resumed"
    return f"{told}: {detail}"


def _whole(line: Sequence[tuple[str, str]]) -> list[Part]:
    return [part if not index else ("  " + part[0], part[1]) for index, part in enumerate(line)]


def _within(line: Sequence[tuple[str, str]], output: Output) -> list[Part]:
    room = output.width
    parts: list[Part] = []
    for index, (text, style) in enumerate(line):
        last, gap = index == len(line) - 1, "  " if parts else ""
        room -= len(gap)
        shown = texts.fit(text, room, output.signs) if last and room > 10 else text
        if texts.width(shown) > room:
            break
        parts += [gap, (shown, style)]
        room -= texts.width(shown)
    return parts
