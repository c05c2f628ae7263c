"""The runs of the golden journal: documents of every dialect, agents, memory and Python steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopwright import Loop, MaxIterations, ScoreAtLeast, Workflow, fallback, sequence, step
from loopwright.documents import Settings, load

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


PROGRAMS: dict[str, Callable[[], Program]] = {
    "announce": document("announce", "2.4 drops the old format"),
    "debate": document("debate", "Should the office close on Fridays?"),
    "native": document("native", "version 2.4"),
    "controller": document("controller", "a text"),
    "agents": document("agents", "the question"),
    "asks": document("asks", "a notice"),
    "remembers": document("remembers", "mail comes at nine"),
    "python": python,
}

# Recorded in `until.sqlite`, when a sentence was an evaluator: each document has another fingerprint now.
UNTIL: dict[str, Callable[[], Program]] = {
    "either": document("either", "a house"),
    "both": document("both", "a house"),
    "checked": document("checked", "a house"),
    "steady": document("steady", "a house"),
}
