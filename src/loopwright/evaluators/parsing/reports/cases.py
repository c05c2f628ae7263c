"""The content of a test report, whatever its format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

__all__ = ["CaseList", "TestCase", "TestReport", "TestState", "UnreadableReport", "merged"]

MAX_CASES = 200_000
MESSAGE = 2_000  # characters of a failure that are kept
MAX_ID = 1_000  # characters of an id: a generated name may be endless


class UnreadableReport(ValueError):
    """A report that is not in its format, is not complete or passes a limit."""


class TestState(StrEnum):
    """How one test ended."""

    __test__ = False  # pytest would collect a class of this name

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    XFAILED = "xfailed"


FAILING = (TestState.FAILED, TestState.ERROR)


@dataclass(frozen=True, slots=True)
class TestCase:
    """One test of a report.

    Args:
        id: The id, unique in the report: a second test of the same name gets "#2".
        state: How it ended.
        message: The first line of a failure, or the reason of a skip. Default: "".
        text: The details of a failure, at most 2,000 characters. Default: "".
    """

    __test__ = False

    id: str
    state: TestState
    message: str = ""
    text: str = ""

    @property
    def failing(self) -> bool:
        """Whether it failed or could not run."""
        return self.state in FAILING

    @property
    def ran(self) -> bool:
        """Whether it passed or failed, and was neither skipped nor expected to fail."""
        return self.failing or self.state is TestState.PASSED


@dataclass(frozen=True, slots=True)
class TestReport:
    """The tests of one run of a test command.

    Args:
        cases: The tests, in the order of the report.
        problem: Why the report is not complete, or "".
    """

    __test__ = False

    cases: tuple[TestCase, ...] = ()
    problem: str = ""

    @property
    def passing(self) -> int:
        """The number of tests that passed."""
        return sum(case.state is TestState.PASSED for case in self.cases)

    @property
    def failures(self) -> tuple[TestCase, ...]:
        """The tests that failed or could not run."""
        return tuple(case for case in self.cases if case.failing)

    @property
    def states(self) -> dict[str, TestState]:
        """The state of each test by id."""
        return {case.id: case.state for case in self.cases}


@dataclass
class CaseList:
    """The tests of a report while it is read."""

    cases: list[TestCase] = field(default_factory=list)
    _seen: dict[str, int] = field(default_factory=dict)

    def add(self, case: TestCase) -> None:
        """Append a test; its id gets "#2" if an earlier test has the same one.

        Raises:
            UnreadableReport: if there are more tests than a report may have.
        """
        if len(self.cases) >= MAX_CASES:
            raise UnreadableReport(f"it has more than {MAX_CASES:,} tests")
        name = " ".join(case.id.split())[:MAX_ID] or "a test without a name"
        self._seen[name] = count = self._seen.get(name, 0) + 1
        unique = name if count == 1 else f"{name}#{count}"
        self.cases.append(
            replace(
                case,
                id=unique,
                message=case.message.strip()[:MESSAGE],
                text=case.text.strip()[:MESSAGE],
            )
        )

    def report(self, problem: str = "") -> TestReport:
        """Return the report."""
        return TestReport(tuple(self.cases), problem)


def merged(reports: Iterable[TestReport]) -> TestReport:
    """Return several reports as one, such as the files that Maven writes for each class.

    Raises:
        UnreadableReport: if there are more tests than a report may have.

    Example:
        >>> one = TestReport((TestCase("a", TestState.PASSED),))
        >>> [case.id for case in merged([one, one]).cases]
        ['a', 'a#2']
    """
    cases, problems = CaseList(), []
    for report in reports:
        for case in report.cases:
            cases.add(case)
        problems.append(report.problem)
    return cases.report("; ".join(problem for problem in problems if problem))
