"""Events and waits: all stores give the same answers, and each run takes each event at most once and in order."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loopwright import Workflow, resume, run, signal, wait
from loopwright.journal import open_journal
from loopwright.journal.events import TABLES, Event, EventTables, OpenWait, Signalled
from loopwright.journal.open import copy_runs

NAMES = st.sampled_from(["a", "b"])
KEYS = st.sampled_from(["k", "l"])
RUNS = st.sampled_from(["run-1", "run-2"])
TIMES = st.sampled_from([0.0, 2.0, 5.0, 9.0, float("inf")])
SENT = st.tuples(
    st.just("signal"), NAMES, KEYS, st.sampled_from(["", "x", "y"]), RUNS | st.just("")
)
LOOKED = st.tuples(st.just("look"), RUNS, NAMES, KEYS, TIMES)
ENDED = st.tuples(st.just("end"), RUNS)
LISTED = st.tuples(st.just("waits"), RUNS | st.just(""), TIMES)


class Model:
    """What a store must answer, with lists in place of tables."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.rows: dict[tuple[str, str, str, str], OpenWait] = {}
        self._taken: set[int] = set()

    def signal(self, event: Event, now: float) -> Signalled:
        """Store an event; see Journal.signal."""
        name = (event.name, event.key)
        rows = {
            key: row for key, row in self.rows.items()
            if (row.name, row.key) == name and event.run in ("", row.run)
        }  # fmt: skip
        waiting = len({row.run for row in rows.values()})
        for known in self.events:
            if (*name, event.id) == (known.name, known.key, known.id):
                return Signalled(known, repeated=True, waiting=waiting)
        number = self.events[-1].number + 1 if self.events else 1
        stored = replace(event, at=now, number=number)
        self.events.append(stored)
        self.rows |= {key: replace(row, due=min(row.due, now)) for key, row in rows.items()}
        return Signalled(stored, waiting=waiting)

    def look(self, waits: Sequence[OpenWait], now: float) -> tuple[float, list[Event | None]]:
        """Register waits and return the time and the first event for each; see Journal.look_for."""
        found = []
        for one_wait in waits:
            matching = (
                one for one in self.events
                if one_wait.name and (one.name, one.key) == (one_wait.name, one_wait.key)
                and one.run in ("", one_wait.run) and (one.number > one_wait.after or one.at > one_wait.later)
                and one_wait.since <= one.at <= one_wait.until
            )  # fmt: skip
            event = next(matching, None)
            row = one_wait if event is None else replace(one_wait, due=min(one_wait.due, event.at))
            self.rows[one_wait.run, one_wait.path, one_wait.name, one_wait.key] = row
            found.append(event)
        return now, found

    def end(self, run: str, path: str, taken: Iterable[int]) -> int:
        """Remove the rows of a wait; see Journal.end_wait."""
        self._taken.update(taken)
        kept = {k: row for k, row in self.rows.items() if k[0] != run or (path and k[1] != path)}
        self.rows = kept
        left = (run in (e.key, e.run) and e.number not in self._taken for e in self.events)
        return 0 if path else sum(left)

    def waits(self, run: str, due: float, limit: int) -> list[OpenWait]:
        """Return open waits; see Journal.waits."""
        rows = sorted(self.rows.values(), key=lambda row: (row.due, row.run, row.path, row.name))
        found = [row for row in rows if (not run or row.run == run) and row.due <= due]
        return found[:limit]


class Tables:
    """The tables of a database in memory, with the time of the test."""

    def __init__(self) -> None:
        self.now = 0.0
        db = sqlite3.connect(":memory:")
        for statement in TABLES:
            db.execute(statement.format("", "INTEGER", "REAL"))
        self.tables = EventTables(lambda s, v: db.execute(s, v).fetchall(), lambda: self.now)

    def signal(self, event: Event, now: float) -> Any:
        self.now = now
        return self.tables.signal(event)

    def look(self, waits: list[OpenWait], now: float) -> Any:
        self.now = now
        return self.tables.look(waits)

    def end(self, run: str, path: str, taken: list[int]) -> int:
        return self.tables.end(run, path, taken)

    def waits(self, run: str, due: float, limit: int) -> Any:
        return self.tables.waits(run, due, limit)


@given(st.lists(SENT | LOOKED | ENDED | LISTED, max_size=30))
def test_a_run_takes_each_event_once_and_in_order(acts: list[tuple[Any, ...]]) -> None:
    """A database and the memory agree on every answer; what a run takes has rising numbers (W1)."""
    stores: list[Any] = [Tables(), Model()]
    taken: dict[tuple[str, str, str], list[int]] = {}
    ids = itertools.count()
    for now, act in enumerate(acts):
        if act[0] == "signal":
            id_ = act[3] or f"new-{next(ids)}"
            event = Event(act[1], act[2], now, id_, "ann", run=act[4])
            first, second = [store.signal(event, float(now)) for store in stores]
        elif act[0] == "look":
            _, run, name, key, until = act
            mine = taken.setdefault((run, name, key), [])
            wait = OpenWait(run, "p", name, key, due=until, after=max(mine, default=0), until=until)
            first, second = [store.look([wait], float(now)) for store in stores]
            if (found := first[1][0]) is not None:
                assert all(found.number > number for number in mine)
                assert found.at <= until
                assert found.run in ("", run)
                mine.append(found.number)
                for store in stores:
                    store.end(run, "p", [found.number])
        elif act[0] == "end":
            first, second = [store.end(act[1], "", []) for store in stores]
        else:
            first, second = [
                [(row.run, row.name, row.key, row.due) for row in store.waits(act[1], act[2], 10)]
                for store in stores
            ]
        assert first == second


async def test_a_moved_run_takes_the_events_of_its_new_store(tmp_path: Path) -> None:
    """Numbers begin again there, and a later event is none that the run took before."""
    flow = Workflow("flow", {name: wait(name, event="go", key="k") for name in ("one", "two")})
    old, new = (open_journal(f"sqlite:{tmp_path}/{name}.db") for name in ("old", "new"))
    for _ in range(3):
        await signal("go", 0, key="other", journal=old)
    await run(flow, journal=old, run_id="r", on_wait="leave")
    await signal("go", 1, key="k", journal=old)
    assert "flow/two" in (await resume(flow, "r", journal=old, on_wait="leave")).detail
    async for copied in copy_runs(old, new):
        assert not copied.problem
    assert (await signal("go", 2, key="k", journal=new)).event.number == 1
    assert (await resume(flow, "r", journal=new, on_wait="leave")).output["value"] == 2
