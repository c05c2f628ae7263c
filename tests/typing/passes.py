"""Types that both checkers must infer; run by `test_checkers.py`, never imported."""

import functools
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from pydantic_ai import Agent

from loopwright import (
    Context,
    Iteration,
    IterationEnded,
    Loop,
    Result,
    RunEnded,
    Workflow,
    fallback,
    for_each,
    parallel,
    retry,
    run,
    run_sync,
    sequence,
    step,
    stream,
    with_timeout,
)
from loopwright.evaluators import judge
from loopwright.journal import Journal, open_journal
from loopwright.prompts import prompt


@dataclass
class Brief:
    topic: str


@dataclass
class Draft:
    title: str


@dataclass
class Note:
    body: str


class Row(TypedDict):
    number: int


def plain(brief: Brief) -> Draft:
    return Draft(brief.topic)


async def waiting(brief: Brief) -> Draft:
    return Draft(brief.topic)


def with_context(brief: Brief, ctx: Context) -> Draft:
    return Draft(f"{brief.topic} {ctx.iteration}")


async def waiting_with_context(brief: Brief, ctx: Context) -> Draft:
    return Draft(f"{brief.topic} {ctx.iteration}")


class Writer:
    def write(self, brief: Brief) -> Draft:
        return Draft(brief.topic)

    def __call__(self, brief: Brief) -> Draft:
        return Draft(brief.topic)


def prefixed(prefix: str, brief: Brief) -> Draft:
    return Draft(prefix + brief.topic)


def score(draft: Draft) -> float:
    return len(draft.title) / 10


def again(last: Iteration[Brief, Draft]) -> Brief:
    return Brief(last.input.topic + "!")


def rows(number: int) -> list[Row]:
    return [{"number": number}]


def count(output: list[Row]) -> float:
    return len(output) / 10


def untyped(value):  # type: ignore[no-untyped-def]
    return value


def hook(item: Iteration) -> None:
    print(item.number)


def ended(result: Result) -> None:
    print(result.detail)


assert_type(run_sync(step(plain), Brief("a")).unwrap(), Draft)
assert_type(run_sync(step(waiting), Brief("a")).unwrap(), Draft)
assert_type(run_sync(step(with_context), Brief("a")).unwrap(), Draft)
assert_type(run_sync(step(waiting_with_context), Brief("a")).unwrap(), Draft)
assert_type(run_sync(step(Writer().write), Brief("a")).unwrap(), Draft)
assert_type(run_sync(step(Writer()), Brief("a")).unwrap(), Draft)
assert_type(run_sync(step(functools.partial(prefixed, "a")), Brief("a")).unwrap(), Draft)
assert_type(run_sync(plain, Brief("a")).unwrap(), Draft)
assert_type(run_sync(step(waiting), Brief("a")).history.last, Iteration[Any, Draft] | None)
assert_type(run_sync(with_context, Brief("a")).unwrap(), Draft)
print(run_sync(lambda number: number, 1).status.value)


@step
def decorated(brief: Brief) -> Draft:
    return Draft(brief.topic)


@step(inline=True)
async def with_options(brief: Brief) -> Draft:
    return Draft(brief.topic)


assert_type(run_sync(decorated, Brief("a")).output, Draft | None)
assert_type(run_sync(with_options, Brief("a")).output, Draft | None)

loop = Loop(plain, score, again, name="drafts")
assert_type(loop, Loop[Brief, Draft])
assert_type(Loop(waiting, score), Loop[Brief, Draft])
assert_type(Loop(with_context, score), Loop[Brief, Draft])
assert_type(Loop(decorated, score, again), Loop[Brief, Draft])
assert_type(Loop(rows, count), Loop[int, list[Row]])
Loop(plain, lambda output: len(output.title) > 3)  # mypy takes Out for Any beside a lambda
assert_type(
    Loop(prompt("About {{ value.topic }}", input=Brief, output=Note), judge("It is short.")),
    Loop[Brief, Note],
)
assert_type(run_sync(prompt("Say hello")).unwrap(), str)
assert_type(run_sync(prompt("Say hello", output=Note)).unwrap(), Note)
Loop(untyped, score)
Loop(plain, untyped, untyped)
Loop(plain, score, on_iteration=hook, on_terminate=ended)
Loop(plain, score, on_iteration=lambda item: print(item.number))

result = run_sync(loop, Brief("a"))
assert_type(result, Result[Draft])
assert_type(result.of(loop), Draft)
best = result.best
if best is not None and best.output is not None:
    assert_type(best.output, Draft)

assert_type(run_sync(sequence(plain, score), Brief("a")).unwrap(), float)
assert_type(run_sync(fallback(plain, waiting), Brief("a")).unwrap(), Draft)
assert_type(run_sync(retry(plain), Brief("a")).unwrap(), Draft)
assert_type(run_sync(with_timeout(plain, 5), Brief("a")).unwrap(), Draft)
assert_type(run_sync(parallel(one=plain, two=waiting), Brief("a")).unwrap(), dict[str, Any])
assert_type(run_sync(for_each(plain), [Brief("a")]).unwrap(), list[Draft | None])
assert_type(
    run_sync(for_each(loop, at_once=2, keep="all"), [Brief("a")]).unwrap(), list[Draft | None]
)
assert_type(run_sync(for_each(plain, keep="last"), [Brief("a")]).unwrap(), Draft)


def briefs(topics: str) -> list[Brief]:
    return [Brief(topic) for topic in topics.split()]


assert_type(run_sync(for_each(plain, items=briefs), "a b").unwrap(), list[Draft | None])
flow = Workflow("flow", {"draft": loop}, output=loop)
assert_type(run_sync(flow, Brief("a")).unwrap(), Draft)
assert_type(Loop(waiting), Loop[Brief, Draft])
assert_type(Loop(waiting_with_context, name="drafts"), Loop[Brief, Draft])
assert_type(Loop(plain), Loop[Brief, Draft])
assert_type(Loop(with_context, max_iterations=2), Loop[Brief, Draft])
assert_type(run_sync(waiting, Brief("a")).unwrap(), Draft)
assert_type(run_sync(waiting_with_context, Brief("a")).unwrap(), Draft)
assert_type(run_sync(fallback(waiting, waiting), Brief("a")).unwrap(), Draft)
assert_type(run_sync(retry(waiting, attempts=2), Brief("a")).unwrap(), Draft)
assert_type(run_sync(retry(waiting_with_context), Brief("a")).unwrap(), Draft)
assert_type(run_sync(with_timeout(waiting, 5), Brief("a")).unwrap(), Draft)
assert_type(run_sync(for_each(waiting), [Brief("a")]).unwrap(), list[Draft | None])
assert_type(run_sync(for_each(waiting, items=briefs), "a b").unwrap(), list[Draft | None])
assert_type(run_sync(for_each(waiting, keep="last"), [Brief("a")]).unwrap(), Draft)


agent = Agent("openai:gpt-4o-mini", output_type=Draft, defer_model_check=True)
assert_type(Loop(agent, score), Loop[Any, Draft])
assert_type(run_sync(agent, "A topic").unwrap(), Draft)
assert_type(run_sync(sequence(agent, score), "A topic").unwrap(), float)


class Runnable:
    """A runnable of LangChain, by its method."""

    async def ainvoke(self, input: str, config: dict[str, Any] | None = None) -> str:
        return input


class Evaluator:
    """An evaluator of pydantic-evals, by its method."""

    async def evaluate_async(self, ctx: object) -> bool:
        return True


class Scorer:
    """A scorer of autoevals, by its methods."""

    def __call__(self, output: Any, expected: Any = None, **more: Any) -> float:
        return 1.0

    async def eval_async(self, output: Any, expected: Any = None, **more: Any) -> float:
        return 1.0


class Metric:
    """A metric of DeepEval, by its method."""

    async def a_measure(self, test_case: object, _show_indicator: bool = True) -> float:
        return 1.0


async def grade(state: dict[str, str], target: tuple[str]) -> float:
    """A scorer of Inspect, by its arguments."""
    return 1.0


Loop(Runnable(), score)
Loop(plain, Runnable())
for metric in (Evaluator(), Metric()):
    assert_type(Loop(plain, metric), Loop[Brief, Draft])
assert_type(Loop(plain, Scorer()), Loop[Brief, Draft])
assert_type(Loop(plain, grade), Loop[Brief, Draft])


async def calls(value: int, ctx: Context) -> list[Row]:
    inner = Loop(rows, name="rows")
    assert_type(await ctx.call("x", inner, 1), list[Row])
    assert_type(await ctx.call("function", rows, 1), list[Row])
    assert_type(await ctx.call("agent", agent, "A topic"), Draft)
    assert_type((await ctx.outcome("result", rows, 1)).unwrap(), list[Row])
    assert_type(ctx.output_of(loop), Draft)
    last = ctx.last_of(loop)
    if last is not None:
        assert_type(last.input, Brief)
    assert_type(await run(loop, Brief("a")), Result[Draft])
    assert_type(await run(waiting, Brief("a")), Result[Draft])
    async with open_journal("memory:") as journal:
        assert_type(journal, Journal)
    for step_like in (loop,):
        async for event in stream(step_like, Brief("a")):
            if isinstance(event, IterationEnded):
                assert_type(event.iteration, Iteration[Any, Draft])
            elif isinstance(event, RunEnded):
                assert_type(event.result, Result[Draft])
    async for event in stream(waiting, Brief("a")):
        if isinstance(event, RunEnded):
            assert_type(event.result, Result[Draft])
    return rows(value)
