"""The journal in memory, its entries, and what a resumed run knows from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import Evaluation, Failure, Iteration, MemoryJournal, Usage
from loopwright.errors import OwnershipLost, RunLocked, RunNotFound
from loopwright.journal import Entry, RunInfo, surviving
from loopwright.journal.replay import RecordedRun
from loopwright.journal.rewinding import rewind_entry, rewind_of
from loopwright.testing import run_virtual
from records.records_made import failures, iterations, seconds

from .support import examples, json_values, kinds, texts, usages

paths = st.lists(st.sampled_from(["a", "b", "1", "2", "execute"]), min_size=1, max_size=4).map(
    "/".join
)
entries = st.builds(
    Entry,
    kind=st.sampled_from(["started", "finished", "cut", "ended", "answered", "warned"]),
    path=paths,
    at=seconds,
    value=json_values,
    fingerprint=texts,
    error=st.none() | failures,
    usage=usages,
    reserved=usages,
    seconds=seconds,
    seq=st.integers(1, 99),
)


def fields(entry: Entry) -> dict[str, Any]:
    """Return all fields of an entry, for comparing."""
    return {name: getattr(entry, name) for name in Entry.__slots__}


@examples(0.6)
@given(entries | st.builds(Entry, st.just("iteration"), paths, seconds, value=iterations))
def test_an_entry_goes_to_json_and_back(entry: Entry) -> None:
    """I43: load(dump(v)) = v for entries of every kind, through text."""
    text = json.dumps(entry.to_json(), allow_nan=False)
    assert fields(Entry.from_json(json.loads(text))) == fields(entry)


def test_an_entry_that_holds_an_evaluation_is_json_too() -> None:
    """What a judge's effect recorded can be written by anyone who exports the journal."""
    data = Entry("finished", "l/1/evaluate", 0.0, value=Evaluation(0.5)).to_json()
    assert json.loads(json.dumps(data))["value"] == {"score": 0.5, "passed": None}


def test_an_entry_says_what_it_is() -> None:
    """Its repr names number, kind, path and time."""
    assert repr(Entry("started", "a/1", 2.5, seq=3)) == "Entry(3 started 'a/1' at 2.500)"


# Rewinding.


def made(*items: tuple[str, str]) -> list[Entry]:
    """Return entries of kinds and paths, one a second."""
    return [Entry(kind, path, float(number)) for number, (kind, path) in enumerate(items)]


STORY = [
    ("started", "l/1/execute"), ("finished", "l/1/execute"), ("iteration", "l"),
    ("started", "l/2/execute"), ("finished", "l/2/execute"), ("iteration", "l"), ("ended", "l"),
    ("ended", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("l/2", STORY[:3]),
        ("l/2/execute", STORY[:3]),
        ("l/1", []),
        ("l", []),
        ("l/3", STORY[:7]),
        ("l/20", STORY[:7]),
    ],
)
def test_a_rewind_sets_aside_what_was_recorded_from_a_path_on(
    path: str, kept: list[tuple[str, str]]
) -> None:
    """Entries from the first one at or under the path on are set aside, and the run's ending."""
    assert kinds(surviving([*made(*STORY), Entry("rewound", path, 9.0)])) == kept


def test_a_rewind_takes_an_intent_with_its_outcome() -> None:
    """An effect that was begun before the place and ended after it is done again, not in doubt."""
    story = made(
        ("started", "p/a"), ("started", "p/b"), ("finished", "p/b"), ("finished", "p/a"),
        ("ended", ""),
    )  # fmt: skip
    assert kinds(surviving([*story, Entry("rewound", "p/b", 9.0)])) == []
    story = made(("started", "p/a"), ("finished", "p/a"), ("started", "p/b"), ("started", "p/a"),
                 ("finished", "p/a"))  # fmt: skip
    assert kinds(surviving([*story, Entry("rewound", "p/b", 9.0)])) == [
        ("started", "p/a"), ("finished", "p/a"),
    ]  # fmt: skip


def test_what_follows_a_rewind_counts() -> None:
    """Several rewinds, each with what was recorded after it."""
    story = [*made(*STORY), Entry("rewound", "l/2", 8.0), *made(("started", "l/2/execute")),
             Entry("rewound", "l/1", 9.0), *made(("started", "l/1/execute"))]  # fmt: skip
    assert kinds(surviving(story)) == [("started", "l/1/execute")]


def test_a_rewind_to_nowhere_is_refused() -> None:
    """The error names the nearest path that was recorded."""
    run, story = RunInfo("r", "l", None, "", {}), made(*STORY)
    with pytest.raises(RunNotFound) as caught:
        rewind_of(run, story, rewind_entry("l/2/executes", (), undo=False))
    assert str(caught.value) == (
        "nothing was recorded at 'l/2/executes'; did you mean 'l/2/execute'?"
    )


# RecordedRun.


def test_a_replay_knows_what_is_done_and_what_is_in_doubt() -> None:
    """Finished effects, intents without an outcome, rounds, endings, answers and warnings."""
    record = Iteration(1, output="x")
    replay = RecordedRun([
        Entry("started", "l/1/execute", 0.0), Entry("finished", "l/1/execute", 0.0, seconds=2.0),
        Entry("iteration", "l", 2.0, value=record, seconds=2.0),
        Entry("started", "l/2/execute", 2.0, reserved=Usage(calls=1)),
        Entry("ended", "m", 2.0, value={"x": 1}), Entry("answered", "l/2/execute", 2.0, value="rerun"),
        Entry("warned", "", 2.0, value="careful"), Entry("suspended", "", 2.5),
    ])  # fmt: skip
    assert list(replay.finished) == ["l/1/execute"]
    assert list(replay.unsettled) == ["l/2/execute"]
    assert [e.value for e in replay.records["l"]] == [record]
    assert (replay.ended, replay.answers, replay.warnings) == (
        {"m": {"x": 1}}, {"l/2/execute": "rerun"}, ["careful"],
    )  # fmt: skip
    assert (replay.active, replay.began("l"), replay.began("l/2"), replay.began("z")) == (
        2.5, 0.0, 2.0, None,
    )  # fmt: skip


def test_a_replay_counts_every_call_that_may_have_been_billed() -> None:
    """I32, I33: outcomes at what they cost, unsettled at what they promised, repeats each time."""
    one, worst = Usage(calls=1), Usage(calls=3)
    replay = RecordedRun([
        Entry("started", "a/1", 0.0, reserved=worst), Entry("finished", "a/1", 0.0, usage=one),
        Entry("started", "a/2", 0.0, reserved=worst), Entry("started", "a/2", 1.0, reserved=worst),
        Entry("started", "b", 0.0, reserved=worst), Entry("cut", "b", 0.0, usage=one),
        Entry("started", "b", 1.0, reserved=worst), Entry("finished", "b", 1.0, usage=one),
    ])  # fmt: skip
    assert replay.spent("a/1") == one
    assert replay.spent("a") == Usage(calls=7, estimated=6)
    assert replay.spent("b") == Usage(calls=2)
    assert replay.spent("") == Usage(calls=9, estimated=6)
    assert replay.spent("elsewhere") == Usage()


def test_active_time_is_what_the_entries_show() -> None:
    """I42: a round's seconds are those of its loop up to its end, not a length beyond it."""
    replay = RecordedRun([
        Entry("finished", "l/1/execute", 0.0, seconds=30.0),
        Entry("iteration", "l", 30.0, value=Iteration(1), seconds=30.0),
    ])  # fmt: skip
    assert replay.active == 30.0


# The journal in memory.


def info(run_id: str = "r", **more: Any) -> RunInfo:
    """Return the row of a new run."""
    return RunInfo(run_id, more.pop("name", "n"), **more)


def test_what_was_acknowledged_is_there_after_a_crash() -> None:
    """I37, I39: entries up to the crash are recorded, what a dead owner still appends is not."""

    async def work() -> None:
        journal = MemoryJournal()
        log = await journal.open(info())
        log.append(Entry("started", "a", 0.0))
        log.sync()
        journal.crash()
        log.append(Entry("finished", "a", 0.0))
        with pytest.raises(OwnershipLost, match="r: another owner took this run over"):
            log.sync()
        again = await journal.open(info(), resume=True)
        assert kinds(again.recorded) == [("started", "a")]
        await log.close(info(status="finished by a ghost"))
        assert (await journal.find("r")).status == "running"
        assert (log.info.epoch, again.info.epoch) == (1, 2)

    run_virtual(work())


def test_one_owner_at_a_time() -> None:
    """I39: a run that is owned is locked, for opening and for rewinding, unless it is taken over."""

    async def work() -> None:
        journal = MemoryJournal()
        first = await journal.open(info())
        first.append(Entry("started", "a", 0.0))
        with pytest.raises(RunLocked, match="r: another owner is running it; wait, or cancel it"):
            await journal.open(info())
        with pytest.raises(RunLocked, match="r: it is running; cancel it before you rewind it"):
            await journal.rewind("r", "a")
        second = await journal.open(info(), takeover=True)
        first.append(Entry("finished", "a", 0.0))
        second.append(Entry("finished", "a", 1.0))
        assert [(e.kind, e.at) for e in await journal.entries("r")] == [
            ("started", 0.0), ("finished", 1.0),
        ]  # fmt: skip
        await first.close(info())
        await second.close(info(status="satisfied"))
        assert (await journal.find("r")).status == "satisfied"
        await journal.close()

    run_virtual(work())


def test_runs_are_found_by_id_or_its_unique_beginning() -> None:
    """An unknown or ambiguous beginning says so."""

    async def work() -> None:
        journal = MemoryJournal()
        for run_id in ("abc1", "abc2", "x"):
            await journal.open(info(run_id))
        assert (await journal.find("x")).run_id == "x"
        assert (await journal.find("abc1")).run_id == "abc1"
        with pytest.raises(
            RunNotFound, match="'abc' matches 2 runs; use more characters of the id"
        ):
            await journal.find("abc")
        for missing in ("z", ""):
            with pytest.raises(RunNotFound, match=f"there is no run '{missing}' in this journal"):
                await journal.find(missing)
        with pytest.raises(RunNotFound):
            await journal.open(info("new"), resume=True)

    run_virtual(work())


def test_runs_are_listed_newest_first_and_filtered() -> None:
    """By name, status and words anywhere in the row, by page."""

    async def work() -> None:
        journal = MemoryJournal()
        for number in range(4):
            log = await journal.open(info(f"r{number}", name="even" if number % 2 == 0 else "odd",
                                          input=f"Word{number}"))  # fmt: skip
            if number < 2:
                await log.close(info(f"r{number}", name="done", status="satisfied"))

        async def ids(**query: Any) -> list[str]:
            return [row.run_id for row in await journal.runs(**query)]

        assert await ids() == ["r3", "r2", "r1", "r0"]
        assert await ids(limit=2, offset=1) == ["r2", "r1"]
        assert await ids(name="even") == ["r2"]
        assert await ids(status="satisfied") == ["r1", "r0"]
        assert await ids(text="word3") == ["r3"]

    run_virtual(work())


def test_entries_and_iterations_are_read_by_page() -> None:
    """Entries after a number, iterations of one loop or all, without what was set aside."""

    async def work() -> None:
        journal = MemoryJournal()
        log = await journal.open(info())
        for number in (1, 2, 3):
            log.append(Entry("started", f"l/{number}/execute", 0.0))
            log.append(Entry("iteration", "l", 0.0, value=Iteration(number)))
        log.append(Entry("iteration", "m", 0.0, value=Iteration(1)))
        await log.close(info())
        assert [e.seq for e in await journal.entries("r", after=2, limit=3)] == [3, 4, 5]
        assert len(await journal.entries("r")) == 7
        rows = await journal.iterations("r")
        assert [(path, item.number) for path, item in rows] == [
            ("l", 1), ("l", 2), ("l", 3), ("m", 1),
        ]  # fmt: skip
        assert len(await journal.iterations("r", loop="l", offset=1, limit=1)) == 1
        await journal.rewind("r", "l/2")
        assert [item.number for _, item in await journal.iterations("r")] == [1]
        assert (await journal.find("r")).status == "interrupted"

    run_virtual(work())


def test_cancelling_asks_the_owner() -> None:
    """False where nobody owns the run; the owner's callback is called otherwise."""

    async def work() -> None:
        journal = MemoryJournal()
        log = await journal.open(info())
        assert await journal.cancel("r")
        asked: list[int] = []
        log.on_cancel = lambda: asked.append(1)
        assert await journal.cancel("r")
        assert asked == [1]
        await log.close(info())
        assert not await journal.cancel("r")

    run_virtual(work())


def test_a_row_is_a_json_object() -> None:
    """What lists and pages show of a run."""
    data = json.loads(json.dumps(info(active=1.23456789, usage=Usage(calls=1)).to_json()))
    assert (data["run_id"], data["active"], data["usage"]["calls"]) == ("r", 1.234568, 1)


def test_a_failure_is_kept_with_an_entry() -> None:
    """The error of an effect goes to JSON with its kind and place."""
    failure = Failure("", "throttled", "busy", "a", True, 3.0)
    entry = Entry("finished", "a", 0.0, error=failure)
    assert Entry.from_json(entry.to_json()).error == failure
