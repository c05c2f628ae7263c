"""A new run that begins with the recorded results of another one.

1. The entries before a path are those of the origin, with its usage and its active time, so that a fork without
   changes decides as the origin did.
2. The first entry, `forked`, names the origin and the usage that the fork inherits.
3. Long values are stored once for both runs.
4. Calls of the origin without an outcome are not inherited: the fork makes them itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import ConfigurationError, RunLocked
from ..journal import Entry, Journal, RunInfo, surviving
from ..journal.open import using
from ..journal.protocol import kept_by_fork
from ..journal.replay import RecordedRun
from ..records import Usage
from ..records.codec import Json
from .functions import wait_shortly
from .run_record import new_run_id, valid_run_id

__all__ = ["Forked", "fork", "fork_sync", "last_iteration"]


@dataclass(frozen=True, slots=True)
class Forked:
    """A fork, which `resume` executes.

    Args:
        run_id: the ID of the new run.
        origin: the ID of the run that it continues.
        path: the path from which it runs.
        entries: the number of entries that it begins with.
        inherited: the usage of these entries, which the origin spent.
    """

    run_id: str
    origin: str
    path: str
    entries: int
    inherited: Usage

    def to_json(self) -> dict[str, Json]:
        """Return the fork as a JSON object."""
        return {
            "run_id": self.run_id,
            "origin": self.origin,
            "path": self.path,
            "entries": self.entries,
            "inherited": self.inherited.to_json(),
        }


async def fork(
    run_id: str,
    *,
    journal: Journal | str,
    at: str = "",
    new_id: str = "",
    source: Mapping[str, Json] | None = None,
) -> Forked:
    """Create a run that begins with the results that another run recorded before a path.

    The new run is not executed: use `resume`. With a changed step, use `resume(..., accept_changes=True)`: the
    recorded results stay, and the new code applies from the path onward. The usage of these results counts
    toward limits as in the origin.

    Args:
        run_id: the origin, or a unique prefix of its ID. No process may be running it.
        journal: the Journal or the URL in which it is recorded.
        at: the path from which the new run repeats the steps, such as `refine/3` or `refine/3/evaluate`.
            Default: the start of the last iteration.
        new_id: the ID of the new run. Default: a new ID.
        source: how to load the document of the new run. Default: as for the origin.

    Returns:
        The fork: its ID, its path and the inherited usage.

    Raises:
        RunNotFound: if there is no such run, or nothing is recorded at the path.
        RunLocked: if a process is running it, or a run with the new ID exists.
        ConfigurationError: for an invalid ID, for a run with a workspace of kind `here`, or without `at` if no
            iteration is recorded.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, fork, resume, run
        >>> journal = MemoryJournal()
        >>> loop = Loop(lambda n: n + 1, adapt=lambda i: i.output, name="l", until=MaxIterations(3))
        >>> asyncio.run(run(loop, 1, journal=journal, run_id="a")).output
        4
        >>> asyncio.run(fork("a", journal=journal, new_id="b")).path
        'l/3'
        >>> asyncio.run(resume(loop, "b", journal=journal)).output
        4
    """
    async with using(journal) as store:
        info = await store.find(run_id)
        if info.status == "running":
            raise RunLocked(
                f"{info.run_id}: it is running; wait for its end or cancel it, then fork it",
                owner=info.owner,
            )
        entries = await store.entries(info.run_id)
        _refuse_in_place(info.run_id, entries)
        if at and not at.strip("/"):
            raise ConfigurationError(f"at: {at!r} is not a path; use one such as refine/3")
        path = at.strip("/") or last_iteration(info.run_id, entries)
        kept = kept_by_fork(entries, path)
        replay = RecordedRun(kept)
        new = Forked(
            valid_run_id(new_id) or new_run_id(), info.run_id, path, len(kept) + 1, replay.spent("")
        )
        row = _row(info, new, replay, source)
        await store.fork(info.run_id, row, [Entry("forked", "", 0.0, row.source["forked"]), *kept])
        return new


def fork_sync(
    run_id: str,
    *,
    journal: Journal | str,
    at: str = "",
    new_id: str = "",
    source: Mapping[str, Json] | None = None,
) -> Forked:
    """Create a fork of a run from synchronous code; see `fork`.

    Args:
        run_id: the origin, or a unique prefix of its ID. No process may be running it.
        journal: the Journal or the URL in which it is recorded.
        at: the path from which the new run repeats the steps. Default: the start of the last iteration.
        new_id: the ID of the new run. Default: a new ID.
        source: how to load the document of the new run. Default: as for the origin.

    Returns:
        The fork, which `resume_sync` executes.

    Raises:
        RunNotFound, RunLocked, ConfigurationError: as `fork` does.

    Example:
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, fork_sync, resume_sync, run_sync
        >>> journal = MemoryJournal()
        >>> loop = Loop(lambda n: n + 1, adapt=lambda i: i.output, name="l", until=MaxIterations(3))
        >>> run_sync(loop, 1, journal=journal, run_id="a").output
        4
        >>> fork_sync("a", journal=journal, new_id="b").path
        'l/3'
        >>> resume_sync(loop, "b", journal=journal).output
        4
    """
    return wait_shortly(lambda: fork(run_id, journal=journal, at=at, new_id=new_id, source=source))


def last_iteration(run_id: str, entries: Sequence[Entry]) -> str:
    """Return the path of the last recorded iteration of the outermost loops.

    Raises:
        ConfigurationError: if the run has none.
    """
    records = [entry for entry in surviving(entries) if entry.kind == "iteration"]
    if not records:
        raise ConfigurationError(
            f"{run_id}: it has no recorded iteration; name the path to fork at", advice="path"
        )
    depth = min(entry.path.count("/") for entry in records)
    last = [entry for entry in records if entry.path.count("/") == depth][-1]
    return f"{last.path}/{last.value.number}"


def _refuse_in_place(run_id: str, entries: Sequence[Entry]) -> None:
    """Refuse a run that works in the user's folder, where the fork would put recorded files in place.

    Raises:
        ConfigurationError: if it has a workspace of kind `here`.
    """
    for entry in surviving(entries):
        value: Json = entry.value
        if entry.kind != "finished" or entry.path.rpartition("/")[2] != "workspace":
            continue
        if isinstance(value, Mapping) and value.get("kind") == "here" and "commit" in value:
            raise ConfigurationError(
                f"{run_id}: its workspace is your folder {value['folder']}, which a fork would change; "
                "fork runs of the kinds copy, worktree and snapshot, or resume this one"
            )


def _row(
    info: RunInfo, new: Forked, replay: RecordedRun, source: Mapping[str, Json] | None
) -> RunInfo:
    scores = [e.value.score for entries in replay.records.values() for e in entries]
    own = dict(info.source) if source is None else dict(source)
    # The bounds are those of the origin until the fork is resumed.
    own |= {
        key: info.source[key]
        for key in ("bounds", "code", "step")
        if key in info.source and key not in own
    }
    own["forked"] = {"run_id": new.origin, "path": new.path, "inherited": new.inherited.to_json()}
    now = time.time()
    return replace(
        info,
        run_id=new.run_id,
        source=own,
        status="interrupted",
        reason="",
        detail="",
        created=now,
        updated=now,
        active=replay.active,
        epoch=0,
        iterations=replay.iterations,
        score=max((score for score in scores if score is not None), default=None),
        usage=new.inherited,
        owner="",
        queue="",
        wake_at=0.0,
        deliveries=0,
    )
