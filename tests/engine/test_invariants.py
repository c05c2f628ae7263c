"""The invariants of the contract, held over generated loops; the model is `model.py`."""

from __future__ import annotations

import asyncio
import itertools
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from loopwright import (
    AllOf,
    AnyOf,
    Budget,
    Condition,
    Context,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    NoImprovement,
    Passed,
    Reason,
    RepeatedOutput,
    Result,
    ScoreAtLeast,
    Status,
    Timeout,
    Usage,
    parallel,
    run,
    step,
)
from loopwright.codec import normalise
from loopwright.errors import StepError
from loopwright.testing import VirtualClock, run_virtual

from .model import CUT, Model, Rules
from .support import ERROR, UNDECIDED, entries_of, examples, json_values, play
from .test_conditions import leaves as condition_leaves

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
            model.record(body.mark(len(model.marks) + 1))
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
    model = modelled(asked, Body(given, seconds))
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


def replaced_best(model: Model) -> int | None:
    """Return the number of the best round: the highest score, the earliest on ties (I15)."""
    scored = [(mark, -n) for n, mark in enumerate(model.marks, 1) if isinstance(mark, float)]
    return -max(scored)[1] if scored else None


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
