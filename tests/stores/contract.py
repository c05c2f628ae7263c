"""What every journal must do: one suite, run for each kind of store."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright.errors import OwnershipLost, RunLocked, RunNotFound
from loopwright.journal import Entry, Journal, RunInfo, RunLog, surviving
from loopwright.records import Criterion, Evaluation, Failure, Iteration, Usage

SPENT = Usage(calls=2, input_tokens=30, output_tokens=4, usd=0.00125)
LONG = "a line of text, and one more\n" * 40


class Store(Protocol):
    """A journal under test and what can happen to it."""

    journal: Journal

    def crash(self) -> Journal:
        """Let the process that uses it die; return the journal as the next process sees it."""

    async def reopen(self) -> Journal:
        """Close it; return the journal as the next process sees it."""


def info(run_id: str = "run-1", **fields: Any) -> RunInfo:
    """A row with the figures that a test gives."""
    given = {"name": "refine", "status": "satisfied", "created": 1.5, "updated": 2.5, **fields}
    return RunInfo(run_id, **given)


def round_of(number: int, output: Any, **fields: Any) -> Iteration:
    """An iteration with a score and what a test gives."""
    evaluation = Evaluation(number / 100, feedback=f"round {number} needs more")
    return Iteration(number, f"input {number}", output, evaluation, usage=SPENT, **fields)


def rounds(count: int, loop: str = "refine", start: int = 1) -> list[Entry]:
    """What the engine appends for rounds of a loop that executes and evaluates."""
    entries = []
    for i in range(start, start + count):
        path, output = f"{loop}/{i}", f"output {i} of {loop}: {LONG}"
        entries += [
            Entry("started", f"{path}/execute", i, fingerprint=f"f{i}"),
            Entry("finished", f"{path}/execute", i, output, f"f{i}", usage=SPENT, seconds=0.25),
            Entry("iteration", loop, i + 0.5, round_of(i, output), seconds=i + 0.5),
        ]
    return entries


def shown(entries: Sequence[Entry]) -> list[Any]:
    """Entries as JSON, which is how they are compared."""
    return [entry.to_json() for entry in entries]


async def settle(log: RunLog) -> None:
    """Wait until everything appended is durable."""
    pending = log.sync()
    if pending is not None:
        await pending


async def record(log: RunLog, entries: Sequence[Entry]) -> None:
    """Append entries, and wait until they are durable."""
    for entry in entries:
        log.append(entry)
    await settle(log)


async def recorded(journal: Journal, row: RunInfo, entries: Sequence[Entry]) -> None:
    """Make a run that was opened, filled and closed."""
    log = await journal.open(row)
    await record(log, entries)
    await log.close(replace(row, epoch=log.info.epoch))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | numbers | texts | st.sampled_from([LONG, "$text", '"$json"'])
keys = texts | st.sampled_from(["$text", "$json", "$here", "output", "steps"])
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
counts = st.integers(0, 10**9)
usages = st.builds(
    Usage, counts, counts, counts, st.integers(0, 10**9).map(lambda n: n / 1000), counts, counts
)
failures = st.builds(Failure, texts, texts, texts | st.just(LONG), texts, st.booleans())
scores = st.none() | st.floats(0, 1)
criteria = st.lists(st.builds(Criterion, texts, st.booleans(), texts), max_size=2).map(tuple)
evaluations = st.builds(
    Evaluation,
    scores,
    st.none() | st.booleans(),
    texts | st.just(LONG),
    st.lists(texts, max_size=2).map(tuple),
    criteria,
    st.lists(values, max_size=2).map(tuple),
    st.booleans(),
)
times = st.integers(0, 10**10).map(lambda n: n / 1_000_000)
iterations = st.builds(
    Iteration,
    st.integers(1, 1000),
    values,
    values,
    st.none() | evaluations,
    st.none() | failures,
    usages,
    times,
    st.booleans(),
    st.booleans(),
    st.none() | st.dictionaries(keys, values, min_size=1, max_size=3),
)
paths = st.sampled_from(["", "refine", "refine/1/execute", "outer/2/execute/inner/ü x"])
plain_kinds = ("started", "finished", "cut", "ended", "suspended", "answered", "accepted")
fields = {
    "fingerprint": st.sampled_from(["", "abc:12", "abc:'it\\'s'"]),
    "error": st.none() | failures,
    "usage": usages | st.just(Usage()),
    "reserved": usages | st.just(Usage()),
    "seconds": times,
}
plain_entries = st.builds(Entry, st.sampled_from(plain_kinds), paths, times, values, **fields)
round_entries = st.builds(Entry, st.just("iteration"), paths, times, iterations, **fields)


class JournalContract:
    """The suite; a subclass has a fixture `store`, and `fresh` for tests of many examples."""

    def fresh(self) -> tuple[Journal, Callable[[], Coroutine[Any, Any, None]]]:
        """Return an empty journal and what ends it."""
        raise NotImplementedError

    # Opening, closing and who may write.

    async def test_a_new_run_is_running_and_empty(self, store: Store) -> None:
        """Opening an unknown id makes a run of epoch 1 that is running and has no entries."""
        log = await store.journal.open(info(input={"topic": "loops"}))
        assert (log.info.epoch, log.info.status, list(log.recorded)) == (1, "running", [])
        assert log.info.input == {"topic": "loops"}
        assert log.silent is False
        found = await store.journal.find("run-1")
        assert (found.status, found.input, found.name) == ("running", {"topic": "loops"}, "refine")

    async def test_a_run_to_resume_must_be_known(self, store: Store) -> None:
        """Opening with `resume` refuses an unknown id and makes no run."""
        message = "there is no run 'run-1' in this journal; list them with: loopwright runs"
        with pytest.raises(RunNotFound, match=f"^{message}$"):
            await store.journal.open(info(), resume=True)
        assert await store.journal.runs() == []
        await recorded(store.journal, info("run-2"), [])
        with pytest.raises(RunNotFound):
            await store.journal.open(info(), resume=True)

    async def test_a_run_has_one_owner(self, store: Store) -> None:
        """A run that someone owns cannot be opened until it was given back."""
        log = await store.journal.open(info())
        with pytest.raises(RunLocked, match=r"^run-1: "):
            await store.journal.open(info())
        await log.close(log.info)
        again = await store.journal.open(info())
        assert again.info.epoch == 2

    async def test_a_run_can_be_taken_over(self, store: Store) -> None:
        """Who takes a run over owns it; the former owner writes nothing more and is told so."""
        former = await store.journal.open(info())
        await record(former, rounds(1))
        owner = await store.journal.open(info(), takeover=True)
        assert shown(owner.recorded) == shown(rounds_seen(rounds(1)))
        former.append(Entry("started", "refine/9/execute", 9.0))
        with pytest.raises(OwnershipLost, match=r"^run-1: another owner took this run over$"):
            await settle(former)
        await record(owner, rounds(1, start=2))
        await former.close(replace(former.info, status="failed"))
        assert (await store.journal.find("run-1")).status == "running"
        assert shown(await store.journal.entries("run-1")) == shown(rounds_seen(rounds(2)))

    async def test_closing_keeps_how_far_a_run_is(self, store: Store) -> None:
        """The row that a run is closed with is the row that is found, in this process and after."""
        log = await store.journal.open(info(input=LONG, source={"document": LONG, "set": {"a": 1}}))
        ended = replace(
            log.info,
            status="exhausted",
            reason="max_iterations",
            detail="3 iterations",
            active=12.25,
            updated=99.5,
            iterations=3,
            score=0.5,
            usage=SPENT,
            fingerprint="abc",
        )
        await log.close(ended)
        assert await store.journal.find("run-1") == ended
        journal = await store.reopen()
        assert await journal.find("run-1") == ended
        assert await journal.runs() == [ended]

    async def test_an_ended_run_is_opened_with_its_row_and_entries(self, store: Store) -> None:
        """Opening a known run gives its own row, not the one offered, and all that was recorded."""
        first = info(input="first", fingerprint="abc", source={"kind": "loop"}, active=4.0)
        await recorded(store.journal, first, rounds(2))
        log = await (await store.reopen()).open(info(input="second", fingerprint="xyz"))
        kept = (log.info.input, log.info.fingerprint, log.info.source)
        assert kept == ("first", "abc", {"kind": "loop"})
        assert log.info.status == "running"
        assert log.info.active >= 4.0
        assert shown(log.recorded) == shown(rounds_seen(rounds(2)))

    async def test_what_follows_a_close_reaches_nobody(self, store: Store) -> None:
        """An owner that gave a run back writes nothing more; closing again changes nothing."""
        log = await store.journal.open(info())
        await log.close(replace(log.info, status="satisfied"))
        log.append(Entry("started", "a", 0.0))
        with pytest.raises(OwnershipLost):
            await settle(log)
        await log.close(replace(log.info, status="failed"))
        assert (await store.journal.find("run-1")).status == "satisfied"

    # Entries.

    async def test_entries_are_numbered_in_order(self, store: Store) -> None:
        """Entries are numbered from 1 over all openings of a run."""
        await recorded(store.journal, info(), rounds(1))
        journal = await store.reopen()
        log = await journal.open(info())
        await record(log, rounds(1, start=2))
        assert [entry.seq for entry in await journal.entries("run-1")] == [1, 2, 3, 4, 5, 6]

    async def test_nothing_appended_means_nothing_to_wait_for(self, store: Store) -> None:
        """`sync` returns None once everything appended is durable."""
        log = await store.journal.open(info())
        assert log.sync() is None
        await record(log, rounds(1))
        assert log.sync() is None

    async def test_what_is_acknowledged_survives_a_crash(self, store: Store) -> None:
        """Entries that were waited for are there when the process died right after."""
        log = await store.journal.open(info(input=LONG))
        await record(log, rounds(3))
        log.append(Entry("started", "refine/4/execute", 4.0))  # may be there or not
        journal = store.crash()
        again = await journal.open(info(), resume=True)
        assert shown(again.recorded)[:9] == shown(rounds_seen(rounds(3)))
        assert len(again.recorded) <= 10
        assert again.info.input == LONG
        assert again.info.epoch == 2

    async def test_a_dead_owner_writes_nothing(self, store: Store) -> None:
        """An owner that was taken for dead and lives on is refused once another has the run."""
        zombie = await store.journal.open(info())
        await record(zombie, rounds(1))
        journal = store.crash()
        owner = await journal.open(info())
        zombie.append(Entry("finished", "refine/2/execute", 5.0, "stale"))
        with pytest.raises(OwnershipLost):
            await settle(zombie)
        await record(owner, rounds(1, start=2))
        assert shown(await journal.entries("run-1")) == shown(rounds_seen(rounds(2)))

    async def test_a_page_of_entries_is_a_slice(self, store: Store) -> None:
        """`after` and `limit` cut the same entries out of a run as a slice would."""
        await recorded(store.journal, info(), rounds(4))
        everything = shown(await store.journal.entries("run-1"))
        for after in range(14):
            for limit in (0, 1, 2, 5, 12, 13):
                page = shown(await store.journal.entries("run-1", after=after, limit=limit))
                end = after + limit if limit else len(everything)
                assert page == everything[after:end], (after, limit)

    async def test_a_waiter_that_is_cancelled_cancels_no_commit(self, store: Store) -> None:
        """Cancelling a task that waits for entries to be durable leaves them in the journal."""
        log = await store.journal.open(info())
        waiting = asyncio.ensure_future(record(log, rounds(1)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await record(log, rounds(1, start=2))
        assert len(await store.journal.entries("run-1")) == 6

    async def test_runs_do_not_mix(self, store: Store) -> None:
        """Many runs at once each keep their own entries, in their own order."""

        async def one(name: str) -> None:
            log = await store.journal.open(info(name))
            for entry in rounds(4, loop=name):
                await record(log, [entry])
            await log.close(log.info)

        names = [f"run-{i:03}" for i in range(40)]
        await asyncio.gather(*map(one, names))
        journal = await store.reopen()
        for name in names:
            expected = shown(rounds_seen(rounds(4, loop=name)))
            assert shown(await journal.entries(name)) == expected

    def test_values_come_back_as_they_were(self) -> None:
        """Whatever JSON a step produces, its entry comes back equal, live and when reopened."""
        journal, end = self.fresh()
        numbers = itertools.count()

        @given(st.lists(plain_entries | round_entries, max_size=6))
        @settings(max_examples=30)
        def comes_back(entries: list[Entry]) -> None:
            asyncio.run(self._compare(journal, f"run-{next(numbers)}", entries))

        comes_back()
        asyncio.run(end())

    async def _compare(self, journal: Journal, name: str, entries: list[Entry]) -> None:
        log = await journal.open(info(name))
        for i, entry in enumerate(entries):
            log.append(entry)
            if i % 2:
                await settle(log)
        await log.close(log.info)
        expected = shown(rounds_seen(entries))
        assert shown(await journal.entries(name, limit=100)) == expected
        assert shown((await journal.open(info(name))).recorded) == expected
        marks = [(e.path, e.value) for e in entries if e.kind == "iteration"]
        assert await journal.iterations(name) == marks

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

    # Cancelling.

    async def test_a_wish_to_cancel_reaches_the_owner(self, store: Store) -> None:
        """Cancelling calls the owner back on its event loop, and says that there is one."""
        log = await store.journal.open(info())
        heard = asyncio.Event()
        log.on_cancel = heard.set
        assert await store.journal.cancel("run-1") is True
        await asyncio.wait_for(heard.wait(), 5)

    async def test_nobody_is_asked_to_cancel_a_run_without_an_owner(self, store: Store) -> None:
        """Cancelling a run that nobody owns says so."""
        await recorded(store.journal, info(status="satisfied"), [])
        assert await store.journal.cancel("run-1") is False
        with pytest.raises(RunNotFound):
            await store.journal.cancel("nothing")

    # Finding.

    async def test_a_unique_beginning_finds_a_run(self, store: Store) -> None:
        """A run is found by its id or a beginning that no other run has."""
        for name in ("abc-1", "abc-12", "abd-1"):
            await recorded(store.journal, info(name), rounds(1, name))
        assert (await store.journal.find("abd")).run_id == "abd-1"
        assert (await store.journal.find("abc-1")).run_id == "abc-1"
        assert [e.path for e in await store.journal.entries("abd", limit=1)] == ["abd-1/1/execute"]
        assert [path for path, _ in await store.journal.iterations("abd")] == ["abd-1"]
        message = "'ab' begins the ids of 3 runs; give more of it"
        with pytest.raises(RunNotFound, match=f"^{message}$"):
            await store.journal.find("ab")
        for name in ("", "x", "abc-123", "%", "a_c"):
            with pytest.raises(RunNotFound, match=r"^there is no run "):
                await store.journal.find(name)

    async def test_runs_are_listed_newest_first(self, store: Store) -> None:
        """The list is newest first, by page, and filtered by name, status and text in any case."""
        rows = [
            info("r1", name="draft", status="satisfied", input="The Moon"),
            info("r2", name="refine", status="failed", detail="it broke"),
            info("r3", name="draft", status="failed", input={"topic": "moons"}),
            info("r4", name="Ünique", status="satisfied", input=LONG),
        ]
        for row in rows:
            await recorded(store.journal, row, rounds(1))
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
        assert await ids(text="one more\\n") == ["r4"]
        assert await ids(text="broke", status="satisfied") == []
        assert await ids(name="draf") == []
        again = await journal.open(info("r1"))
        assert await ids() == ["r4", "r3", "r2", "r1"]
        assert await ids(status="running") == ["r1"]
        await again.close(again.info)

    async def test_a_closed_journal_can_be_used_again(self, store: Store) -> None:
        """After `close` a journal opens its store anew."""
        await recorded(store.journal, info(), rounds(1))
        await store.journal.close()
        assert len(await store.journal.entries("run-1")) == 3
        log = await store.journal.open(info())
        await record(log, rounds(1, start=2))
        assert len(await store.journal.entries("run-1")) == 6


def rounds_seen(entries: list[Entry]) -> list[Entry]:
    """Entries numbered as a journal numbers them."""
    for number, entry in enumerate(entries, start=1):
        entry.seq = number
    return entries
