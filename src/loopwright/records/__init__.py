"""The frozen values of a run: usage, evaluations, iterations, histories, reasons and results."""

from .evaluation import (
    MAXIMISE,
    MINIMISE,
    Criterion,
    Evaluation,
    Measure,
    Tampering,
    as_evaluation,
    number_text,
    reaches,
)
from .history import History, agents_history
from .iteration import NOTHING, Candidate, Failure, Iteration, Usage, by_purpose, is_judging
from .result import (
    ItemOutcome,
    LoopResults,
    Reason,
    Result,
    Status,
    StepOutcome,
    Stop,
    failure_of,
    item_outcomes,
    item_stop,
)
from .typed import Record, own, own_json, viewed

__all__ = [
    "MAXIMISE",
    "MINIMISE",
    "NOTHING",
    "Candidate",
    "Criterion",
    "Evaluation",
    "Failure",
    "History",
    "ItemOutcome",
    "Iteration",
    "LoopResults",
    "Measure",
    "Reason",
    "Record",
    "Result",
    "Status",
    "StepOutcome",
    "Stop",
    "Tampering",
    "Usage",
    "agents_history",
    "as_evaluation",
    "by_purpose",
    "failure_of",
    "is_judging",
    "item_outcomes",
    "item_stop",
    "number_text",
    "own",
    "own_json",
    "reaches",
    "viewed",
]
