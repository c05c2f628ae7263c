"""Evaluators: steps that turn an output into a score, a verdict or a list of criteria.

`judge` and `rubric` ask a model; `check`, `checklist`, `json_schema`, `similarity` and `test_report` decide by
code; `score` reads a number, `metric` measures one; `gates` combines several. `trend` and `agreement` describe
results, `read_score`, `read_verdict` and `read_yes_no` read texts.
"""

from .check import check, json_schema
from .gates import Check, checklist, gates
from .judge import Judge, judge
from .metric import metric
from .rubric import Rubric, rubric
from .score import ScoreProblem, ScoreReading, read_score, score
from .test_report import test_report
from .trend import Trend, agreement, similarity, trend
from .verdicts import Answer, Verdict, VerdictProblem, read_verdict, read_yes_no

__all__ = [
    "Answer",
    "Check",
    "Judge",
    "Rubric",
    "ScoreProblem",
    "ScoreReading",
    "Trend",
    "Verdict",
    "VerdictProblem",
    "agreement",
    "check",
    "checklist",
    "gates",
    "json_schema",
    "judge",
    "metric",
    "read_score",
    "read_verdict",
    "read_yes_no",
    "rubric",
    "score",
    "similarity",
    "test_report",
    "trend",
]
