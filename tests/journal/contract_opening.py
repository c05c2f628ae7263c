"""What every journal must do when runs are opened, taken over, closed and cancelled."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from loopwright import Usage
from loopwright.errors import OwnershipLost, RunLocked, RunNotFound
from loopwright.journal import Entry
from loopwright.journal.questions import status_of, take_up
from loopwright.journal.replay import RecordedRun, request

from .recording import (
    LONG,
    SPENT,
    Store,
    info,
    record,
    recorded,
    rounds,
    rounds_seen,
    settle,
    shown,
)


class OpeningContract:
    """A run has one owner; what it is closed with is what is found; a wish to cancel is heard."""

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

    async def test_a_closed_journal_can_be_used_again(self, store: Store) -> None:
        """After `close` a journal opens its store anew."""
        await recorded(store.journal, info(), rounds(1))
        await store.journal.close()
        assert len(await store.journal.entries("run-1")) == 3
        log = await store.journal.open(info())
        await record(log, rounds(1, start=2))
        assert len(await store.journal.entries("run-1")) == 6

    # Runs that no process has opened yet.

    async def test_a_created_run_is_queued_until_it_is_opened(self, store: Store) -> None:
        """A created run has no owner and keeps its place in a queue; the first opening is epoch 1."""
        row = info(input=LONG, queue="slow", priority=3, wake_at=99.5, deliveries=1)
        assert await store.journal.create([row, info("run-2"), info("run-2")]) == ["run-1", "run-2"]
        queued = replace(row, status="queued")
        journal = await store.reopen()
        assert await journal.find("run-1") == queued
        assert [i.run_id for i in await journal.runs(status="queued")] == ["run-2", "run-1"]
        assert await journal.create([info("run-1", input="other")]) == []
        log = await journal.open(info(input="ignored"), resume=True)
        assert (log.info.epoch, log.info.status, list(log.recorded)) == (1, "running", [])
        assert (log.info.input, log.info.queue, log.info.priority) == (LONG, "slow", 3)
        await record(log, rounds(1))
        await log.close(replace(log.info, status="satisfied"))
        found = await journal.find("run-1")
        assert (found.status, found.queue, found.deliveries) == ("satisfied", "slow", 1)

    async def test_a_queued_run_is_cancelled_without_a_process(self, store: Store) -> None:
        """Cancelling a queued run ends it, with the end of the run as its only entry."""
        await store.journal.create([info()])
        assert await store.journal.cancel("run-1") is True
        found = await store.journal.find("run-1")
        assert (found.status, found.reason) == ("cancelled", "cancelled")
        [entry] = await store.journal.entries("run-1")
        assert (entry.kind, entry.path, entry.value["stop"]["reason"]) == ("ended", "", "cancelled")

    async def test_an_interrupted_run_of_a_queue_is_cancelled(self, store: Store) -> None:
        """It waits for a worker, so cancelling ends it with its best output and usage; others are refused."""
        for run_id, queue in (("run-1", "slow"), ("run-2", "")):
            await store.journal.create([info(run_id, status="queued", queue=queue)])
            log = await store.journal.open(info(run_id), resume=True)
            await record(log, rounds(2))
            await log.close(replace(log.info, status="interrupted"))
            assert await store.journal.cancel(run_id) is bool(queue)
        found = await store.journal.find("run-1")
        assert (found.status, found.reason, found.iterations) == ("cancelled", "cancelled", 2)
        entries = await store.journal.entries("run-1")
        best = max((e.value for e in entries if e.kind == "iteration"), key=lambda i: i.score)
        assert entries[-1].value["output"] == best.output
        assert Usage.from_json(entries[-1].value["usage"]) == found.usage != Usage()
        assert (await store.journal.find("run-2")).status == "interrupted"

    async def test_an_owner_learns_that_it_lost_a_run(self, store: Store) -> None:
        """The former owner is called back on its event loop, although it writes nothing."""
        former = await store.journal.open(info())
        lost = asyncio.Event()
        former.on_lost = lost.set
        await store.journal.open(info(), takeover=True)
        await asyncio.wait_for(lost.wait(), 5)

    async def test_a_running_run_names_its_owner(self, store: Store) -> None:
        """The row of a run names the process that runs it, and so does the refusal of a second one."""
        log = await store.journal.open(info())
        owner = (await store.journal.find("run-1")).owner
        assert owner
        with pytest.raises(RunLocked) as caught:
            await store.journal.open(info())
        assert caught.value.owner == owner
        await log.close(log.info)
        assert (await store.journal.find("run-1")).owner == ""

    # Cancelling.

    async def test_a_wish_to_cancel_reaches_the_owner(self, store: Store) -> None:
        """Cancelling calls the owner back on its event loop, and says that there is one."""
        log = await store.journal.open(info())
        heard = asyncio.Event()
        log.on_cancel = heard.set
        assert await store.journal.cancel("run-1") is True
        await asyncio.wait_for(heard.wait(), 5)

    async def test_a_new_limit_reaches_the_owner(self, store: Store) -> None:
        """A request to change a limit calls the owner back on its event loop, once it is in the inbox."""
        log = await store.journal.open(info())
        heard = asyncio.Event()
        log.on_posted = heard.set
        change = {"loop": "refine", "key": "max_iterations", "old": 3, "new": 5}
        posted = request([change], reason="it improves", who="Ann", at=2.5)
        await store.journal.post("run-1", posted)
        await asyncio.wait_for(heard.wait(), 5)
        [read] = await store.journal.inbox("run-1")
        assert read.who.startswith("Ann")  # a store may add who is connected
        assert replace(read, who="Ann") == posted
        await log.close(log.info)

    async def test_a_new_limit_becomes_an_entry_when_the_run_is_opened(self, store: Store) -> None:
        """It is recorded once, with its person and reason, and the status of the run stays."""
        await recorded(store.journal, info(status="interrupted"), [])
        change = {"loop": "refine", "key": "max_iterations", "old": 3, "new": 5}
        await store.journal.post("run-1", request([change], reason="r", who="Ann", at=2.5))
        for _ in range(2):
            log = await store.journal.open(info(), resume=True)
            await take_up(store.journal, log)
            tuned = [entry for entry in log.recorded if entry.kind == "tuned"]
            await log.close(replace(log.info, status=status_of(log.recorded)))
        [entry] = tuned
        assert (entry.path, entry.value["new"]) == ("refine", 5)
        assert entry.value["who"].startswith("Ann")
        assert (await store.journal.find("run-1")).status == "interrupted"

    async def test_a_run_that_begins_knows_of_the_limits_in_its_inbox(self, store: Store) -> None:
        """Its input and the number of new limits come with its opening, also if the input is a content of its own."""
        change = {"loop": "refine", "key": "max_iterations", "old": 3, "new": 5}
        for run_id, value, posts in (("run-1", "short", 0), ("run-2", "long " * 100_000, 1)):
            await store.journal.create([info(run_id, input=value)])
            for _ in range(posts):
                posted = request([change], reason="r", who="Ann", at=2.5)
                await store.journal.post(run_id, posted)
            log = await store.journal.open(info(run_id))
            assert (log.info.input, log.posted, list(log.recorded)) == (value, posts, [])
            await log.close(replace(log.info, status="interrupted"))

    async def test_nobody_is_asked_to_cancel_a_run_without_an_owner(self, store: Store) -> None:
        """Cancelling a run that nobody owns says so."""
        await recorded(store.journal, info(status="satisfied"), [])
        assert await store.journal.cancel("run-1") is False
        with pytest.raises(RunNotFound):
            await store.journal.cancel("nothing")

    async def test_what_is_folded_is_not_loaded_and_still_counts(self, store: Store) -> None:
        """A resume has a `folded` entry in place of what it stands for, at every store, also next to open paths."""
        fold = Entry("folded", "refine/1", 2.0, {"effects": 1, "value": [LONG]}, usage=SPENT)
        entries = [*rounds(1, "refine/1/inner"), fold, *rounds(2, "refine/1x")]
        await recorded(store.journal, info(), entries)
        log = await store.journal.open(info(), resume=True)
        replay = RecordedRun(log.recorded)
        assert list(replay.records) == ["refine/1x"]
        assert replay.folded["refine/1"].value["value"] == [LONG]
        assert (replay.spent("").calls, replay.spent("refine/1")) == (6, SPENT)
        assert (replay.effects(""), replay.effects("refine/1")) == (3, 1)
        # The ranks of iterations go on after those that were left out.
        await record(log, rounds(1, "refine/1x", 3))
        await log.close(replace(info(), epoch=log.info.epoch))
        found = await store.journal.iterations("run-1")
        assert [item.number for _, item in found] == [1, 1, 2, 3]
        assert len(await store.journal.entries("run-1")) == len(entries) + 3

    async def test_a_rewind_below_a_folded_path_brings_back_what_was_before(
        self, store: Store
    ) -> None:
        """A rewind to a place that an entry stands for discards that entry, and what precedes the place is loaded."""
        fold = Entry("folded", "refine", 9.0, {"effects": 2, "value": None}, usage=SPENT)
        entries = [*rounds(2, "refine/inner"), fold, *rounds(1, "later")]
        for number, how in enumerate([{"path": "refine/inner/2"}, {"only": ["refine/inner/2"]}]):
            await recorded(store.journal, info(f"run-{number}"), entries)
            await store.journal.rewind(f"run-{number}", **how)
            log = await store.journal.open(info(f"run-{number}"), resume=True)
            replay = RecordedRun(log.recorded)
            assert replay.folded == {}
            numbers = [entry.value.number for entry in replay.records["refine/inner"]]
            assert numbers == ([1] if number == 0 else [1, 2])
            assert ("later" in replay.records) == (number == 1)
            await log.close(log.info)
