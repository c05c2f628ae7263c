"""Changes to a recorded run before it is resumed: a higher limit, or another input of an iteration.

1. Entries are never deleted. A rewind sets aside those that the change makes invalid.
2. Each change is an entry (`accepted`, `answered`), so that every later resume applies it too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ..conditions import CEILING, UNITS, amount, unit_of
from ..errors import ConfigurationError, StepError, nearest
from ..journal import Entry, Journal, Rewind, surviving
from ..journal.inbox import status_of
from ..journal.replay import RecordedRun
from ..records import Reason, Stop, codec
from ..records.codec import Json

__all__ = ["raise_limit", "rewind_with_input"]

_WORDS = {"usd": "dollars", "calls": "calls", "tokens": "tokens", "effects": "effects"}
_UNITS = {**_WORDS, "usd": "USD"}
_LIMITS = (Reason.MAX_ITERATIONS, Reason.PHASE_LIMIT)


async def raise_limit(
    journal: Journal,
    run_id: str,
    *,
    max_iterations: int | None = None,
    max_usd: float | None = None,
    max_calls: int | None = None,
    max_total_tokens: int | None = None,
    max_effects: int | None = None,
    loop: str = "",
) -> list[str]:
    """Raise the limit that ended a run, so that the next resume continues from there.

    A run that has not ended gets the limit and keeps its entries.

    Args:
        journal: the journal of the run.
        run_id: the run.
        max_iterations: the new limit of a loop.
        max_usd: the new limit in US dollars of the run or loop that used up its budget.
        max_calls: the same in model calls.
        max_total_tokens: the same in input and output tokens together.
        max_effects: the same in effects.
        loop: the path or name of the loop for `max_iterations`. Default: the outermost loop that used up
            its iterations; of the phases of an agent, the last one.

    Returns:
        The paths of the loops whose limit was raised, "" for the run.

    Raises:
        RunNotFound: if there is no such run.
        RunLocked: if a live process runs it.
        ConfigurationError: if something else ended it, or the limit is not above the used amount.
    """
    raised = []
    info = await journal.find(run_id)
    if max_iterations is not None:
        codec.integer("max_iterations", max_iterations, minimum=1)
        entries = surviving(await journal.entries(info.run_id))
        path, point = _iterations(info.run_id, RecordedRun(entries), max_iterations, loop)
        await _record(journal, info.run_id, point, path, {"max_iterations": max_iterations})
        raised.append(path)
    if max_usd is not None:
        codec.number("max_usd", max_usd, minimum=0, above=True)
    budgets = {
        "max_usd": max_usd, "max_calls": max_calls, "max_total_tokens": max_total_tokens,
        "max_effects": max_effects,
    }  # fmt: skip
    for name, maximum in budgets.items():
        if maximum is None:
            continue
        if name != "max_usd":
            codec.integer(name, maximum, minimum=1)
        # Read again for each limit: the previous one may have rewound the run.
        entries = surviving(await journal.entries(info.run_id))
        path, point = _budget(info.run_id, entries, name, maximum)
        await _record(journal, info.run_id, point, path, {name: maximum})
        raised.append(path)
    return raised


def _iterations(run_id: str, replay: RecordedRun, maximum: int, loop: str) -> tuple[str, str]:
    """Return the path of the loop to continue, and the point to rewind to, "" if it has not ended."""
    ends = {path: Stop.from_json(end["stop"]) for path, end in replay.ended.items() if path}
    running = [path for path in replay.records if path not in ends and "" not in replay.ended]
    loops = [*running, *(path for path, stop in ends.items() if stop.reason in _LIMITS)]
    # The length of a list is its limit, which cannot be raised.
    loops = [path for path in loops if f"{path}/items" not in replay.finished]
    if loop:
        loops = [path for path in loops if loop in (path, path.rsplit("/", 1)[-1])]
    if not loops:
        raise _not_by_limit(run_id, replay, loop, ends)
    path = loops[-1] if loop else _outermost(loops, ends)
    used = len(replay.records.get(path, ()))
    if maximum <= used:
        raise ConfigurationError(
            f"max_iterations: {maximum} is not above the {used} iterations that {path} has used; "
            f"use {used + 1} or more"
        )
    if maximum > CEILING:
        raise ConfigurationError(
            f"max_iterations: {maximum} is above the ceiling of {CEILING}; use at most {CEILING}"
        )
    return path, f"{path}/ended" if path in ends else ""


def _outermost(loops: Sequence[str], ends: dict[str, Stop]) -> str:
    """Return the outermost of these loops; of the phases of an agent, the last one."""
    path = min(loops, key=lambda path: path.count("/"))
    if path not in ends or ends[path].reason is not Reason.PHASE_LIMIT:
        return path
    agent = path.rpartition("/")[0]
    return [each for each in loops if each in ends and each.rpartition("/")[0] == agent][-1]


def _not_by_limit(
    run_id: str, replay: RecordedRun, loop: str, ends: dict[str, Stop]
) -> ConfigurationError:
    names = {path.rsplit("/", 1)[-1] for path in replay.records}
    if loop and loop not in names | set(replay.records):
        hint = nearest(loop, names) or f"; its loops are: {', '.join(sorted(names)) or 'none'}"
        return ConfigurationError(f"loop: there is no loop {loop!r} in {run_id}{hint}")
    stops = [stop for path, stop in ends.items() if not loop or loop in path.split("/")]
    root = replay.ended.get("")
    stop = stops[-1] if stops else Stop.from_json(root["stop"]) if root else None
    why = (
        f"it ended for another reason ({stop.reason.value}: {stop.detail})"
        if stop
        else "it has no loop"
    )
    return ConfigurationError(
        f"{run_id}: no limit of iterations ended {loop or 'it'}: {why}; rewind it to continue from an "
        "earlier point"
    )


def _budget(run_id: str, entries: Sequence[Entry], name: str, maximum: float) -> tuple[str, str]:
    """Return the owner of the used-up budget ("" is the run), and the point to rewind to."""
    unit = UNITS[name]
    replay = RecordedRun(entries)
    root = replay.ended.get("")
    stop = Stop.from_json(root["stop"]) if root is not None else None
    if stop is not None and (stop.reason is not Reason.BUDGET or unit_of(stop.detail) != unit):
        raise ConfigurationError(
            f"{run_id}: no budget of {_WORDS[unit]} ended it, but {stop.reason.value}: {stop.detail}"
        )
    stops = [owner for entry in entries if (owner := _used_up_by(entry)) is not None]
    path, point = "", ""
    if root is not None:
        path = stops[-1][0] if stops else ""
        point = next((at for owner, at in stops if owner == path), "ended")
    used = replay.effects(path) if unit == "effects" else getattr(replay.spent(path), unit)
    if maximum <= used:
        raise ConfigurationError(
            f"{name}: {amount(maximum)} is not above the {amount(used)} {_UNITS[unit]} that are spent; "
            "use a higher limit"
        )
    return path, point


def _used_up_by(entry: Entry) -> tuple[str, str] | None:
    """Return the owner of the used-up budget that an entry records, and the point of the entry."""
    word = Reason.BUDGET.value
    if entry.kind == "iteration" and entry.error is not None and entry.error.kind == word:
        return entry.error.path, f"{entry.path}/{entry.value.number}/record"
    if entry.kind == "ended" and entry.path and entry.value["stop"]["reason"] == word:
        # A loop that an outer budget ended names its owner.
        cut = entry.value.get("cut") or {}
        return cut.get("owner", entry.path), f"{entry.path}/ended"
    return None


async def rewind_with_input(journal: Journal, run_id: str, path: str, value: Json) -> Rewind:
    """Rewind a run to the beginning of an iteration, which then has another input.

    Args:
        journal: the journal of the run.
        run_id: the run.
        path: the path of the iteration, such as `refine/3`.
        value: its new input, in place of the output of adapt.

    Raises:
        RunNotFound: if there is no such run, or no entry at the path.
        RunLocked: if a live process runs it.
        ConfigurationError: if the path is not that of an iteration, or the value is not JSON.
    """
    info = await journal.find(run_id)
    try:
        new_input = codec.normalise(value, what="input")
    except StepError as error:
        raise ConfigurationError(str(error)) from None
    entries = surviving(await journal.entries(info.run_id))
    loop, _, number = path.rpartition("/")
    stages = {e.path.removeprefix(f"{path}/").split("/")[0] for e in entries if _in(e, path)}
    # The input of an item is the item, so a list has no input to replace.
    is_list = any(entry.path == f"{loop}/items" for entry in entries)
    if not loop or not number.isdigit() or is_list or not stages & {"adapt", "execute"}:
        paths = [f"{e.path}/{e.value.number}" for e in entries if e.kind == "iteration"]
        hint = nearest(path, paths) or (f", such as {paths[-1]}" if paths else "")
        raise ConfigurationError(
            f"{path!r} is not an iteration of a loop, and only an iteration can have another input; "
            f"use its path{hint}"
        )
    done = await journal.rewind(info.run_id, path)
    await _append(journal, info.run_id, Entry("answered", f"{path}/input", 0.0, value=new_input))
    return done


def _in(entry: Entry, path: str) -> bool:
    return entry.kind == "started" and entry.path.startswith(f"{path}/")


async def _record(
    journal: Journal, run_id: str, point: str, path: str, limits: dict[str, Json]
) -> None:
    # First the rewind: it would set aside an entry that was recorded before it.
    if point:
        await journal.rewind(run_id, point)
    await _append(journal, run_id, Entry("accepted", path, 0.0, value=limits))


async def _append(journal: Journal, run_id: str, entry: Entry) -> None:
    """Append an entry durably to a run without a process, and release the run."""
    log = await journal.open(await journal.find(run_id), resume=True)
    # An open run has the status "running"; the entries know the one from before.
    row = replace(log.info, status=status_of(log.recorded), updated=time.time())
    entry.at = row.active
    try:
        log.append(entry)
        if (written := log.sync()) is not None:
            await written
    finally:
        await log.close(row)
