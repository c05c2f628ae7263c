"""What every journal must do when it is read: iterations by page, rewinds set aside, runs found."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import Any

import pytest

from loopwright import Loop, MaxIterations, run
from loopwright.errors import ConfigurationError, RunLocked, RunNotFound
from loopwright.journal import Entry, surviving
from loopwright.journal.views import RunPage, Wanted
from loopwright.records import Usage

from .recording import LONG, Store, info, record, recorded, rounds, rounds_seen, shown


class ReadingContract:
    """Pages are slices, a rewind deletes nothing, and a run is found by the beginning of its id."""

    # Iterations.

    async def test_iterations_come_by_page_and_loop(self, store: Store) -> None:
        """A page of iterations is a slice of those of one loop, or of all in order."""
        outer, inner = rounds(3, "outer"), rounds(4, "outer/1/execute/inner")
        entries = [*inner[:6], *outer[:3], *inner[6:], *outer[3:]]
        await recorded(store.journal, info(), entries)
        journal = await store.reopen()
        marks = [(e.path, e.value) for e in entries if e.kind == "iteration"]
        assert await journal.iterations("run-1") == marks
        assert await journal.iterations("run-1", offset=2, limit=3) == marks[2:5]
        mine = [mark for mark in marks if mark[0] == "outer/1/execute/inner"]
        assert await journal.iterations("run-1", loop="outer/1/execute/inner") == mine
        found = await journal.iterations("run-1", loop="outer/1/execute/inner", offset=1, limit=2)
        assert found == mine[1:3]
        assert await journal.iterations("run-1", loop="outer/1") == []
        assert await journal.iterations("run-1", offset=7) == []

    async def test_a_result_is_read_without_its_step(self, store: Store) -> None:
        """The recorded result is that of the run, also by a prefix of its ID; an unknown run is an error."""
        loop = Loop(lambda value: value * 2, until=MaxIterations(2), name="refine")
        made = await run(loop, 3, journal=store.journal, run_id="run-1")
        journal = await store.reopen()
        found = await journal.result("run-")
        assert found.to_json() == made.to_json()
        with pytest.raises(RunNotFound):
            await journal.result("nothing")

    async def test_the_result_of_an_open_run_is_the_best_so_far(self, store: Store) -> None:
        """A run that has not ended counts as cancelled."""
        await recorded(store.journal, info(status="interrupted"), rounds(2))
        result = await (await store.reopen()).result("run-1")
        assert (result.status.value, result.iterations) == ("cancelled", 2)

    # Rewinding.

    async def test_a_rewind_sets_aside_and_deletes_nothing(self, store: Store) -> None:
        """What followed a path is set aside for a resume and in pages, and stays on record."""
        ended = info(status="failed", reason="error", detail="it broke", active=7.0)
        await recorded(
            store.journal, ended, [*rounds(3), Entry("ended", "", 7.0, {"output": LONG})]
        )
        rewind = await store.journal.rewind("run-1", "refine/2")
        assert (rewind.path, rewind.entries) == ("refine/2", 7)
        row = await store.journal.find("run-1")
        assert (row.status, row.reason, row.detail) == ("interrupted", "", "")
        journal = await store.reopen()
        kinds = [entry.kind for entry in await journal.entries("run-1")]
        assert kinds == ["started", "finished", "iteration"] * 3 + ["ended", "rewound"]
        assert [m.number for _, m in await journal.iterations("run-1")] == [1]
        assert [m.number for _, m in await journal.iterations("run-1", loop="refine")] == [1]
        log = await journal.open(info())
        assert shown(log.recorded) == shown(rounds_seen(rounds(1)))
        await record(log, rounds(1, start=2))
        assert [m.number for _, m in await journal.iterations("run-1")] == [1, 2]
        assert [entry.seq for entry in await journal.entries("run-1", after=11)] == [12, 13, 14]

    async def test_rewinds_add_up(self, store: Store) -> None:
        """Rewinding further back after a rewind leaves what both leave."""
        await recorded(store.journal, info(), rounds(5))
        assert (await store.journal.rewind("run-1", "refine/4")).entries == 6
        assert (await store.journal.rewind("run-1", "refine/3/execute")).entries == 3
        everything = await store.journal.entries("run-1")
        assert len(surviving(everything)) == 6
        assert [m.number for _, m in await store.journal.iterations("run-1")] == [1, 2]

    async def test_a_rewind_of_many_places_can_be_read(self, store: Store) -> None:
        """The places that a retry discards are kept, however long their list is."""
        await recorded(store.journal, info(), rounds(60))
        places = [f"refine/{number}/execute" for number in range(1, 61)]
        assert (await store.journal.rewind("run-1", only=places)).entries
        journal = await store.reopen()
        assert (await journal.entries("run-1"))[-1].value == {"only": places}
        log = await journal.open(info())
        assert not [entry for entry in log.recorded if entry.path in places]

    async def test_a_rewind_needs_a_recorded_path(self, store: Store) -> None:
        """A path at which nothing was recorded is refused with the nearest one."""
        await recorded(store.journal, info(), rounds(1))
        message = "nothing was recorded at 'refine/1/excute'; did you mean 'refine/1/execute'"
        with pytest.raises(RunNotFound, match=f"^{message}"):
            await store.journal.rewind("run-1", "refine/1/excute")
        assert (await store.journal.find("run-1")).status == "satisfied"
        assert len(await store.journal.entries("run-1")) == 3

    async def test_a_running_run_is_not_rewound(self, store: Store) -> None:
        """A run that someone owns is not rewound."""
        log = await store.journal.open(info())
        await record(log, rounds(1))
        message = "^run-1: it is running; cancel it before you rewind it$"
        with pytest.raises(RunLocked, match=message):
            await store.journal.rewind("run-1", "refine/1")

    # Finding.

    async def test_a_unique_beginning_finds_a_run(self, store: Store) -> None:
        """A run is found by its id or a beginning that no other run has."""
        for name in ("abc-1", "abc-12", "abd-1"):
            await recorded(store.journal, info(name), rounds(1, name))
        assert (await store.journal.find("abd")).run_id == "abd-1"
        assert (await store.journal.find("abc-1")).run_id == "abc-1"
        assert [e.path for e in await store.journal.entries("abd", limit=1)] == ["abd-1/1/execute"]
        assert [path for path, _ in await store.journal.iterations("abd")] == ["abd-1"]
        message = "'ab' matches 3 runs; use more characters of the id"
        with pytest.raises(RunNotFound, match=f"^{message}$"):
            await store.journal.find("ab")
        for name in ("", "x", "abc-123", "%", "a_c"):
            with pytest.raises(RunNotFound, match=r"^there is no run "):
                await store.journal.find(name)

    async def test_runs_are_listed_newest_first(self, store: Store) -> None:
        """The list is newest first, by page, and filtered by name, status and text in any case.

        The text is that of the row, of the input, of outputs and of feedback, also of long ones.
        """
        rows = [
            info("r1", name="draft", status="satisfied", input="The Moon"),
            info("r2", name="refine", status="failed", detail="it broke"),
            info("r3", name="draft", status="failed", input={"topic": "moons"}),
            info("r4", name="Ünique", status="satisfied", input=f"{LONG}end"),
        ]
        for number, row in enumerate(rows, start=1):
            await recorded(store.journal, row, rounds(number, f"loop{number}"))
        journal = await store.reopen()

        async def ids(**given: Any) -> list[str]:
            return [row.run_id for row in await journal.runs(**given)]

        assert await ids() == ["r4", "r3", "r2", "r1"]
        assert await ids(limit=2, offset=1) == ["r3", "r2"]
        assert await ids(name="draft") == ["r3", "r1"]
        assert await ids(status="failed") == ["r3", "r2"]
        assert await ids(name="draft", status="failed") == ["r3"]
        assert await ids(text="MOON") == ["r3", "r1"]
        assert await ids(text="MOON", offset=1) == ["r1"]
        assert await ids(text="ünique") == ["r4"]
        assert await ids(text="one more\nEND") == ["r4"]
        assert await ids(text="Output 1 of loop3") == ["r3"]
        assert await ids(text="round 3 needs") == ["r4", "r3"]
        assert await ids(text="round 3 needs", limit=1, offset=1) == ["r3"]
        assert await ids(text="execute") == []
        assert await ids(status="failed,running") == ["r3", "r2"]
        assert await journal.listing(Wanted(text="round 3 needs", limit=1), _ids) == ["r4"]
        assert await journal.listing(Wanted(text="round 3 needs"), _ids) == ["r4", "r3"]
        assert await ids(text="broke", status="satisfied") == []
        # A page of a search in another order says where the next one begins.
        first = Wanted(text="round 3 needs", sort="name", limit=1)
        page, place = await journal.listing(first, lambda page: (_ids(page), page.searched))
        assert page == ["r3"] and await ids(text="round 3 needs", sort="name") == ["r3", "r4"]
        assert await journal.listing(replace(first, offset=place or 1), _ids) == ["r4"]
        assert await ids(name="draf") == []
        again = await journal.open(info("r1"))
        assert await ids() == ["r4", "r3", "r2", "r1"]
        assert await ids(status="running") == ["r1"]
        await again.close(again.info)

    async def test_runs_are_sorted_by_each_order(self, store: Store) -> None:
        """The latest, highest and dearest first, names by letter; runs without a value last, equal ones newest first."""
        fields: list[dict[str, Any]] = [
            {"name": "b", "score": 0.5, "usage": Usage(usd=0.5), "iterations": 3, "updated": 9.0},
            {"name": "c", "score": None, "usage": Usage(usd=2.0), "iterations": 1, "updated": 7.0},
            {"name": "a", "score": 0.75, "usage": Usage(usd=0.125), "iterations": 10, "updated": 8.0},
            {"name": "b", "score": 0.5, "status": "failed", "usage": Usage(), "iterations": 3},
        ]  # fmt: skip
        for number, row in enumerate(fields, start=1):
            await recorded(store.journal, info(f"r{number}", **row), [])
        journal = await store.reopen()
        expected = {
            "started": "4321", "updated": "1324", "name": "3412", "status": "4321", "score": "3412",
            "cost": "2134", "iterations": "3412",
        }  # fmt: skip
        reverse = {
            "started": "1234", "updated": "4231", "name": "2413", "status": "3214", "score": "4132",
            "cost": "4312", "iterations": "2413",
        }  # fmt: skip
        for order, runs in [*expected.items(), *((f"-{key}", reverse[key]) for key in reverse)]:
            found = [row.run_id for row in await journal.runs(sort=order)]
            assert found == [f"r{number}" for number in runs], order
            page = await journal.listing(Wanted(sort=order, limit=2, offset=1), _ids)
            assert page == found[1:3], order
        assert [row.run_id for row in await journal.runs(sort="cost", name="b", limit=1)] == ["r1"]
        with pytest.raises(
            ConfigurationError, match="^sort: 'scores' is not an order; did you mean"
        ):
            await journal.runs(sort="scores")

    async def test_tags_find_runs_and_stay(self, store: Store) -> None:
        """A run has the tags that it began with or was given later, also while it runs, after a rewind and in a fork."""
        tags = {"team": 'search "one"', "pr": "7"}
        await recorded(store.journal, info("r1", tags=tags, created=5.0), rounds(2))
        await store.journal.create([info("r2", tags={"team": "search"}, created=9.0), info("r3")])
        log = await store.journal.open(info("r4", created=7.0))
        assert await store.journal.tag("r4", {"team": "ops", "pr": ""}) == {"team": "ops"}
        await log.close(info("r4", epoch=log.info.epoch, created=7.0))
        await store.journal.rewind("r1", "refine/2")
        row = await store.journal.find("r1")
        await store.journal.fork("r1", replace(row, run_id="r5", epoch=0), rounds(1))
        assert await store.journal.tag("r5", {"pr": "", "team/x": "ä"}) == {
            "team": 'search "one"', "team/x": "ä",
        }  # fmt: skip
        journal = await store.reopen()

        async def ids(*tags: str, **given: Any) -> list[str]:
            page = await journal.listing(Wanted(tags=tags, **given), _ids)
            found = [row.run_id for row in await journal.runs(tags=tags, **given)]
            assert found == page
            total = await journal.listing(Wanted(tags=tags, limit=1, **given), lambda p: p.total)
            assert total == len(found)
            return found

        assert (await journal.find("r1")).tags == {"pr": "7", "team": 'search "one"'}
        assert (await journal.find("r1")).to_json()["tags"] == tags
        assert await ids("team") == ["r5", "r4", "r2", "r1"]
        assert await ids("team=search") == ["r2"]
        assert await ids('team=search "one"', "pr=7") == ["r1"]
        assert await ids("team/x=ä") == ["r5"]
        assert await ids("tea") == await ids("team=%") == await ids("one=7") == []
        assert await ids("team", status="queued,interrupted") == ["r5", "r2", "r1"]
        assert await ids(since=7.0) == ["r4", "r2"]
        assert await ids("team", since=7.0, sort="-started") == ["r2", "r4"]
        for wrong in ({"": "x"}, {"a b": "x"}, {"a": "x" * 201}, {"a": "x\n"}):
            with pytest.raises(ConfigurationError, match="^tag: "):
                await journal.tag("r1", wrong)
        with pytest.raises(ConfigurationError, match="^tag: 17 tags are too many"):
            await journal.tag("r1", {f"t{number}": "x" for number in range(15)})
        with pytest.raises(RunNotFound):
            await journal.tag("nothing", {"a": "b"})

    async def test_runs_are_listed_by_schedule(self, store: Store) -> None:
        """By the whole name, also where the source of a run is too long for its row."""
        names = ["nightly", "weekly", "nightly", "night"]
        for n, name in enumerate(names, start=1):
            source = {
                "documents": "x" * 9000 * (n % 2),
                "cron": {"expression": "* * * * *", "name": name},
            }
            await store.journal.create([info(f"r{n}", queue="slow", source=source)])
        await store.journal.create([info("nightly")])

        async def ids(**given: Any) -> list[str]:
            return [row.run_id for row in await store.journal.runs(**given)]

        assert await ids(schedule="nightly") == ["r3", "r1"]
        assert await ids(schedule="nightly", status="queued", limit=1, offset=1) == ["r1"]
        assert await ids(schedule="nightly", status="suspended") == []
        assert await ids(schedule="%") == await ids(schedule="night\0") == []

    async def test_runs_are_listed_by_queue_and_worker(self, store: Store) -> None:
        """Both filters select rows before the page is cut, alone and with the other filters."""
        journal = store.journal
        queues = ["slow", "fast", "slow", "", "slow"]
        rows = [info(f"r{n}", queue=queue) for n, queue in enumerate(queues, start=1)]
        await journal.create(rows)
        logs = [await journal.open(row, resume=True) for row in rows[:2]]
        worker = (await journal.find("r1")).owner

        async def ids(**given: Any) -> list[str]:
            return [row.run_id for row in await journal.runs(**given)]

        assert worker == f"{socket.gethostname()}:{os.getpid()}"
        assert await ids(queue="slow") == ["r5", "r3", "r1"]
        assert await ids(queue="slow", limit=1, offset=1) == ["r3"]
        assert await ids(queue="slow", status="queued", limit=1, offset=1) == ["r3"]
        assert await ids(queue="slow", text="R3") == ["r3"]
        assert await ids(worker=worker) == ["r2", "r1"]
        assert await ids(worker=worker, limit=1, offset=1) == ["r1"]
        assert await ids(worker=worker, queue="slow") == ["r1"]
        assert await ids(worker=worker, status="queued") == []
        for wrong in ("slo", "%", "slow\0"):
            assert await ids(queue=wrong) == await ids(worker=wrong) == []
        page = await journal.listing(Wanted(queue="slow", limit=2), _ids)
        assert page == ["r5", "r3"]
        assert await journal.listing(Wanted(worker=worker, queue="fast"), _ids) == ["r2"]
        for log, row in zip(logs, rows, strict=False):
            await log.close(row)
        assert await ids(worker=worker) == []


def _ids(page: RunPage) -> list[str]:
    return [view.info.run_id for _, view in page.rows]
