"""A loop of plain functions has a path of its own for its effects, which records what the general one records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import Loop, MaxIterations, MemoryJournal, ScoreAtLeast, change_limits, run
from loopwright.journal import Entry


def _row(entry: Entry) -> dict[str, Any]:
    """Return an entry without what differs between two runs: times and tracebacks' positions."""
    row = entry.to_json()
    for name in ("at", "seconds"):
        row.pop(name, None)
    value = row.get("value")
    if isinstance(value, dict) and "seconds" in value:
        row["value"] = {**value, "seconds": 0.0}
    return row


async def _recorded(
    loop: Loop[Any, Any], value: Any, *, observed: bool
) -> tuple[Any, list[dict[str, Any]]]:
    """Run a loop; a listener needs the general path, as it receives entries once they are durable."""
    journal = MemoryJournal()
    listeners = [lambda entry: None] if observed else []
    result = await run(loop, value, journal=journal, run_id="one", listeners=listeners)
    entries = await journal.entries("one")
    return (result.status, result.output, result.detail), [_row(entry) for entry in entries]


plain = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=5),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip
# What a stage does in an iteration: it returns a value, or raises.
deeds = st.lists(
    st.one_of(plain, st.sampled_from([ValueError, object, float("nan")])), min_size=1, max_size=4
)
verdicts = st.lists(
    st.one_of(st.floats(0, 1), st.booleans(), st.just({"score": 0.5, "feedback": "more"}), st.just("?")),
    min_size=1, max_size=4,
)  # fmt: skip


@given(deeds, verdicts, st.booleans())
def test_both_paths_record_the_same(outputs: list[Any], scores: list[Any], inline: bool) -> None:
    """Results and entries of a run are equal with and without a listener, also of failed and unreadable outputs."""

    def loop() -> Loop[Any, Any]:
        calls: dict[str, int] = {"execute": 0, "evaluate": 0}

        def next_of(name: str, values: list[Any]) -> Any:
            calls[name] += 1
            value = values[(calls[name] - 1) % len(values)]
            if value is ValueError:
                raise ValueError("no")
            return value

        async def execute(value: Any) -> Any:
            if not inline:
                await asyncio.sleep(0)
            return next_of("execute", outputs)

        async def evaluate(output: Any) -> Any:
            return next_of("evaluate", scores)

        async def adapt(last: Any) -> Any:
            return last.feedback or last.output

        return Loop(execute, evaluate, adapt, ScoreAtLeast(0.9) | MaxIterations(4), name="both")

    async def main() -> None:
        assert await _recorded(loop(), 1, observed=False) == await _recorded(
            loop(), 1, observed=True
        )

    asyncio.run(main())


@pytest.mark.parametrize("observed", [False, True])
async def test_a_limit_that_a_person_sets_binds_the_next_call(observed: bool) -> None:
    """A run that declares no limit accepts one while it is open, also on the path of plain functions."""
    journal = MemoryJournal()
    calls: list[int] = []

    async def execute(value: int) -> int:
        calls.append(value)
        if len(calls) == 2:
            await change_limits("open", journal=journal, max_calls=1, max_iterations=3)
            await asyncio.sleep(0.01)  # the run reads its inbox
        return value + 1

    loop = Loop(
        execute, lambda output: 0.1, lambda last: last.output, MaxIterations(9), name="tuned"
    )
    listeners = [lambda entry: None] if observed else []
    result = await run(loop, 1, journal=journal, run_id="open", listeners=listeners)
    assert result.reason.value == "max_iterations"
    assert len(calls) == 3
