"""A command that runs many recorded runs, selected by filters: one line for each, and a count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from ...errors import LoopwrightError
from ...journal import RunInfo
from ...records import Result, Status
from .. import formatting as texts
from ..journals import reading
from ..run_summary import result_json
from .filters import RunFilter
from .options import RunCommandOptions
from .output import Output

__all__ = ["ManyRunOptions", "run_each", "run_many", "worst_of"]

# The exit code of several runs is that of the first status in this order.
_WORST = ("failed", "cancelled", "impossible", "exhausted", "suspended", "satisfied")
REFUSED = 2  # the exit code if a run was refused, as for one


@dataclass(frozen=True)
class ManyRunOptions(RunFilter, RunCommandOptions):
    """Options of `retry` and `again`, which take one run or those that match filters."""

    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Answer yes: run all runs that match, and approve the commands and Python code in their documents.",
        ),
    ] = False


def run_many(
    options: ManyRunOptions,
    statuses: Sequence[str],
    verb: str,
    act: Callable[[str], Result],
    output: Output,
) -> int:
    """Ask, act on each run that matches, continue after a refusal, and return the worst exit code.

    Args:
        options: the filters, and the journal.
        statuses: the statuses of the runs that the command takes.
        verb: the name of the command.
        act: runs one of them by its ID. What it raises is a refusal of that run.
        output: receives a line for each run and their count.
    """
    rows: list[RunInfo] = reading(options.journal, lambda store: options.select(store, statuses))
    if rows:
        options.confirm(rows, verb, output)
    return run_each(rows, verb, act, output)


def run_each(
    rows: Sequence[RunInfo],
    verb: str,
    act: Callable[[str], Result],
    output: Output,
    none: str = "no run matches",
) -> int:
    """Act on each of some runs, continue after a refusal, and return the worst exit code; `none` is said without any."""
    results: list[Result] = []
    refused: dict[str, str] = {}
    for row in rows:
        try:
            result = act(row.run_id)
        except LoopwrightError as error:
            sentence = str(error).splitlines()[0].removeprefix(f"{row.run_id}: ")
            refused[row.run_id] = sentence
            output.write(f"{row.run_id}: refused: {sentence}")
            continue
        results.append(result)
        new = "" if result.run_id == row.run_id else f" {verb} as {result.run_id}"
        detail = texts.one_line(result.detail)
        output.write(f"{row.run_id}{new}: {result.status.value}: {detail}")
    if output.as_json:
        done = [result_json(result) for result in results]
        output.write_json({"matched": len(rows), "runs": done, "refused": refused})
    elif not rows:
        output.note(none)
    else:
        counts = Counter(result.status.value for result in results)
        parts = [f"{count} {status}" for status, count in counts.items()]
        parts += [f"{len(refused)} refused"] if refused else []
        output.write(f"{texts.plural(len(rows), 'run')}: {', '.join(parts)}")
    return REFUSED if refused else worst_of(results).exit_code


def worst_of(results: Iterable[Result]) -> Status:
    """Return the status of several runs that counts for the exit code; satisfied without any."""
    found = (result.status.value for result in results)
    return Status(min(found, key=_WORST.index, default="satisfied"))
