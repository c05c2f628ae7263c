"""Loops that run until they are satisfied: execute, evaluate, adapt, again, until a condition ends
it."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .agents import PhasedAgent, ReasoningAgent
    from .coding.agents import agent
    from .coding.sealed.evaluators import sealed_metric, tests
    from .coding.until import keep_or_revert_loop, until
    from .coding.workspace import Workspace
    from .conditions import (
        AllCriteriaMet,
        AllOf,
        AnyOf,
        Budget,
        Condition,
        Deadline,
        Degrading,
        Impossible,
        Judged,
        MaxIterations,
        MetricAtLeast,
        MetricAtMost,
        NoChange,
        NoImprovement,
        NoProgress,
        OnStall,
        OutputMatches,
        Passed,
        PhaseLimit,
        RepeatedOutput,
        ScoreAtLeast,
        Timeout,
    )
    from .datasets import Case, Dataset, EvalResult, Gate
    from .engine.candidates import Candidates, Combine, Duel
    from .engine.change_limits import change_limits, change_limits_sync
    from .engine.composites import fallback, parallel, retry, sequence, with_timeout
    from .engine.confirmation import Confirm
    from .engine.context import Context
    from .engine.early import Early
    from .engine.fork import fork, fork_sync
    from .engine.lists import for_each
    from .engine.loop import Loop
    from .engine.loop_options import Undecided
    from .engine.metrics import Metric, MetricScore
    from .engine.run import resume, resume_sync, run, run_sync
    from .engine.steering import continue_run, hold, steer
    from .engine.step import step
    from .engine.streaming import IterationEnded, RunEnded, TextDelta, stream
    from .engine.waiting import signal, signal_sync, wait
    from .engine.workflow import Workflow
    from .errors import LoopwrightError, NotSatisfied
    from .evaluators import (
        check,
        checklist,
        evaluate,
        evaluate_sync,
        judge,
        metric,
        on_cases,
        pair_judge,
        rubric,
        score,
    )
    from .journal import MemoryJournal
    from .models import File, Models, ModelSettings
    from .prompts import prompt
    from .records import (
        Candidate,
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
    from .search import Optimise, gepa
    from .tools import shell, tool

__all__ = [
    "AllCriteriaMet",
    "AllOf",
    "AnyOf",
    "Budget",
    "Candidate",
    "Candidates",
    "Case",
    "Combine",
    "Condition",
    "Confirm",
    "Context",
    "Criterion",
    "Dataset",
    "Deadline",
    "Degrading",
    "Duel",
    "Early",
    "EvalResult",
    "Evaluation",
    "Failure",
    "File",
    "Gate",
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
    "Optimise",
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
    "change_limits",
    "change_limits_sync",
    "check",
    "checklist",
    "continue_run",
    "evaluate",
    "evaluate_sync",
    "fallback",
    "for_each",
    "fork",
    "fork_sync",
    "gepa",
    "hold",
    "judge",
    "keep_or_revert_loop",
    "metric",
    "on_cases",
    "pair_judge",
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
    "signal",
    "signal_sync",
    "steer",
    "step",
    "stream",
    "tests",
    "tool",
    "until",
    "wait",
    "with_timeout",
]

# Loaded at first use, so that a program pays only for what it names.
_MODULES = {
    "agents": ("PhasedAgent", "ReasoningAgent"),
    "coding.agents": ("agent",),
    "coding.sealed.evaluators": ("sealed_metric", "tests"),
    "coding.until": ("keep_or_revert_loop", "until"),
    "coding.workspace": ("Workspace",),
    "conditions": (
        "AllCriteriaMet",
        "AllOf",
        "AnyOf",
        "Budget",
        "Condition",
        "Deadline",
        "Degrading",
        "Impossible",
        "Judged",
        "MaxIterations",
        "MetricAtLeast",
        "MetricAtMost",
        "NoChange",
        "NoImprovement",
        "NoProgress",
        "OnStall",
        "OutputMatches",
        "Passed",
        "PhaseLimit",
        "RepeatedOutput",
        "ScoreAtLeast",
        "Timeout",
    ),
    "datasets": ("Case", "Dataset", "EvalResult", "Gate"),
    "engine.composites": ("fallback", "parallel", "retry", "sequence", "with_timeout"),
    "engine.confirmation": ("Confirm",),
    "engine.context": ("Context",),
    "engine.early": ("Early",),
    "engine.fork": ("fork", "fork_sync"),
    "engine.lists": ("for_each",),
    "engine.candidates": ("Candidates", "Combine", "Duel"),
    "engine.loop": ("Loop",),
    "engine.loop_options": ("Undecided",),
    "engine.metrics": ("Metric", "MetricScore"),
    "engine.waiting": ("signal", "signal_sync", "wait"),
    "engine.run": ("resume", "resume_sync", "run", "run_sync"),
    "engine.steering": ("continue_run", "hold", "steer"),
    "engine.step": ("step",),
    "engine.streaming": ("IterationEnded", "RunEnded", "TextDelta", "stream"),
    "engine.change_limits": ("change_limits", "change_limits_sync"),
    "engine.workflow": ("Workflow",),
    "errors": ("LoopwrightError", "NotSatisfied"),
    "evaluators": (
        "check",
        "checklist",
        "evaluate",
        "evaluate_sync",
        "judge",
        "metric",
        "on_cases",
        "pair_judge",
        "rubric",
        "score",
    ),
    "journal": ("MemoryJournal",),
    "models": ("File", "ModelSettings", "Models"),
    "prompts": ("prompt",),
    "records": (
        "Candidate",
        "Criterion",
        "Evaluation",
        "Failure",
        "History",
        "Iteration",
        "Measure",
        "Reason",
        "Result",
        "Status",
        "Stop",
        "Usage",
    ),
    "search": ("Optimise", "gepa"),
    "tools": ("shell", "tool"),
}

_PACKAGES = ("conditions", "engine", "errors", "journal", "memory", "records")

if not TYPE_CHECKING:  # a type checker knows the names above, and reports every other

    def __getattr__(name):
        for module, names in _MODULES.items():
            if name in names:
                value = getattr(import_module(f".{module}", __name__), name)
                globals()[name] = value
                return value
        # A package that is no name above: `import loopwright` is enough for `loopwright.records`.
        if name in _PACKAGES:
            return import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
