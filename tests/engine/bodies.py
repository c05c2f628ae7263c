"""Generated loops: the scripted body of a loop, and the loop that a set of rules asks for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from loopwright import (
    Budget,
    Condition,
    Context,
    Iteration,
    Loop,
    MaxIterations,
    NoImprovement,
    Result,
    ScoreAtLeast,
    Timeout,
    Usage,
    step,
)
from loopwright.errors import StepError

from .model import CUT, Model, Rules
from .support import ERROR, UNDECIDED

# A judge's nonsense is an error of its round; what it looks like does not matter.
NONSENSE = [float("nan"), "0.9", 1.5, {"score": "high"}, [0.5], {"improvements": 3}, b"x"]
marks = st.one_of(
    st.sampled_from([0.0, 0.25, 0.5, 0.5, 0.75, 1.0]),
    st.sampled_from([ERROR, UNDECIDED]),
    st.floats(0, 1),
)
rules = st.builds(
    Rules,
    threshold=st.sampled_from([0.0, 0.5, 0.75, 1.0]),
    patience=st.sampled_from([1, 2, 3, 1000]),
    limit=st.integers(1, 12),
    seconds=st.sampled_from([5.0, 9.5, 20.0, 1e6]),
    calls=st.sampled_from([1, 3, 6, 10**9]),
    on_failure=st.sampled_from(["halt", "continue"]),
    minimum=st.integers(1, 5),
    keep=st.sampled_from(["best", "last"]),
)


@dataclass
class Body:
    """The scripted body of a loop: each round takes `seconds`, spends a call and gets its mark."""

    marks: list[Any]
    seconds: float = 0.0
    nonsense: int = 0
    started: int = 0
    adapted: int = 0
    begun: list[float] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.begun = []

    def mark(self, number: int) -> Any:
        """Return the mark of a round; the last one repeats."""
        return self.marks[min(number, len(self.marks)) - 1]

    async def execute(self, value: Any, ctx: Context) -> str:
        self.started += 1
        self.begun.append(asyncio.get_running_loop().time())
        if self.seconds:
            await asyncio.sleep(self.seconds)
        ctx.spend(Usage(calls=1))
        if self.mark(ctx.iteration) == ERROR and not self.nonsense:
            raise StepError("it broke")
        return f"output {ctx.iteration}"

    async def evaluate(self, output: str, ctx: Context) -> Any:
        mark = self.mark(ctx.iteration)
        if mark == ERROR:
            return NONSENSE[self.nonsense % len(NONSENSE)]
        return {"undecided": True} if mark == UNDECIDED else mark

    async def adapt(self, last: Iteration) -> str:
        self.adapted += 1
        return f"after {last.number}"


def loop_of(asked: Rules, body: Body, **fields: Any) -> Loop:
    """Return the loop that a set of rules asks for."""
    until = ScoreAtLeast(asked.threshold) | MaxIterations(asked.limit)
    if asked.patience < 1000:
        until = until | NoImprovement(asked.patience)
    guards: Condition = Timeout(asked.seconds)
    if asked.calls < 10**9:
        guards = guards | Budget(calls=asked.calls)
    fields.setdefault("until", until)
    fields.setdefault("name", "l")
    return Loop(
        step(body.execute, reserve=Usage(calls=1)), body.evaluate, body.adapt, guards=guards,
        on_failure=asked.on_failure, min_iterations=asked.minimum, keep=asked.keep, **fields,
    )  # fmt: skip


def modelled(asked: Rules, body: Body) -> Model:
    """Return what the reference makes of it."""
    model = Model(asked)
    while not model.reason:
        ends = model.active + body.seconds
        if ends > asked.seconds or (ends == asked.seconds and body.seconds):
            # The timer and the deadline are one moment; the round does not get to its judge.
            model.active = asked.seconds
            model.cut("timeout")
        else:
            model.active, model.spent = ends, model.spent + 1
            mark = body.mark(len(model.marks) + 1)
            model.record(mark, output=mark != ERROR or bool(body.nonsense))
    return model


def marks_of(result: Result) -> list[Any]:
    """Return how each round of a result went."""
    found: list[Any] = []
    for item in result.history:
        if item.interrupted:
            found.append(CUT)
        elif item.error is not None:
            found.append(ERROR)
        else:
            found.append(UNDECIDED if item.undecided else item.score)
    return found


def replaced_best(model: Model) -> int | None:
    """Return the number of the best round: the highest score, the earliest on ties (I15)."""
    scored = [(mark, -n) for n, mark in enumerate(model.marks, 1) if isinstance(mark, float)]
    return -max(scored)[1] if scored else None
