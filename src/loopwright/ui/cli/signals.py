"""`signal`: an event for the runs that wait for it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from ...errors import ConfigurationError
from ...journal import Journal
from ...journal.events import Event, Signalled
from ...journal.questions import user_name
from ...records.codec import Json, strict_json
from .. import formatting as texts
from ..journals import DEFAULT, find_run, reading
from ..sent_events import send_event
from .options import AsJson, JournalUrl
from .output import Output


def signal(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the event.")],
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Key of the event, as the wait has it."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Run whose wait has no key: its ID is the key."),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="JSON", help="Value of the event, as JSON.  [default: null]"
        ),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE", help="File with the value, as JSON.")
    ] = None,
    event_id: Annotated[
        str,
        typer.Option(
            "--event-id",
            metavar="ID",
            help="ID of the event: one ID is one event, also if sent twice.",
        ),
    ] = "",
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Send an event to the runs that wait for it, now or later.

    Give --key or --run. An event is stored first: a run that reaches its wait later takes it too. Each run takes it once.

    A run that stays in its process goes on at once, and a worker continues its runs. `resume --due` continues the others.

    Examples:
        loopwright signal ci-finished --key 9f3c --data '{"conclusion": "success"}'
        loopwright signal go-on --run last --event-id release-7
    """
    with Output(as_json=as_json) as output:
        if bool(key) == bool(run):
            raise ConfigurationError(
                "give one of --key and --run; --run is for a wait without a key"
            )
        if value is not None and file is not None:
            raise ConfigurationError("give only one of --data and --file")
        content = _value(value, file)

        async def work(store: Journal) -> Signalled:
            run_id = (await find_run(store, run)).run_id if run else ""
            event = Event(name, run_id or key or "", content, event_id, user_name())
            return await send_event(store, event, run_id)

        done = reading(journal, work)
        if as_json:
            fields = {"name": done.event.name, "key": done.event.key, "id": done.event.id}
            output.write_json({**fields, "repeated": done.repeated, "waiting": done.waiting})
        elif done.repeated:
            at = datetime.fromtimestamp(done.event.at).astimezone()
            output.write(f"received before, at {at:%Y-%m-%d %H:%M:%S}")
        else:
            verb = "wait" if done.waiting > 1 else "waits"
            number = texts.plural(done.waiting, "run") if done.waiting else "no run"
            output.write(f"stored; {number} {verb} for it")
    return 0


def _value(text: str | None, file: str | None) -> Json:
    if file is not None:
        try:
            text = Path(file).read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"--file: {file!r} cannot be read: {error}") from error
    try:
        return None if text is None else strict_json(text)
    except (ValueError, RecursionError) as error:
        option = "--data" if file is None else "--file"
        raise ConfigurationError(
            f"{option}: it is not JSON: {error}; a text needs quotes, such as '\"done\"'"
        ) from None
