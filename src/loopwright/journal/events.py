"""Events from outside of a run, and the waits of runs for them: what a store keeps, and how both meet.

1. An event is stored first. A run takes the events of a name and key in their order, and each once; its entry `woken`
   is the record of that. An event that arrives before its wait is not lost.
2. A look of a wait and a signal are transactions of one writer, or hold the lock of the name and the key. So no event
   falls between the look of a run and its sleep.
3. A row of `waits` says that a run waits. Its `due` is a wish to look: a signal sets it to now. The time at which the
   wait ends is in the entry `waiting`.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import ConfigurationError, StepError
from ..records import codec
from ..records.codec import Json, strict_json
from ..records.typed import Value

__all__ = ["Event", "EventTables", "OpenWait", "Signalled", "events_in_memory"]

MOST = 1000  # events of one name and key that no run has taken
MOST_OF_JOURNAL = 100_000
KEPT = 30 * 86_400.0  # seconds: a run may reach its wait later
LARGEST = 256 << 10  # bytes of a value as JSON
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_LONGEST = 200  # characters of a key and of an ID


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Event(Value):
    """An event from outside.

    Args:
        name: 1 to 100 letters, digits, `.`, `_` and `-`.
        key: what it is about; runs wait for a name and a key. At most 200 characters.
        value: any JSON value, at most 256 KiB.
        id: two events with one name, key and ID are one event; "" is a new event.
        who: who sent it.
        at: when the store received it, in seconds since the epoch.
        number: its place in the order of all events.
        run: the ID of the only run that may take it; "" is each run that waits for it.
    """

    name: str
    key: str
    value: Json = None
    id: str = ""
    who: str = ""
    at: float = 0.0
    number: int = 0
    run: str = ""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OpenWait(Value):
    """What a run waits for at one path: an event, or a time only.

    Args:
        run: the ID of the run.
        path: the path of the wait.
        name, key: those of the event; "" for a time.
        due: when somebody should look, in seconds since the epoch; infinity is never.
        since: the time from which events count.
        after: the number of the last event of this name and key that the run has taken.
        later: the latest time of those. A later event counts, whatever its number: the run may come from another store.
        until: the time from which events come too late.
    """

    run: str
    path: str
    name: str = ""
    key: str = ""
    due: float = math.inf
    since: float = 0.0
    after: int = 0
    later: float = math.inf
    until: float = math.inf


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Signalled(Value):
    """What became of an event.

    Args:
        event: the event as it is stored.
        repeated: whether it was there before.
        waiting: how many runs wait for its name and key.
    """

    event: Event
    repeated: bool = False
    waiting: int = 0


Taken = dict[tuple[str, str], tuple[int, float]]
"""The highest number and the latest time of the events that a run took, by their name and key."""
NONE_TAKEN = (0, math.inf)  # for a name and key of which it took none


def add_taken(taken: Taken, value: Mapping[str, Json]) -> None:
    """Add an event, as the entry `taken` has it, to what a run took."""
    place = (value["name"], value["key"])
    number, at = taken.get(place, (0, 0.0))
    taken[place] = max(number, value["number"]), max(at, value["at"])


def checked_event(event: Event) -> Event:
    """Return an event with an ID. Raises ConfigurationError for one that no store takes."""
    if not (isinstance(event.name, str) and _NAME.fullmatch(event.name)):
        raise ConfigurationError(
            f"event: {event.name!r:.120} is not a name; use 1 to 100 letters, digits, ., _ and -"
        )
    for what, text in (("key", event.key), ("id", event.id)):
        if not (isinstance(text, str) and len(text) <= _LONGEST and text.isprintable()):
            raise ConfigurationError(
                f"event {event.name}: {what}: {text!r:.80} is not a line of at most {_LONGEST} characters"
            )
    try:
        value = codec.normalise(event.value, what="value")
    except StepError as error:
        raise ConfigurationError(f"event {event.name}: {error}") from None
    if (size := len(codec.canonical(value).encode())) > LARGEST:
        raise ConfigurationError(
            f"event {event.name}: its value has {size:,} bytes as JSON; at most {LARGEST:,} are stored"
        )
    return replace(event, value=value, id=event.id or os.urandom(16).hex())


def full(event: Event, untaken: int, most: int) -> ConfigurationError:
    """Return the refusal of an event because too many were sent that no run has taken."""
    where = f"of the key {event.key!r}" if most == MOST else "in this journal"
    return ConfigurationError(
        f"event {event.name}: {untaken:,} events {where} were taken by no run; nothing was stored. "
        "Start a run that waits for them, or use another key"
    )


Execute = Callable[[str, Sequence[object]], list[tuple[Json, ...]]]

TABLES = (
    (
        "CREATE TABLE {0}events(number {1} PRIMARY KEY,name TEXT NOT NULL,key TEXT NOT NULL,id TEXT NOT NULL,"
        "value TEXT NOT NULL,who TEXT NOT NULL,at {2} NOT NULL,run TEXT NOT NULL,taken INTEGER NOT NULL DEFAULT 0)"
    ),
    "CREATE UNIQUE INDEX events_by_key ON {0}events(name,key,id)",
    "CREATE INDEX events_untaken ON {0}events(name,key,number)WHERE taken=0",
    (
        "CREATE TABLE {0}waits(run TEXT NOT NULL,path TEXT NOT NULL,name TEXT NOT NULL,key TEXT NOT NULL,"
        "due {2} NOT NULL,PRIMARY KEY(run,path,name,key))"
    ),
    "CREATE INDEX waits_due ON {0}waits(due)",
    "CREATE INDEX waits_by_name ON {0}waits(name,key)",
)
"""The tables of a database: the prefix of their names, the type of numbers, and that of times."""


@dataclass(frozen=True)
class EventTables:
    """The events and waits in a database, as statements of SQL that all databases understand.

    Args:
        execute: performs a statement with `?` for values inside the caller's transaction, and returns its rows.
        clock: returns the time of the store, in seconds since the epoch.
        prefix: what the names of the tables begin with.
        lock: keeps others from the events of a name and key until the end of the transaction.
        wake: lets workers continue the runs that wait for an event.
    """

    execute: Execute
    clock: Callable[[], float]
    prefix: str = ""
    lock: Callable[[str, str], object] = lambda name, key: None
    wake: Callable[[Event], object] = lambda event: None

    def _do(self, statement: str, *values: object) -> list[tuple[Json, ...]]:
        return self.execute(statement.replace("@", self.prefix), values)

    def signal(self, event: Event) -> Signalled:
        """Store an event; see Journal.signal."""
        self.lock(event.name, event.key)
        name = (event.name, event.key)
        which = (*name, event.run, event.run)
        [(waiting,)] = self._do(
            "SELECT count(DISTINCT run) FROM @waits WHERE name=? AND key=? AND (?='' OR run=?)",
            *which,
        )
        same = "SELECT number,name,key,id,value,who,at,run FROM @events WHERE name=? AND key=? AND id=?"
        if found := self._do(same, *name, event.id):
            return Signalled(_event(found[0]), repeated=True, waiting=waiting)
        untaken = "SELECT count(*) FROM @events WHERE taken=0"
        counts = (f"{untaken} AND name=? AND key=?", name, MOST), (untaken, (), MOST_OF_JOURNAL)
        for statement, values, most in counts:
            [(count,)] = self._do(statement, *values)
            if count >= most:
                raise full(event, count, most)
        now = self.clock()
        # In the order of their numbers, so that no index by time is needed.
        self._do(
            "DELETE FROM @events WHERE number IN (SELECT number FROM @events ORDER BY number LIMIT 100) "
            "AND at<?",
            now - KEPT,
        )
        self._do(
            "INSERT INTO @events(name,key,id,value,who,at,run) VALUES (?,?,?,?,?,?,?)",
            *name, event.id, json.dumps(event.value), event.who, now, event.run,
        )  # fmt: skip
        due = "UPDATE @waits SET due=? WHERE due>? AND name=? AND key=? AND (?='' OR run=?)"
        self._do(due, now, now, *which)
        self.wake(event)
        return Signalled(_event(self._do(same, *name, event.id)[0]), waiting=waiting)

    def look(self, waits: Sequence[OpenWait]) -> tuple[float, list[Event | None]]:
        """Register waits and return the time and the first event for each; see Journal.look_for."""
        found: list[Event | None] = []
        # In one order, so that two runs which wait for the same events do not lock each other out.
        for wait in sorted(waits, key=lambda one: (one.name, one.key)):
            self.lock(wait.name, wait.key)
        for wait in waits:
            rows = self._do(
                "SELECT number,name,key,id,value,who,at,run FROM @events WHERE name=? AND key=? AND (number>? OR at>?) AND at>=? AND at<=? "
                "AND (run='' OR run=?) ORDER BY number LIMIT 1",
                wait.name, wait.key, wait.after, min(wait.later, _NEVER), wait.since, min(wait.until, _NEVER), wait.run,
            ) if wait.name else []  # fmt: skip
            event = _event(rows[0]) if rows else None
            # A process may end between its look and the record of the event. The row then stays due for another process.
            due = wait.due if event is None else min(wait.due, event.at)
            self._do(
                "INSERT INTO @waits AS w(run,path,name,key,due) VALUES (?,?,?,?,?) "
                "ON CONFLICT(run,path,name,key) DO UPDATE SET due=excluded.due WHERE w.due<>excluded.due",
                wait.run, wait.path, wait.name, wait.key, min(due, _NEVER),
            )  # fmt: skip
            found.append(event)
        # After the events: one that is not there yet gets a later time.
        return self.clock(), found

    def end(self, run: str, path: str, taken: Iterable[int]) -> int:
        """Remove the rows of a wait; see Journal.end_wait."""
        for number in taken:
            self._do("UPDATE @events SET taken=1 WHERE number=?", number)
        self._do("DELETE FROM @waits WHERE run=? AND (?='' OR path=?)", run, path, path)
        left = "SELECT count(*) FROM @events WHERE taken=0 AND (key=? OR run=?)"
        return 0 if path else int(self._do(left, run, run)[0][0])

    def waits(self, run: str, due: float, limit: int) -> list[OpenWait]:
        """Return open waits; see Journal.waits."""
        rows = self._do(
            "SELECT run,path,name,key,due FROM @waits WHERE due<=? AND (?='' OR run=?) "
            "ORDER BY due,run,path,name LIMIT ?",
            min(due, _NEVER), run, run, limit,
        )  # fmt: skip
        return [
            OpenWait(_text(run), _text(path), _text(name), _text(key), _time(at))
            for run, path, name, key, at in rows
        ]


def events_in_memory(clock: Callable[[], float] = time.time) -> EventTables:
    """Return the events and waits of a journal in memory: the same tables, in a database of this process."""
    import sqlite3  # takes time to load, and few runs in memory wait

    db = sqlite3.connect(":memory:", check_same_thread=False)
    for statement in TABLES:
        db.execute(statement.format("", "INTEGER", "REAL"))
    return EventTables(lambda statement, values: db.execute(statement, values).fetchall(), clock)


_NEVER = 1e300  # seconds: JSON and SQL have no infinity


def _time(number: float) -> float:
    return math.inf if number >= _NEVER else number


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _event(row: tuple[Json, ...]) -> Event:
    number, name, key, id_, value, who, at, run = row
    name, key, id_, value, who, run = map(_text, (name, key, id_, value, who, run))
    return Event(name, key, strict_json(value), id_, who, at, number, run)
