"""Going on with a run that is on record: with a raised limit, or from an earlier point with an edited
input.

Rules:

1. Nothing is deleted: what no longer holds is set aside by a rewind, as everything recorded after it is.
2. Who raised what, and who edited what, is on record (`accepted`, `answered`), so that every later
   resume sees the same. A run that nobody reopened is returned as it ended.
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
    """Raise the limit that ended a run, so that the next resume goes on where it stood.

    `max_iterations` is for a loop (`loop` names it by path or name; by default the outermost that used
    its iterations up, of an agent's phases the last); `max_usd`, `max_calls`, `max_total_tokens` and
    `max_effects` are for the run or loop whose budget of that unit was used up. A run that has not
    ended keeps what it did and gets the limit. Returns the paths of what was raised, "" for the run.

    Raises:
        RunNotFound: if there is no such run.
        RunLocked: if a live process runs it.
        ConfigurationError: if something else ended it, or the limit is not above what is used.
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
    for name, most in budgets.items():
        if most is None:
            continue
        if name != "max_usd":
            codec.integer(name, most, minimum=1)
        entries = surviving(await journal.entries(info.run_id))
        path, point = _budget(info.run_id, entries, name, most)
        await _record(journal, info.run_id, point, path, {name: most})
        raised.append(path)
    return raised


def _iterations(run_id: str, replay: RecordedRun, maximum: int, loop: str) -> tuple[str, str]:
    """Return the path of the loop to go on, and the point to rewind to, "" if it has not ended."""
    ends = {path: Stop.from_json(end["stop"]) for path, end in replay.ended.items() if path}
    open_ = [path for path in replay.rounds if path not in ends and "" not in replay.ended]
    able = [*open_, *(path for path, stop in ends.items() if stop.reason in _LIMITS)]
    able = [path for path in able if f"{path}/items" not in replay.finished]  # no list of items
    if loop:
        able = [path for path in able if loop in (path, path.rsplit("/", 1)[-1])]
    if not able:
        raise _not_by_limit(run_id, replay, loop, ends)
    path = able[-1] if loop else _outermost(able, ends)
    used = len(replay.rounds.get(path, ()))
    if maximum <= used:
        raise ConfigurationError(
            f"max_iterations: {maximum} is not above the {used} iterations that {path} has used; "
            f"give {used + 1} or more"
        )
    if maximum > CEILING:
        raise ConfigurationError(
            f"max_iterations: {maximum} is above the ceiling of {CEILING}; give at most {CEILING}"
        )
    return path, f"{path}/ended" if path in ends else ""


def _outermost(able: Sequence[str], ends: dict[str, Stop]) -> str:
    """Return the outermost of these loops; of phases, which follow each other, the one that was last."""
    path = min(able, key=lambda path: path.count("/"))
    if path not in ends or ends[path].reason is not Reason.PHASE_LIMIT:
        return path
    agent = path.rpartition("/")[0]
    return [each for each in able if each in ends and each.rpartition("/")[0] == agent][-1]


def _not_by_limit(
    run_id: str, replay: RecordedRun, loop: str, ends: dict[str, Stop]
) -> ConfigurationError:
    names = {path.rsplit("/", 1)[-1] for path in replay.rounds}
    if loop and loop not in names | set(replay.rounds):
        hint = nearest(loop, names) or f"; there are {', '.join(sorted(names)) or 'none'}"
        return ConfigurationError(f"loop: there is no loop {loop!r} in {run_id}{hint}")
    stops = [stop for path, stop in ends.items() if not loop or loop in path.split("/")]
    root = replay.ended.get("")
    stop = stops[-1] if stops else Stop.from_json(root["stop"]) if root else None
    why = f"it ended otherwise ({stop.reason.value}: {stop.detail})" if stop else "it has no loop"
    return ConfigurationError(
        f"{run_id}: no limit of iterations ended {loop or 'it'}: {why}; rewind it to go on from an "
        "earlier point"
    )


def _budget(run_id: str, entries: Sequence[Entry], name: str, maximum: float) -> tuple[str, str]:
    """Return whose budget was used up ("" is the run), and the point to rewind to."""
    unit = UNITS[name]
    replay = RecordedRun(entries)
    root = replay.ended.get("")
    stop = Stop.from_json(root["stop"]) if root is not None else None
    if stop is not None and (stop.reason is not Reason.BUDGET or unit_of(stop.detail) != unit):
        raise ConfigurationError(
            f"{run_id}: no budget of {_WORDS[unit]} ended it, but {stop.reason.value}: {stop.detail}"
        )
    stops = [found for entry in entries if (found := _spent_out(entry)) is not None]
    path, point = "", ""
    if root is not None:
        path = stops[-1][0] if stops else ""
        point = next((at for owner, at in stops if owner == path), "ended")
    used = replay.effects(path) if unit == "effects" else getattr(replay.spent(path), unit)
    if maximum <= used:
        raise ConfigurationError(
            f"{name}: {amount(maximum)} is not above the {amount(used)} {_UNITS[unit]} that are spent; "
            "give more"
        )
    return path, point


def _spent_out(entry: Entry) -> tuple[str, str] | None:
    """Return the owner of the budget that this entry says is used up, and the entry's point."""
    word = Reason.BUDGET.value
    if entry.kind == "iteration" and entry.error is not None and entry.error.kind == word:
        return entry.error.path, f"{entry.path}/{entry.value.number}/record"
    if entry.kind == "ended" and entry.path and entry.value["stop"]["reason"] == word:
        cut = entry.value.get("cut") or {}
        return cut.get("owner", entry.path), f"{entry.path}/ended"
    return None


async def rewind_with_input(journal: Journal, run_id: str, path: str, value: Json) -> Rewind:
    """Go back to the beginning of an iteration, which then has `value` as its input.

    `path` is that of an iteration, such as `refine/3`; the edited input stands in for what adapt made.

    Raises:
        RunNotFound: if there is no such run, or nothing was recorded there.
        RunLocked: if a live process runs it.
        ConfigurationError: if the path is not that of an iteration of a loop, or the value no JSON.
    """
    info = await journal.find(run_id)
    try:
        given = codec.normalise(value, what="input")
    except StepError as error:
        raise ConfigurationError(str(error)) from None
    entries = surviving(await journal.entries(info.run_id))
    loop, _, number = path.rpartition("/")
    stages = {e.path.removeprefix(f"{path}/").split("/")[0] for e in entries if _in(e, path)}
    is_list = any(entry.path == f"{loop}/items" for entry in entries)
    if not loop or not number.isdigit() or is_list or not stages & {"adapt", "execute"}:
        rounds = [f"{e.path}/{e.value.number}" for e in entries if e.kind == "iteration"]
        hint = nearest(path, rounds) or (f", such as {rounds[-1]}" if rounds else "")
        raise ConfigurationError(
            f"{path!r} is no iteration of a loop, which alone can be given another input; "
            f"give its path{hint}"
        )
    done = await journal.rewind(info.run_id, path)
    await _append(journal, info.run_id, Entry("answered", f"{path}/input", 0.0, value=given))
    return done


def _in(entry: Entry, path: str) -> bool:
    return entry.kind == "started" and entry.path.startswith(f"{path}/")


async def _record(
    journal: Journal, run_id: str, point: str, path: str, told: dict[str, Json]
) -> None:
    if point:
        await journal.rewind(run_id, point)
    await _append(journal, run_id, Entry("accepted", path, 0.0, value=told))


async def _append(journal: Journal, run_id: str, entry: Entry) -> None:
    """Put an entry durably into the journal of a run that nobody runs, and give it back."""
    log = await journal.open(await journal.find(run_id), resume=True)
    row = replace(log.info, status=status_of(log.recorded), updated=time.time())
    entry.at = row.active
    try:
        log.append(entry)
        if (written := log.sync()) is not None:
            await written
    finally:
        await log.close(row)
