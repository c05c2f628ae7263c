"""Entries of a journal, and the entries that a rewind leaves in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import RunNotFound, nearest
from ..records import NOTHING, Evaluation, Failure, Iteration, Usage, own_json
from ..records.codec import Json


@dataclass(slots=True, eq=False, repr=False)
class Entry:
    """One event of a run.

    Args:
        kind: the type of the event:

            - `started`: an effect begins; `reserved` is its worst-case usage
            - `finished`: an effect ended, with its `value` or `error`
            - `cut`: an effect was cancelled and has no outcome; with a value, it stopped to ask a
              person
            - `expired`: a step exceeded its own time limit
            - `iteration`: the record of an iteration; its `error` names the guard that cut it short
            - `ended`: a loop ended; with an empty path, the run
            - `suspended`, `interrupted`: the run paused
            - `asked`, `answered`: a question to a person, and the answer
            - `rewound`, `accepted`, `warned`: a rewind, an accepted change of code, a warning
            - `reported`: the report of an agent about its end
            - `would_stop`: the normal end of a loop that explores: its `stop` and the `iterations` until then
            - `step`: the outcome of a step of the root workflow
            - `tuned`: a person changed a limit; see `journal.tunes`
            - `noise`: the noise of scores in past runs: `sigma` and the number of `runs`, by loop
            - `forked`: the run continues another one; its `value` names that run and the path
        path: the place in the run, such as `refine/2/execute`; empty for the run itself.
        at: active seconds of the run at the event; for an effect, at its beginning.
        value: the value of the event, by kind.
        fingerprint: the identity of the step, for effects.
        error: the failure of an effect or a guard.
        usage: calls, tokens and dollars of the effect.
        reserved: the usage reserved for an effect that has begun.
        seconds: active seconds that an effect took; for an iteration, those of its loop so far.
        seq: its number in the run, from 1; assigned by the journal.
    """

    kind: str
    path: str
    at: float
    value: Json = None
    fingerprint: str = ""
    error: Failure | None = None
    usage: Usage = NOTHING
    reserved: Usage = NOTHING
    seconds: float = 0.0
    seq: int = 0

    def view(self) -> Entry:
        """Return the entry for one reader, who receives a copy of its value."""
        copy = _View(
            kind=self.kind,
            path=self.path,
            at=self.at,
            value=None,
            fingerprint=self.fingerprint,
            error=self.error,
            usage=self.usage,
            reserved=self.reserved,
            seconds=self.seconds,
            seq=self.seq,
        )
        del copy.value
        copy.recorded = self.value
        return copy

    def __repr__(self) -> str:
        return f"Entry({self.seq} {self.kind} {self.path!r} at {self.at:.3f})"

    def to_json(self) -> dict[str, Json]:
        """Return the entry as a JSON object without empty fields."""
        value = self.value
        # The engine appends records themselves; JSON is made only for readers outside it.
        if isinstance(value, Iteration | Evaluation):
            value = value.to_json()
        data: dict[str, Json] = {"seq": self.seq, "kind": self.kind, "path": self.path}
        data["at"] = round(self.at, 6)
        if value is not None:
            data["value"] = value
        if self.fingerprint:
            data["fingerprint"] = self.fingerprint
        if self.error is not None:
            data["error"] = self.error.to_json()
        if self.usage:
            data["usage"] = self.usage.to_json()
        if self.reserved:
            data["reserved"] = self.reserved.to_json()
        if self.seconds:
            data["seconds"] = round(self.seconds, 6)
        return data

    @classmethod
    def from_json(cls, data: dict[str, Json]) -> Entry:
        """Return the entry that `to_json` wrote."""
        value = data.get("value")
        if data["kind"] == "iteration":
            value = Iteration.from_json(data["value"])
        return cls(
            data["kind"],
            data["path"],
            data["at"],
            value=value,
            fingerprint=data.get("fingerprint", ""),
            error=Failure.from_json(data.get("error")),
            usage=Usage.from_json(data.get("usage")),
            reserved=Usage.from_json(data.get("reserved")),
            seconds=data.get("seconds", 0.0),
            seq=data.get("seq", 0),
        )


class _View(Entry):
    """An entry for one reader: its value is copied when it is first read, as most readers read few of many."""

    __slots__ = ("recorded",)
    recorded: Json

    def __getattr__(self, name: str) -> Json:
        # Only the slot of the value is empty, until it is read.
        if name != "value":
            return object.__getattribute__(self, name)
        self.value = own_json(self.recorded)
        return self.value


def surviving(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries that no rewind has set aside, in order.

    A rewind to a path sets aside all entries from the first one at or under that path onward, and
    each "started" whose outcome is set aside with them; see `is_at` for the forms of a path.
    """
    remaining: list[Entry] = []
    for entry in entries:
        # In order, because a later rewind may set aside entries that follow an earlier one.
        if entry.kind == "rewound":
            remaining = _before(remaining, entry.path)
        else:
            remaining.append(entry)
    return remaining


def is_at(entry: Entry, path: str) -> bool:
    """Return whether an entry is at or under a path.

    `PATH/ended` names the end of the loop at PATH (`ended` alone the end of the run), `PATH/3/record`
    the record of its third iteration.
    """
    own = entry.path
    if own == path or own.startswith(path + "/"):
        return True
    if entry.kind == "ended":
        return path == (f"{own}/ended" if own else "ended")
    point = path.removesuffix("/record")
    return point != path and entry.kind == "iteration" and point == f"{own}/{entry.value.number}"


def _before(entries: list[Entry], path: str) -> list[Entry]:
    first = next((i for i, e in enumerate(entries) if is_at(e, path)), None)
    if first is None:
        first = len(entries)  # the path has no entries yet: only the run's end is set aside
    # Every rewind also removes the end of the run, so that the run continues.
    remaining = [e for e in entries[:first] if e.kind != "ended" or e.path]
    # A "started" without its outcome would be an effect in doubt.
    finished = {e.path for e in remaining if e.kind == "finished"}
    undone = {e.path for e in entries[first:] if e.kind == "finished"} - finished
    remaining = [e for e in remaining if not (e.kind == "started" and e.path in undone)]
    # A person set these limits for the run and not for the part that is repeated.
    return remaining + [e for e in entries[first:] if e.kind == "tuned"]


def set_aside(entries: Sequence[Entry], path: str) -> int:
    """Return the number of surviving entries that a rewind to `path` sets aside.

    Raises:
        RunNotFound: if no entry is at or under that path; names the nearest path.
    """
    if not any(is_at(e, path) for e in entries):
        raise RunNotFound(
            f"nothing was recorded at {path!r}{nearest(path, {e.path for e in entries})}"
        )
    return len(entries) - len(_before(list(entries), path))


def kept_by_fork(entries: Sequence[Entry], path: str) -> list[Entry]:
    """Return the surviving entries of a run that a fork at `path` begins with.

    Calls without an outcome are left out: they belong to the run that made them.

    Raises:
        RunNotFound: if no entry is at or under that path; names the nearest path.
    """
    remaining = surviving(entries)
    if not any(is_at(entry, path) for entry in remaining):
        # Composite steps have no entries, but a fork may begin at one.
        parts = [entry.path.split("/") for entry in remaining]
        points = {"/".join(one[:end]) for one in parts for end in range(1, len(one) + 1)}
        raise RunNotFound(f"nothing was recorded at {path!r}{nearest(path, sorted(points))}")
    first = next(i for i, entry in enumerate(remaining) if is_at(entry, path))
    kept = [e for e in _before(remaining, path)[:first] if e.kind not in _OF_PROCESSES]
    finished = {e.path for e in kept if e.kind == "finished"}
    before = {id(entry) for entry in remaining[:first]}
    return [
        e
        for e in kept
        if id(e) in before and (e.kind not in ("started", "cut") or e.path in finished)
    ]


_OF_PROCESSES = ("suspended", "interrupted")  # the end of a process, which a fork does not share


def is_note(fingerprint: str) -> bool:
    """Return whether an effect only records a value for a later resume, by its fingerprint `note.…`.

    Limits on the number of effects do not count notes.
    """
    return fingerprint.startswith("note.")
