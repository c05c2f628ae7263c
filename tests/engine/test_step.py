"""Steps: a function is the simplest one; what it is given, how it is called, what names it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import Any

import pytest

from loopwright import Context, Loop, MaxIterations, Timeout, Usage, run_sync, step
from loopwright.engine.step import FunctionStep, as_step, digest_of
from loopwright.errors import ConfigurationError

from .support import play


async def no_arguments() -> str:
    return "none"


async def one_argument(value: Any) -> Any:
    return ["one", value]


async def two_arguments(value: Any, ctx: Context) -> Any:
    return ["two", value, ctx.path]


async def optional(value: Any, retries: int = 3) -> Any:
    return ["optional", value, retries]


async def all_optional(value: Any = "default") -> Any:
    return ["optional", value]


async def anything(*values: Any) -> Any:
    return list(values)


async def optional_context(value: Any, ctx: Any = None) -> Any:
    return [value, ctx is not None]


async def keywords(value: Any, *, loud: bool = False) -> Any:
    return [value, loud]


class Plain:
    def __call__(self, value: Any) -> Any:
        return ["object", value]


class Async:
    async def __call__(self, value: Any, ctx: Context) -> Any:
        return ["async object", value, ctx.path]

    async def method(self, value: Any) -> Any:
        return ["method", value]


FORMS = [
    (no_arguments, "none"),
    (one_argument, ["one", "in"]),
    (two_arguments, ["two", "in", "s"]),
    (optional, ["optional", "in", 3]),
    (all_optional, ["optional", "in"]),
    (anything, ["in"]),
    (optional_context, ["in", True]),
    (keywords, ["in", False]),
    (Async(), ["async object", "in", "s"]),
    (Async().method, ["method", "in"]),
    (functools.partial(optional, retries=5), ["optional", "in", 5]),
]


@pytest.mark.parametrize(
    ("function", "output"), FORMS, ids=lambda v: getattr(v, "__name__", "") or "x"
)
def test_a_function_is_given_what_it_takes(function: Any, output: Any) -> None:
    """f(), f(value) and f(value, ctx); arguments with a default are left alone."""
    assert play(step(function, name="s"), "in").output == output


@pytest.mark.parametrize(
    ("function", "value", "output"),
    [
        (lambda: "none", "in", "none"),
        (lambda value: [value], "in", ["in"]),
        (lambda value, ctx: [value, ctx.path], "in", ["in", "s"]),
        (Plain(), "in", ["object", "in"]),
        (len, "four", 4),
        (functools.partial(sorted, reverse=True), [1, 3, 2], [3, 2, 1]),
        (str, 5, "5"),
        (lambda value: one_argument(value), "in", ["one", "in"]),
    ],
)
def test_a_plain_function_runs_in_a_thread_or_inline(
    function: Any, value: Any, output: Any
) -> None:
    """The same function gives the same, on a thread of its own or on the event loop."""
    assert run_sync(step(function, name="s"), value).output == output
    assert play(step(function, name="s", inline=True), value).output == output


def test_a_plain_function_does_not_block_the_event_loop() -> None:
    """It runs in a thread that is not the loop's, with the caller's context variables."""
    word = contextvars.ContextVar("word", default="unset")

    def where(value: Any) -> list[Any]:
        return [threading.current_thread() is threading.main_thread(), word.get()]

    word.set("mine")
    assert run_sync(where).output == [False, "mine"]
    assert run_sync(step(where, inline=True)).output == [True, "mine"]


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (3, "3 cannot be a step; use a function or a step"),
        (None, "None cannot be a step; use a function or a step"),
        (lambda a, b, c: a,
         "<lambda> takes 3 arguments; a step takes a value, or a value and a context"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_step_is_refused(thing: Any, message: str) -> None:
    """I10: refused when it is given, with what a step takes."""
    with pytest.raises(ConfigurationError) as caught:
        as_step(thing)
    assert str(caught.value) == message


def test_a_step_is_taken_as_it_is() -> None:
    """as_step changes nothing about what already is a step."""
    made = step(one_argument)
    assert as_step(made) is made
    assert as_step(one_argument, name="other").name == "other"
    assert repr(made) == "step(one_argument)"


def test_step_is_a_decorator_and_a_call() -> None:
    """With and without options."""

    @step
    async def bare(value: Any) -> Any:
        return value

    @step(name="renamed", reserve=Usage(calls=1), idempotent=False)
    async def full(value: Any) -> Any:
        return value

    assert isinstance(bare, FunctionStep)
    assert (bare.name, bare.idempotent, bare.reserve) == ("bare", True, None)
    assert (full.name, full.idempotent) == ("renamed", False)
    assert full.reserve("x") == Usage(calls=1)


def test_what_a_builtin_takes_is_one_value() -> None:
    """Some builtins do not say what they take; they are given the value."""
    assert play(step(max, inline=True), [1, 3, 2]).output == 3


# Fingerprints.


def versions() -> list[Any]:
    """Return steps that mean different things."""

    def one(value: Any) -> Any:
        return value + 1

    def two(value: Any) -> Any:
        return value + 2

    def named(value: Any) -> Any:
        return value.one

    def other(value: Any) -> Any:
        return value.two

    def member(value: Any) -> Any:
        return value in {"a", "b"}

    def inner(value: Any) -> Any:
        return [x + 1 for x in value]

    def inner_other(value: Any) -> Any:
        return [x + 2 for x in value]

    made = [one, two, named, other, member, inner, inner_other, Plain(), Async(), len,
            functools.partial(optional, retries=1), functools.partial(optional, retries=2),
            functools.partial(keywords), Async().method]  # fmt: skip
    return [step(function, name="same") for function in made]


def test_a_fingerprint_follows_the_code() -> None:
    """I41: another body, name, constant or bound argument is another fingerprint."""
    prints = [made.fingerprint for made in versions()]
    assert len(set(prints)) == len(prints)
    assert prints == [made.fingerprint for made in versions()]
    assert all(len(print_) == 16 for print_ in prints)


def test_the_code_of_a_callable_object_counts() -> None:
    """I41: two classes of one name with another `__call__` are not the same step."""

    def made(number: int) -> Any:
        def call(self: Any, value: Any) -> Any:
            return number if number == 1 else [number, value]

        def call_other(self: Any, value: Any) -> Any:
            return {"other": value}

        return type("Same", (), {"__call__": call if number == 1 else call_other})()

    assert step(made(1)).fingerprint != step(made(2)).fingerprint


def test_where_an_object_lies_in_memory_does_not_count() -> None:
    """I41: the fingerprint is the same in another process, so no address is part of it."""
    a = functools.partial(optional_context, ctx=object())
    b = functools.partial(optional_context, ctx=object())
    assert step(a).fingerprint == step(b).fingerprint


def test_a_given_fingerprint_is_taken() -> None:
    """What a document was compiled from names the step better than its code."""
    assert FunctionStep(one_argument, fingerprint="given").fingerprint == "given"


def test_a_digest_names_its_parts() -> None:
    """The parts and their order count."""
    assert digest_of("a", "b") != digest_of("b", "a") != digest_of("ab")


# Threads.


def test_a_deadline_leaves_a_thread_behind() -> None:
    """Section 10: a plain function that hangs holds neither the loop nor the end of the process."""
    release = threading.Event()
    try:
        result = run_sync(Loop(lambda value: release.wait(60), until=Timeout(0.05)))
    finally:
        release.set()
    assert result.reason == "timeout"


def test_a_stubborn_coroutine_does_not_hold_the_end_of_the_process() -> None:
    """Section 10: run_sync returns although a call swallows every cancellation."""

    async def stubborn(value: Any) -> None:
        for _ in range(1000):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    result = run_sync(Loop(stubborn, until=Timeout(0.05)))
    assert result.reason == "timeout"


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(2), ValueError("x")])
def test_what_a_thread_raises_is_handed_over(error: BaseException) -> None:
    """Every error of a function in a thread is the step's failure, StopIteration too."""

    def fails(value: Any) -> None:
        raise error

    result = run_sync(Loop(fails, until=MaxIterations(1)))
    assert result.history[0].error is not None
    kinds = {"StopIteration": "RuntimeError"}
    name = type(error).__name__
    assert result.history[0].error.kind == kinds.get(name, name)


def test_more_functions_than_threads_all_run() -> None:
    """Beyond the bound on threads a function waits for its turn."""
    from loopwright import parallel

    many = parallel(*(step(lambda value: value, name=f"s{n}") for n in range(300)), at_once=300)
    assert len(run_sync(many, 1).output) == 300
