"""Evaluators: steps that turn an output into a score, a verdict or a checklist."""

from .agreement import agreement
from .check import check
from .checklist import checklist
from .gates import gates
from .judge.judge import judge
from .parsing.scores import read_score
from .parsing.verdicts import read_verdict, read_yes_no
from .score import score
from .trend import trend

__all__ = [
    "agreement",
    "check",
    "checklist",
    "gates",
    "judge",
    "read_score",
    "read_verdict",
    "read_yes_no",
    "score",
    "trend",
]
