"""The tutorial as a script: ten steps from a function to a workflow with a judge. It needs no key.

python examples/tutorial.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from loopwright import (
    Budget,
    Context,
    Evaluation,
    Iteration,
    Loop,
    MaxIterations,
    NoImprovement,
    Passed,
    Result,
    ScoreAtLeast,
    Usage,
    resume,
    run,
    run_sync,
    sequence,
    step,
)
from loopwright.documents import Settings, load
from loopwright.evaluators import check, gates, judge
from loopwright.journal import open_journal
from loopwright.journal.questions import answer, pending
from loopwright.models import Models, ScriptedModel
from loopwright.prompts.prompt import prompt

FOLDER = Path(tempfile.mkdtemp(prefix="loopwright-tutorial-"))
JOURNAL = f"sqlite:{FOLDER / 'runs.db'}"


def draft(words: list[str]) -> str:
    """Join the words; in your program, the work to do."""
    return " ".join(words)


def rate(text: str) -> dict[str, Any]:
    """Score a text by the number of different words."""
    count = len(set(text.split()))
    return {"score": min(1.0, count / 5), "feedback": f"{count} of 5 different words"}


def extend(last: Iteration) -> list[str]:
    """Return the next input: one more word."""
    return [*last.input, f"word-{last.number}"]


def step_1() -> Result:
    """Run a function."""
    return run_sync(draft, ["one", "two"])


def step_2() -> Result:
    """Repeat it: execute, evaluate, adapt, until the score is high enough."""
    return run_sync(Loop(draft, rate, extend, until=ScoreAtLeast(0.9)), ["one"])


def step_3() -> Result:
    """Limit it: without success, the best output is returned."""
    ends = ScoreAtLeast(0.9) | MaxIterations(3) | NoImprovement(patience=2)
    return run_sync(Loop(draft, rate, extend, until=ends), ["one"])


def step_4() -> Result:
    """Return more than a score: a verdict and feedback for the next iteration."""

    def write(topic: str, ctx: Context) -> str:
        return f"{topic}: {ctx.last.feedback}" if ctx.last else topic

    def names_a_day(text: str) -> Evaluation:
        return Evaluation(passed="Monday" in text, feedback="say Monday")

    return run_sync(Loop(write, names_a_day, until=Passed() | MaxIterations(3)), "Release")


def step_5() -> Result:
    """Limit the cost: a call that does not fit is refused before it is made."""

    def measure(value: None, ctx: Context) -> int:
        ctx.spend(Usage(calls=1, usd=0.02))
        return ctx.iteration

    paid = step(measure, reserve=Usage(calls=1, usd=0.02))
    return run_sync(Loop(paid, guards=Budget(usd=0.05)), None)


def step_6() -> Result:
    """Record it: a finished run returns its record and repeats nothing."""
    calls: list[int] = []

    def work(value: int) -> int:
        calls.append(value)
        return value + 1

    for _ in range(2):
        result = run_sync(work, 1, journal=JOURNAL, run_id="once")
    assert calls == [1]
    return result


def step_7() -> Result:
    """Resume it: after an interruption, a run continues where it stopped."""
    begun: list[int] = []
    waiting = asyncio.Event()

    async def work(value: None, ctx: Context) -> int:
        begun.append(ctx.iteration)
        if len(begun) == 3:
            waiting.set()
            await asyncio.Event().wait()  # the process ends here
        return ctx.iteration

    async def interrupted() -> Result:
        loop = Loop(work, until=MaxIterations(4), name="count")
        async with open_journal(JOURNAL) as journal:
            first = asyncio.create_task(run(loop, None, journal=journal, run_id="count"))
            await waiting.wait()
            first.cancel()
            await asyncio.wait([first])
            return await resume(loop, "count", journal=journal)

    result = asyncio.run(interrupted())
    assert begun == [1, 2, 3, 3, 4]  # only the interrupted iteration ran again
    return result


def step_8() -> Result:
    """Ask a person: the run is suspended until the answer is in the journal."""

    def sign(text: str, ctx: Context) -> str:
        return f"{text} Signed: {ctx.ask('signer', {'question': 'Who signs?'}, 'Who signs it?')}"

    async def asked() -> Result:
        async with open_journal(JOURNAL) as journal:
            first = await run(sign, "Closed on Friday.", journal=journal, run_id="signed")
            assert first.status == "suspended"
            (question,) = await pending(journal, "signed")
            await answer(journal, "signed", question.path, "Ann", who="desk")
            return await resume(sign, "signed", journal=journal)

    return asyncio.run(asked())


REPLIES = """
- step: "*/execute"
  replies: [The cafeteria is closed on Friday., "The cafeteria is closed on Friday. Eat at the food trucks."]
- step: "*/evaluate/*"
  replies:
    - json: {verdict: "no", score: 30, reason: it names no other place}
    - json: {verdict: "yes", score: 95, reason: the food trucks are named}
"""
TOPIC = "the cafeteria is closed on Friday"


def step_9() -> Result:
    """Ask a model to write and a judge to decide; here the replies come from a script."""
    announce = Loop(
        prompt("Write an announcement: {{ loop.initial }} {{ loop.last.feedback }}"),
        gates(check(max_words=40), judge("It says where to eat instead.")),
        until=Passed() | MaxIterations(4),
        name="announce",
    )
    shout = step(lambda text: text.upper(), name="shout", fingerprint="shout/1")
    both = sequence(announce, shout)
    models = Models(ScriptedModel(REPLIES), default="openai:gpt-4o-mini")
    return run_sync(both, TOPIC, models=models)


DOCUMENT = """
schema: loopwright/1
name: announce
model: openai:gpt-4o-mini
steps:
  - name: announce
    loop:
      execute: {prompt: "Write an announcement: {{ loop.initial }} {{ loop.last.feedback }}"}
      evaluate:
        - check: {max_words: 40}
        - judge: It says where to eat instead.
      until: [passed, {max_iterations: 4}]
"""


def step_10() -> Result:
    """Write the same as a document, which the command line and the page run too."""
    (FOLDER / "announce.yaml").write_text(DOCUMENT, encoding="utf-8")
    (FOLDER / "replies.yaml").write_text(REPLIES, encoding="utf-8")
    loaded = load(FOLDER / "announce.yaml", Settings(replies=str(FOLDER / "replies.yaml")))
    return run_sync(loaded, TOPIC)


STEPS = (step_1, step_2, step_3, step_4, step_5, step_6, step_7, step_8, step_9, step_10)

if __name__ == "__main__":
    for number, one in enumerate(STEPS, start=1):
        result = one()
        print(f"{number}. {one.__doc__}")
        print(f"   {result.status} ({result.reason}): {result.output}")
    print(f"The journal is {JOURNAL}")
