"""Small truths of the engine: names, digests, scores, repeats and what is left behind (issue 11)."""

from __future__ import annotations

import ast
import asyncio
import inspect
import types
from pathlib import Path
from typing import Any

import pytest

import loopwright
from loopwright import (
    Context,
    Evaluation,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    RepeatedOutput,
    ScoreAtLeast,
    Status,
    Timeout,
    run,
    step,
)
from loopwright.engine import adapters
from loopwright.engine.step import source_digest
from loopwright.errors import EvaluationError
from loopwright.records import as_evaluation, codec

from .support import Script, history, play

# Digests.


def test_a_function_that_was_moved_is_the_same_step() -> None:
    """Rule: the digest of a user's function depends on its code, not on the module that it lies in."""
    source = "def double(value):\n    return value * 2\n"
    found = []
    for module in ("one", "package.two"):
        made = types.ModuleType(module)
        exec(compile(source, f"{module}.py", "exec"), made.__dict__)
        found.append(source_digest(made.double))
    assert found[0] == found[1]

    def place() -> Any:
        def double(value: Any) -> Any:
            return value * 2

        return double

    assert source_digest(place()) == found[0]


def test_built_in_steps_go_by_a_name_and_a_version() -> None:
    """Rule: the fingerprint of a step of this package does not depend on its module or bytecode."""
    assert step(adapters.feedback).fingerprint == "adapters.feedback/1"
    assert step(adapters.keep_input).fingerprint == "adapters.keep_input/1"
    assert step(adapters.use_output).fingerprint == "adapters.use_output/1"


def test_every_function_step_of_the_package_names_its_fingerprint() -> None:
    """Rule: no `FunctionStep` of the package is left to be named by its bytecode."""
    users = {
        "steps.py",
        "objects.py",
        "loops.py",
        "step.py",
    }  # steps of functions that users wrote
    root = Path(inspect.getfile(loopwright)).parent
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "FunctionStep":
                named = any(word.arg == "fingerprint" for word in node.keywords)
                assert named or file.name in users, f"{file}:{node.lineno}"


def test_keys_in_another_unicode_form_have_one_digest() -> None:
    """I22: two keys that are equal in NFC do not make the digest depend on their order."""
    one, two = "\u00e9", "e\u0301"
    first, second = {one: 1, two: [2], "a": 0}, {two: [2], "a": 0, one: 1}
    assert codec.canonical(first) == codec.canonical(second)
    assert codec.canonical({one: 1, two: 2}) != codec.canonical({one: 1, two: 3})
    assert codec.canonical({one: 1}) == codec.canonical({two: 1})


# Scores.


@pytest.mark.parametrize(
    ("given", "score"),
    [
        (1.0000000000000002, 1.0),
        (1 + 1e-9, 1.0),
        (-1e-9, 0.0),
        (-1e-17, 0.0),
        (sum([0.05] * 20), 1.0),
    ],
)
def test_a_score_beside_an_edge_is_the_edge(given: float, score: float) -> None:
    """Rule: within 1e-9 outside of 0 to 1 a score is the edge."""
    assert Evaluation(given).score == score == as_evaluation(given).score


@pytest.mark.parametrize("given", [1 + 2e-9, -2e-9, float("nan"), float("inf"), True])
def test_a_score_off_the_scale_is_refused(given: float) -> None:
    """I16: further out is an error."""
    with pytest.raises(EvaluationError):
        Evaluation(given)


def test_a_threshold_is_reached_but_for_what_floats_lose() -> None:
    """Findings 2: `.3*3` against `.9` showed 0.90 and was never satisfied."""
    assert ScoreAtLeast(0.9).check(history(0.3 * 3)) is not None
    assert ScoreAtLeast(0.9).check(history(0.9 - 1e-8)) is None
    assert play(Loop(lambda _: "x", lambda _: 0.3 * 3, until=ScoreAtLeast(0.9))).satisfied


def test_what_stands_beside_a_score_is_its_details() -> None:
    """Rule: extra keys become details, which are recorded and read back, also without a score."""
    found = as_evaluation({"score": 0.5, "words": 120, "metrics": {"a": 1}, "details": {"b": [2]}})
    assert found == Evaluation(0.5, details={"words": 120, "b": [2]}, metrics={"a": 1})
    assert as_evaluation(found.to_json()) == found
    assert Evaluation(0.5).details == {} and "details" not in Evaluation(0.5).to_json()
    assert as_evaluation({"scroe": 0.5}) == Evaluation(details={"scroe": 0.5})
    with pytest.raises(EvaluationError, match="details: words: "):
        as_evaluation({"score": 0.5, "words": object()})


def test_details_survive_the_journal() -> None:
    """Rule: details are on record: a replay has those of the live run."""
    journal = MemoryJournal()
    loop = Loop(
        lambda _: "x", lambda _: {"score": 0.4, "seen": [1]}, until=MaxIterations(2), name="l"
    )
    first = play(loop, journal=journal, run_id="r")
    assert first.history[0].evaluation is not None
    assert first.history[0].evaluation.details == {"seen": [1]}
    assert play(loop, journal=journal, run_id="r").history == first.history


# Repeats.


@pytest.mark.parametrize(
    ("outputs", "inputs", "fires"),
    [
        ("AA", "xx", True),  # the input never changes
        ("AB", "xx", False),
        ("AA", "xy", True),
        ("BAA", "xyy", False),  # the input changes, and was the same for these two
        ("BAA", "xyz", True),
        ("ABAB", "xxxx", True),
        ("ABCABC", "xxxxxx", True),
        ("ABAB", "xyzw", True),
    ],
)
def test_a_repeat_counts_unless_the_same_input_explains_it(
    outputs: str, inputs: str, fires: bool
) -> None:
    """Contract 11: the same output twice in a row, with inputs that never change or that differed."""
    given = history(*[None] * len(outputs), outputs=list(outputs), inputs=list(inputs))
    assert (RepeatedOutput().check(given) is not None) is fires


def test_a_loop_without_adapt_that_repeats_itself_ends() -> None:
    """Findings 1: no adapt, always the same reply: all 8 iterations ran."""
    result = play(Loop(Script(["same"]), until=MaxIterations(8), guards=RepeatedOutput()))
    assert result.reason is Reason.REPEATED_OUTPUT and result.iterations == 2


# Places.


def test_a_context_shows_what_a_function_may_use() -> None:
    """Findings 1: `dir(ctx)` shows the public names, and none of the engine's."""
    found: list[list[str]] = []
    play(step(lambda value, ctx: found.append([n for n in dir(ctx) if n[:1] != "_"])))
    assert not {"account", "gate", "scope", "run", "names", "child", "within"} & set(found[0])
    assert {"last", "history", "outputs", "initial", "input", "call", "ask", "spend"} <= set(
        found[0]
    )
    assert all(hasattr(Context, name) or name in Context.__slots__ for name in found[0])


def test_the_stop_of_a_loop_inside_without_output_is_the_error_of_the_round() -> None:
    """Findings 1: the outer evaluate was given None, and its TypeError hid what had happened."""

    async def slow(_: Any) -> Any:
        await asyncio.sleep(100)

    inner = Loop(slow, name="inner", until=Timeout(1))
    outer = Loop(inner, lambda text: len(text) / 10, name="outer", until=MaxIterations(2))
    result = play(outer, journal=MemoryJournal())
    assert result.status is Status.FAILED
    error = result.history[0].error
    assert error is not None and (error.stage, error.kind) == ("execute", "timeout")
    assert error.message == "inner ended without an output: 1 s used"


def test_a_step_that_ignores_its_cancel_does_not_hold_the_process() -> None:
    """Rule: what does not end is left behind, and asyncio.run does not wait for it."""

    async def stubborn(_: Any) -> Any:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass

    result = asyncio.run(run(Loop(stubborn, until=Timeout(0.05), name="l")))
    assert result.reason is Reason.TIMEOUT
    assert "asyncio.tasks._" not in inspect.getsource(loopwright.engine.deadlines)  # type: ignore[attr-defined]
