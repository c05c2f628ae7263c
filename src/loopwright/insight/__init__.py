"""Insight: what other limits would have done on recorded runs, and how often a judge errs.

`recordings_of` reads executions of a loop from a journal, `replay` compares policies on them. `measure_judge`
compares recorded votes with labels of people. Nothing here changes a run. Only `JudgeMeasurement`, a step,
asks a model.
"""

from .._statistics import Estimate
from .backtest import (
    Backtest,
    Pair,
    PolicyResult,
    StoppingPolicy,
    Suggestion,
    grid,
    policy_from_json,
    suggestions,
)
from .comparing import ComparedRun, Comparison, compare
from .judge_bench import (
    JudgeCase,
    JudgeMeasurement,
    JudgeReport,
    cases_from_jsonl,
    measure_judge,
    measurement_input,
    robustness_set,
)
from .recordings import (
    LeftOut,
    Recording,
    Recordings,
    loop_named,
    recorded_loop,
    recordings_of,
    selected,
)
from .report import Replay, frontier_svg, replay

__all__ = [
    "Backtest",
    "ComparedRun",
    "Comparison",
    "Estimate",
    "JudgeCase",
    "JudgeMeasurement",
    "JudgeReport",
    "LeftOut",
    "Pair",
    "PolicyResult",
    "Recording",
    "Recordings",
    "Replay",
    "StoppingPolicy",
    "Suggestion",
    "cases_from_jsonl",
    "compare",
    "frontier_svg",
    "grid",
    "loop_named",
    "measure_judge",
    "measurement_input",
    "policy_from_json",
    "recorded_loop",
    "recordings_of",
    "replay",
    "robustness_set",
    "selected",
    "suggestions",
]
