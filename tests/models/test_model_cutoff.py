"""A reply that was cut off: it fails, is asked for again with a larger limit, or is accepted."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import Loop, MaxIterations, MemoryJournal, run, run_sync
from loopwright.evaluators import judge
from loopwright.models import Models, ScriptedModel
from loopwright.prompts import prompt
from loopwright.testing import run_virtual

CUT = {"text": "half a", "finish": "length"}
WHOLE = "half a loaf"


def went(step: Any, *replies: Any) -> tuple[Any, list[Any]]:
    records: list[Any] = []
    models = Models(ScriptedModel([{"replies": list(replies)}]), transcript=records.append)
    result = run_sync(step, "x", resources={"models": models, "model": "openai:gpt-4o"})
    return result, records


@pytest.mark.parametrize(
    ("settings", "calls", "output"),
    [
        ({"max_tokens": 40}, 1, None),
        ({"max_tokens": 40, "on_cutoff": "retry"}, 2, WHOLE),
        ({"max_tokens": 40, "on_cutoff": "accept"}, 1, "half a"),
        ({}, 2, WHOLE),
        ({"on_cutoff": "fail"}, 1, None),
        ({"on_cutoff": "accept"}, 1, "half a"),
    ],
)
def test_what_follows_a_cut_reply_is_on_cutoff(
    settings: dict[str, Any], calls: int, output: str | None
) -> None:
    """A limit of the user's own is not doubled and paid twice unless he says so."""
    result, records = went(prompt("{{ value }}", **settings), CUT, WHOLE)
    assert (len(records), result.output) == (calls, output)
    if output is None:
        assert all(word in result.detail for word in ("fail", "retry", "accept", "max_tokens"))


def test_an_accepted_reply_is_eligible_marked_and_warned_of() -> None:
    """It can be the best output; its record says `cut_off`, and the run warns of it."""
    journal = MemoryJournal()
    made = prompt("{{ value }}", max_tokens=40, on_cutoff="accept")
    loop = Loop(made, lambda text: 1.0, until=MaxIterations(1))
    models = Models(ScriptedModel([{"replies": [CUT]}]))
    result = run_virtual(
        run(
            loop,
            "x",
            journal=journal,
            run_id="r",
            resources={"models": models, "model": "openai:gpt-4o"},
        )
    )
    assert (result.output, result.best.output) == ("half a", "half a")
    assert any("cut off at max_tokens" in warning for warning in result.warnings)
    entries = run_virtual(journal.entries("r"))
    (reply,) = [e.value for e in entries if e.kind == "finished" and "/attempt-" in e.path]
    assert reply["cut_off"] is True


def test_blank_text_and_thinking_are_not_accepted() -> None:
    """What was cut off inside its thinking is no output."""
    cut = {"text": "<think>so far", "finish": "length"}
    result, records = went(prompt("x", max_tokens=40, on_cutoff="accept"), cut)
    assert (result.output, len(records)) == (None, 1)
    assert "inside its thinking" in result.detail


@pytest.mark.parametrize(("text", "cap"), [("half", 1024), ("<think>long", 4096)])
def test_a_judge_that_was_cut_off_gets_more_room(text: str, cap: int) -> None:
    """Its limit is ours: doubled once, and 4,096 tokens where it was cut while it was thinking."""
    seen = []

    class Seen(ScriptedModel):
        async def complete(self, request: Any, *, on_text: Any = None) -> Any:
            seen.append(request.max_tokens)
            return await super().complete(request, on_text=on_text)

    script = Seen(
        [{"replies": [{"text": text, "finish": "length"}, '{"verdict": "yes", "score": 90}']}]
    )
    resources = {"models": Models(script), "model": "openai:gpt-4o"}
    found = run_sync(judge("It is short."), "x", resources=resources).output
    assert (found.passed, seen) == (True, [512, cap])


def test_the_advice_for_a_blank_reply_names_what_is_not_set() -> None:
    """With `accept` already set, it is not proposed again."""
    cut = {"text": " ", "finish": "length"}
    models = Models(ScriptedModel([{"replies": [cut]}]), default="openai:m")
    result = run_sync(prompt("x", on_cutoff="accept"), "x", models=models)
    assert "accept" not in result.detail
    assert "raise max_tokens, or set on_cutoff: retry" in result.detail
