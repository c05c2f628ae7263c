"""The runs of the golden journal: documents of every dialect, agents, memory and Python steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopwright import (
    Loop,
    MaxIterations,
    Models,
    PhasedAgent,
    ScoreAtLeast,
    Workflow,
    fallback,
    for_each,
    sequence,
    step,
    tool,
    until,
)
from loopwright.documents import Settings, load
from loopwright.models import ScriptedModel
from loopwright.prompts import tool_prompt

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@dataclass(frozen=True)
class Program:
    """A step to run, its input and its resources."""

    step: Any
    value: Any
    resources: Mapping[str, Any]


def document(name: str, value: Any) -> Callable[[], Program]:
    """Return how to load a document with its scripted replies."""

    def loaded() -> Program:
        folder = HERE / "documents"
        replies = str(folder / f"{name}_replies.yaml")
        settings = Settings(model="scripted:replies", replies=replies)
        found = load(folder / f"{name}.yaml", settings)
        return Program(found.step, value, found.resources)

    return loaded


@step(fingerprint="prepare/1")
def prepare(value: int) -> dict[str, Any]:
    """Return the task of the loops."""
    return {"goal": value, "tried": []}


@step(fingerprint="guess/1")
def guess(task: dict[str, Any]) -> int:
    """Return the next guess."""
    return len(task["tried"]) * 2


@step(fingerprint="distance/1")
def distance(output: int) -> dict[str, Any]:
    """Score a guess of the goal 6."""
    return {"score": max(0.0, 1 - abs(6 - output) / 6), "feedback": f"{6 - output} off"}


@step(fingerprint="more/1")
def more(last: Any) -> dict[str, Any]:
    """Add the last guess to what was tried."""
    return {**last.input, "tried": [*last.input["tried"], last.output]}


@step(fingerprint="reached/1")
def reached(output: int) -> bool:
    """Return whether the goal is reached."""
    return output == 6


@step(fingerprint="broken/1")
def broken(value: Any) -> Any:
    """Fail always."""
    raise ValueError("it is broken")


def python() -> Program:
    """Return a workflow of Python steps: a sequence, a fallback and a loop in a loop."""
    inner = Loop(guess, distance, more, ScoreAtLeast(0.95) | MaxIterations(6), name="inner")
    outer = Loop(sequence(prepare, inner), reached, until=MaxIterations(2), name="outer")
    steps = {"first": fallback(broken, prepare, name="first"), "search": outer}
    return Program(Workflow("golden", steps), 6, {})


def lists() -> Program:
    """Return a list whose items are refined."""
    refine = Loop(guess, distance, more, max_iterations=4, min_score=0.95, name="refine")
    return Program(for_each(sequence(prepare, refine), items=several, name="lists"), 6, {})


@step(fingerprint="several/1")
def several(value: int) -> list[int]:
    """Return the goals of a list."""
    return [value, value - 2, value - 4]


@tool
def look_up(word: str) -> str:
    """Return what a word means."""
    return f"{word} is a word"


def limited() -> Program:
    """Return an agent whose model may call tools, but few in one reply."""
    agent = PhasedAgent(
        execution=tool_prompt("Explain {{ task }}", [look_up], model="openai:m"),
        name="limited",
        max_iterations=2,
        max_tool_calls_per_reply=2,
    )
    call = {"tool_calls": [{"name": "look_up", "arguments": {"word": "loop"}}]}
    model = ScriptedModel([{"replies": [call, "It is a loop.", "It is a good loop."]}])
    return Program(agent, "loop", {"models": Models(model)})


def coding() -> Program:
    """Return a loop whose agent is a command, and whose check is one."""
    agent = ["sh", "-c", 'touch "part$LOOPWRIGHT_ITERATION"']
    return Program(until("test -e part2", agent, name="coding"), None, {})


PROGRAMS: dict[str, Callable[[], Program]] = {
    "announce": document("announce", "2.4 drops the old format"),
    "debate": document("debate", "Should the office close on Fridays?"),
    "native": document("native", "version 2.4"),
    "controller": document("controller", "a text"),
    "agents": document("agents", "the question"),
    "asks": document("asks", "a notice"),
    "remembers": document("remembers", "mail comes at nine"),
    "python": python,
    "lists": lists,
    "limited": limited,
    "sentences": document("sentences", None),
    "continues": document("continues", "2.4 drops the old format"),
    "coding": coding,
}

# Recorded in `until.sqlite`, when a sentence was an evaluator: each document has another fingerprint now.
UNTIL: dict[str, Callable[[], Program]] = {
    "either": document("either", "a house"),
    "both": document("both", "a house"),
    "checked": document("checked", "a house"),
    "steady": document("steady", "a house"),
}


# Their steps act on files, or their meaning is corrected since: only their ended runs are compared.
WHOLE = frozenset(("sentences", "continues", "coding"))
