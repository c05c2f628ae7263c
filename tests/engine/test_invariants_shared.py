"""The invariants of what loops share: budgets, time, journals and values."""

from __future__ import annotations

import asyncio
import itertools
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from loopwright import (
    Budget,
    Context,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    Passed,
    Reason,
    RepeatedOutput,
    Result,
    Status,
    Timeout,
    Usage,
    parallel,
    run,
    step,
)
from loopwright.records.codec import normalise
from loopwright.testing import VirtualClock, run_virtual

from .bodies import (
    Body,
    loop_of,
    marks,
)
from .model import Rules
from .support import ERROR, UNDECIDED, entries_of, examples, json_values, play

# Nesting and budgets.


@dataclass
class Tree:
    """A tree of loops that spend; `cap` is the budget of each, `width` branches run at once."""

    cap: int | None
    rounds: int
    width: int
    inner: Tree | None

    def made(self, name: str, calls: list[str], pace: float, worst: int) -> Loop:
        """Return the loop of this tree."""

        async def spend(value: Any, ctx: Context) -> str:
            calls.append(ctx.path)
            await asyncio.sleep(pace * (len(calls) % 3))
            ctx.spend(Usage(calls=1, input_tokens=worst // 2))
            return "x"

        reserve = Usage(calls=1, input_tokens=worst)
        parts: list[Any] = [step(spend, name="own", reserve=reserve)]
        if self.inner is not None:
            parts += [self.inner.made(f"{name}{n}", calls, pace, worst) for n in range(self.width)]
        guards = Budget(calls=self.cap) if self.cap else None
        return Loop(
            parallel(*parts), name=name, until=MaxIterations(self.rounds), guards=guards
        )  # fmt: skip


trees = st.recursive(
    st.builds(Tree, st.none() | st.integers(1, 9), st.integers(1, 3), st.just(1), st.none()),
    lambda inner: st.builds(
        Tree, st.none() | st.integers(1, 15), st.integers(1, 2), st.integers(1, 3), inner
    ),
    max_leaves=3,
)


@examples(0.6)
@given(trees, st.integers(1, 30), st.sampled_from([0.0, 1.0]), st.none() | st.integers(0, 99))
def test_no_tree_of_loops_spends_more_than_its_caps(
    tree: Tree, cap: int, pace: float, seed: int | None
) -> None:
    """I29, I30, I31, I32, I44: every cap of a tree holds, spending adds up, and nothing is uncounted."""
    calls: list[str] = []
    result = play(tree.made("l", calls, pace, 10), budget=Budget(calls=cap), seed=seed)
    assert result.usage.calls == len(calls) <= cap
    assert result.status in (Status.EXHAUSTED, Status.SATISFIED)
    for name, loop in result.loops.items():
        depth, node = len(name), tree
        while depth > 1 and node.inner is not None:
            node, depth = node.inner, depth - 1
        assert node.cap is None or loop.usage.calls <= node.cap
        assert loop.usage.calls == sum(item.usage.calls for item in loop.history)


@examples(0.4)
@given(st.lists(st.tuples(st.floats(0, 3), st.floats(-7200, 7200)), max_size=6),
       st.sampled_from([4.0, 7.5]))  # fmt: skip
def test_the_remaining_time_never_grows(jumps: list[tuple[float, float]], seconds: float) -> None:
    """I42, M8: whatever the wall clock does, what is left of a timeout only shrinks."""
    clock, left = VirtualClock(), []

    async def execute(value: Any, ctx: Context) -> str:
        left.append(ctx.remaining())
        pause, jump = jumps[ctx.iteration - 1] if ctx.iteration <= len(jumps) else (1.0, 0.0)
        await asyncio.sleep(pause)
        clock.jump(jump)
        left.append(ctx.remaining())
        return "x"

    async def work() -> Result:
        return await run(Loop(execute, until=Timeout(seconds)), clock=clock)

    result = run_virtual(work())
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(left))
    assert result.seconds <= seconds + 0.5


@examples(0.5)
@given(
    st.lists(st.lists(marks, min_size=1, max_size=5), min_size=1, max_size=6), st.integers(0, 99)
)
def test_concurrent_runs_do_not_see_each_other(many: list[list[Any]], seed: int) -> None:
    """I44: N concurrent runs in one journal, in any interleaving, give what they give alone."""
    journal, asked = MemoryJournal(), Rules(limit=5, on_failure="continue", threshold=0.75)

    async def work() -> list[Result]:
        return await asyncio.gather(
            *(
                run(loop_of(asked, Body(given, n % 2)), n, journal=journal, run_id=f"r{n}")
                for n, given in enumerate(many)
            )
        )

    for number, result in enumerate(run_virtual(work(), seed=seed)):
        alone = play(loop_of(asked, Body(many[number], number % 2)), number, run_id=f"r{number}")
        assert result.to_json() == alone.to_json()


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.lists(marks, min_size=12))
def test_a_repeat_is_never_a_new_best(outputs: list[str], scores: list[Any]) -> None:
    """Section 11: the guard fires on a repeat at the end of the record, unless it is a new best."""

    async def execute(value: Any, ctx: Context) -> str:
        return outputs[min(ctx.iteration, len(outputs)) - 1]

    async def adapt(last: Iteration) -> int:
        return last.number

    async def evaluate(output: str, ctx: Context) -> Any:
        mark = scores[ctx.iteration - 1]
        assume(mark not in (ERROR, UNDECIDED))
        return mark

    result = play(
        Loop(execute, evaluate, adapt, guards=RepeatedOutput(), until=MaxIterations(12)), 0
    )
    if result.reason is Reason.REPEATED_OUTPUT:
        ran = outputs[: result.iterations] + [outputs[-1]] * (result.iterations - len(outputs))
        periods = [p for p in range(1, 5) if ran[-p:] == ran[-2 * p : -p] and len(ran) >= 2 * p]
        assert periods
        assert result.best is not None
        assert result.best.number <= result.iterations - periods[0]


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 5))
def test_min_iterations_counts_completed_rounds(verdicts: list[bool], minimum: int) -> None:
    """I5: satisfied if and only if the deciding record passed and enough rounds are complete."""

    async def evaluate(output: Any, ctx: Context) -> bool:
        return verdicts[min(ctx.iteration, len(verdicts)) - 1]

    async def echo(value: Any) -> Any:
        return value

    result = play(
        Loop(echo, evaluate, until=Passed() | MaxIterations(9), min_iterations=minimum), "x"
    )
    padded = verdicts + [verdicts[-1]] * 9
    expected = next((n for n in range(minimum, 10) if padded[n - 1]), None)
    assert result.satisfied == (expected is not None)
    assert result.iterations == (expected or 9)


def _spoil(value: Any) -> None:
    """Change a JSON value in place wherever it can be changed."""
    if isinstance(value, dict):
        for inner in list(value.values()):
            _spoil(inner)
        value["spoilt"] = True
    elif isinstance(value, list):
        for inner in value:
            _spoil(inner)
        value.append("spoilt")


@examples(0.5)
@given(json_values)
def test_what_a_step_does_to_its_values_reaches_nobody(value: Any) -> None:
    """I45, H17: a child cannot change its parent's variables, nor a step what is on record."""
    value = normalise(value)
    seen: list[Any] = []

    async def execute(given: Any, ctx: Context) -> Any:
        seen.append(deepcopy((ctx.initial, ctx.input, given)))
        made = deepcopy({"made": given, "from": value})
        _spoil(given)
        _spoil(ctx.initial)
        _spoil(ctx.input)
        return made

    async def evaluate(output: Any) -> float:
        _spoil(output)
        return 0.5

    async def adapt(last: Iteration) -> Any:
        seen.append(deepcopy(last.output))
        _spoil(last.output)
        _spoil(last.input)
        return value

    inner = Loop(execute, evaluate, adapt, name="inner", until=MaxIterations(2))
    outer = Loop(inner, name="outer", until=MaxIterations(2))
    journal = MemoryJournal()
    play(outer, value, journal=journal, run_id="r")
    made = {"made": value, "from": value}
    for item in seen:
        assert item in (made, (value, value, value))
    for _, record in run_virtual(journal.iterations("r")):
        assert record.input == value
        assert record.output == made
    finished = [e.value for e in entries_of(journal, "r") if e.path.endswith("execute")]
    assert all(kept in (None, made) for kept in finished)
