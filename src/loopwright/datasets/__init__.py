"""Data sets: cases, the files that hold them, and their splits. No model and no evaluator."""

from .case import Case
from .dataset import Dataset
from .results import EvalResult, Gate

__all__ = ["Case", "Dataset", "EvalResult", "Gate"]
