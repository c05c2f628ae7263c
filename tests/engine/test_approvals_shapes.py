"""Questions anywhere in steps of any shape: answered in any order, over any number of resumes."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loopwright import (
    Context,
    Loop,
    MaxIterations,
    MemoryJournal,
    Result,
    Status,
    Workflow,
    parallel,
    run,
    sequence,
    step,
)
from loopwright.journal.questions import answer, pending
from loopwright.testing import run_virtual

from .support import examples

Shape = Any  # "ask", "work", or (kind, [shapes])
leaves = st.sampled_from(["ask", "work"])
shapes = st.recursive(
    leaves,
    lambda inner: st.tuples(
        st.sampled_from(["parallel", "sequence", "loop", "workflow"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=8,
)


class Made:
    """A step of a shape; `asks` false answers its own questions, as the run to compare with."""

    def __init__(self, shape: Shape, *, asks: bool) -> None:
        self.asks = asks
        self.done: Counter[str] = Counter()
        self.numbers = itertools.count()
        self.step = self.of(shape)

    def of(self, shape: Shape) -> Any:
        number = next(self.numbers)
        if shape == "work":
            return step(self.work, name=f"work{number}")
        if shape == "ask":
            return step(self.ask, name=f"ask{number}")
        kind, parts = shape
        made = [self.of(part) for part in parts]
        if kind == "parallel":
            return parallel(*made, name=f"p{number}", at_once=2)
        if kind == "sequence":
            return sequence(*made, name=f"s{number}")
        if kind == "workflow":
            return Workflow(f"w{number}", {part.name: part for part in made}, at_once=2)
        body = sequence(*made, name=f"b{number}")
        return Loop(body, until=MaxIterations(2), name=f"l{number}")

    async def work(self, value: Any, ctx: Context) -> str:
        self.done[ctx.path] += 1
        return f"did {ctx.path}"

    async def ask(self, value: Any, ctx: Context) -> Any:
        path = f"{ctx.path}/q"
        return ctx.ask("q", {}, "?") if self.asks else f"answer to {path}"


async def answered(made: Made, order: Any, journal: MemoryJournal) -> Result:
    """Run, answer some of what is asked, at least one, and resume, until the run has ended."""
    result = await run(made.step, "x", journal=journal, run_id="r")
    while result.status is Status.SUSPENDED:
        questions = await pending(journal, "r")
        assert questions, "a suspended run asks something"
        order.shuffle(questions)
        for question in questions[: order.randint(1, len(questions))]:
            await answer(journal, "r", question.path, f"answer to {question.path}")
        result = await run(made.step, journal=journal, run_id="r")
    assert await pending(journal, "r") == []
    return result


@examples(0.5)
@given(shapes, st.randoms(use_true_random=False))
def test_answers_in_any_order_give_what_an_unasked_run_gives(shape: Shape, order: Any) -> None:
    """The result is that of the same steps with the answers built in, and no step is done twice."""
    made, straight = Made(shape, asks=True), Made(shape, asks=False)
    result = run_virtual(answered(made, order, MemoryJournal()))
    expected = run_virtual(run(straight.step, "x"))
    assert (result.status, result.reason, result.output) == (
        expected.status, expected.reason, expected.output,
    )  # fmt: skip
    assert made.done == straight.done
    assert not made.done or max(made.done.values()) == 1
