"""What was recorded: usage, evaluations, iterations, histories, reasons and results; frozen values
all."""

from .evaluation import Criterion, Evaluation, as_evaluation
from .history import History
from .iteration import Failure, Iteration
from .loops import Loops
from .reasons import Reason, Status, Stop
from .result import Result
from .usage import NOTHING, Usage, by_purpose, is_judging

__all__ = [
    "NOTHING",
    "Criterion",
    "Evaluation",
    "Failure",
    "History",
    "Iteration",
    "Loops",
    "Reason",
    "Result",
    "Status",
    "Stop",
    "Usage",
    "as_evaluation",
    "by_purpose",
    "is_judging",
]
