"""What pages and watchers see: names and searches, long lists and loops, ends, what is tried again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopwright import Evaluation, Loop, MaxIterations, retry, run
from loopwright.errors import ConfigurationError, JournalDamaged, RunNotFound
from loopwright.journal import Entry
from loopwright.journal.recorded.journal import MAX_ITERATIONS, MAX_ROWS, PART, WINDOW
from loopwright.journal.sqlite import SqliteJournal
from loopwright.journal.views import EntriesView, Wanted
from loopwright.records import Iteration

from .recording import info, record, recorded, rounds


async def opened(journal: SqliteJournal, count: int, name: str = "refine") -> None:
    """Add runs that were opened and ended."""
    rows = [info(f"{name}-{i:05}", name=name) for i in range(count)]
    logs = await asyncio.gather(*(journal.open(row) for row in rows))
    await asyncio.gather(*(log.close(row) for log, row in zip(logs, rows, strict=True)))


# The list.


async def test_the_names_of_runs_are_told_once_in_order(journal: SqliteJournal) -> None:
    """A page offers each name that runs have, and no more of them than it can show."""
    for name in ("b", "a", "b", "ü"):
        await recorded(journal, info(f"run-{name}", name=name), [])
    assert await journal.look(lambda pages: pages.names()) == ["a", "b", "ü"]
    assert await journal.look(lambda pages: pages.names(limit=2)) == ["a", "b"]


async def test_a_search_says_where_it_stopped(journal: SqliteJournal) -> None:
    """A search for text names the row before which it did not look, or their number in another order; none if it
    saw all."""
    await journal.create([info(f"r{number}") for number in range(WINDOW + PART)])

    def stopped(**wanted: Any) -> Any:
        return journal.listing(Wanted(text="word", **wanted), lambda page: page.searched)

    assert await stopped() == PART + 1
    assert await stopped(sort="name") == WINDOW
    assert await stopped(before=PART + 1) == await stopped(sort="name", offset=WINDOW) == 0
    assert await stopped(status="failed") == 0


def test_a_reason_that_there_is_not_is_refused() -> None:
    """A list by a reason that no run can have names the nearest that one can."""
    with pytest.raises(ConfigurationError, match="did you mean 'max_iterations'"):
        Wanted(reason="max_iteration")


async def test_a_long_list_shows_each_run_as_it_is_now(journal: SqliteJournal) -> None:
    """A list longer than what is remembered between looks is whole, and follows what changes."""
    await opened(journal, MAX_ROWS + 20)
    wanted = Wanted(limit=1000)
    for status in ("satisfied", "failed"):
        again = await journal.open(info("refine-00007", name="refine"))
        await again.close(
            info("refine-00007", name="refine", status=status, epoch=again.info.epoch)
        )
        found = await journal.look(lambda pages: pages.listed(wanted))
        assert len({view.info.run_id for _, view in found}) == MAX_ROWS + 20
        assert {v.info.run_id: v.info.status for _, v in found}["refine-00007"] == status


# One run.


async def test_loops_beyond_a_page_are_left_out(journal: SqliteJournal) -> None:
    """Of a run of very many loops a page has the first two hundred, in the order of their paths."""
    paths = [f"loop-{i:03}" for i in range(230)]
    await recorded(journal, info(), [entry for path in paths for entry in rounds(1, path)])
    assert await journal.look(lambda pages: pages.view("run-1").loops()) == paths[:200]


async def test_many_iterations_are_looked_at_again_and_again(journal: SqliteJournal) -> None:
    """However much was looked at before, an outline is whole: what is remembered has a bound."""
    log = await journal.open(info("long"))
    for number in range(1, MAX_ITERATIONS + 12):
        log.append(Entry("iteration", "refine", number, Iteration(number, None, None)))
    await record(log, [])
    await log.close(info("long"))
    await recorded(journal, info("short"), rounds(4))

    async def outline(name: str) -> list[Any]:
        return await journal.look(lambda pages: pages.view(name).outline("refine"))

    assert [item.number for _, item in await outline("long")] == [*range(1, MAX_ITERATIONS + 12)]
    assert [item.score for _, item in await outline("short")] == [0.01, 0.02, 0.03, 0.04]
    assert await journal.look(lambda pages: len(pages.light_iterations)) == 4
    assert [item.number for _, item in await outline("long")] == [*range(1, MAX_ITERATIONS + 12)]


async def test_an_iteration_without_a_judgement_is_outlined(journal: SqliteJournal) -> None:
    """A round that nothing judged is in the outline, light, and the same at each look."""
    rows = [Entry("iteration", "refine", 1.0, Iteration(1, "given", "made"))]
    await recorded(journal, info(), rows)

    def look(pages: Any) -> Any:
        view = pages.view("run-1")
        return view.outline("refine"), view.outline("refine")

    first, second = await journal.look(look)
    assert first == second == [(1, Iteration(1, None, None))]


ENDED = {"status": "satisfied", "output": "x"}


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], None), (["started"], None), (["ended"], ENDED), (["suspended"], ENDED),
        (["ended", "accepted"], ENDED), (["suspended", "asked", "answered"], ENDED),
        (["asked", "answered"], None), (["ended", "started"], None), (["suspended", "rewound"], None),
    ],
)  # fmt: skip
async def test_where_a_run_stands(journal: SqliteJournal, kinds: list[str], expected: Any) -> None:
    """A run stands at its latest end or suspension while only people spoke after it."""
    paths = {"ended": "", "suspended": ""}
    entries = [
        Entry(kind, paths.get(kind, "refine/1/ask"), 1.0, ENDED if kind in paths else None)
        for kind in kinds
    ]
    await recorded(journal, info(), entries)
    row, found = await journal.find("run-1"), await journal.entries("run-1")
    assert EntriesView(row, found).ending() == expected
    assert await journal.look(lambda pages: pages.view("run-1").ending()) == expected


async def test_an_iteration_that_is_not_there_is_named(journal: SqliteJournal) -> None:
    """Both views refuse an iteration that is not on record, with a sentence that names it."""
    await recorded(journal, info(), rounds(1))
    row, found = await journal.find("run-1"), await journal.entries("run-1")
    message = r"^run-1: there is no iteration 2 of 'refine'; reload the page$"
    with pytest.raises(RunNotFound, match=message):
        EntriesView(row, found).iteration("refine", 2)
    with pytest.raises(RunNotFound, match=message):
        await journal.look(lambda pages: pages.view("run-1").iteration("refine", 2))


class Once:
    """A step that fails when it is first asked in each iteration."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    async def __call__(self, value: Any, ctx: Any) -> str:
        if ctx.iteration not in self.seen:
            self.seen.add(ctx.iteration)
            raise ConnectionError("gone")
        return f"{value}"


async def test_what_was_tried_again_is_counted_the_same(journal: SqliteJournal) -> None:
    """Both views say how often rounds were tried again; what a rewind set aside does not count."""
    flaky = retry(Once().__call__, attempts=2, delay=0, name="flaky")
    loop = Loop(flaky, lambda _: Evaluation(0.5), until=MaxIterations(3), name="refine")

    async def told() -> list[Any]:
        row, found = await journal.find("run-1"), await journal.entries("run-1")
        plain = EntriesView(row, found).retries("refine")
        indexed = await journal.look(lambda pages: pages.view("run-1").retries("refine"))
        return [plain, indexed]

    await run(loop, "x", journal=journal, run_id="run-1")
    assert await told() == [{1: 1, 2: 1, 3: 1}] * 2
    await journal.rewind("run-1", "refine/2")
    assert await told() == [{1: 1}] * 2
    await run(loop, "x", journal=journal, run_id="run-1")  # what was set aside is not tried again
    assert await told() == [{1: 1}] * 2


# Watching.


async def test_a_list_is_another_once_a_run_came_or_ended(journal: SqliteJournal) -> None:
    """Who watches a page of the list learns of runs that come and end, and of nothing else."""
    pages = [Wanted(), Wanted(status="failed"), Wanted(name="refine"), Wanted(text="word")]
    watch = journal.watch()
    assert watch.version() == 0
    assert await watch.state("run-1") is None
    assert [await watch.list_state(page) for page in pages] == [None] * 4
    watch.close()  # nothing was there to open: nothing to close
    log = await journal.open(info())

    async def states() -> list[Any]:
        return [await watch.list_state(page) for page in pages]

    came = await states()
    assert None not in came
    await record(log, rounds(2))
    assert await states() == came
    await log.close(replace(log.info, status="failed"))
    ended = await states()
    assert [one != two for one, two in zip(came, ended, strict=True)] == [True, True, True, False]
    await recorded(journal, info("run-2"), [])
    assert all(one != two for one, two in zip(ended, await states(), strict=True))
    watch.close()
    watch.close()


async def test_an_emptied_file_is_seen_by_who_watches(tmp_path: Path) -> None:
    """Rule: an empty file holds no runs; one whose log is left of it is lost, also to who watches."""
    (tmp_path / "runs.db").touch()
    (tmp_path / "runs.db-wal").write_bytes(b"some log")
    watch = SqliteJournal(tmp_path / "runs.db").watch()
    with pytest.raises(JournalDamaged, match="the database was deleted or moved"):
        watch.version()
    watch.close()
