"""Recordings of the runs that a person selects, for the command line and the page."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from ..engine.loop import Loop
from ..errors import LoopwrightError
from ..insight import (
    LeftOut,
    Recording,
    Recordings,
    loop_named,
    recorded_loop,
    recordings_of,
    selected,
)
from ..journal import Entry, Journal, RunInfo
from .journals import find_run
from .sources import SourceSettings, load_again

__all__ = ["recordings_in", "selected_runs"]


async def selected_runs(
    store: Journal, selectors: Sequence[str], *, mix: bool
) -> list[tuple[RunInfo, list[Entry]]]:
    """Return the runs that selectors name, with their entries; see `insight.selected`."""
    names = [s if ":" in s else (await find_run(store, s)).run_id for s in selectors]
    runs = await selected(store, names, now=time.time(), mix=mix)
    return [(info, await store.entries(info.run_id)) for info in runs]


def recordings_in(runs: Sequence[tuple[RunInfo, list[Entry]]], name: str) -> Recordings:
    """Return the recordings of a loop, decided as each run was: by the rules that are recorded with it."""
    loops: dict[str, Loop | LeftOut] = {}
    items: list[Recording] = []
    left_out: list[LeftOut] = []
    for info, entries in runs:
        # The limits of the command line are part of the source, and not of the fingerprint.
        key = info.fingerprint + json.dumps(
            {k: v for k, v in info.source.items() if k not in ("documents", "code")}, sort_keys=True
        )
        if key not in loops:
            loops[key] = _loop_of(info, name)
        loop = loops[key]
        if isinstance(loop, LeftOut):
            left_out.append(LeftOut(info.run_id, loop.why))
            continue
        for one in recordings_of(info, entries, loop):
            if isinstance(one, LeftOut):
                left_out.append(one)
            else:
                items.append(one)
    found = next((loop.name for loop in loops.values() if isinstance(loop, Loop)), name)
    return Recordings(found, items, left_out)


def _loop_of(info: RunInfo, name: str) -> Loop | LeftOut:
    if (loop := recorded_loop(info, name)) is not None:
        return loop
    # Recorded before the rules were: the documents that are kept with the run.
    if "file" in info.source and "documents" not in info.source:
        return LeftOut(info.run_id, "its document was too large to be kept with the run")
    try:
        step = load_again(info, SourceSettings(recorded_only=True), execute=False).step
    except LoopwrightError as error:
        return LeftOut(info.run_id, str(error).splitlines()[0])
    return loop_named(step, name)
