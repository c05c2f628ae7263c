"""`cancel` and `rewind`: commands that change a recorded run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from ...engine.run_record import rewind_with_input
from ...errors import ConfigurationError, JournalDamaged, RunLocked, RunNotFound
from ...journal import Journal, Rewind, RunInfo, surviving
from ...journal.protocol import DAMAGED
from ...journal.questions import runs_of_schedule, schedule_of
from ...journal.rewinding import rewind_entry, rewind_of
from ...records.redaction import of_environment
from .. import formatting as texts
from ..consent import can_be_asked, says_yes
from ..inputs import read_input
from ..journals import DEFAULT, command_line, find_run, reading
from . import completion
from .filters import RunFilter
from .live import report_continuation
from .options import AsJson, InputFile, InputText, JournalUrl, RunName, expanded
from .output import Output

PATIENCE = 10.0  # seconds to wait for the end of the run, which ends its processes first
POLL_SECONDS = 0.1  # seconds between two reads of its status


_OPEN = ("queued", "running", "suspended", "interrupted")
_AT_ONCE = 50  # runs that are cancelled at the same time


@expanded
def cancel(
    options: RunFilter,
    name: RunName = "",
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Cancel a run, or all open runs that match --queue, --status, --name, --since, --tag and --search.

    The process of a run is asked to end it, and for one run the command waits up to 10 seconds. Before it cancels
    several, it shows how many and the first of them, and asks.

    Examples:
        loopwright cancel last
        loopwright cancel --name polish --status suspended --yes
    """
    with Output(as_json=as_json) as output:
        if options.is_given(name):
            return _cancel_many(options, journal, output)
        info, was, schedule = reading(journal, lambda store: _cancel(store, name))
        if as_json:
            data = {"run_id": info.run_id, "status": info.status, "detail": info.detail}
            output.write_json({**data, "ended_schedule": schedule} if schedule else data)
        elif info.status == "running":
            output.write(f"{info.run_id} has been asked to end; it is still running")
        else:
            ended = f"; the schedule {schedule} has ended" if schedule else ""
            output.write(f"{info.run_id} was {was} and is now {info.status}{ended}")
    return 0


def _cancel_many(options: RunFilter, journal: str, output: Output) -> int:
    rows, schedules = reading(journal, lambda store: _to_cancel(store, options))
    if rows:
        ends = f"this ends the schedules {', '.join(schedules)}" if schedules else ""
        options.confirm(rows, "cancel", output, ends)
    done = reading(journal, lambda store: _cancel_all(store, rows))
    if output.as_json:
        output.write_json({"matched": len(rows), "cancelled": done})
    elif not rows:
        output.note("no open run matches")
    else:
        left = len(rows) - len(done)
        changed = f"; {texts.plural(left, 'run')} changed meanwhile and stayed" if left else ""
        running = sum(row.status == "running" for row in rows if row.run_id in set(done))
        asked = f"; the processes of {running} were asked to end them" if running else ""
        output.write(f"cancelled {texts.plural(len(done), 'run')}{asked}{changed}")
    return 0


async def _to_cancel(store: Journal, options: RunFilter) -> tuple[list[RunInfo], list[str]]:
    """Return the runs to cancel, and the schedules that end with them."""
    rows = await options.select(store, _OPEN)
    # An interrupted run of one machine waits for nothing that could be cancelled.
    rows = [row for row in rows if row.queue or row.status != "interrupted"]
    # The package of workers takes a third of a second to load, which other commands of this module do not need.
    from ...cluster.shared_runs import open_runs

    try:
        runs = open_runs(store)
    except ConfigurationError:  # a journal of one machine has no schedules
        return rows, []
    try:
        ids = {row.run_id for row in rows}
        return rows, sorted({name for name, run_id, _ in await runs.timed() if run_id in ids})
    finally:
        await runs.close()


async def _cancel_all(store: Journal, rows: Sequence[RunInfo]) -> list[str]:
    """Cancel runs that still have the status that a person saw; return their IDs."""

    async def one(row: RunInfo) -> bool:
        try:
            now = await store.find(row.run_id)
            return now.status == row.status and await store.cancel(row.run_id)
        except (RunNotFound, JournalDamaged):  # deleted meanwhile, or damaged
            return False

    done: list[str] = []
    for first in range(0, len(rows), _AT_ONCE):
        part = rows[first : first + _AT_ONCE]
        cancelled = await asyncio.gather(*map(one, part))
        done += [row.run_id for row, ended in zip(part, cancelled, strict=True) if ended]
    return done


async def _cancel(store: Journal, name: str) -> tuple[RunInfo, str, str]:
    """Return the run, its status before, and the name of the schedule that this ended."""
    before = info = await find_run(store, name)
    schedule = schedule_of(info)
    if schedule == name:
        waiting = await runs_of_schedule(store, name, status="queued")
        if not waiting:
            raise RunLocked(
                f"the schedule {name} has ended; its latest run {info.run_id} is {info.status}"
            )
        # A run whose time has come waits beside that of the next time, and could create another one.
        for other in waiting:
            if other.run_id != info.run_id:
                with suppress(JournalDamaged):
                    await store.cancel(other.run_id)
    # A run that has ended or lost its process has nothing that could be cancelled.
    if not await store.cancel(info.run_id):
        raise RunLocked(f"{info.run_id} is {info.status}; no process is running it")
    info = await store.find(info.run_id)
    clock = asyncio.get_running_loop().time
    until = clock() + PATIENCE
    while info.status == "running" and clock() < until:
        await asyncio.sleep(POLL_SECONDS)
        info = await store.find(info.run_id)
    if schedule:
        left = await runs_of_schedule(store, schedule, status="queued")
        # A run that has begun created that of the next time already.
        if before.status != "queued" or any(row.status != DAMAGED for row in left):
            schedule = ""
    return info, before.status, schedule


def rewind(
    name: RunName,
    path: Annotated[
        str,
        typer.Argument(
            metavar="[PATH]",
            help="Path of a step or loop, such as refine/3/execute.",
            autocompletion=completion.paths,
        ),
    ] = "",
    text: InputText = None,
    input_file: InputFile = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Bring back what the latest rewind discarded.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Answer yes: discard the results.")
    ] = False,
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Discard the recorded results from a path onward, so that resume runs these steps again.

    On a terminal it first shows what this discards, and asks. Nothing is deleted from the journal, and until the run
    continues --undo brings the results back. With the path of an iteration, such as refine/3, --input
    replaces its input. refine/ended is the end of a loop: the loop continues with its iterations. The
    last part of a path is enough if it is unique.

    Examples:
        loopwright rewind last improve/2
        loopwright rewind last improve/1 --input 'Another text'
        loopwright rewind last --undo
    """
    with Output(as_json=as_json) as output:
        edited = text is not None or input_file is not None
        if undo == bool(path) or (undo and edited):
            raise ConfigurationError("rewind: give a PATH, or --undo alone")
        value = read_input(text, input_file, output.note) if edited else None
        # The journal records the input, and no record may hold a key.
        of_environment(os.environ).refuse("input", value)

        async def look(store: Journal) -> tuple[RunInfo, str, Rewind]:
            info = await find_run(store, name)
            at = await full_path(store, info.run_id, path.strip("/")) if path else ""
            entries = await store.entries(info.run_id)
            return info, at, rewind_of(info, entries, rewind_entry(at, (), undo))[1]

        async def work(store: Journal) -> tuple[RunInfo, Rewind]:
            if edited:
                done = await rewind_with_input(store, info.run_id, at, value)
            else:
                done = await store.rewind(info.run_id, at, undo=undo)
            return await store.find(info.run_id), done

        info, at, planned = reading(journal, look)
        if not undo and not yes and can_be_asked(output):
            output.note(
                f"discard of {info.run_id} from {at} onward: {texts.discarded(planned)}. Do it? [y/N]"
            )
            if not says_yes(output):
                raise ConfigurationError("nothing was discarded")
        info, done = reading(journal, work)
        if as_json:
            output.write_json(
                {
                    "run_id": info.run_id, "path": done.path, "entries": done.entries,
                    "iterations": done.iterations, "usage": done.usage.to_json(), "undone": undo,
                }
            )  # fmt: skip
        elif undo:
            output.write(
                f"brought back of {info.run_id}: {texts.discarded(done)}; it is {info.status}"
            )
        else:
            output.write(
                f"discarded of {info.run_id} from {done.path} onward: {texts.discarded(done)}"
            )
            if edited:
                output.write(f"{done.path} will run with the new input")
            report_continuation(info, output, journal)
            output.write(("undo: ", "dim"), command_line("rewind", info.run_id, journal, "--undo"))
    return 0


async def full_path(store: Journal, run_id: str, path: str) -> str:
    """Return the one recorded path that ends in `path`, or else `path` itself.

    The loops of a document are below the document's name, which the lines of a run do not show.

    Raises:
        ConfigurationError: if several do.
    """
    path, points = path.removeprefix("/"), set()
    for entry in surviving(await store.entries(run_id)):
        words = entry.path.split("/")
        # Composite steps have no entries of their own, but a rewind may begin at one.
        points |= {"/".join(words[: i + 1]) for i in range(len(words))}
        if entry.kind == "ended":
            points.add(f"{entry.path}/ended".removeprefix("/"))
    # A guess between several paths could discard the wrong results.
    ends = sorted(point for point in points if point.endswith(f"/{path}"))
    if path in points or not ends:
        return path
    if len(ends) > 1:
        raise ConfigurationError(
            f"PATH: {path!r} matches {len(ends)} paths, such as {ends[0]} and {ends[-1]}. "
            "Give a longer path."
        )
    return ends[0]
