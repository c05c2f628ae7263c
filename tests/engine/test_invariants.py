"""The invariants of one loop, held over generated loops; the reference is `model.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from conditions.test_conditions_written import leaves as condition_leaves
from loopwright import (
    AllOf,
    AnyOf,
    Condition,
    Context,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    Result,
    Status,
    Usage,
)
from loopwright.errors import StepError

from .bodies import (
    Body,
    loop_of,
    marks,
    marks_of,
    modelled,
    replaced_best,
    rules,
)
from .model import Rules
from .support import ERROR, entries_of, play


@given(rules, st.lists(marks, min_size=1, max_size=12), st.sampled_from([0.0, 1.0, 2.5]),
       st.integers(0, 7), st.booleans())  # fmt: skip
def test_a_loop_does_what_the_contract_says(
    asked: Rules, given: list[Any], seconds: float, nonsense: int, kept: bool
) -> None:
    """I1, I2, I4, I5, I12, I13, I14, I15, I17, I20, I26, I27, I28: engine and reference agree on everything."""
    body, heard, ended = Body(given, seconds, nonsense), [], []
    loop = loop_of(asked, body, on_iteration=heard.append, on_terminate=ended.append)
    journal = MemoryJournal() if kept else None
    result = play(loop, "in", journal=journal, run_id="r")
    model = modelled(asked, Body(given, seconds, nonsense))
    assert marks_of(result) == model.marks
    assert (result.status.value, result.reason.value) == model.ending()
    assert result.status is result.reason.status
    number = model.kept()
    assert result.output == (number and f"output {number}")
    assert (result.best and result.best.number) == replaced_best(model)
    assert [item.number for item in result.history] == list(range(1, len(model.marks) + 1))
    assert body.adapted == len(model.marks) - 1
    assert heard == list(result.history)
    assert len(ended) == 1
    assert ended[0].history == result.history
    assert result.usage.calls == sum(item.usage.calls for item in result.history) == body.started
    assert len(result.history) <= loop.limit <= 1000
    if journal is not None:
        story = entries_of(journal, "r")
        assert [e.kind for e in story if e.path == ""] == ["ended"]
        assert story[-1].kind == "ended"
        assert play(loop, "in", journal=journal, run_id="r").to_json() == result.to_json()
        assert body.started == result.usage.calls


@given(rules, st.lists(marks, min_size=1, max_size=12), st.integers(0, 20), st.floats(0, 1))
def test_more_room_and_a_lower_bar_never_hurt(
    asked: Rules, given: list[Any], more: int, factor: float
) -> None:
    """I8: raising the limit never reduces iterations, lowering the threshold never adds any."""
    base = play(loop_of(asked, Body(given)))
    longer = play(loop_of(replace(asked, limit=asked.limit + more), Body(given)))
    lower = play(loop_of(replace(asked, threshold=asked.threshold * factor), Body(given)))
    assert longer.iterations >= base.iterations >= lower.iterations


conditions = condition_leaves.filter(lambda c: c.early)


@given(st.lists(conditions, min_size=1, max_size=4), st.lists(marks, min_size=1, max_size=10),
       st.randoms(use_true_random=False))  # fmt: skip
def test_an_or_ends_with_its_earliest_member_and_an_and_not_before_its_latest(
    members: list[Condition], given: list[Any], chance: Any
) -> None:
    """I7, I9: in a running loop too, whatever the order of members; limits act in both."""
    asked = Rules(limit=10, on_failure="continue")

    def ran(until: Condition) -> Result:
        return play(loop_of(asked, Body(given), until=until | MaxIterations(10)))

    alone = [ran(member) for member in members]
    joined = ran(AnyOf(tuple(members)))
    assert joined.iterations == min(result.iterations for result in alone)
    together = ran(AllOf(tuple(members)))
    if not {Reason.REPEATED_FAILURE, Reason.EVALUATOR_UNUSABLE} & {joined.reason, together.reason}:
        assert (
            together.iterations
            >= max(
                result.iterations for result in alone if result.reason is not Reason.MAX_ITERATIONS
            )
            if any(r.reason is not Reason.MAX_ITERATIONS for r in alone)
            else True
        )
    assert together.iterations <= 10
    shuffled = list(members)
    chance.shuffle(shuffled)
    other = ran(AnyOf(tuple(shuffled)))
    assert (other.reason, other.iterations) == (joined.reason, joined.iterations)
    assert set(other.also) == set(joined.also)


@given(rules, st.lists(marks, min_size=1, max_size=8), st.sampled_from([0.0, 1.0, 2.5]))
def test_the_same_run_gives_the_same_result(asked: Rules, given: list[Any], seconds: float) -> None:
    """I7, I16: a run is a function of its configuration and what its steps answer; scores are valid."""
    one = play(loop_of(asked, Body(given, seconds)), run_id="r")
    two = play(loop_of(asked, Body(given, seconds)), run_id="r")
    assert one.to_json() == two.to_json()
    for item in one.history:
        assert item.score is None or 0 <= item.score <= 1


@given(rules, st.lists(marks, min_size=1, max_size=8), st.sampled_from([0.0, 1.0, 2.5]))
def test_no_call_begins_after_the_end(asked: Rules, given: list[Any], seconds: float) -> None:
    """I6, I11: every call begins before the deadline; the run ends in bounded virtual time."""
    body = Body(given, seconds)
    result = play(loop_of(asked, body))
    assert all(moment < asked.seconds for moment in body.begun)
    assert len(body.begun) == result.iterations
    assert result.seconds <= min(asked.seconds, asked.limit * max(seconds, 0.0)) + 0.5


@given(st.lists(st.sampled_from([ERROR, 0.1, 0.5]), min_size=1, max_size=9), st.integers(0, 4),
       st.integers(1, 6))  # fmt: skip
def test_retry_ends_and_its_attempts_are_bounded(
    given: list[Any], retries: int, limit: int
) -> None:
    """I23, I26: at most `max_retries` + 1 attempts a round, then the loop halts; every call counts."""
    calls: list[int] = []

    async def execute(value: Any, ctx: Context) -> str:
        calls.append(ctx.iteration)
        ctx.spend(Usage(calls=1))
        if given[min(len(calls), len(given)) - 1] == ERROR:
            raise StepError("again")
        return "x"

    loop = Loop(execute, on_failure="retry", max_retries=retries, until=MaxIterations(limit))
    result = play(loop)
    assert result.usage.calls == len(calls)
    assert all(calls.count(number) <= retries + 1 for number in set(calls))
    assert result.iterations <= limit
    if result.status is Status.FAILED:
        assert calls.count(result.iterations) == retries + 1
