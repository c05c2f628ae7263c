"""Entries, and which of them a rewind leaves in place."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import RunNotFound, nearest
from ..records import NOTHING, Evaluation, Failure, Held, Iteration, Usage, read_by_copy
from ..records.codec import Json


class Entry:
    """One thing that happened in a run.

    Kinds: `started` (an effect's intent, with what is `reserved`), `finished` (its value or error),
    `cut` (it was cancelled: settled, without an outcome; one with a value left to ask a person),
    `expired` (a step ran over its own time), `iteration` (a round's record; its `error` says which
    guard cut it short), `ended` (a loop, or with an empty path the run), `suspended`,
    `interrupted`, `asked` (a question to a person), `answered`, `rewound`, `accepted`, `warned`,
    `reported` (what an agent says of its end), `step` (how a step of the root workflow ended, or that
    it did not run).
    `at` and `seconds` are active seconds of the run, an iteration's `seconds` those of its loop so
    far; `seq` is its number in the run, from 1.
    """

    __slots__ = (
        "at", "error", "fingerprint", "kind", "path", "reserved", "seconds", "seq", "usage", "value",
    )  # fmt: skip

    def __init__(
        self,
        kind: str,
        path: str,
        at: float,
        value: Json = None,
        fingerprint: str = "",
        error: Failure | None = None,
        usage: Usage = NOTHING,
        reserved: Usage = NOTHING,
        seconds: float = 0.0,
        seq: int = 0,
    ) -> None:
        self.kind = kind
        self.path = path
        self.at = at
        self.value = value
        self.fingerprint = fingerprint
        self.error = error
        self.usage = usage
        self.reserved = reserved
        self.seconds = seconds
        self.seq = seq

    def view(self) -> Entry:
        """Return it for one reader, who gets a copy of its value."""
        made = _View(
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
        made.value = Held(self.value)
        return made

    def __repr__(self) -> str:
        return f"Entry({self.seq} {self.kind} {self.path!r} at {self.at:.3f})"

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object without the fields that say nothing."""
        value = self.value
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


@read_by_copy("value")
class _View(Entry):
    """An entry for one reader: its value is a copy, made when it is first read."""

    __slots__ = ("value",)


def surviving(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries that rewinds left in place.

    A rewind to a path sets aside everything recorded from the first entry at or under that path
    on, and intents whose outcome was set aside with it; see `is_at` for what else a path may name.
    """
    kept: list[Entry] = []
    for entry in entries:
        if entry.kind == "rewound":
            kept = _before(kept, entry.path)
        else:
            kept.append(entry)
    return kept


def is_at(entry: Entry, path: str) -> bool:
    """Return whether an entry is at or under a path, or the one that a point names.

    `PATH/ended` is the end of the loop at PATH (`ended` alone that of the run), `PATH/3/record` the
    record of its third iteration.
    """
    own = entry.path
    if own == path or own.startswith(path + "/"):
        return True
    if entry.kind == "ended":
        return path == (f"{own}/ended" if own else "ended")
    round_ = path.removesuffix("/record") if entry.kind == "iteration" else path
    return round_ != path and round_ == f"{own}/{entry.value.number}"


def _before(entries: list[Entry], path: str) -> list[Entry]:
    first = next((i for i, e in enumerate(entries) if is_at(e, path)), None)
    if first is None:
        first = len(entries)  # nothing at that path yet: only endings are taken back
    kept = [e for e in entries[:first] if e.kind != "ended" or e.path]
    finished = {e.path for e in kept if e.kind == "finished"}
    gone = {e.path for e in entries[first:] if e.kind == "finished"}
    return [e for e in kept if not (e.kind == "started" and e.path in gone - finished)]


def set_aside(entries: Sequence[Entry], path: str) -> int:
    """Return how many entries a rewind to `path` sets aside.

    Raises:
        RunNotFound: if nothing at or under that path was recorded; names the nearest path.
    """
    if not any(is_at(e, path) for e in entries):
        raise RunNotFound(
            f"nothing was recorded at {path!r}{nearest(path, {e.path for e in entries})}"
        )
    return len(entries) - len(_before(list(entries), path))


def is_note(fingerprint: str) -> bool:
    """Return whether an effect only records something for a later resume; limits of effects ignore these.

    The fingerprint of such a step begins with `note.`.
    """
    return fingerprint.startswith("note.")
