"""`worker schedules`: the schedules of a journal; pause one, let it continue, or create the runs of times that have passed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from ....cluster.schedules import Backfilled, ScheduleInfo, backfill, pause, proceed, schedules
from ....cluster.shared_runs import SharedRuns
from ....errors import ConfigurationError, nearest
from ....journal import Journal
from ....journal.protocol import DAMAGED
from ... import formatting as texts
from ...cluster_state import shared_runs
from ...finding import moment
from ...journals import DEFAULT, reading
from ..options import AsJson, JournalUrl
from ..output import Output

T = TypeVar("T")
_SHOWN = 5  # runs that a line names


def worker_schedules(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Only this schedule.")] = "",
    hold: Annotated[bool, typer.Option("--pause", help="Start none of its runs.")] = False,
    go_on: Annotated[
        bool, typer.Option("--continue", help="Start its runs again, from its next time.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            "--backfill",
            metavar="FROM",
            help="Create the runs of its times since then that do not exist: an age such as 7d, or a date.",
        ),
    ] = "",
    until: Annotated[
        str, typer.Option("--to", metavar="TO", help="For --backfill: the end.  [default: now]")
    ] = "",
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """List schedules, pause one, let it continue, or create the runs of times that have passed.

    Submit a run with --cron to create a schedule, and cancel it by its name. --backfill creates at most 1,000 runs,
    which start at once; repeating it creates none twice.

    Examples:
        loopwright worker schedules
        loopwright worker schedules reports --pause
        loopwright worker schedules reports --backfill 7d
    """
    with Output(as_json=as_json) as output:
        chosen = sum(map(bool, (hold, go_on, since)))
        if chosen > 1:
            raise ConfigurationError(
                "--pause, --continue and --backfill exclude each other. Use one of them."
            )
        if chosen and not name:
            raise ConfigurationError("Name the schedule: loopwright worker schedules NAME --pause")
        if until and not since:
            raise ConfigurationError("--to needs --backfill FROM")
        if since:
            first = moment("--backfill", since)
            last = moment("--to", until) if until else None
            filled = _shared(journal, lambda store, runs: backfill(store, runs, name, first, last))
            _report_backfilled(name, filled, output)
            return 0
        if hold or go_on:
            changed = _shared(journal, lambda store, runs: _change(store, runs, name, on=hold))
        listed = _shared(journal, schedules)
        names = [one.name for one in listed]
        if name and name not in names:
            hint = nearest(name, names) or "; list them with: loopwright worker schedules"
            raise ConfigurationError(f"no schedule {name!r} has a next run{hint}")
        shown = [one for one in listed if name in ("", one.name)]
        if as_json:
            data = {"schedules": [one.to_json() for one in shown]}
            output.write_json({**data, "changed": changed} if chosen else data)
            return 0
        if chosen and not changed:
            output.note(f"{name} {'is paused already' if hold else 'was not paused'}")
        if not shown:
            output.note(
                "no schedule; create one with: loopwright submit FILE --cron TIMES --id NAME"
            )
        for one in shown:
            _write(one, output)
    return 0


def _shared(url: str, work: Callable[[Journal, SharedRuns], Awaitable[T]]) -> T:
    """Return the result of `work` on a journal and its shared state."""

    async def called(store: Journal) -> T:
        async with shared_runs(store) as runs:
            return await work(store, runs)

    return reading(url, called)


async def _change(store: Journal, runs: SharedRuns, name: str, *, on: bool) -> bool:
    if on:
        return await pause(runs, name)
    return await proceed(store, runs, name) is not None


def _write(one: ScheduleInfo, output: Output) -> None:
    if one.expression == DAMAGED:
        output.write(
            (one.name, "bold"),
            f"  the row of its run {one.run_id} is damaged; restore it from a backup, or submit the schedule again",
        )
        return
    state = "paused" if one.paused else f"next: {texts.start(one.next)}"
    output.write((one.name, "bold"), f"  {one.expression}  {state}, queue {one.queue}")


def _report_backfilled(name: str, filled: Backfilled, output: Output) -> None:
    if output.as_json:
        output.write_json({"created": list(filled.created), "existed": list(filled.existed)})
        return
    output.write(f"created {texts.plural(len(filled.created), 'run')} of {name}")
    if filled.existed:
        more = len(filled.existed) - _SHOWN
        tail = f" and {more} more" if more > 0 else ""
        output.write(
            f"{texts.plural(len(filled.existed), 'run')} existed already: {', '.join(filled.existed[:_SHOWN])}{tail}"
        )
