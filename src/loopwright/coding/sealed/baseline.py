"""The baseline of a check: its tests and their states on the base, and how a later report compares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ...evaluators.parsing.reports import TestCase, TestReport, TestState

__all__ = ["Baseline", "BaselineComparison", "baseline_of"]

_RAN = (TestState.PASSED, TestState.FAILED, TestState.ERROR)
_FILES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx")


@dataclass(frozen=True)
class Baseline:
    """The tests of the base.

    Args:
        states: the state of each test by id.
        flaky: the ids whose states differed between two runs of the base. They have no weight.
    """

    states: Mapping[str, str]
    flaky: tuple[str, ...] = ()

    @property
    def counting(self) -> tuple[str, ...]:
        """The ids that count: those that ran on the base, without flaky ones."""
        return tuple(
            name for name, state in self.states.items() if state in _RAN and name not in self.flaky
        )

    def tally(
        self, report: TestReport, allowed: Collection[str] = frozenset()
    ) -> BaselineComparison:
        """Compare a report with the baseline; the allowed ids may be missing or skipped."""
        cases = {case.id: case for case in report.cases}
        new = [case for case in report.cases if case.id not in self.states]
        result = BaselineComparison(len(self.counting))
        failed = {case.id: case for case in report.failures}
        for name in self.counting:
            case = cases.get(name)
            if case is None:
                case = self._replaced(name, new, failed)
            if name in allowed and (case is None or not case.ran):
                result.total -= 1
            elif case is None:
                result.missing.append(name)
            elif not case.ran:
                result.skipped.append(name)
            elif case.failing:
                result.failing.setdefault(case.id, case)
            else:
                result.passing += 1
        for case in report.failures:
            if case.id not in self.flaky:
                result.failing.setdefault(case.id, case)
        return result

    def _replaced(
        self, name: str, new: Sequence[TestCase], failed: Mapping[str, TestCase]
    ) -> TestCase | None:
        """Return what stands for a test that is not in a report, or None if nothing does."""
        if self.states[name] != TestState.PASSED:
            # A file that could not be read has one entry on the base; once it is read, its tests have theirs.
            inside = [case for case in new if case.id.startswith((f"{name}::", f"{name}."))]
            if name.endswith(_FILES):
                inside = list(new)
            ran = [case for case in inside if case.ran]
            if ran:
                return next((case for case in ran if case.failing), ran[0])
        # The other way round: the file of the test cannot be read any more.
        for end in [i for i, sign in enumerate(name) if sign == "." or name[i : i + 2] == "::"]:
            if name[:end] in failed:
                return failed[name[:end]]
        return next((case for case in new if case.failing and case.id.endswith(_FILES)), None)


@dataclass
class BaselineComparison:
    """A report in comparison with the baseline.

    Args:
        total: the tests of the baseline that count.
        passing: how many of them pass.
        failing: what fails by id, new tests included.
        missing: the tests that the report does not have.
        skipped: the tests that ran on the base and did not now.
    """

    total: int
    passing: int = 0
    failing: dict[str, TestCase] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def gone(self, shown: Callable[[str], str] = str) -> str:
        """Return a sentence on tests of the base that did not run, or ""; `shown` makes their names readable."""
        for names, what in ((self.missing, "is not in the report"), (self.skipped, "was skipped")):
            if names:
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                return f"a test of the base {what}: {shown(names[0])}{more}"
        return ""

    @property
    def passed(self) -> bool:
        """Whether every test passes."""
        return not (self.failing or self.missing or self.skipped)


def baseline_of(first: TestReport, second: TestReport) -> Baseline:
    """Return the baseline of two runs of the same files."""
    before, after = first.states, second.states
    names = [*before, *(name for name in after if name not in before)]
    flaky = tuple(name for name in names if before.get(name) != after.get(name))
    states = {name: str(before.get(name, after.get(name))) for name in names}
    return Baseline(states, flaky)
