"""Loops with a scripted worker and a scripted judge, in virtual time."""

from __future__ import annotations

from typing import Any

from loopwright import Loop, MaxIterations, MemoryJournal, Passed, Result, run
from loopwright.evaluators.judge_questions import preset_question
from loopwright.models import Models, ScriptedModel
from loopwright.records import Evaluation
from loopwright.testing import run_virtual

MODEL = "openai:gpt-4o"
SHORT = "It is short."
PRESET = preset_question("quality/moderate")
GARBAGE = "I would rather say yes, but then again"


def yes(score: int = 90, reason: str = "it is met") -> dict[str, Any]:
    return {"json": {"verdict": "yes", "score": score, "reason": reason}}


def no(score: int = 10, reason: str = "it is not met") -> dict[str, Any]:
    return {"json": {"verdict": "no", "score": score, "reason": reason}}


def unsure(reason: str = "who knows") -> dict[str, Any]:
    return {"json": {"verdict": "unsure", "score": 50, "reason": reason}}


def settled(replies: Any, **more: Any) -> dict[str, Any]:
    """Resources with one script for all calls, or with rules."""
    rules = replies if replies and "replies" in replies[0] else [{"replies": replies}]
    return {"models": Models(ScriptedModel(rules), **more), "model": MODEL}


def judged(judge: Any, replies: Any, value: Any = "a draft", **options: Any) -> Result:
    """Judge one output; the result's output is the evaluation."""
    return run_virtual(run(judge, value, resources=settled(replies), **options))


def evaluation(judge: Any, replies: Any, value: Any = "a draft") -> Evaluation:
    """Judge one output; return the evaluation."""
    found = judged(judge, replies, value).output
    assert isinstance(found, Evaluation)
    return found


def looped(
    judge: Any, replies: Any, *, work: Any = None, rounds: int = 3, **options: Any
) -> Result:
    """Run a loop of a worker without a model and a judge, at most `rounds` long."""

    async def worker(value: Any, ctx: Any) -> str:
        return f"draft {ctx.iteration}"

    known = {name: options.pop(name) for name in ("rejudge", "on_failure") if name in options}
    loop = Loop(work or worker, judge, until=Passed() | MaxIterations(rounds), name="l", **known)
    journal = options.pop("journal", None) or MemoryJournal()
    resources = options.pop("resources", None) or settled(replies)
    return run_virtual(
        run(loop, "the goal", resources=resources, journal=journal, run_id="r", **options)
    )


def prompts_of(records: list[Any]) -> list[str]:
    """Return what was said in each call of a transcript, system prompt and all."""
    return ["\n".join(m["content"] for m in record["messages"]) for record in records]
