"""Whether the result of a sealed check is to be believed, and the score of one that is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...evaluators.check import output_of
from .baseline import Baseline, BaselineComparison
from .canaries import Canary
from .measure import TestRun
from .runners import Runner

__all__ = ["CheckVerdict", "verdict_of"]


@dataclass(frozen=True)
class CheckVerdict:
    """The result of one run of a sealed check.

    Args:
        forged: why it is not to be believed, or "".
        tally: the tests, or None if there is no report.
        problem: why there is none, or why a complete report is not enough.
        exit_code: the exit code of the command.
    """

    forged: str = ""
    tally: BaselineComparison | None = None
    problem: str = ""
    exit_code: int = 0

    @property
    def passed(self) -> bool:
        """Whether every test of the report passes."""
        return not self.forged and self.tally is not None and self.tally.passed


def verdict_of(
    measured: TestRun,
    runner: Runner | None,
    baseline: Baseline,
    canary: Canary | None,
    allowed: Collection[str] = frozenset(),
) -> CheckVerdict:
    """Return the result of a run of the check on the files of an iteration.

    Args:
        measured: how the command ended, and its report.
        runner: the test program; None for the report of another program.
        baseline: the tests of the base.
        canary: the canaries that were in the copy, or None without.
        allowed: the tests of the base that may be missing.
    """
    code = measured.result.exit_code
    if measured.report is None:
        return _without_report(measured, runner)
    report = measured.report
    if canary is not None:
        if wrong := canary.holds(report):
            return CheckVerdict(f"{wrong}")
        report = canary.without(report)
    if code < 0:
        return CheckVerdict(f"the test program {measured.result.ending} after it wrote its report")
    tally = baseline.tally(report, allowed)
    if gone := tally.gone(measured.shown):
        return CheckVerdict(gone)
    # The canary that must fail makes the command fail, too.
    fails = canary is not None or any(case.failing for case in report.cases)
    if fails and code == 0:
        return CheckVerdict("its report has failing tests, but it exited with 0")
    return CheckVerdict("", tally, "", code)


def _without_report(measured: TestRun, runner: Runner | None) -> CheckVerdict:
    ended = measured.result
    # A program that could not begin, such as one whose settings import broken code, wrote none either.
    normal = (0,) if runner is None else runner.normal_exits
    if ended.exit_code in normal:
        return CheckVerdict(f"the test program {ended.ending}, but {measured.problem}")
    printed = output_of(ended)
    problem = f"the test program {ended.ending} and {measured.problem}"
    return CheckVerdict("", None, f"{problem}\n{printed}" if printed else problem, ended.exit_code)
