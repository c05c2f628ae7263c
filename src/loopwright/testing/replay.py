"""An assertion that a step can be replayed from its journal."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from ..engine.run import run_sync
from ..engine.step import StepLike
from ..journal import MemoryJournal
from ..records import Result
from ..records.codec import Json

__all__ = ["assert_replays"]

_RUN = "replayed"


def assert_replays(step: StepLike, value: Json = None, **options: Any) -> Result:
    """Run a step, replay it as after a crash just before its end, and assert that the replay is equal.

    A step fails if it is not deterministic outside of its effects, for example because it chooses its next
    effect by the clock or a random number. The step must not run inside an event loop.

    Args:
        step: The step, or a function.
        value: Its input. Default: None.
        **options: The options of `run`, such as `resources`, except `journal` and `run_id`.

    Returns:
        The result of the first run.

    Raises:
        AssertionError: If the replay has another result, or runs an effect.

    Example:
        >>> assert_replays(lambda text: text + "!", "hello").output
        'hello!'
    """
    journal = MemoryJournal()
    first = run_sync(step, value, journal=journal, run_id=_RUN, **options)
    crashed, recorded = asyncio.run(_without_end(journal))
    second = run_sync(step, value, journal=crashed, run_id=_RUN, **options)
    entries = asyncio.run(crashed.entries(_RUN, after=recorded))
    # A replay starts nothing: every effect that it starts is missing in the journal.
    repeated = [entry.path for entry in entries if entry.kind == "started"]
    if repeated:
        raise AssertionError(f"the replay ran effects that are not recorded: {', '.join(repeated)}")
    if _comparable(second) != _comparable(first):
        raise AssertionError(f"the replay has another result:\n{second}\ninstead of\n{first}")
    return first


async def _without_end(journal: MemoryJournal) -> tuple[MemoryJournal, int]:
    """Return a journal as it is after a crash just before the end, and its number of entries."""
    crashed = MemoryJournal()
    info = await journal.find(_RUN)
    log = await crashed.open(replace(info, status="interrupted"))
    entries = [entry for entry in await journal.entries(_RUN) if entry.kind != "ended"]
    for entry in entries:
        log.append(entry)
    # The journal then accepts a new owner, as after the death of the process.
    crashed.crash()
    return crashed, len(entries)


def _comparable(result: Result) -> Json:
    # The duration of a replay is that of this process.
    return {key: value for key, value in result.to_json().items() if key != "seconds"}
