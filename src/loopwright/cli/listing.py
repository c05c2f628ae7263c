"""`runs`: what is in the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from ..approvals import pending
from ..codec import Json as JsonValue
from ..errors import ConfigurationError, RunNotFound, nearest
from ..journal import Journal, RunInfo
from ..records import Status
from . import texts
from .agents import list_executions
from .journals import DEFAULT, again, reading, shown_url
from .options import JournalUrl, Json
from .output import Output, Part

__all__ = ["runs"]

STATUSES = ("running", "interrupted", *(status.value for status in Status))
STYLES = {
    "running": "bold cyan", "satisfied": "green", "exhausted": "yellow", "suspended": "cyan",
    "interrupted": "yellow", "failed": "red", "cancelled": "red",
}  # fmt: skip


def runs(
    journal: JournalUrl = DEFAULT,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    status: Annotated[
        str, typer.Option("--status", metavar="STATUS", help=f"Only these: {', '.join(STATUSES)}.")
    ] = "",
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Only runs of it.")] = "",
    executions: Annotated[
        bool, typer.Option("--executions", help="The executions of agents in these runs instead.")
    ] = False,
    as_json: Json = False,
) -> int:
    """List the runs in the journal, newest first."""
    if executions:
        return list_executions(journal, limit, name, status, as_json=as_json)
    if status and status not in STATUSES:
        hint = nearest(status, STATUSES) or f"; the statuses are {', '.join(STATUSES)}"
        raise ConfigurationError(f"--status: {status!r} is no status{hint}")
    with Output(as_json=as_json) as output:
        try:
            found, asked = reading(journal, lambda store: _found(store, limit, name, status))
        except RunNotFound:  # no journal yet: there are no runs in it
            found, asked = [], {}
        if as_json:
            output.give({"runs": [_json(row, asked) for row in found]})
        elif not found:
            output.note(f"no runs in {shown_url(journal)}")
        else:
            _tell(found, asked, output)
            if any(asked.values()):
                waiting = next(row.run_id for row in found if asked.get(row.run_id))
                output.say(("answer: ", "dim"), again("approve", waiting, journal))
    return 0


async def _found(
    store: Journal, limit: int, name: str, status: str
) -> tuple[list[RunInfo], dict[str, int]]:
    """Return rows, and how many questions those that wait for people ask."""
    found = await store.runs(limit=limit, name=name, status=status)
    waiting = [row.run_id for row in found if row.status == Status.SUSPENDED]
    return found, {run_id: len(await pending(store, run_id)) for run_id in waiting}


def _json(row: RunInfo, asked: Mapping[str, int]) -> dict[str, JsonValue]:
    data = row.to_json()
    return {**data, "questions": asked[row.run_id]} if row.run_id in asked else data


def _tell(found: Sequence[RunInfo], asked: Mapping[str, int], output: Output) -> None:
    """Write a line per run; what does not fit in narrow terminals is left out from the right."""
    ids = max(len(row.run_id) for row in found)
    longest = max(texts.width(row.name) for row in found)
    names = min(24, longest, max(8, output.width - ids - 15))
    for row in found:
        name = texts.fit(texts.one_line(row.name), names, output.signs)
        line: list[tuple[str, str]] = [
            (f"{row.run_id:{ids}}", "bold"),
            (f"{row.status:11}", STYLES.get(row.status, "")),
            (name + " " * (names - texts.width(name)), ""),
            (f"{texts.plural(row.iterations, 'iteration'):>13}", ""),
            (f"{texts.score(row.score):5}", ""),
            (texts.when(row.created), "dim"),
            (f"{texts.cost(row.usage):>8}", "dim"),
            (_detail(row, asked.get(row.run_id)), "dim"),
        ]
        output.say(*_within(line, output))


def _detail(row: RunInfo, asked: int | None) -> str:
    detail = texts.one_line(row.detail)
    if asked is None:
        return detail
    told = texts.plural(asked, "question") if asked else "answered, to be resumed"
    return f"{told}: {detail}"


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
