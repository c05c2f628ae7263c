"""A fingerprint that only changed with a version of the package is accepted, wherever its step stands."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Loop,
    MaxIterations,
    Models,
    Workflow,
    fallback,
    for_each,
    parallel,
    resume_sync,
    retry,
    run_sync,
    sequence,
    step,
    with_timeout,
)
from loopwright.engine.step import CompositeStep, FunctionStep, fingerprinted, former_version
from loopwright.errors import ReplayMismatch
from loopwright.journal import open_journal
from loopwright.models import ScriptedModel
from loopwright.prompts import Prompt, PromptSettings
from loopwright.records import Reason, Result, Status


@step(fingerprint="one/1")
def one(value: Any) -> Any:
    """Return the value."""
    return value


class Recorded(CompositeStep):
    """A step as a former version of the package had it."""

    name = "part"
    fingerprint = "part/1"

    def parts(self) -> list[Any]:
        return [one]

    async def run(self, value: Any, ctx: Any) -> Result:
        output = await ctx.call("one", one, value)
        return Result(Status.SATISFIED, Reason.COMPLETED, "", output, name=self.name)


class Present(Recorded):
    """The same step with a fingerprint of its own since version 2."""

    @fingerprinted
    def fingerprint(self) -> str:
        return "part/1" if former_version() < 2 else "part/2"


class Other(Recorded):
    """A step with another meaning."""

    fingerprint = "part/3"


AROUND: dict[str, Callable[[Any], Any]] = {
    "alone": lambda part: part,
    "sequence": lambda part: sequence(part, one, name="s"),
    "parallel": lambda part: parallel(part, one, name="p"),
    "fallback": lambda part: fallback(part, one, name="f"),
    "retry": lambda part: retry(part, attempts=2),
    "timeout": lambda part: with_timeout(part, 60),
    "each": lambda part: for_each(part, items=lambda value: [value], name="e"),
    "loop": lambda part: Loop(part, name="l", until=MaxIterations(1)),
    "evaluator": lambda part: Loop(one, part, name="l", until=MaxIterations(1)),
    "workflow": lambda part: Workflow("w", {"a": one, "b": Loop(part, name="l", max_iterations=1)}),
}


@pytest.mark.parametrize("place", AROUND)
def test_a_former_fingerprint_is_accepted_in_every_place(place: str, tmp_path: Path) -> None:
    """A finished run, and one that goes on, are those of the step although a part has a new fingerprint."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    recorded = run_sync(AROUND[place](Recorded()), 1, journal=url, run_id="r")
    again = run_sync(AROUND[place](Present()), 1, journal=url, run_id="r")
    assert again.to_json() == recorded.to_json()
    assert not [w for w in again.warnings if "changed" in w]
    with pytest.raises(ReplayMismatch):
        run_sync(AROUND[place](Other()), 1, journal=url, run_id="r")


class Leaf(FunctionStep):
    """A leaf whose fingerprint changed in version 2."""

    @fingerprinted
    def fingerprint(self) -> str:
        return f"leaf/{former_version()}"


def test_a_former_fingerprint_of_an_effect_is_accepted(tmp_path: Path) -> None:
    """An effect that a former version recorded is not performed again, and neither is its run refused."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    calls: list[str] = []

    def program(*, former: bool, works: bool) -> Any:
        def act(value: Any) -> Any:
            calls.append("leaf")
            return value

        def last(value: Any) -> Any:
            if not works:
                raise ValueError("not yet")
            return value + 1

        leaf = step(act, name="leaf", fingerprint="leaf/1") if former else Leaf(act, name="leaf")
        return sequence(leaf, step(last, name="last", fingerprint="last/1"), name="s")

    async def rewind() -> None:
        journal = open_journal(url)
        await journal.rewind("r", "s/last")
        await journal.close()

    run_sync(program(former=True, works=False), 1, journal=url, run_id="r")
    asyncio.run(rewind())
    result = resume_sync(program(former=False, works=True), "r", journal=url)
    assert (result.output, calls) == (2, ["leaf"])


def double(value: Any) -> Any:
    """Return twice the value."""
    return value * 2


def named(
    times: int, *, text: str = "Write {{ input }}", limit: int = 2, keep: str = "best"
) -> Any:
    """Return a workflow with a function, a prompt and a loop."""
    function = step(double, fingerprint=f"double/{times}")
    loop = Loop(function, name="refine", until=MaxIterations(limit), keep=keep)
    write = Prompt(text, name="write", model_settings=PromptSettings(("scripted:r",)))
    return Workflow("flow", {"refine": loop, "write": write})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (named(2), "the function flow/refine/double"),
        (named(1, text="Tell {{ input }}"), "the prompt flow/write"),
        (named(1, limit=3), "until of flow/refine"),
        (named(1, limit=3, keep="last"), "keep of flow/refine, until of flow/refine"),
        (
            named(2, text="Tell {{ input }}"),
            "the function flow/refine/double, the prompt flow/write",
        ),
    ],
)
def test_a_refusal_names_the_function_the_prompt_or_the_key_that_changed(
    changed: Any, words: str, tmp_path: Path
) -> None:
    """`ReplayMismatch` says what is not as it was recorded, and shows no digests."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    models = Models(ScriptedModel([{"replies": ["ok"]}]))
    run_sync(named(1), 1, journal=url, run_id="r", models=models)
    with pytest.raises(ReplayMismatch) as caught:
        run_sync(changed, 1, journal=url, run_id="r", models=models)
    assert str(caught.value) == (
        f"r: flow changed since the run was recorded: {words}; resume with the old version, or give accept_changes"
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": 1, "b": 2}, "b of its input changed since it was recorded"),
        ("x", "its input was {a: 1, b: 1} when it was recorded, now it is 'x'"),
    ],
)
def test_a_refusal_names_what_changed_in_the_input(value: Any, words: str, tmp_path: Path) -> None:
    """The keys of an object are named; other values are shown."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    run_sync(one, {"a": 1, "b": 1}, journal=url, run_id="r")
    with pytest.raises(ReplayMismatch, match=f"r: {re.escape(words)}"):
        run_sync(one, value, journal=url, run_id="r")
