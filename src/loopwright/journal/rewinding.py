"""What a rewind of a recorded run discards, and what of it failed.

An entry of kind `rewound` describes a rewind; `protocol.surviving` reads it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ..errors import ConfigurationError, RunLocked
from ..records import NOTHING, Status, Stop, Usage, case_path, case_segment
from .protocol import Entry, Journal, Rewind, RunInfo, is_at, nothing_at, points_of, surviving
from .questions import status_of
from .replay import RecordedRun, can_be_undone

_ENDS = ("/placed", "/merged")  # effects at the end of what has a workspace
_ATTEMPT = re.compile("/attempt-[0-9]+(/.*)?$")


def rewind_entry(path: str, only: Sequence[str], undo: bool) -> Entry:
    """Return the entry that describes a rewind; see Journal.rewind."""
    if undo:
        return Entry("rewound", "", 0.0, {"undo": True})
    return Entry("rewound", "", 0.0, {"only": list(only)}) if only else Entry("rewound", path, 0.0)


def rewind_of(
    info: RunInfo, entries: Sequence[Entry], how: Entry
) -> tuple[RunInfo, Rewind, list[Entry]]:
    """Return the row of a run after a rewind, what the rewind discards, and the entries that survive it.

    Args:
        info: the run.
        entries: all its entries.
        how: the entry that describes the rewind.

    Raises:
        RunNotFound: if no entry is at or under one of its paths; names the nearest path.
        RunLocked: if it undoes a rewind, and the run has none or has continued since.
    """
    before, value = surviving(entries), how.value or {}
    undo = bool(value.get("undo"))
    if undo and not can_be_undone(entries):
        rewinds = [entry for entry in entries if entry.kind == "rewound"]
        undone = not rewinds or "undo" in (rewinds[-1].value or {})
        state = "was not rewound" if undone else "has continued since its rewind"
        raise RunLocked(f"{info.run_id}: it {state}, so there is no rewind to undo")
    if not undo:
        for path in value.get("only") or [how.path]:
            if not any(is_at(entry, path) for entry in before):
                raise nothing_at(path, before)
    kept = surviving([*entries, how])
    fewer, more = (before, kept) if undo else (kept, before)
    known = set(map(id, fewer))
    changed = [entry for entry in more if id(entry) not in known]
    spent: Usage = sum((e.usage for e in changed if e.kind in ("finished", "cut")), NOTHING)
    count = sum(entry.kind == "iteration" for entry in changed)
    replay = RecordedRun(kept)
    status = status_of(kept) if undo else "interrupted"
    ends = (e.value for e in reversed(kept) if e.kind in ("ended", "suspended") and not e.path)
    stop = Stop.from_json(next(ends)["stop"]) if status != "interrupted" else None
    histories = {path: replay.history(path)[0] for path in replay.records}
    bests = (histories[path].best for path in sorted(histories, key=lambda one: one != info.step))
    best = next((best for best in bests if best is not None), None)
    row = replace(
        info,
        status=status,
        reason=stop.reason.value if stop else "",
        detail=stop.detail if stop else "",
        iterations=replay.iterations,
        score=best.evaluation.score if best and best.evaluation else None,
        usage=replay.spent(""),
    )
    return row, Rewind(how.path, len(changed), count, spent), kept


def failed_paths(info: RunInfo, entries: Sequence[Entry], items: Collection[int] = ()) -> list[str]:
    """Return the paths of exactly what failed in a run: a step, iterations of a loop, or items of lists.

    Of a loop, these are its latest iterations without a success between them, and what followed; of a list, all
    failed items. What succeeded before the failure inside of an iteration or an item is left out.

    Args:
        info: the run, which has failed.
        entries: all its entries.
        items: the numbers of the items to return. Default: all that failed.

    Returns:
        The paths for `Journal.rewind(only=…)`; [] if nothing failed.
    """
    kept = surviving(entries)
    replay = RecordedRun(kept)
    lists = set(replay.lists())
    failed: dict[str, list[int]] = {}  # numbers by the path of their loop or list
    for path, records in replay.records.items():
        numbers = []
        for record in (entry.value for entry in reversed(records)):
            if record.error is not None:
                numbers.append(record.number)
            elif path not in lists:
                break
        if items and path in lists:
            numbers = [number for number in numbers if number in items]
        if numbers:
            failed[path] = sorted(numbers)
    # What an outer loop or list went on without is not a failure of the run.
    counts = [path for path in failed if _ended_outer(path, failed, replay)]
    found: dict[str, None] = {}
    for path in counts:
        numbers = failed[path] if path in lists else failed[path][:1]
        for number in numbers:
            record = next(e.value for e in replay.records[path] if e.value.number == number)
            start = f"{path}/{number}"
            if not any(inner.startswith(f"{start}/") for inner in counts):
                # Else the loop inside names what failed.
                step = _ATTEMPT.sub("", record.error.path)  # with all its attempts
                found[step if step.startswith(f"{start}/") else start] = None
            found[f"{start}/record"] = None
        if path not in lists:
            found |= dict.fromkeys(_after(path, numbers[0], list(found), kept))
    if not found and not items and info.status == Status.FAILED.value:
        found = dict.fromkeys(_errored_cases(replay))
    if not found and not items and info.status == Status.FAILED.value:
        where = ((replay.ended.get("") or {}).get("error") or {}).get("path")
        found = {_ATTEMPT.sub("", where): None} if where else {}
    # A workflow around it hands its files over at its end.
    above = {point for path in found for point in points_of(path)}
    ends = [e.path for e in kept if e.path.endswith(_ENDS) and e.path.rpartition("/")[0] in above]
    return [path for path in {**found, **dict.fromkeys(ends)} if any(is_at(e, path) for e in kept)]


def _errored_cases(replay: RecordedRun) -> Iterator[str]:
    """Iterate over the paths of the cases of data sets that errored."""
    for path, fold in replay.folded.items():
        value = fold.value["value"]
        for row in value["rows"] if isinstance(value, Mapping) and "rows" in value else ():
            if row[2] == "errored":
                yield f"{path}/{case_segment(row[0])}"
    # In the order of their ends, so that an error before a further attempt does not count.
    last = {case_path(path): entry for path, entry in replay.finished.items() if case_path(path)}
    yield from (path for path, entry in last.items() if entry.error is not None)


def _after(loop: str, number: int, paths: Sequence[str], entries: Sequence[Entry]) -> Iterator[str]:
    """Iterate over what a loop did after iteration `number` had failed at one of the paths."""
    began = False
    for entry in entries:
        began = began or any(is_at(entry, path) for path in paths if path.startswith(f"{loop}/"))
        if not began or not entry.path.startswith(f"{loop}/"):
            continue
        part, _, rest = entry.path.removeprefix(f"{loop}/").partition("/")
        if part == str(number):
            yield f"{loop}/{number}/{rest.partition('/')[0]}"
        else:
            yield f"{loop}/{part}"
    for entry in entries:
        if entry.kind == "iteration" and entry.path == loop and entry.value.number > number:
            yield f"{loop}/{entry.value.number}/record"


def _ended_outer(path: str, failed: Mapping[str, Sequence[int]], replay: RecordedRun) -> bool:
    """Return whether no loop or list around a path went on after the failure in it."""
    for outer, inner in itertools.pairwise(points_of(path)):
        number = inner.rpartition("/")[2]
        if outer in replay.records and number.isdigit():
            recorded = {entry.value.number for entry in replay.records[outer]}
            if int(number) in recorded.difference(failed.get(outer, ())):
                return False
    return True


async def discard_failed(journal: Journal, run_id: str, items: Collection[int] = ()) -> Rewind:
    """Rewind a run by exactly what failed in it, so that a resume does that again.

    Args:
        journal: the journal of the run.
        run_id: the run.
        items: the numbers of the items of its lists to do again. Default: all that failed.

    Returns:
        What was discarded.

    Raises:
        RunNotFound: if there is no such run.
        RunLocked: if the run has a live owner.
        ConfigurationError: if nothing failed in it, or its files were merged.
    """
    info = await journal.find(run_id)
    entries = await journal.entries(info.run_id)
    if info.status in ("running", "queued", "interrupted", "suspended"):
        raise RunLocked(
            f"{info.run_id}: it is {info.status}, so it has not failed; resume it or wait for its end"
        )
    may_fail = info.status not in ("satisfied", "cancelled")
    paths = failed_paths(info, entries, items) if may_fail else []
    if items:
        all_failed = failed_paths(info, entries) if may_fail else []
        failed = [path.split("/")[-2] for path in all_failed if path.endswith("/record")]
        if gone := [str(item) for item in items if str(item) not in failed]:
            raise ConfigurationError(
                f"{info.run_id}: item {', '.join(gone)} did not fail. Failed: {', '.join(failed) or 'none'}"
            )
    if not paths:
        raise ConfigurationError(
            f"{info.run_id}: it is {info.status}, and nothing in it failed, so nothing is done again"
        )
    merged = (
        e.value for e in surviving(entries) if e.kind == "finished" and e.path.endswith("/merged")
    )
    if any("applied" in (value or {}) for value in merged):
        raise ConfigurationError(
            f"{info.run_id}: its files are in your folder already, so it cannot go on from its own; start a new run"
        )
    return await journal.rewind(info.run_id, only=paths)
