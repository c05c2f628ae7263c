"""What a space knows: working memory, episodes and facts, folded from an append-only log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import ConfigurationError, StepError
from loopwright.memory import (
    Episode,
    Fact,
    InMemory,
    Memory,
    MemoryEntry,
    Space,
    SuccessRate,
    entry,
    fact_id,
    view_of,
)

DAY = 86400.0


def played(play: Callable[[Space], Coroutine[Any, Any, Any]]) -> Memory:
    """Play with a fresh space, and return its memory."""
    memory = InMemory()
    asyncio.run(play(Space(memory, "s", run="r1")))
    return memory


def test_working_memory_belongs_to_a_run() -> None:
    """What one run sets, another does not see; delete and clear leave nothing, and all is logged."""

    async def play(space: Space) -> None:
        other = Space(space.memory, "s", run="r2")
        await space.set("draft", {"n": 1}, at=1)
        await space.set("draft", {"n": 2}, at=2)
        await space.set("plan", "x", at=3)
        await other.set("draft", "theirs", at=4)
        assert await space.all() == {"draft": {"n": 2}, "plan": "x"}
        assert await space.get("draft") == {"n": 2}
        assert await space.get("none", "default") == "default"
        await space.delete("plan", at=5)
        await space.delete("plan", at=5)
        assert await space.all() == {"draft": {"n": 2}}
        await space.clear(at=6)
        assert await space.all() == {} and await other.all() == {"draft": "theirs"}
        assert len(await space.memory.entries("s")) == 7

    played(play)


def test_episodes_are_recalled() -> None:
    """Episodes come by words, by action and by age; feedback is found with what it was said of."""

    async def play(space: Space) -> None:
        first = await space.record(
            "parse", "success", at=1, description="a resume in PDF", score=0.9
        )
        await space.record("parse", "failure", at=2, feedback="no text layer")
        third = await space.record("match", "partial", at=3, context={"jobs": 3}, tried=["wide"])
        assert [e.id for e in await space.recall()] == [3, 2, 1]
        assert [e.id for e in await space.recall("the PDF resume")] == [first]
        assert [e.id for e in await space.recall("nothing shared")] == []
        assert [e.id for e in await space.recall(action="parse", limit=1)] == [2]
        assert [e.id for e in await space.episodes("match")] == [third]
        await space.feedback(third, "dismissed by the customer", at=4, rating=0.2)
        (found,) = await space.recall("customer")
        assert found.id == third and found.said[0].rating == 0.2 and found.run == "r1"
        assert found.context == {"jobs": 3} and found.tried == ("wide",)
        assert Episode.from_json(found.to_json()) == found

    played(play)


def test_success_rates() -> None:
    """A partial episode is no success, and of no episode there is no rate rather than NaN."""

    async def play(space: Space) -> None:
        assert (await space.success_rate()).rate is None
        for outcome in ("success", "success", "partial", "failure"):
            await space.record("parse", outcome, at=1)
        await space.record("match", "failure", at=1)
        assert await space.success_rate("parse") == SuccessRate(2, 1, 1)
        assert (await space.success_rate("parse")).rate == 0.5
        assert (await space.success_rate()).rate == 0.4
        assert (await space.success_rate("match")).to_json()["rate"] == 0.0

    played(play)


def test_facts_get_surer_and_less_sure() -> None:
    """Remembering again reinforces, contradicting lowers until a fact is doubted, superseding replaces."""

    async def play(space: Space) -> None:
        fact = await space.remember("Reviews take  two days", at=1, category="process")
        assert await space.remember("reviews take two days", at=2, category="process") == fact
        (known,) = await space.facts("process")
        assert known.confidence == pytest.approx(0.6) and known.reinforced == 1
        assert Fact.from_json(known.to_json()) == known
        new = await space.supersede(fact, "reviews take one day", at=3)
        assert [f.id for f in await space.facts()] == [new]
        assert (await space.facts(status="superseded"))[0].superseded_by == new
        for _ in range(4):
            await space.contradict(new, "it took three", at=4)
        assert await space.facts() == [] and await space.recall_facts("reviews") == []
        (doubted,) = await space.facts(status="doubted")
        assert doubted.contradicted == 4 and doubted.contradictions[0] == "it took three"
        await space.reinforce(new, at=5, strength=0.5)
        assert [f.id for f in await space.facts()] == [new]

    played(play)


def test_facts_are_recalled_by_words_and_by_how_sure_they_are() -> None:
    """Of facts that share as many words, the surer comes first; without words the surest does."""

    async def play(space: Space) -> None:
        await space.remember("jobs in Oslo are few", at=1, confidence=0.4)
        await space.remember("jobs in Bergen are many", at=2, confidence=0.9)
        assert [f.confidence for f in await space.recall_facts("jobs")] == [0.9, 0.4]
        assert [f.confidence for f in await space.recall_facts("Oslo jobs")] == [0.4, 0.9]
        assert [f.confidence for f in await space.recall_facts(limit=1)] == [0.9]

    played(play)


def test_relevance_halves_with_each_half_life() -> None:
    """Decay counts from when something was last touched, however often it is asked for."""

    async def play(space: Space) -> None:
        fact = await space.remember("a", at=0)
        await space.record("parse", "success", at=0)
        for at in (DAY, 2 * DAY, 2 * DAY):
            await space.decay(at=at, half_life=DAY)
        assert (await space.facts())[0].relevance == pytest.approx(0.25)
        assert (await space.episodes())[0].relevance == pytest.approx(0.25)
        await space.reinforce(fact, at=2 * DAY)
        await space.decay(at=DAY, half_life=DAY)  # a clock that went back changes nothing
        assert (await space.facts())[0].relevance == 1.0

    played(play)


def test_a_cleanup_leaves_out_and_deletes_nothing() -> None:
    """Faded facts and old, used-up episodes are recalled no more, and stay in the log."""

    async def play(space: Space) -> None:
        faded = await space.remember("old", at=0)
        await space.record("parse", "success", at=0)
        await space.decay(at=100 * DAY, half_life=DAY)
        await space.remember("new", at=100 * DAY)
        await space.record("parse", "success", at=100 * DAY)
        assert await space.cleanup(at=101 * DAY) == (1, 1)
        assert [f.text for f in await space.facts()] == ["new"]
        assert [e.at for e in await space.episodes()] == [100 * DAY]
        assert (await space.success_rate("parse")).total == 2
        assert (await space.facts(status="retired"))[0].id == faded
        await space.remember("old", at=102 * DAY)
        assert len(await space.facts()) == 2

    memory = played(play)
    assert len(asyncio.run(memory.entries("s"))) == 7


def test_episodes_are_consolidated_into_one_fact() -> None:
    """Enough new episodes of an action make a fact, which a later consolidation supersedes."""

    async def play(space: Space) -> None:
        for score in (0.5, 0.7, 0.9):
            outcome = "success" if score > 0.6 else "failure"
            await space.record("parse", outcome, at=1, score=score, feedback="skills are missing")
        await space.record("match", "success", at=1)
        (fact,) = await space.consolidate(at=2)
        assert fact.text == (
            "parse: 2 of 3 succeeded, mean score 0.70; said most often: skills are missing"
        )
        assert fact.sources == (1, 2, 3) and fact.confidence == pytest.approx(0.6)
        assert await space.consolidate(at=3) == []
        for _ in range(3):
            await space.record("parse", "success", at=4, score=1.0)
        (newer,) = await space.consolidate(at=5)
        assert newer.text.startswith("parse: 5 of 6 succeeded")
        assert [f.id for f in await space.facts("experience")] == [newer.id]

    played(play)


def test_consolidating_twice_at_once_makes_one_fact() -> None:
    """Two runs that consolidate the same episodes append the fact once."""

    async def play(space: Space) -> None:
        for _ in range(3):
            await space.record("parse", "success", at=1)
        await asyncio.gather(space.consolidate(at=2), space.consolidate(at=2))
        (fact,) = await space.facts()
        assert fact.reinforced == 0
        assert len(await space.memory.entries("s", kinds=("consolidated",))) == 1

    played(play)


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda s: s.record("a", "sucess", at=1), "did you mean 'success'"),
        (lambda s: s.record("a", "success", at=1, score=float("nan")), "not finite"),
        (lambda s: s.record("a", "success", at=1, score=1.5), "score"),
        (lambda s: s.feedback(7, "x", at=1), "no episode 7"),
        (lambda s: s.remember("  ", at=1), "needs words"),
        (lambda s: s.remember("a", at=1, confidence=2), "confidence"),
        (lambda s: s.reinforce("f00", at=1), "no fact 'f00'"),
        (lambda s: s.contradict("f00", at=1), "no fact 'f00'"),
        (lambda s: s.supersede("f00", "b", at=1), "no fact 'f00'"),
        (lambda s: s.decay(at=1, half_life=0), "half_life"),
        (lambda s: s.note(1, at=float("inf")), "at"),
        (lambda s: s.facts(status="doubtful"), "did you mean 'doubted'"),
    ],
)
def test_what_cannot_be_is_refused(act: Any, told: str) -> None:
    """A wrong value is refused with what is wrong, and nothing of it is kept."""

    async def play(space: Space) -> None:
        with pytest.raises(ConfigurationError, match=told):
            await act(space)

    memory = played(play)
    assert asyncio.run(memory.entries("s")) == []


def test_values_are_json() -> None:
    """What JSON cannot hold is refused with its place."""

    async def play(space: Space) -> None:
        with pytest.raises(StepError, match=r"memory\.value: object"):
            await space.set("x", object(), at=1)

    played(play)


def test_a_rewound_run_stands_in_its_own_place() -> None:
    """What a run did instead, after it was rewound, replaces what it did at first; both are logged."""

    async def play(space: Space) -> None:
        await space.record("parse", "failure", at=1, key="effect~1")
        await space.note("first", at=1, key="note~1")
        await space.record("parse", "success", at=2, key="effect~2")
        await space.note("second", at=2, key="note~2")
        assert [e.outcome for e in await space.episodes()] == ["success"]
        assert await space.notes() == ["second"]
        assert len(await space.memory.entries("s")) == 4

    played(play)


def test_lessons_say_what_was_tried() -> None:
    """Lessons are the latest episodes, oldest first, with what was tried, scores and feedback, in words too."""

    async def play(space: Space) -> None:
        assert (await space.lessons()).text == ""
        await space.record("draft", "failure", at=1)
        tried = [{"tried": "a short one", "score": 0.4, "feedback": "too short"}, "a long one"]
        await space.record("draft", "partial", at=2, score=0.6, feedback="better", tried=tried)
        await space.remember("editors like lists", at=3)
        lessons = await space.lessons("draft", most=1)
        assert lessons.text == (
            "What earlier runs came to, oldest first:\n- partial with score 0.60\n"
            "  - tried a short one 0.40: too short\n  - tried a long one\n  - said: better\n"
            "What is known:\n- editors like lists"
        )
        assert lessons.to_json()["success_rate"] == 0.0

    played(play)


_OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["fact", "reinforced", "contradicted", "superseded", "decayed", "cleaned",
                         "episode", "feedback", "set", "deleted", "cleared", "odd"]),
        st.integers(0, 3),
        st.integers(0, 3),
        st.floats(0, 1e6),
    ),
    max_size=30,
)  # fmt: skip


def _made(kind: str, a: int, b: int, at: float, seq: int) -> MemoryEntry:
    fact = fact_id(f"fact {a}")
    value = {
        "fact": {"text": f"fact {a}", "confidence": b / 3},
        "reinforced": {"fact": fact, "strength": b / 3},
        "contradicted": {"fact": fact, "strength": b / 3},
        "superseded": {"fact": fact, "by": {"text": f"fact {b}", "confidence": 0.5}},
        "decayed": {"half_life": 1.0 + b},
        "cleaned": {"relevance": b / 3, "before": at},
        "episode": {"action": f"a{a}", "outcome": ("success", "partial", "failure")[b % 3]},
        "feedback": {"episode": a, "text": "x"},
        "set": {"name": f"n{a}", "value": b},
        "deleted": {"name": f"n{a}"},
    }.get(kind)
    return MemoryEntry("s", kind, value, at, seq=seq)


@given(_OPERATIONS)
def test_folding_is_total(operations: list[tuple[str, int, int, float]]) -> None:
    """Any entries in any order fold: confidence and relevance stay in [0, 1], nothing known is lost."""
    entries = [_made(*op, seq) for seq, op in enumerate(operations, start=1)]
    known: set[str] = set()
    for end in range(len(entries) + 1):
        view = view_of(entries[:end])
        assert known <= set(view.facts)
        known = set(view.facts)
        for fact in view.facts.values():
            assert 0 <= fact.confidence <= 1 and 0 <= fact.relevance <= 1
        assert len(view.episodes) == sum(e.kind == "episode" for e in entries[:end])
        assert view.success_rate().total == len(view.episodes)


@given(st.text(max_size=40), st.lists(st.text(max_size=20), max_size=6))
def test_recall_is_total(query: str, texts: list[str]) -> None:
    """Any words find something or nothing, never more than asked for."""
    entries = [entry("s", "fact", {"text": t or "-"}, at=0.0) for t in texts]

    async def play() -> None:
        memory = InMemory()
        await memory.append(*entries)
        assert len(await Space(memory, "s").recall_facts(query, limit=2)) <= 2

    asyncio.run(play())
