"""Loops that run until they are satisfied: execute, evaluate, adapt, again, until a condition ends
it."""

from importlib import import_module
from typing import TYPE_CHECKING

from .conditions import (
    AllCriteriaMet,
    AllOf,
    AnyOf,
    Budget,
    Condition,
    Deadline,
    Degrading,
    Judged,
    MaxIterations,
    MetricAtLeast,
    MetricAtMost,
    NoChange,
    NoImprovement,
    NoProgress,
    OutputMatches,
    Passed,
    PhaseLimit,
    RepeatedOutput,
    ScoreAtLeast,
    Timeout,
)
from .engine.composites import fallback, parallel, retry, sequence, with_timeout
from .engine.context import Context
from .engine.loop import Loop
from .engine.run import resume, resume_sync, run, run_sync
from .engine.step import step
from .engine.workflow import Workflow
from .errors import LoopwrightError, NotSatisfied
from .records import (
    Criterion,
    Evaluation,
    Failure,
    History,
    Iteration,
    Measure,
    Reason,
    Result,
    Status,
    Stop,
    Usage,
)

if TYPE_CHECKING:
    from .agents import PhasedAgent, ReasoningAgent
    from .coding.agents import agent
    from .coding.sealed.evaluators import sealed_metric, tests
    from .coding.until import keep_or_revert_loop, until
    from .coding.workspace import Workspace
    from .engine.fork import fork, fork_sync
    from .engine.lists import for_each
    from .engine.loop_options import Impossible, OnStall, Undecided
    from .engine.metrics import Metric, MetricScore
    from .engine.streaming import IterationEnded, RunEnded, TextDelta, stream
    from .engine.tune import tune, tune_sync
    from .evaluators import check, checklist, judge, metric, rubric, score
    from .journal import MemoryJournal
    from .models import File, Models, ModelSettings
    from .prompts import prompt
    from .tools import shell, tool

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
    "Evaluation",
    "Failure",
    "File",
    "History",
    "Impossible",
    "Iteration",
    "IterationEnded",
    "Judged",
    "Loop",
    "LoopwrightError",
    "MaxIterations",
    "Measure",
    "MemoryJournal",
    "Metric",
    "MetricAtLeast",
    "MetricAtMost",
    "MetricScore",
    "ModelSettings",
    "Models",
    "NoChange",
    "NoImprovement",
    "NoProgress",
    "NotSatisfied",
    "OnStall",
    "OutputMatches",
    "Passed",
    "PhaseLimit",
    "PhasedAgent",
    "Reason",
    "ReasoningAgent",
    "RepeatedOutput",
    "Result",
    "RunEnded",
    "ScoreAtLeast",
    "Status",
    "Stop",
    "TextDelta",
    "Timeout",
    "Undecided",
    "Usage",
    "Workflow",
    "Workspace",
    "agent",
    "check",
    "checklist",
    "fallback",
    "for_each",
    "fork",
    "fork_sync",
    "judge",
    "keep_or_revert_loop",
    "metric",
    "parallel",
    "prompt",
    "resume",
    "resume_sync",
    "retry",
    "rubric",
    "run",
    "run_sync",
    "score",
    "sealed_metric",
    "sequence",
    "shell",
    "step",
    "stream",
    "tests",
    "tool",
    "tune",
    "tune_sync",
    "until",
    "with_timeout",
]

# Loaded at first use: these packages load templates, JSON Schema or the records of models.
_LAZY = {
    "File": "models",
    "ModelSettings": "models",
    "Models": "models",
    "MemoryJournal": "journal",
    "PhasedAgent": "agents",
    "ReasoningAgent": "agents",
    "Workspace": "coding.workspace",
    "agent": "coding.agents",
    "check": "evaluators",
    "checklist": "evaluators",
    "judge": "evaluators",
    "keep_or_revert_loop": "coding.until",
    "metric": "evaluators",
    "prompt": "prompts",
    "rubric": "evaluators",
    "score": "evaluators",
    "shell": "tools",
    "IterationEnded": "engine.streaming",
    "RunEnded": "engine.streaming",
    "TextDelta": "engine.streaming",
    "Metric": "engine.metrics",
    "MetricScore": "engine.metrics",
    "Impossible": "engine.loop_options",
    "OnStall": "engine.loop_options",
    "Undecided": "engine.loop_options",
    "for_each": "engine.lists",
    "fork": "engine.fork",
    "fork_sync": "engine.fork",
    "stream": "engine.streaming",
    "sealed_metric": "coding.sealed.evaluators",
    "tests": "coding.sealed.evaluators",
    "tool": "tools",
    "tune": "engine.tune",
    "tune_sync": "engine.tune",
    "until": "coding.until",
}

if not TYPE_CHECKING:  # a type checker knows the names above, and reports every other

    def __getattr__(name):
        module = _LAZY.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{module}", __name__), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
