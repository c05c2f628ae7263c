"""`cancel` and `rewind`: what changes a recorded run."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from ...engine.resume import rewind_with_input
from ...errors import ConfigurationError, RunLocked
from ...journal import Journal, Rewind, RunInfo, surviving
from ...records.redaction import of_environment
from ..inputs import read_input
from ..journals import DEFAULT, again, find_run, reading
from .options import AsJson, InputFile, InputText, JournalUrl, RunName
from .output import Output

__all__ = ["cancel", "rewind"]

PATIENCE = 10.0  # seconds that the owner of a run gets to end it before we stop watching
BEAT = 0.1


def cancel(name: RunName, journal: JournalUrl = DEFAULT, as_json: AsJson = False) -> int:
    """Ask the process that runs a run to end it, and wait for it to do so."""
    with Output(as_json=as_json) as output:
        info, was = reading(journal, lambda store: _cancel(store, name))
        if as_json:
            output.give({"run_id": info.run_id, "status": info.status, "detail": info.detail})
        elif info.status == "running":
            output.say(f"{info.run_id} is asked to end, and has not yet")
        else:
            output.say(f"{info.run_id} was {was} and is {info.status}")
    return 0


async def _cancel(store: Journal, name: str) -> tuple[RunInfo, str]:
    before = info = await find_run(store, name)
    if not await store.cancel(info.run_id):
        raise RunLocked(f"{info.run_id}: nothing runs it, it is {info.status}")
    info = await store.find(info.run_id)
    clock = asyncio.get_running_loop().time
    until = clock() + PATIENCE
    while info.status == "running" and clock() < until:
        await asyncio.sleep(BEAT)
        info = await store.find(info.run_id)
    return info, before.status


def rewind(
    name: RunName,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="Of a step or loop, such as refine/3/execute.")
    ],
    text: InputText = None,
    input_file: InputFile = None,
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Set aside what a run did from PATH on, so that resume does it again; nothing is deleted.

    PATH of an iteration, such as refine/3, can be given another input with it; refine/ended is the end
    of a loop, from which it goes on with what it has. The end of a path does where it fits one only.
    """
    with Output(as_json=as_json) as output:
        edited = text is not None or input_file is not None
        value = read_input(text, input_file, output.note) if edited else None
        of_environment(os.environ).refuse("input", value)

        async def work(store: Journal) -> tuple[RunInfo, Rewind]:
            info = await find_run(store, name)
            at = await _whole(store, info.run_id, path.strip("/"))
            if edited:
                return info, await rewind_with_input(store, info.run_id, at, value)
            return info, await store.rewind(info.run_id, at)

        info, done = reading(journal, work)
        if as_json:
            output.give({"run_id": info.run_id, "path": done.path, "entries": done.entries})
        else:
            output.say(f"set aside {done.entries} entries of {info.run_id} from {done.path} on")
            if edited:
                output.say(f"{done.path} will have the input that you gave")
            output.say(("go on: ", "dim"), again("resume", info.run_id, journal))
    return 0


async def _whole(store: Journal, run_id: str, path: str) -> str:
    """Return the one recorded path that ends in `path`, or `path` itself where it is one or none is.

    A loop of a document is under the document's name, which the lines of a run do not show.

    Raises:
        ConfigurationError: if several do.
    """
    points = set()
    for entry in surviving(await store.entries(run_id)):
        words = entry.path.split("/")
        points |= {"/".join(words[: i + 1]) for i in range(len(words))}
        if entry.kind == "ended":
            points.add(f"{entry.path}/ended")
    whole = sorted(point for point in points if point.endswith(f"/{path}"))
    if path in points or not whole:
        return path
    if len(whole) > 1:
        raise ConfigurationError(
            f"PATH: {path!r} is the end of {len(whole)} paths, such as {whole[0]} and {whole[-1]}; "
            "give more of it"
        )
    return whole[0]
