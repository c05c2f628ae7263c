"""Adapters: the loop's input is never lost, an error is feedback, every strategy gets its turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import (
    Evaluation,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    Passed,
    Reason,
    run,
    run_sync,
    step,
)
from loopwright.engine.adapters import feedback, keep_input, merge, rotate, use_output
from loopwright.errors import ConfigurationError
from loopwright.records.codec import canonical, normalise


@step(inline=True)
def same(value: Any) -> Any:
    """Return the value."""
    return value


def rounds(adapt: Any, value: Any, count: int, **options: Any) -> list[Iteration]:
    """Return the records of a loop that hands on what adapt makes."""
    fields = {"execute": same, **options}
    return list(run_sync(Loop(adapt=adapt, until=MaxIterations(count), **fields), value).history)


def test_feedback_hands_on_what_was_said_of_the_last_output() -> None:
    """The next input has the loop's input, the last output, the feedback and the improvements."""
    said = Evaluation(0.2, feedback="dull", improvements=("a joke", "a name"))
    found = rounds(feedback, {"task": "t"}, 3, evaluate=lambda output: said)
    assert found[1].input == {
        "input": {"task": "t"},
        "previous": {"task": "t"},
        "feedback": "dull",
        "improvements": ["a joke", "a name"],
    }
    assert found[2].input["input"] == {"task": "t"}
    assert found[2].input["previous"] == found[1].input


def test_the_error_of_a_failed_round_is_its_feedback() -> None:
    """A failed round hands its error on, and the last output stays the previous one."""
    seen: list[Any] = []

    def work(task: Any) -> str:
        seen.append(task)
        if len(seen) == 2:
            raise ValueError("no paper")
        return f"draft {len(seen)}"

    rounds(feedback, "t", 3, execute=work, on_failure="continue")
    assert [task["feedback"] for task in seen[1:]] == ["", "ValueError: no paper"]
    assert [task["previous"] for task in seen[1:]] == ["draft 1", "draft 1"]


def test_an_output_that_could_not_be_judged_is_still_the_previous_one() -> None:
    """When only the evaluator failed, its error is the feedback and the output is handed on."""

    def broken(output: Any) -> float:
        raise OSError("judge is away")

    found = rounds(feedback, "t", 2, evaluate=broken, on_failure="continue")
    assert found[1].input["previous"] == "t"
    assert found[1].input["feedback"] == "OSError: judge is away"
    assert found[1].input["improvements"] == []


def test_keep_input_gives_every_round_the_first_input() -> None:
    """Whatever comes out, what goes in stays."""
    found = rounds(keep_input, 1, 3, execute=lambda value: value + 1)
    assert [item.input for item in found] == [1, 1, 1]


def test_use_output_goes_on_from_the_last_output() -> None:
    """The last output is the next input; a round that produced nothing is done again."""
    found = rounds(use_output, 1, 3, execute=lambda value: value + 1)
    assert [item.input for item in found] == [1, 2, 3]
    tries: list[int] = []

    def unsteady(value: int) -> int:
        tries.append(value)
        if len(tries) == 2:
            raise ValueError("again")
        return value + 1

    rounds(use_output, 1, 3, execute=unsteady, on_failure="continue")
    assert tries == [1, 2, 2]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"text": "t"}, [None, "a", "b", "c", "a"]),
        ({"text": "t", "strategy": "a"}, ["a", "b", "c", "a", "b"]),
        ({"text": "t", "strategy": "c"}, ["c", "a", "b", "c", "a"]),
        ({"text": "t", "strategy": "other"}, ["other", "a", "b", "c", "a"]),
    ],
)
def test_no_strategy_is_skipped(given: dict[str, str], expected: list[str]) -> None:
    """They come in order, from the one after the first round's, and the input stays."""
    found = rounds(rotate("a", "b", "c"), given, 5)
    assert [item.input.get("strategy") for item in found] == expected
    assert all(item.input["text"] == "t" for item in found)


@given(st.lists(st.one_of(st.integers(), st.text(), st.booleans()), min_size=1, max_size=6))
def test_n_rounds_after_the_first_try_n_strategies(strategies: list[Any]) -> None:
    """With as many further rounds as strategies, each is tried exactly once, in order."""
    unlike = list({canonical(normalise(item)): normalise(item) for item in strategies}.values())
    loop = Loop(same, adapt=rotate(*unlike, key="how"), until=MaxIterations(len(unlike) + 1))
    found = run_sync(loop, "t").history
    assert [item.input["how"] for item in found[1:]] == unlike
    assert found[1].input["input"] == "t"


def test_a_strategy_may_be_any_value() -> None:
    """An object is a strategy as much as a word, and is known again however its keys stand."""
    found = rounds(rotate({"k": 1, "l": 2}, {"k": 2}), {"strategy": {"l": 2, "k": 1}}, 3)
    assert [item.input["strategy"]["k"] for item in found] == [1, 2, 1]


@pytest.mark.parametrize("strategies", [(), ("a", "b", "a"), ({"k": 1, "l": 2}, {"l": 2, "k": 1})])
def test_strategies_without_an_order_are_refused(strategies: tuple[Any, ...]) -> None:
    """None at all, or one that is there twice, cannot be taken in turn."""
    with pytest.raises(ConfigurationError) as raised:
        rotate(*strategies)
    assert str(raised.value) == (
        f"rotate: {list(strategies)!r}: use at least one strategy, and each only once"
    )


def test_strategies_are_known_as_they_are_recorded() -> None:
    """What JSON changes is changed before the first turn; what it cannot hold is refused."""
    found = rounds(rotate("a\0", ("b", "c")), "t", 4)
    assert [item.input["strategy"] for item in found[1:]] == ["a", ["b", "c"], "a"]
    with pytest.raises(ConfigurationError, match=r"rotate\[1\]: object is not a JSON value"):
        rotate("a", object())


def test_a_merge_starts_from_the_input_of_the_loop() -> None:
    """What the function does not name stays as the loop was given it, in every round."""
    adapt = merge(lambda last: {"focus": f"round {last.number}"})
    found = rounds(adapt, {"transcript": "…", "focus": ""}, 3)
    assert [item.input for item in found[1:]] == [
        {"transcript": "…", "focus": "round 1"},
        {"transcript": "…", "focus": "round 2"},
    ]


def test_a_merge_may_go_on_from_the_last_input() -> None:
    """The function sees the last round's input too, so that a change can add up."""

    async def lower(last: Iteration, ctx: Any) -> dict[str, float]:
        return {"least": last.input["least"] - 0.25, "start": ctx.initial["least"]}

    found = rounds(merge(lower), {"skills": ["a"], "least": 1.0}, 3)
    assert [item.input["least"] for item in found] == [1.0, 0.75, 0.5]
    assert found[2].input == {"skills": ["a"], "least": 0.5, "start": 1.0}


def test_a_merge_into_what_is_no_object_keeps_it_as_input() -> None:
    """A text becomes the member `input` of the object."""
    assert rounds(merge(lambda last: {"hint": 1}), "t", 2)[1].input == {"input": "t", "hint": 1}


@pytest.mark.parametrize("answer", [None, "hint", ["hint"]])
def test_a_merge_of_what_is_no_object_is_an_error(answer: Any) -> None:
    """A function that returns nothing was meant to return something."""
    result = run_sync(Loop(same, adapt=merge(lambda last: answer), name="l"), "t")
    failure = result.history[1].error
    assert result.reason == Reason.ERROR
    assert failure is not None
    assert (failure.stage, failure.kind) == ("adapt", "bad_adapt")
    assert failure.message == (
        f"<lambda> returned {answer!r}; return an object of the members of the input to change"
    )
    with pytest.raises(ConfigurationError, match="same is a composite step; use a function"):
        merge(Loop(same))


def test_a_fingerprint_follows_the_meaning_of_an_adapter() -> None:
    """Other strategies, keys or functions are other adapters."""
    made = [rotate("a"), rotate("b"), rotate("a", key="k"), merge(lambda last: {"a": 1}),
            merge(lambda last: {"b": 1})]  # fmt: skip
    assert len({adapter.fingerprint for adapter in made}) == len(made)


class Crash(BaseException):
    """Stands for the death of the process."""


@pytest.mark.parametrize(
    "adapt", [feedback, keep_input, use_output, rotate("a", "b"), merge(lambda r: {"n": r.number})]
)
@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_resumed_loop_adapts_as_it_would_have(adapt: Any, moment: int) -> None:
    """Wherever the process dies, the inputs of the rounds are those of an undisturbed run."""

    async def inputs(dies: int) -> list[Any]:
        left = [dies]

        async def work(task: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Crash
            return {"text": str(task)[:40]}

        journal = MemoryJournal()
        said = step(lambda output: Evaluation(0.1, False, "more"), inline=True)
        loop = Loop(work, said, adapt, Passed() | MaxIterations(4), name="l")
        try:
            result = await run(loop, {"t": 1}, journal=journal, run_id="r")
        except Crash:
            journal.crash()
            result = await run(loop, journal=journal, run_id="r")
        return [item.input for item in result.history]

    assert asyncio.run(inputs(moment)) == asyncio.run(inputs(0))
