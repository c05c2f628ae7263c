"""The frozen values of a run: usage, evaluations, iterations, histories, reasons and results."""

from .evaluation import Criterion, Evaluation, Tampering, as_evaluation, reaches
from .history import History, agents_history
from .isolation import Record, own, own_json, viewed
from .iteration import Failure, Iteration
from .metrics import MAXIMISE, MINIMISE, Measure, number_text
from .outcome import Reason, Status, Stop
from .result import (
    ItemOutcome,
    LoopResults,
    Result,
    StepOutcome,
    failure_of,
    item_outcomes,
    item_stop,
)
from .usage import NOTHING, Usage, by_purpose, is_judging

__all__ = [
    "MAXIMISE",
    "MINIMISE",
    "NOTHING",
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
