"""No-op contest: which engine claims an improvement where there is none, and which keeps a real one.

A program proposes 100 changes. None has an effect; or one in five raises the true value by 1, 2 or 3 standard deviations
of one evaluation. Ours runs through the real loop with `confirm`. Two rules are written anew from public descriptions. Other
engines are in `peers/noop.py`; their rows were measured once, and are kept in `peers/noop.jsonl`.

*Kept* is the share of the effects that were proposed and are in the result. An engine that goes on from several parents
leaves effects behind on the branches that it does not end with.

    python -m benchmarks.published.noop_contest [RUNS [RUNS_WITH_CASES]]
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.search.confirm import Noise, every_fifth, simulate
from loopwright import Case, Confirm, Context, Dataset, Iteration, Loop, MaxIterations, run
from loopwright._statistics import t_quantile, wilson
from loopwright.evaluators import on_cases

PROPOSALS, SHARE = 100, 0.2
EFFECTS = (0.0, 1.0, 2.0, 3.0)
CASES = 20
SCALE = 1000.0  # standard deviations in the range of a score, so that none leaves it
K_OF_RULE = 5  # paired evaluations of the rule after cap-evolve
WIDTH = 34
PEERS = Path(__file__).with_name("peers") / "noop.jsonl"


@dataclass
class Row:
    """What happened in the runs of one engine with one effect."""

    runs: int = 0
    claims: int = 0
    offered: int = 0
    kept: int = 0
    bias: list[float] = field(default_factory=list)  # claimed less true improvement
    evaluations: float = 0

    def add(self, *, claimed: float, true: float, accepted: list[float], offered: int) -> None:
        """Count a run: what it says of its result, and what it accepted."""
        self.runs += 1
        self.claims += bool(accepted)
        self.offered += offered
        self.kept += sum(effect > 0 for effect in accepted)
        if accepted:
            self.bias.append(claimed - true)

    def line(self, name: str, effect: float) -> str:
        """Return the row as text, with the intervals of Wilson."""
        bias = f"{statistics.fmean(self.bias):+6.2f}" if self.bias else f"{'-':>6}"
        each = self.evaluations / self.runs / PROPOSALS
        return (
            f"{name:{WIDTH}} +{effect:g}σ  {self.runs:5}  {share_of(self.claims, self.runs)}  "
            f"{share_of(self.kept, self.offered)}  {bias}  {each:5.1f}"
        )


def share_of(count: int, of: int) -> str:
    """Return a share with its interval as text."""
    if not of:
        return f"{'-':20}"
    low, high = wilson(count / of, of)[1:]
    return f"{count / of:.3f} [{low:.3f}, {high:.3f}]"


def peers() -> list[str]:
    """Return the rows of other engines as text."""
    lines = []
    for line in PEERS.read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        row = Row(
            found["runs"], found["claims"], found["offered"], found["kept"], [found["bias"]],
            found["evaluations"],
        )  # fmt: skip
        of = f"{found['cases']} cases" if found["cases"] > 1 else "a metric"
        lines.append(row.line(f"{found['engine']}, {of}", found["effect"]))
    return lines


def propose(parent: Mapping[str, float] | None, ctx: Context, effect: float) -> dict[str, float]:
    """Return the parent with a change: in one of five proposals it has the effect."""
    gain = effect if ctx.random.random() < SHARE else 0.0
    return {"true": (parent or {"true": 0.0})["true"] + gain, "gain": gain}


def measure(output: Mapping[str, float], ctx: Context) -> dict[str, Any]:
    """Return the true value with noise of the standard deviation 1."""
    return {"metrics": {"value": output["true"] + ctx.random.gauss(0.0, 1.0)}}


def case_score(output: Mapping[str, float], ctx: Context) -> dict[str, Any]:
    """Return the true value with noise and the difficulty of the case; the mean of all has the deviation 1."""
    own = ctx.random.gauss(0.0, math.sqrt(CASES))
    return {"score": 0.5 + (output["true"] + ctx.case.inputs + own) / SCALE}


def claimed(item: Iteration[Any] | None, cases: int) -> float:
    """Return the value on record, and not the sum of the changes: the true value of the beginning is 0."""
    if item is None:
        return 0.0
    evaluation = item.evaluation
    return (evaluation.score - 0.5) * SCALE if cases else evaluation.metrics["value"]


def contest(effect: float, cases: int) -> Loop[Any, Any]:
    """Return the loop of one run."""
    evaluate: Any = measure
    if cases:
        draw = random.Random(5)
        hard = [draw.gauss(0, 5) for _ in range(cases)]
        # The difficulties sum to 0, so that the true mean of the beginning is 0.
        mean = statistics.fmean(hard)
        data = Dataset([Case(h - mean, id=f"c{n}") for n, h in enumerate(hard)], name="contest")
        # With the score as the objective, a confirmation compares case by case.
        evaluate = on_cases(lambda output: output, data, case_score)
    return Loop(
        lambda parent, ctx: propose(parent, ctx, effect),
        evaluate,
        lambda parent: parent.output,
        MaxIterations(PROPOSALS),
        name="contest",
        baseline=True,
        metrics={"score" if cases else "value": "maximise"},
        confirm=Confirm(alpha=0.05),
    )


async def ours(effect: float, runs: int, cases: int) -> Row:
    """Return the row of the real loop."""
    row = Row()
    for seed in range(runs):
        result = await run(
            contest(effect, cases), {"true": 0.0, "gain": 0.0}, seed=seed, run_id="contest"
        )
        accepted = [item for item in result.history if item.accepted]
        last = accepted[-1] if accepted else None
        row.add(
            claimed=claimed(last, cases),
            true=0.0 if last is None else last.output["true"],
            accepted=[item.output["gain"] for item in accepted],
            offered=sum(item.output["gain"] > 0 for item in result.history),
        )
        for item in result.history:
            record = item.evaluation.details.get("confirm", {})
            row.evaluations += 1 + len(record.get("base", ())) + len(record.get("candidate", ()))
    return row


Rule = Callable[[float, float, random.Random], tuple[bool, float, float, int]]


def better_than_the_best(
    best: float, true: float, draw: random.Random
) -> tuple[bool, float, float, int]:
    """The rule after autoresearch: keep what measures better than the best so far."""
    value = true + draw.gauss(0, 1)
    return value > best, value, value, 1


def paired_gate(base: float, true: float, draw: random.Random) -> tuple[bool, float, float, int]:
    """The gate after cap-evolve: a mean paired difference above t · SE, each step for itself.

    `base` is the true value of the parent: both sides are measured anew.
    """
    pairs = [(true + draw.gauss(0, 1)) - (base + draw.gauss(0, 1)) for _ in range(K_OF_RULE)]
    mean, error = statistics.fmean(pairs), statistics.stdev(pairs) / math.sqrt(K_OF_RULE)
    return mean > _quantile() * error, true, mean, 2 * K_OF_RULE


@cache
def _quantile() -> float:
    return t_quantile(0.95, K_OF_RULE - 1)


def by_rule(rule: Rule, effect: float, runs: int) -> Row:
    """Return the row of a rule in a plain loop."""
    row, anew = Row(), rule is paired_gate
    for seed in range(runs):
        draw = random.Random(f"{seed} {effect}")
        first = draw.gauss(0, 1)
        true, best, claimed, offered, accepted = 0.0, first, 0.0, 0, []
        for _ in range(PROPOSALS):
            gain = effect if draw.random() < SHARE else 0.0
            offered += gain > 0
            keep, value, difference, count = rule(true if anew else best, true + gain, draw)
            row.evaluations += count
            if keep:
                claimed = claimed + difference if anew else value - first
                true, best = true + gain, value
                accepted.append(gain)
        row.add(claimed=claimed, true=true, accepted=accepted, offered=offered)
    return row


def main(runs: int = 2000, with_cases: int = 200) -> int:
    """Print the table; return 1 if a bound of ours is missed."""
    missed = 0
    print(
        f"{'engine':{WIDTH}} effect  runs  {'claims [95 %]':20}  {'kept [95 %]':20}    bias  evaluations a proposal"
    )
    for cases in (0, CASES):
        name = f"Loopwright, {f'{cases} cases' if cases else 'a metric'}"
        for effect in EFFECTS:
            # Only the share of false claims needs many runs.
            count = (with_cases if cases else runs) // (10 if effect else 1) or 1
            row = asyncio.run(ours(effect, count, cases))
            print(row.line(name, effect), flush=True)
            share = row.claims / row.runs
            # Half of the interval: a share of 5 % is allowed, and 200 runs scatter.
            allowed = 0.05 + (2 * math.sqrt(0.05 * 0.95 / row.runs) if cases else 0.0)
            missed += effect == 0 and share > allowed
            if not cases and effect >= 2:
                missed += row.kept / row.offered < {2.0: 0.80, 3.0: 0.97}[effect]
                missed += abs(statistics.fmean(row.bias)) > 0.2
    for label, rule in (
        ("rule after autoresearch", better_than_the_best),
        ("rule after cap-evolve", paired_gate),
    ):
        for effect in EFFECTS:
            print(
                by_rule(rule, effect, min(runs, 200)).line(f"{label}, a metric", effect), flush=True
            )
    print("\n".join(peers()))
    print(
        "the rule of confirm alone, 30 iterations: claims without an effect, and kept by size of a change"
    )
    for cases in (5, 100, 500):
        few = min(runs, 100_000 // cases)
        none = simulate(Noise("normal", 1), lambda _: 0.0, runs=few, cases=cases)
        share = none.false_runs / few
        missed += share > 0.05 + 2 * math.sqrt(0.05 * 0.95 / few)
        kept = []
        for effect in EFFECTS[1:]:
            # Here the deviation of one case is 1, so the mean of all has 1 / sqrt(cases).
            found = simulate(
                Noise("normal", 1),
                every_fifth(effect / math.sqrt(cases)),
                runs=few // 4,
                cases=cases,
            )
            kept.append(sum(found.kept.values()) / sum(found.offered.values()))
        shown = "  ".join(
            f"+{effect:g}σ {share:.2f}" for effect, share in zip(EFFECTS[1:], kept, strict=True)
        )
        print(f"{cases:4} cases, {few} runs: claims {share:.3f}; kept {shown}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
