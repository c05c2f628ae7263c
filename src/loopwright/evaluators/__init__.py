"""Evaluators: steps that turn an output into a score, a verdict or a list of criteria.

`judge` and `rubric` ask a model, `pair_judge` asks it about two outputs; `check`, `checklist`, `json_schema`,
`similarity` and `test_report` decide by code; `score` reads a number, `metric` measures one; `gates` combines several.
`trend` and `agreement` describe results, `read_score`, `read_verdict` and `read_yes_no` read texts. `evaluate` runs a
task on a data set, `on_cases` makes an evaluator of one.
"""

from typing import TYPE_CHECKING

from .._lazy import names_of
from .check import check, json_schema
from .gates import Check, checklist, gates
from .judge import Judge, judge
from .metric import metric
from .rubric import Rubric, rubric
from .score import ScoreProblem, ScoreReading, read_score, score
from .test_report import test_report
from .trend import Trend, agreement, similarity, trend
from .verdicts import Answer, Verdict, VerdictProblem, read_verdict, read_yes_no

if TYPE_CHECKING:
    from .dataset import Minibatch, on_cases
    from .pairs import PairJudge, pair_judge
    from .running import evaluate, evaluate_sync, recorded_evaluation

__all__ = [
    "Answer",
    "Check",
    "Judge",
    "Minibatch",
    "PairJudge",
    "Rubric",
    "ScoreProblem",
    "ScoreReading",
    "Trend",
    "Verdict",
    "VerdictProblem",
    "agreement",
    "check",
    "checklist",
    "evaluate",
    "evaluate_sync",
    "gates",
    "json_schema",
    "judge",
    "metric",
    "on_cases",
    "pair_judge",
    "read_score",
    "read_verdict",
    "read_yes_no",
    "recorded_evaluation",
    "rubric",
    "score",
    "similarity",
    "test_report",
    "trend",
]

if (
    not TYPE_CHECKING
):  # loops without a duel or a data set load nothing of them; a type checker knows the names above
    __getattr__ = names_of(
        __name__,
        {
            ".dataset": ("Minibatch", "on_cases"),
            ".pairs": ("PairJudge", "pair_judge"),
            ".running": ("evaluate", "evaluate_sync", "recorded_evaluation"),
        },
    )
