"""Recorded runs side by side: the JSON contract, what differs, and where runs part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from loopwright import Budget, Loop, MaxIterations, MemoryJournal, change_limits, fork, resume, run
from loopwright.errors import ConfigurationError, RunNotFound
from loopwright.insight import Comparison, compare

RUN = {
    "run_id", "name", "status", "reason", "detail", "score", "metrics", "iterations", "calls", "usd", "inherited",
    "seconds", "loop", "scores", "forked",
}  # fmt: skip


def counting(step: int = 1, *, rounds: int = 3) -> Loop:
    """Return a loop that adds a number in each iteration."""

    def add(value: int) -> int:
        return value + step

    def rate(value: int) -> dict[str, Any]:
        return {"score": value / 20, "passed": False}

    def follow(last: Any) -> int:
        return int(last.output)

    return Loop(add, rate, adapt=follow, until=MaxIterations(rounds), name="count")


async def test_the_json_is_a_contract() -> None:
    """The keys of a comparison, of its runs and of its differences do not change."""
    journal = MemoryJournal()
    await run(counting(), 1, journal=journal, run_id="a", budget=Budget(effects=50))
    await run(counting(), 4, journal=journal, run_id="b")
    data = (await compare("a", "b", journal=journal)).to_json()
    assert set(data) == {"runs", "differs", "part_at", "paired"}
    assert [set(one) for one in data["runs"]] == [RUN, RUN]
    assert data["differs"] == {"input": [1, 4], "run max_effects": [50, None]}
    assert (data["part_at"], data["paired"]) == ("count/1/execute", None)
    first = data["runs"][0]
    assert (first["scores"], first["score"], first["loop"]) == ([0.1, 0.15, 0.2], 0.2, "count")
    assert set(first["inherited"]) >= {"calls", "usd"}
    with_output = (await compare("a", "b", journal=journal)).to_json(outputs=True)
    assert [one["output"] for one in with_output["runs"]] == [4, 7]


@pytest.mark.parametrize(
    "path", ["count/1", "count/2/execute", "count/2/evaluate", "count/3/adapt"]
)
async def test_a_fork_parts_where_it_was_changed(path: str) -> None:
    """A fork with other code parts at the first result that this code makes."""
    journal = MemoryJournal()
    await run(counting(), 1, journal=journal, run_id="a")
    await fork("a", journal=journal, at=path, new_id="b")
    await fork("a", journal=journal, at=path, new_id="c")
    await resume(counting(5), "b", journal=journal, accept_changes=True)
    await resume(counting(), "c", journal=journal)
    parts = {"count/1": "count/1/execute", "count/2/evaluate": "count/3/execute"}
    comparison = await compare("a", "b", journal=journal)
    expected = parts.get(path, path.replace("adapt", "execute"))
    assert comparison.part_at == expected
    assert (await compare("a", "c", journal=journal)).part_at is None
    assert comparison.to_json()["runs"][1]["forked"]["run_id"] == "a"


async def test_runs_of_different_documents_and_lengths() -> None:
    """They are compared: the names differ, and an extra iteration is where they part."""
    journal = MemoryJournal()
    await run(counting(), 1, journal=journal, run_id="a")
    await run(counting(rounds=4), 1, journal=journal, run_id="b")
    longer = await compare("a", "b", journal=journal)
    assert longer.part_at == "count/4/adapt"
    assert longer.differs["count max_iterations"] == [3, 4]
    await run(lambda value: value, 1, journal=journal, run_id="plain")
    other = await compare("a", "plain", journal=journal)
    assert other.differs["name"][0] == "count"
    assert other.runs[1].scores == []


async def test_a_run_that_still_runs_and_three_runs() -> None:
    """What a run does not have yet is no difference; a third run that differs is one."""
    journal = MemoryJournal()
    await run(counting(), 1, journal=journal, run_id="a")
    met: list[Comparison] = []

    async def look(value: int) -> int:
        if value == 2:
            met.append(await compare("a", "live", journal=journal))
            met.append(await compare("live", "a", "other", journal=journal))
        return value + 1

    await run(counting(), 7, journal=journal, run_id="other")
    live = Loop(look, adapt=lambda last: last.output, until=MaxIterations(3), name="count")
    await run(live, 1, journal=journal, run_id="live")
    assert (met[0].part_at, met[0].unfinished) == (None, True)
    assert met[1].part_at == "count/1/execute"
    assert len(met[1].runs) == 3


async def test_tuned_limits_are_settings() -> None:
    """A limit that a person changed while the run was live is part of what differs."""
    journal = MemoryJournal()
    loop = Loop(lambda n: n, name="count", until=MaxIterations(2), approve="iteration")
    for run_id in ("a", "b"):
        await run(loop, 1, journal=journal, run_id=run_id)
    await change_limits("b", journal=journal, max_iterations=9)
    await resume(loop, "b", journal=journal)
    comparison = await compare("a", "b", journal=journal)
    assert comparison.differs["count max_iterations"] == [2, 9]


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (lambda: ("a",), ConfigurationError, "give 2 to 16 different runs, not a"),
        (lambda: ("a", "a"), ConfigurationError, "not a, a"),
        (lambda: ("a", "none"), RunNotFound, "there is no run 'none'"),
    ],
)
def test_wrong_runs(words: Callable[[], Any], error: type[Exception], message: str) -> None:
    """One sentence names the mistake."""
    journal = MemoryJournal()
    asyncio.run(run(counting(), 1, journal=journal, run_id="a"))
    with pytest.raises(error, match=message):
        asyncio.run(compare(*words(), journal=journal))


async def test_an_unknown_loop() -> None:
    """The nearest name is given."""
    journal = MemoryJournal()
    for run_id in ("a", "b"):
        await run(counting(), 1, journal=journal, run_id=run_id)
    with pytest.raises(ConfigurationError, match="did you mean 'count'"):
        await compare("a", "b", journal=journal, loop="cuont")
