"""Events that a person or a program sends: refused where every run that waits for them would set their value aside."""

from __future__ import annotations

import os

from ..errors import ConfigurationError, RunNotFound
from ..journal import Journal, surviving
from ..journal.events import Event, Signalled, checked_event
from ..journal.replay import RecordedRun
from ..records.json_schema import problem_with
from ..records.redaction import of_environment

__all__ = ["send_event"]


async def send_event(journal: Journal, event: Event, run_id: str = "") -> Signalled:
    """Store an event, for which runs may wait: their open waits then say what the value must be.

    Args:
        journal: the journal of the runs.
        event: the event.
        run_id: the run that it is for. Default: every run that waits for its name and key.

    Raises:
        RunNotFound: if there is no run with exactly this ID.
        ConfigurationError: for an event that no store takes, that has a secret, or that every run would set aside.
    """
    event, place = checked_event(event), (event.name, event.key)
    of_environment(os.environ).refuse("the value of the event", event.value)
    if run_id and (await journal.find(run_id)).run_id != run_id:  # it also finds by a beginning
        raise RunNotFound(f"there is no run {run_id!r}")
    problems: list[str] = []
    # The entries, which may be many, are read only of runs that wait.
    waits = await journal.waits(run_id)
    for waiting in dict.fromkeys(row.run for row in waits if (row.name, row.key) == place):
        recorded = RecordedRun(surviving(await journal.entries(waiting)))
        problems += [
            problem_with(event.value, one.get("schema", {}))
            for path, wait in recorded.waiting.items()
            for one in wait.get("events", ())
            if (one["name"], one["key"]) == place and path not in recorded.woken
        ]
    if problems and all(problems):
        raise ConfigurationError(f"event {event.name}: its value does not fit: {problems[0]:.300}")
    return await journal.signal(event)
