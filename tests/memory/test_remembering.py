"""A run's way to its memory: journaled, once, and never in the way of a result."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.support import DyingJournal, KeepingJournal, play
from loopwright import (
    Context,
    Evaluation,
    Loop,
    MaxIterations,
    MemoryJournal,
    Result,
    ScoreAtLeast,
    run,
    run_sync,
    step,
)
from loopwright.engine.loop_memory import lessons, remembered, remembering
from loopwright.errors import ConfigurationError, JournalUnavailable
from loopwright.journal import open_memory
from loopwright.memory import InMemory, MemoryEntry, Space
from loopwright.testing import run_virtual


async def draft(task: Any, ctx: Context) -> str:
    """Say what was asked and how many lessons there are."""
    return f"{task}, {len(lessons(ctx)['lessons'])} lessons"


def loop(*scores: float, threshold: float = 0.8) -> Loop:
    """A loop that is judged by the scores, in order."""

    async def judge(_: Any, ctx: Context) -> Evaluation:
        score = scores[min(ctx.iteration, len(scores)) - 1]
        return Evaluation(score, feedback=f"{score} is not enough")

    ends = ScoreAtLeast(threshold) | MaxIterations(len(scores))
    return Loop(draft, judge, until=ends, name="draft")


def episodes(memory: Any, space: str = "draft") -> list[Any]:
    """The episodes in a memory."""
    return asyncio.run(Space(memory, space).episodes())


def test_lessons_go_from_run_to_run() -> None:
    """A run is given what earlier ones came to: best score, feedback, and each round tried."""
    journal = MemoryJournal()
    first = play(remembering(loop(0.6, 0.4)), "note", journal=journal)
    second = play(remembering(loop(0.9)), "note", journal=journal)
    assert (first.output, second.output) == ("note, 0 lessons", "note, 1 lessons")
    one, two = episodes(journal.memory)
    assert (one.outcome, one.score, one.feedback) == ("partial", 0.6, "0.6 is not enough")
    assert [item["score"] for item in one.tried] == [0.6, 0.4]
    assert one.tried[0]["tried"] == "note, 0 lessons"
    assert one.context == {"reason": "max_iterations", "iterations": 2}
    assert (two.outcome, two.score, two.description) == ("success", 0.9, "note")
    assert one.run == first.run_id


def test_a_failed_run_is_a_lesson_too() -> None:
    """A loop that fails leaves an episode of the outcome failure, and its result is as it was."""

    async def broken(_: Any) -> Any:
        raise ValueError("no text layer")

    journal = MemoryJournal()
    result = play(remembering(Loop(broken, name="draft")), "x", journal=journal)
    assert result.status.value == "failed"
    (episode,) = episodes(journal.memory)
    assert episode.outcome == "failure" and "no text layer" in episode.feedback


def test_the_run_is_the_loops() -> None:
    """Around a loop nothing changes: status, reason, history and the loop's place in the result."""
    bare = play(loop(0.5, 0.9), "note")
    kept = play(remembering(loop(0.5, 0.9)), "note", resources={"memory": InMemory()})
    assert kept.history == bare.history
    assert (kept.status, kept.reason, kept.output) == (bare.status, bare.reason, bare.output)
    assert list(kept.loops) == list(bare.loops) == ["draft"]


def _killed(journal: DyingJournal) -> Result | None:
    try:
        made = remembering(loop(0.5, 0.9))
        return run_virtual(run(made, "note", journal=journal, run_id="r"))
    except asyncio.CancelledError:
        return None


@pytest.mark.parametrize("before", [False, True])
def test_a_death_at_any_entry_leaves_one_episode(before: bool) -> None:
    """Wherever the process dies, the resumed run ends the same and its episode is there once."""
    counting = DyingJournal()
    wanted = _killed(counting)
    assert wanted is not None
    for at in range(1, counting.appended + 1):
        journal = DyingJournal(at, before=before)
        assert _killed(journal) is None
        journal.at = 0
        again = _killed(journal)
        assert again is not None and again.output == wanted.output
        (episode,) = episodes(journal.memory)
        assert (episode.outcome, episode.score) == ("success", 0.9), f"died at entry {at}"


def test_a_resumed_run_sees_the_lessons_it_saw() -> None:
    """What another run appended while this one was dead is not seen by it: lessons are on record."""
    journal = DyingJournal(4)
    assert _killed(journal) is None
    journal.at = 0
    play(remembering(loop(0.1)), "other", journal=journal, run_id="other")
    result = _killed(journal)
    assert result is not None and result.output == "note, 0 lessons"
    assert len(episodes(journal.memory)) == 2


def test_a_rewound_run_replaces_its_episode() -> None:
    """What a run does after a rewind stands in the place of what it did; both stay in the log."""
    journal = KeepingJournal()
    scores = [0.5]

    async def judge(_: Any) -> float:
        return scores[0]

    made = remembering(Loop(draft, judge, until=MaxIterations(1), name="draft"))
    play(made, "note", journal=journal, run_id="r")
    scores[0] = 0.7
    run_virtual(journal.rewind("r", "draft/1/evaluate"))
    play(made, "note", journal=journal, run_id="r")
    assert [item.score for item in episodes(journal.memory)] == [0.7]
    assert len(run_virtual(journal.memory.entries("draft"))) == 2


class FullDisk(InMemory):
    """A memory whose disk is full, or that cannot be read."""

    def __init__(self, *, reads: bool) -> None:
        super().__init__()
        self.reads = reads

    async def append(self, *entries: MemoryEntry) -> list[int]:
        raise JournalUnavailable("runs.db: the disk is full")

    async def entries(self, space: str, **options: Any) -> list[MemoryEntry]:
        if self.reads:
            return []
        raise JournalUnavailable("runs.db: it cannot be opened")


@pytest.mark.parametrize("reads", [True, False])
def test_a_memory_that_fails_loses_no_result(reads: bool) -> None:
    """What a loop produced is its result, whatever becomes of its memory; a warning says so."""
    result = play(remembering(loop(0.9)), "note", resources={"memory": FullDisk(reads=reads)})
    assert result.status.value == "satisfied" and result.output == "note, 0 lessons"
    assert any("later runs get no lessons" in text for text in result.warnings)
    assert any("without the lessons" in text for text in result.warnings) is not reads


def test_without_a_memory_it_says_what_to_give() -> None:
    """A run without journal and memory cannot remember, and says what to give it."""
    result = play(remembering(loop(0.9)), "note")
    assert result.status.value == "failed"
    assert "use a journal, or resources={'memory': …}" in result.detail


async def busy(task: str, ctx: Context) -> dict[str, Any]:
    """Use all that a space can."""
    space = remembered(ctx, "desk")
    await space.set("task", task)
    await space.set("step", 1)
    await space.delete("step")
    number = await space.record("sort", "success", score=0.8, description=task)
    await space.feedback(number, "well done", rating=1.0)
    fact = await space.remember("mail comes at nine", category="office")
    await space.reinforce(fact)
    await space.contradict(fact, "it came at ten")
    newer = await space.supersede(fact, "mail comes at ten")
    await space.note({"seen": 1})
    await space.decay(half_life=60)
    made = await space.consolidate(least=1)
    out = await space.cleanup()
    found = {
        "working": await space.all(),
        "task": await space.get("task"),
        "recalled": [e.said[0].text for e in await space.recall("sort")],
        "episodes": len(await space.episodes("sort")),
        "rate": (await space.success_rate("sort")).rate,
        "facts": [f.text for f in await space.facts("office")],
        "mail": [f.id == newer for f in await space.recall_facts("mail")],
        "notes": await space.notes(),
        "made": [f.text for f in made],
        "out": list(out),
    }
    await space.clear()
    return found


def test_a_function_may_use_all_of_a_space() -> None:
    """Inside a step every operation is an effect, with the time and the key of the run."""
    journal = MemoryJournal()
    result = play(step(busy), "letters", journal=journal, run_id="r")
    assert result.output == {
        "working": {"task": "letters"},
        "task": "letters",
        "recalled": ["well done"],
        "episodes": 1,
        "rate": 1.0,
        "facts": ["mail comes at ten"],
        "mail": [True],
        "notes": [{"seen": 1}],
        "made": ["sort: 1 of 1 succeeded, mean score 0.80; said most often: well done"],
        "out": [0, 0],
    }
    entries = asyncio.run(journal.memory.entries("desk"))
    assert {item.run for item in entries} == {"r"}
    assert asyncio.run(Space(journal.memory, "desk", run="r").all()) == {}


@pytest.mark.parametrize("before", [False, True])
def test_a_function_that_dies_appends_nothing_twice(before: bool) -> None:
    """Wherever a process dies inside a step, each of its entries is there once, in the same order."""

    def live(journal: DyingJournal) -> Result | None:
        try:
            return run_virtual(run(step(busy), "letters", journal=journal, run_id="r"))
        except asyncio.CancelledError:
            return None

    def kinds(journal: DyingJournal) -> list[str]:
        return [item.kind for item in asyncio.run(journal.memory.entries("desk"))]

    counting = DyingJournal()
    wanted = live(counting)
    assert wanted is not None
    for at in range(1, counting.appended + 1):
        journal = DyingJournal(at, before=before)
        live(journal)
        journal.at = 0
        again = live(journal)
        assert again is not None and again.output == wanted.output, f"died at entry {at}"
        assert kinds(journal) == kinds(counting), f"died at entry {at}"


def test_concurrent_runs_leave_every_entry(tmp_path: Path) -> None:
    """K runs that append M entries each as effects of theirs leave K times M, in order (I46)."""
    url = f"sqlite:{tmp_path / 'runs.db'}?synchronous=normal"

    async def append(run_: int, ctx: Context) -> None:
        space = remembered(ctx, "s")
        for number in range(10):
            await space.note([run_, number])

    async def many() -> list[Any]:
        async with open_memory(url) as memory:
            resources = {"memory": memory}
            await asyncio.gather(*(run(append, n, resources=resources) for n in range(12)))
            return [item.value for item in await memory.entries("s")]

    found = asyncio.run(many())
    assert len(found) == 120
    for run_ in range(12):
        assert [n for r, n in found if r == run_] == list(range(10))


def test_a_memory_by_its_url(tmp_path: Path) -> None:
    """The resource `memory` may be the URL of a store, which is opened for the run and closed."""
    url = f"sqlite:{tmp_path / 'lessons.db'}"
    for _ in range(2):
        result = run_sync(remembering(loop(0.9)), "note", resources={"memory": url})
    assert result.output == "note, 1 lessons"


def test_only_loops_remember() -> None:
    """A function has no rounds to learn from, and numbers are checked where they are given."""
    with pytest.raises(ConfigurationError, match="is a plain step"):
        remembering(draft)
    with pytest.raises(ConfigurationError, match="most"):
        remembering(loop(0.5), most=-1)
