"""`runs`: what is in the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ..errors import ConfigurationError, RunNotFound, nearest
from ..journal import RunInfo
from ..records import Status
from . import texts
from .journals import DEFAULT, reading, shown_url
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
    as_json: Json = False,
) -> int:
    """List the runs in the journal, newest first."""
    if status and status not in STATUSES:
        hint = nearest(status, STATUSES) or f"; the statuses are {', '.join(STATUSES)}"
        raise ConfigurationError(f"--status: {status!r} is no status{hint}")
    with Output(as_json=as_json) as output:
        try:
            found = reading(
                journal, lambda store: store.runs(limit=limit, name=name, status=status)
            )
        except RunNotFound:  # no journal yet: there are no runs in it
            found = []
        if as_json:
            output.give({"runs": [row.to_json() for row in found]})
        elif not found:
            output.note(f"no runs in {shown_url(journal)}")
        else:
            _tell(found, output)
    return 0


def _tell(found: Sequence[RunInfo], output: Output) -> None:
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
            (texts.one_line(row.detail), "dim"),
        ]
        output.say(*_within(line, output))


def _within(line: Sequence[tuple[str, str]], output: Output) -> list[Part]:
    room = output.width
    parts: list[Part] = []
    for index, (text, style) in enumerate(line):
        last = index == len(line) - 1
        shown = texts.fit(text, room, output.signs) if last and room > 10 else text
        if texts.width(shown) > room:
            break
        parts += [(shown, style), "" if last else "  "]
        room -= texts.width(shown) + 2
    return parts
