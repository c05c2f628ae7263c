"""`loopwright.adapters.improve`: a model makes the next input from the input, the last output and its feedback."""

from __future__ import annotations

import pytest

from loopwright import Evaluation, Loop, MaxIterations, Result, run_sync
from loopwright.adapters import improve
from loopwright.errors import ConfigurationError
from loopwright.models import Models, ScriptedModel
from loopwright.records.codec import Json

MODEL = "openai:gpt-4o-mini"


def run(execute: object, *replies: str, instruction: str = "") -> tuple[Result, list[str]]:
    """Run a loop for two iterations; return its result and the messages that the model received."""
    rows: list[Json] = []
    models = Models(ScriptedModel([{"replies": list(replies)}]), transcript=rows.append)
    adapt = improve(instruction, model=MODEL) if instruction else improve(model=MODEL)
    loop = Loop(
        execute,  # type: ignore[arg-type]
        lambda text: Evaluation(0.5, feedback="Too long.", improvements=["Cut it."]),
        adapt,
        MaxIterations(2),
        name="work",
        on_failure="continue",
    )
    result = run_sync(loop, "a poem", resources={"models": models})
    return result, [row["messages"][-1]["content"] for row in rows]


def test_the_reply_is_the_next_input() -> None:
    """The model receives the input of the loop, the last output, the feedback and the improvements."""
    result, messages = run(str.upper, "a short poem")
    assert [item.input for item in result.history] == ["a poem", "a short poem"]
    assert len(messages) == 1
    for part in ("a poem", "A POEM", "Too long.", "- Cut it."):
        assert part in messages[0]


def test_the_error_of_a_failed_iteration_is_its_feedback() -> None:
    """An iteration without an output is improved too."""
    result, messages = run(lambda text: 1 / 0 if text == "a poem" else text, "a song")
    assert result.output == "a song"
    assert "division by zero" in messages[0]


def test_the_instruction_can_be_replaced() -> None:
    """An instruction of yours takes the place of the default, and may be a template."""
    _, messages = run(str.upper, "x", instruction="Shorten {{ value.input }} by half.")
    assert messages[0].startswith("Shorten a poem by half.")


def test_an_unknown_setting_is_refused() -> None:
    """Settings are those of `prompt`, and a wrong name is an error at construction."""
    with pytest.raises(ConfigurationError, match="temprature"):
        improve(model=MODEL, temprature=0.2)  # type: ignore[call-arg]
