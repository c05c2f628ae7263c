"""Loops that run until they are satisfied: execute, evaluate, adapt, again, until a condition ends
it."""

from typing import TYPE_CHECKING, Any

from . import _aliases
from .conditions import (
    AllCriteriaMet,
    AllOf,
    AnyOf,
    Budget,
    Condition,
    Deadline,
    Degrading,
    MaxIterations,
    NoImprovement,
    OutputMatches,
    Passed,
    PhaseLimit,
    RepeatedOutput,
    ScoreAtLeast,
    Timeout,
)
from .engine.composites import fallback, parallel, retry, sequence, with_timeout
from .engine.composites import limited as limited  # the names of version 0.1: with_timeout
from .engine.composites import retrying as retrying  # and retry
from .engine.context import Context
from .engine.loop import Loop
from .engine.run import resume, run, run_sync
from .engine.step import step
from .engine.workflow import Workflow
from .errors import LoopwrightError
from .journal import Entry, Journal, MemoryJournal
from .records import (
    Criterion,
    Evaluation,
    Failure,
    History,
    Iteration,
    Reason,
    Result,
    Status,
    Stop,
    Usage,
)

if TYPE_CHECKING:
    from .agents import PhasedAgent, ReasoningAgent

__all__ = [
    "AllCriteriaMet",
    "AllOf",
    "AnyOf",
    "Budget",
    "Condition",
    "Context",
    "Criterion",
    "Deadline",
    "Degrading",
    "Entry",
    "Evaluation",
    "Failure",
    "History",
    "Iteration",
    "Journal",
    "Loop",
    "LoopwrightError",
    "MaxIterations",
    "MemoryJournal",
    "NoImprovement",
    "OutputMatches",
    "Passed",
    "PhaseLimit",
    "PhasedAgent",
    "Reason",
    "ReasoningAgent",
    "RepeatedOutput",
    "Result",
    "ScoreAtLeast",
    "Status",
    "Stop",
    "Timeout",
    "Usage",
    "Workflow",
    "fallback",
    "parallel",
    "resume",
    "retry",
    "run",
    "run_sync",
    "sequence",
    "step",
    "with_timeout",
]

_aliases.install()

_AGENTS = ("PhasedAgent", "ReasoningAgent")


def __getattr__(name: str) -> Any:
    # Agents ask models: who has none of them does not load what models need.
    if name in _AGENTS:
        from . import agents

        return getattr(agents, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
