"""Loops that run until they are satisfied: execute, evaluate, adapt, again, until a condition ends
it."""

import importlib
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
from .engine.composites import fallback, limited, parallel, retrying, sequence
from .engine.context import Context
from .engine.loop import Loop
from .engine.run import resume, resume_sync, run, run_sync
from .engine.step import step
from .engine.streaming import stream
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
    from .models import File, Models, ModelSettings
    from .prompts import prompt

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
    "File",
    "History",
    "Iteration",
    "Journal",
    "Loop",
    "LoopwrightError",
    "MaxIterations",
    "MemoryJournal",
    "ModelSettings",
    "Models",
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
    "limited",
    "parallel",
    "prompt",
    "resume",
    "resume_sync",
    "retrying",
    "run",
    "run_sync",
    "sequence",
    "step",
    "stream",
]

_aliases.install()

# Modules that load what models need, imported at the first use of a name.
_LAZY = {
    "File": "models",
    "ModelSettings": "models",
    "Models": "models",
    "PhasedAgent": "agents",
    "ReasoningAgent": "agents",
    "prompt": "prompts",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
