"""Limits that people change while a run is recorded, and the entries that record them.

A request is put into the inbox of the run, under the question UNASKED and a path of its own. The owner of
the run records one entry of kind `tuned` for each limit, at the path of its loop ("" is the run):

    {"id": …, "who": …, "when": seconds since the epoch, "loop": …, "key": …, "old": …, "new": …, "reason": …}

`loop` is a path or a name; a name applies to all runs of that loop. A `new` of null removes the limit. What
is decided after the entry uses the new limit, so a resume and a replay decide as the live run did.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

from ..records.codec import Json
from .entries import Entry
from .protocol import Posted

UNASKED = 0  # in place of the number of a question, which is at least 1
_PREFIX = "tune/"


class TunedLimits:
    """The limits that people changed, in the order of their entries."""

    __slots__ = ("_changes", "ids")

    def __init__(self) -> None:
        self._changes: list[tuple[str, str, Json, float]] = []
        self.ids: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._changes)

    def add(self, entry: Entry, at: float | None = None) -> None:
        """Add the change that an entry records, at its active second or at another one."""
        value = entry.value
        self.ids.add(value["id"])
        self.set(value["loop"], value["key"], value["new"], entry.at if at is None else at)

    def set(self, loop: str, key: str, new: Json, at: float = 0.0) -> None:
        """Add a change of a loop, by its path or name; "" is the run."""
        self._changes.append((loop, key, new, at))

    def of(self, path: str, until: float = math.inf) -> dict[str, Json]:
        """Return the changed limits of the loop at a path, by key; "" is the run.

        Args:
            path: the path.
            until: the active second of the last change that counts.
        """
        return {
            key: new for loop, key, new, at in self._changes if at <= until and applies(loop, path)
        }


def applies(loop: str, path: str) -> bool:
    """Return whether the path or name of a loop in a request is that of the loop at a path."""
    return loop == path or (bool(loop) and path.endswith(f"/{loop}") and "/" not in loop)


def request(changes: Sequence[Json], *, reason: str, who: str, at: float) -> Posted:
    """Return the request to change limits: a list of `{loop, key, old, new}`."""
    # The time first, because an inbox is read in the order of its paths; the rest tells requests of one
    # moment apart.
    path = f"{_PREFIX}{at:018.6f}-{os.urandom(4).hex()}"
    return Posted(path, UNASKED, {"changes": list(changes), "reason": reason}, who, at)


def tuned_entries(recorded: Iterable[Entry], inbox: Sequence[Posted], active: float) -> list[Entry]:
    """Return the entries for the requests in an inbox that are not recorded yet.

    Args:
        recorded: the entries of the run so far.
        inbox: the inbox of the run.
        active: the active seconds of the run.
    """
    before = [entry.value for entry in recorded if entry.kind == "tuned"]
    ids = {value["id"] for value in before}
    entries = []
    for posted in inbox:
        if posted.asked != UNASKED or not posted.path.startswith(_PREFIX) or posted.path in ids:
            continue
        for change in posted.value["changes"]:
            # The request names the limit of its own moment; another request may be recorded since.
            same = [v for v in before if (v["loop"], v["key"]) == (change["loop"], change["key"])]
            value = {
                "id": posted.path,
                "who": posted.who,
                "when": posted.at,
                **change,
                "old": same[-1]["new"] if same else change["old"],
                "reason": posted.value["reason"],
            }
            before.append(value)
            entries.append(Entry("tuned", change["loop"], active, value))
    return entries
