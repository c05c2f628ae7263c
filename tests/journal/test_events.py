"""Events and waits: all stores give the same answers, and each run takes each event at most once and in order."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loopwright import Workflow, resume, run, signal, wait
from loopwright.journal import open_journal
from loopwright.journal.events import TABLES, Event, EventTables, MemoryEvents, OpenWait
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
    stores: list[Any] = [Tables(), MemoryEvents()]
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
    await signal("go", 1, key="k", journal=old)
    await run(flow, journal=old, run_id="r", on_wait="leave")
    async for copied in copy_runs(old, new):
        assert not copied.problem
    assert (await signal("go", 2, key="k", journal=new)).event.number == 1
    assert (await resume(flow, "r", journal=new)).output["value"] == 2
