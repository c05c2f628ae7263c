"""Online bin packing with a held-out test: a gain that is there, and three where a rule only seems better.

A program mutates a table of scores; `examples/bin_packing` has it. It learns on 5 lists of 5,000 Weibull(45, 3) items
in bins of 100, and is selected on 5 further ones too. Held out are 20 further lists of that kind, and 20 short lists of
60 items of each of three kinds, on which the rule must not be called better than Best Fit.

    python -m benchmarks.published.bin_packing [SEEDS]
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from loopwright import (
    Candidates,
    Case,
    Dataset,
    EvalResult,
    Loop,
    MaxIterations,
    evaluate_sync,
    on_cases,
    run,
)  # fmt: skip

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "bin_packing"))
from packing import BEST_FIT, excess, mutate, pack

BOUND, ENOUGH, LENGTH = 2.0, 0.9, 5000
ITERATIONS = 40
KINDS = {
    "20 to 100 in 150": (20, 100, 150),
    "1 to 100 in 100": (1, 100, 100),
    "150 to 200 in 1000": (150, 200, 1000),
}


def weibull(seed: object, count: int) -> list[Case]:
    """Return cases of the kind on which the rule learns."""
    return [
        Case(
            {"kind": "weibull", "seed": f"{seed} {n}", "count": LENGTH, "bin": 100},
            id=f"{seed} {n}",
        )
        for n in range(count)
    ]


def short(kind: str) -> list[Case]:
    """Return the 20 short lists of a kind."""
    low, high, size = KINDS[kind]
    return [
        Case(
            {"kind": kind, "seed": n, "count": 60, "sizes": [low, high], "bin": size},
            id=f"{kind} {n}",
        )
        for n in range(20)
    ]


def files(folder: Path, seed: int) -> Path:
    """Write the lists of a seed, and the held-out ones of all seeds, as a data set with a file for each split."""
    folder.mkdir()
    splits = {
        "train": weibull(f"train {seed}", 5),
        "validation": weibull(f"validation {seed}", 5),
        "test": weibull("test", 20),
    }
    for name, cases in splits.items():
        text = "".join(json.dumps(case.to_json()) + "\n" for case in cases)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


def search(data: Dataset) -> Loop[Any, Any]:
    """Return the loop that looks for a rule."""
    return Loop(
        mutate,
        on_cases(pack, data, excess, at_once=1),
        lambda parent: parent.output,
        MaxIterations(ITERATIONS),
        name="rule",
        baseline=True,
        candidates=Candidates(4, at_once=1),
        refine_from="best",
        metrics={"excess": "minimise"},
    )


def on_short(table: list[float], kind: str) -> EvalResult:
    """Return the evaluation of a rule on the short lists of a kind."""
    return evaluate_sync(lambda inputs, ctx: pack(table, ctx), short(kind), excess)


def main(seeds: int) -> int:
    """Print a row for each seed; return 1 if a bound is missed."""
    best_fit = {kind: on_short(BEST_FIT, kind) for kind in KINDS}
    confirmed, refused, values, began = 0, dict.fromkeys(KINDS, 0), [], time.monotonic()
    print(
        "excess over the fewest bins, in percent; [95 %] of the paired difference of the scores, held out"
    )
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            data = Dataset.load(files(Path(folder, "lists"), seed))
            result = asyncio.run(run(search(data), None, seed=seed, run_id=f"packing-{seed}"))
        assert result.held_out is not None
        held = result.held_out["dataset"]
        values.append(100 * (1 / held["score"] - 1))
        # The mean of the shares is not the share of the means, but for lists of one length they are close.
        better = held["difference"]["low"] > 0
        confirmed += better and values[-1] <= BOUND
        cells = [
            f"Weibull {values[-1]:5.2f} [{held['difference']['low']:+.4f}, {held['difference']['high']:+.4f}]"
        ]
        for kind, base in best_fit.items():
            found = on_short(result.output, kind).compared(base)
            shown = found.baseline or {}
            refused[kind] += not shown["low"] > 0
            cells.append(
                f"{kind} {found.metrics['excess']:5.1f} [{shown['low']:+.3f}, {shown['high']:+.3f}]"
            )
        print(f"seed {seed:2}: {'; '.join(cells)}", flush=True)
    bases = ", ".join(f"{kind} {base.metrics['excess']:.1f}" for kind, base in best_fit.items())
    print(f"Best Fit: {bases}")
    print(
        f"median on Weibull {statistics.median(values):.2f}, at most {BOUND} and better than Best Fit in {confirmed} of {seeds}"
    )
    print(
        f"refused as better than Best Fit: {refused}; {(time.monotonic() - began) / 60:.1f} minutes"
    )
    missed = confirmed < ENOUGH * seeds or any(count < seeds for count in refused.values())
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
