"""Insight: what other limits would have done on recorded runs.

`recordings_of` reads executions of a loop from a journal, `replay` compares policies on them. Nothing here
changes a run or calls a model.
"""

from .._statistics import Estimate
from .backtest import Backtest, Pair, PolicyResult
from .policies import Policy, grid, policy_from_json
from .recordings import LeftOut, Recording, Recordings, loop_named, recordings_of
from .report import Replay, frontier_svg, replay
from .selectors import selected
from .suggestions import Suggestion, suggestions

__all__ = [
    "Backtest",
    "Estimate",
    "LeftOut",
    "Pair",
    "Policy",
    "PolicyResult",
    "Recording",
    "Recordings",
    "Replay",
    "Suggestion",
    "frontier_svg",
    "grid",
    "loop_named",
    "policy_from_json",
    "recordings_of",
    "replay",
    "selected",
    "suggestions",
]
