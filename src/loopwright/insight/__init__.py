"""Insight: what other limits would have done on recorded runs, and how often a judge errs.

`recordings_of` reads executions of a loop from a journal, `replay` compares policies on them. `measure_judge`
compares recorded votes with labels of people, `measure_pairs` does so for a judge of pairs. Nothing here changes a run.
Only `JudgeMeasurement` and `PairMeasurement`, two steps, ask a model.
"""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
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
    from .judge_pairs import PairCase, PairMeasurement, measure_pairs, pairs_from_jsonl
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
    "PairCase",
    "PairMeasurement",
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
    "measure_pairs",
    "measurement_input",
    "pairs_from_jsonl",
    "policy_from_json",
    "recorded_loop",
    "recordings_of",
    "replay",
    "robustness_set",
    "selected",
    "suggestions",
]

# Loaded at first use: a command that loads documents needs none of them.
_MODULES = {
    ".._statistics": ("Estimate",),
    ".backtest": (
        "Backtest",
        "Pair",
        "PolicyResult",
        "StoppingPolicy",
        "Suggestion",
        "grid",
        "policy_from_json",
        "suggestions",
    ),
    ".comparing": (
        "ComparedRun",
        "Comparison",
        "compare",
    ),
    ".judge_bench": (
        "JudgeCase",
        "JudgeMeasurement",
        "JudgeReport",
        "cases_from_jsonl",
        "measure_judge",
        "measurement_input",
        "robustness_set",
    ),
    ".judge_pairs": ("PairCase", "PairMeasurement", "measure_pairs", "pairs_from_jsonl"),
    ".recordings": (
        "LeftOut",
        "Recording",
        "Recordings",
        "loop_named",
        "recorded_loop",
        "recordings_of",
        "selected",
    ),
    ".report": (
        "Replay",
        "frontier_svg",
        "replay",
    ),
}

if not TYPE_CHECKING:  # a type checker knows the names above, and reports every other
    __getattr__ = names_of(__name__, _MODULES)
