"""`steer`, `hold` and `continue`: hints for a run that goes on, and a stop before its next effects."""

from __future__ import annotations

import os
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ...engine.steering import Hint, continue_run, in_flight
from ...engine.steering import hold as hold_run
from ...engine.steering import steer as give
from ...errors import ConfigurationError
from ...journal import Journal, RunInfo
from ...records.codec import Json
from ...records.redaction import of_environment
from .. import formatting as texts
from ..journals import DEFAULT, find_run, reading, resume_line
from ..run_summary import is_for_workers
from .live import report_continuation
from .options import AsJson, JournalUrl, RunCommandOptions, RunName
from .output import Output
from .run import resume_run

Now = Annotated[
    bool,
    typer.Option("--now", help="Interrupt coding agents; each goes on in its session."),
]


def steer(
    name: RunName,
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="The hint, or @FILE. Without it, hints are listed."),
    ] = "",
    loop: Annotated[
        str,
        typer.Option(
            "--loop", metavar="NAME", help="Name or path of the loop.  [default: every loop]"
        ),
    ] = "",
    once: Annotated[
        bool, typer.Option("--once", help="For one iteration of each loop, not until its end.")
    ] = False,
    now: Now = False,
    drop: Annotated[
        int,
        typer.Option(
            "--drop",
            metavar="N",
            show_default=False,
            help="Number of a hint that is not read any more.",
        ),
    ] = 0,
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Give a run a hint, which its loops read at the beginning of their next iterations.

    A live run takes it within a second. Templates have hints as `loop.hints`; a prompt or a task of `execute` that
    does not use the name gets them after its text. With --now, coding agents that work in the loops are interrupted,
    and go on in their sessions with the hint.

    Examples:
        loopwright steer last "Use the asyncio API; leave the tests alone."
        loopwright steer last @hint.txt --once --now
        loopwright steer last --drop 1
    """
    with Output(as_json=as_json) as output:
        if text.startswith("@"):
            try:
                text = Path(text[1:]).read_text("utf-8-sig").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"{text[1:]!r} cannot be read: {error}") from error
        # The journal records the hint, and no record may hold a key.
        of_environment(os.environ).refuse("hint", text)

        async def work(store: Journal) -> tuple[RunInfo, str, tuple[Hint, ...]]:
            info = await find_run(store, name)
            calls = in_flight(info, await store.entries(info.run_id), loop) if now else ""
            given = partial(give, info.run_id, text, journal=store, loop=loop, once=once, now=now)
            return info, calls, await given(drop=drop)

        info, calls, hints = reading(journal, work)
        if as_json:
            shown = {"calls": calls} if calls else {}
            output.write_json({"run_id": info.run_id, "hints": [*map(_row, hints)], **shown})
        elif text:
            reader = f"the loop {loop} reads it" if loop else "its loops read it"
            output.write(f"hint {hints[-1].number} is recorded; {reader} in the next iteration")
            if calls:
                output.write(calls, wrap=True)
        else:
            if drop:
                output.write(f"hint {drop} is not read any more")
            for hint in hints:
                _write(hint, output)
            if not hints and not drop:
                output.write("no hint is in force")
    return 0


def _row(hint: Hint) -> dict[str, Json]:
    return {
        "number": hint.number, "text": hint.text, "loop": hint.loop, "once": hint.once, "who": hint.who,
        "at": hint.at, "read": list(hint.read),
    }  # fmt: skip


def _write(hint: Hint, output: Output) -> None:
    at = datetime.fromtimestamp(hint.at).astimezone()
    where = f", for the loop {hint.loop}" if hint.loop else ""
    read = f"; read by {', '.join(hint.read)}" if hint.read else "; not read yet"
    once = ", once" if hint.once else ""
    head = f"{hint.number}  {texts.one_line(hint.who)}, {at:%Y-%m-%d %H:%M}{where}{once}{read}"
    output.write((head, "bold"))
    output.write("   " + texts.one_line(hint.text), wrap=True)


def hold(
    name: RunName, now: Now = False, journal: JournalUrl = DEFAULT, as_json: AsJson = False
) -> int:
    """Stop a run before its next effects, until `continue`. Calls in flight end; --now interrupts coding agents.

    No event and no time wakes a run that is held.

    Examples:
        loopwright hold last
        loopwright hold first --now --json
    """
    with Output(as_json=as_json) as output:

        async def work(store: Journal) -> tuple[RunInfo, str]:
            info = await find_run(store, name)
            calls = in_flight(info, await store.entries(info.run_id), None) if now else ""
            return await hold_run(info.run_id, journal=store, now=now), calls

        info, calls = reading(journal, work)
        if as_json:
            shown = {"calls": calls} if calls else {}
            row = {"run_id": info.run_id, "status": info.status, "reason": info.reason}
            output.write_json(row | shown)
        elif info.reason == "held":
            output.write(f"{info.run_id} is held")
        else:
            output.write(f"{info.run_id} is {info.status}; it stops before its next effect")
            if calls:
                output.write(calls, wrap=True)
    return 0


def continue_(
    name: RunName,
    go_on: Annotated[bool, typer.Option("--resume", help="Resume the run at once.")] = False,
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """End the hold of a run.

    A run that has not stopped yet goes on, and a worker continues a submitted one. Resume any other one, or use
    --resume.

    Examples:
        loopwright continue last --resume
        loopwright continue first --json
    """

    async def work(store: Journal) -> RunInfo:
        return await continue_run((await find_run(store, name)).run_id, journal=store)

    info = reading(journal, work)
    if go_on and info.status != "running":
        return resume_run(info.run_id, RunCommandOptions(journal=journal, as_json=as_json))
    with Output(as_json=as_json) as output:
        if as_json:
            output.write_json({"run_id": info.run_id, "status": info.status})
        elif info.status == "running":
            output.write(f"{info.run_id} goes on")
        elif is_for_workers(info, journal):
            report_continuation(info, output, journal, lead="it is not held any more; ")
        else:
            output.write(f"{info.run_id} is not held any more")
            output.write(("resume: ", "dim"), resume_line(info, journal))
    return 0
