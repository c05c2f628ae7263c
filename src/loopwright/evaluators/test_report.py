"""The share of tests that pass, and readers of test reports: JUnit's XML, TRX, `go test -json` and TAP.

The tested code may write the report, so each reader has limits and refuses entities. Sources: `go doc test2json`,
https://testanything.org/tap-version-14-specification.html, https://github.com/testmoapp/junitxml (variants of JUnit)
and the schema vstst.xsd (TRX).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Unpack
from xml.parsers import expat

from ..engine.context import Context
from ..engine.functions import in_thread
from ..engine.step import FunctionStep, digest_of
from ..errors import EvaluationError
from ..records import Criterion, Evaluation
from ..records.codec import Json
from ..tools.commands import CommandOptions, ShellStep
from ..tools.process import CommandResult
from .check import broken, output_of, run_check

__all__ = [
    "REPORT_BYTES",
    "CaseList",
    "TestCase",
    "TestReport",
    "TestState",
    "UnreadableReport",
    "merged",
    "read_go",
    "read_report",
    "read_report_file",
    "read_tap",
    "read_xml",
    "test_report",
]

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


_GO_STATES = {"pass": TestState.PASSED, "fail": TestState.FAILED, "skip": TestState.SKIPPED}
_TAP_TEST = re.compile(r"( *)(not )?ok\b(?: +\d+)?(?: *- *| +|$)(.*)")
_TAP_PLAN = re.compile(r"( *)1\.\.(\d{1,9})\b(.*)")
_TAP_DIRECTIVE = re.compile(r"(?<!\\)#\s*(skip|todo)\b(.*)", re.IGNORECASE)
_INDENT = 4  # columns of a subtest
MAX_SUBTESTS_DEPTH = 50


def read_go(data: bytes) -> TestReport:
    """Read the events of `go test -json`. A package that fails without a failing test is an error.

    Raises:
        UnreadableReport: if no line is an event.
    """
    reader = _GoReader()
    for line in data.decode("utf-8", "replace").splitlines():
        event = _json_object(line)
        # Other programs may print between the events.
        if event is not None and isinstance(event.get("Action"), str):
            reader.read(event)
    if not reader.packages:
        raise UnreadableReport("no line of it is an event of go test -json")
    return reader.report()


def _json_object(line: str) -> Mapping[str, object] | None:
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


class _GoReader:
    def __init__(self) -> None:
        self.cases = CaseList()
        self.packages: dict[str, str] = {}  # the last action of each
        self._output: dict[tuple[str, str], str] = {}
        self._open: dict[tuple[str, str], None] = {}
        self._failed: set[str] = set()  # packages with a failing test

    def read(self, event: Mapping[str, object]) -> None:
        package, test = str(event.get("Package", "")), str(event.get("Test", ""))
        action, key = event["Action"], (package, test)
        if action in ("build-output", "build-fail"):  # of Go 1.24, with an ImportPath
            package = str(event.get("ImportPath", "")).partition(" ")[0]
            key = (package, "")
        if action in ("output", "build-output"):
            text = self._output.get(key, "")
            self._output[key] = text + str(event.get("Output", ""))[: MESSAGE - len(text)]
        elif action in _GO_STATES:
            self._ended(key, _GO_STATES[str(action)])
        elif action == "run":
            self._open[key] = None
        if package and action != "build-output":
            self.packages.setdefault(package, "")

    def _ended(self, key: tuple[str, str], state: TestState) -> None:
        package, test = key
        self._open.pop(key, None)
        text = self._output.get(key, "") if state is TestState.FAILED else ""
        if test:
            self.cases.add(TestCase("::".join(key), state, _useful(text), text))
            if state is TestState.FAILED:
                self._failed.add(package)
            return
        self.packages[package] = state.value
        # A panic or a failed build fails the package and no test.
        if state is TestState.FAILED and package not in self._failed:
            self.cases.add(TestCase(package, TestState.ERROR, _useful(text), text))

    def report(self) -> TestReport:
        # A test that began and did not end was interrupted by a panic.
        for package, test in self._open:
            text = self._output.get((package, test), "")
            message = _useful(text) or "it did not end"
            self.cases.add(TestCase(f"{package}::{test}", TestState.ERROR, message, text))
        cut = sum(not action for action in self.packages.values())
        return self.cases.report(f"{cut} packages have no end" if cut else "")


def _useful(text: str) -> str:
    """Return the first line that is not a marker of the test runner."""
    markers = ("===", "---", "FAIL", "#", "ok ")
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith(markers)), "")


@dataclass
class _Level:
    """The tests of one indentation of TAP that have been read."""

    planned: int | None = None
    count: int = 0
    tests: list[TestCase] = field(default_factory=list)


def read_tap(data: bytes) -> TestReport:
    """Read TAP, version 12 to 14. Tests with subtests are replaced by these.

    Raises:
        UnreadableReport: if there is neither a plan nor a test, or subtests are nested too deep.
    """
    reader = _TapReader()
    for line in _without_details(data.decode("utf-8", "replace").splitlines(), reader):
        reader.read(line)
    return reader.report()


def _without_details(lines: list[str], reader: _TapReader) -> Iterator[str]:
    """Iterate over the lines outside of YAML blocks, whose lines go to the test before them."""
    end = ""
    for line in lines:
        text = line.strip()
        if end:
            if text == "..." and line.startswith(end):
                end = ""
            else:
                reader.detail(text)
        elif text == "---" and line.startswith(" "):
            end = line[: len(line) - len(line.lstrip())]
        else:
            yield line


class _TapReader:
    def __init__(self) -> None:
        self._levels = [_Level()]
        self._bail = ""
        self._last: tuple[_Level, int] | None = None

    def read(self, line: str) -> None:
        if match := _TAP_TEST.match(line):
            self._test(len(match[1]) // _INDENT, bool(match[2]), match[3])
        elif match := _TAP_PLAN.fullmatch(line.rstrip()):
            self._level(len(match[1]) // _INDENT).planned = int(match[2])
        elif line.startswith("Bail out!"):
            self._bail = line.removeprefix("Bail out!").strip() or "no reason"

    def detail(self, text: str) -> None:
        """Add a line of the details of the last test to its text."""
        if self._last is None:
            return
        level, place = self._last
        if place < len(level.tests) and len((case := level.tests[place]).text) < MESSAGE:
            message = case.message
            if not message and text.startswith(("error:", "message:")):
                message = text.partition(":")[2].strip(" '\"|-")
            level.tests[place] = TestCase(case.id, case.state, message, f"{case.text}\n{text}")

    def _level(self, depth: int) -> _Level:
        if depth > MAX_SUBTESTS_DEPTH:
            raise UnreadableReport(f"its subtests are nested more than {MAX_SUBTESTS_DEPTH} deep")
        while len(self._levels) <= depth:
            self._levels.append(_Level())
        return self._levels[depth]

    def _test(self, depth: int, failed: bool, description: str) -> None:
        level = self._level(depth)
        level.count += 1
        directive = _TAP_DIRECTIVE.search(description)
        name = (description[: directive.start()] if directive else description).strip()
        state = TestState.FAILED if failed else TestState.PASSED
        if directive is not None:
            todo = directive[1].lower() == "todo"
            state = TestState.XFAILED if todo and failed else TestState.SKIPPED
        inner = [case for part in self._levels[depth + 1 :] for case in part.tests]
        del self._levels[depth + 1 :]
        place = len(level.tests)
        self._last = (level, place)
        level.tests += [
            TestCase(f"{name}::{case.id}", case.state, case.message, case.text) for case in inner
        ]
        # A parent fails with its subtests; it counts alone if none of them failed.
        if not inner or (state is TestState.FAILED and not any(case.failing for case in inner)):
            message = directive[2].strip() if directive is not None else ""
            self._last = (level, len(level.tests))
            level.tests.append(TestCase(name, state, message))

    def report(self) -> TestReport:
        top, cases = self._levels[0], CaseList()
        if top.planned is None and not top.count:
            raise UnreadableReport("it has neither a plan nor a test of TAP")
        for level in self._levels:
            for case in level.tests:
                cases.add(case)
        problem = ""
        if self._bail:
            problem = f"the tests ended early: {self._bail}"
        elif top.planned is None:
            problem = "it has no plan"
        elif top.planned != top.count:
            problem = f"its plan is {top.planned} tests, and it has {top.count}"
        return cases.report(problem)


MAX_ELEMENTS_DEPTH = 200
# Writers without test classes put a constant there: node writes "test".
_CONSTANT_CLASSES = ("", "test")
_OUTCOMES = {
    "passed": TestState.PASSED,
    "passedbutrunaborted": TestState.PASSED,
    "warning": TestState.PASSED,
    "notexecuted": TestState.SKIPPED,
    "inconclusive": TestState.SKIPPED,
    "notrunnable": TestState.SKIPPED,
    "pending": TestState.SKIPPED,
    "error": TestState.ERROR,
}


def read_xml(data: bytes) -> TestReport:
    """Read a report in XML; its first element decides between JUnit and TRX.

    Raises:
        UnreadableReport: if it is not XML, has a document type, or is not a report.
    """
    reader = _Reader()
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise UnreadableReport(str(error)) from None
    return reader.cases.report()


class _Reader:
    """Collects the tests of a report. A document type is refused: it could expand without end."""

    def __init__(self) -> None:
        self.cases = CaseList()
        self._stack: list[tuple[str, str]] = []  # the open elements with their names
        self._case: Mapping[str, str] | None = None
        self._state = TestState.PASSED
        self._message = ""
        self._text: list[str] = []
        self._kept = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        # Entity expansion ("billion laughs") needs a document type.
        self.parser.StartDoctypeDeclHandler = self._refuse

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self._stack and tag not in ("testsuites", "testsuite", "TestRun"):
            raise UnreadableReport(f"its first element is {tag[:60]}; use a report of JUnit or TRX")
        if len(self._stack) >= MAX_ELEMENTS_DEPTH:
            raise UnreadableReport(f"its elements are nested more than {MAX_ELEMENTS_DEPTH} deep")
        self._stack.append((tag, attributes.get("name", "")))
        if tag in ("testcase", "UnitTestResult"):
            self._case, self._message, self._text, self._kept = attributes, "", [], 0
            self._state = TestState.PASSED
            if tag == "UnitTestResult":
                outcome = attributes.get("outcome", "").lower()
                self._state = _OUTCOMES.get(outcome, TestState.FAILED)
        # Outside of a test these tags belong to the suite, such as an error of its setup.
        elif self._case is not None:
            self._outcome(tag, attributes)

    def _outcome(self, tag: str, attributes: Mapping[str, str]) -> None:
        message = attributes.get("message", "")
        if tag in ("failure", "error"):
            self._state = TestState.FAILED if tag == "failure" else TestState.ERROR
            self._message = self._message or message
        elif tag == "skipped" and self._state is TestState.PASSED:
            expected = attributes.get("type") == "pytest.xfail"
            self._state = TestState.XFAILED if expected else TestState.SKIPPED
            self._message = message

    def _characters(self, data: str) -> None:
        tag = self._stack[-1][0] if self._stack else ""
        if self._case is None or tag not in ("failure", "error", "Message", "StackTrace"):
            return
        if self._kept < MESSAGE:
            self._text.append(data[: MESSAGE - self._kept])
            self._kept += len(data)

    def _end(self, tag: str) -> None:
        self._stack.pop()
        if tag not in ("testcase", "UnitTestResult") or self._case is None:
            return
        text = "".join(self._text)
        message = self._message or next(filter(None, map(str.strip, text.splitlines())), "")
        self.cases.add(TestCase(self._id(tag), self._state, message, text))
        self._case = None

    def _id(self, tag: str) -> str:
        assert self._case is not None
        if tag == "UnitTestResult":
            return self._case.get("testName", "")
        name = self._case.get("name", "")
        group = self._case.get("classname") or self._case.get("class", "")
        # Without a class the suites around a test tell tests of one name apart.
        suites = [label for part, label in self._stack if part == "testsuite" and label]
        groups: Sequence[str] = suites if group in _CONSTANT_CLASSES and group else [group]
        return "::".join(part for part in (*groups, name) if part)

    def _refuse(self, *_: object) -> None:
        raise UnreadableReport("it has a document type, which reports do not need")


REPORT_BYTES = 64 * 1024 * 1024  # a bound for memory: the tested code may write the report


def read_report(data: bytes) -> TestReport:
    """Read a report in JUnit's XML format, TRX, `go test -json` or TAP.

    Args:
        data: The content of the report, at most 64 MiB.

    Raises:
        UnreadableReport: If it is in no such format or passes a limit.

    Example:
        >>> read_report(b"1..2\\nok 1 - adds\\nnot ok 2 - divides\\n").failures[0].id
        'divides'
    """
    if len(data) > REPORT_BYTES:
        raise UnreadableReport(f"it is larger than {REPORT_BYTES} bytes")
    beginning = data.removeprefix(b"\xef\xbb\xbf").lstrip()[:9]
    if not beginning:
        raise UnreadableReport("it is empty")
    if beginning.startswith((b"<", b"\xff\xfe", b"\xfe\xff")):
        return read_xml(data)
    if beginning.startswith(b"{"):
        return read_go(data)
    return read_tap(data)


def read_report_file(path: Path) -> TestReport:
    """Read the report in a file.

    Raises:
        OSError: If it cannot be read.
        UnreadableReport: If it is in no known format or passes a limit.
    """
    with path.open("rb") as file:
        # One byte more than allowed, instead of the file's size, which may change before the read.
        return read_report(file.read(REPORT_BYTES + 1))


LISTED = 50  # failing tests in the improvements
NAMED = 300  # characters of one name with its message
SUMMARY_LINES = 200  # lines at the end of the output that may contain the summary

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}m")
_COUNT = re.compile(r"(\d{1,9}) ([a-z ]{1,24})")
_TIME = re.compile(r"[0-9.]{1,12}s(?: \([0-9a-z:., ]{1,40}\))?")
_PASSING = ("passed", "xpassed")
_FAILING = ("failed", "error", "errors")
Stamp = tuple[int, int, int] | None


@dataclass
class _Counts:
    """How many tests passed and failed. Skipped tests and expected failures are neither."""

    passing: int = 0
    failing: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.passing + self.failing


def test_report(
    command: Sequence[str] | str,
    *,
    report: str | Path | None = None,  # noqa: PT028
    name: str = "tests",  # noqa: PT028
    **options: Unpack[CommandOptions],
) -> FunctionStep:
    """Make an evaluator that runs tests; the score is the share of tests that pass.

    `passed` means that all tests pass and the command exits with 0. If the command fails although every
    test passes, this counts as one more failing test, and so does code that cannot be collected. Skipped
    tests and expected failures do not count. The feedback is the tail of the output, the improvements
    are the failing tests. If fewer tests run than in the first iteration, the feedback and a warning say
    so.

    Args:
        command: The test command: a list of words, or the text of a script for `/bin/sh -e`.
        report: The file that the command writes, relative to `cwd`: JUnit's XML, TRX, `go test -json` or TAP. Default: the
            counts are read from the last summary line that pytest prints.
        name: The name of the criterion. Default: "tests".
        **options: `args`, `env`, `stdin` (default: the output to check), `cwd` and `timeout` (seconds),
            as in `shell`.

    Returns:
        A step from an output to an Evaluation. `details[name]` has `passing` and `total`.

    Raises:
        EvaluationError: At run time, of kind `evaluator_broken` if the command cannot run, reports no
            counts or runs no test; of kind `check_error` at its timeout.

    Example:
        >>> from loopwright import run_sync
        >>> tests = test_report("echo '1 failed, 3 passed in 0.10s'; exit 1")
        >>> run_sync(tests, "").output.score
        0.75
    """
    shell = ShellStep(command, name=name, **options)
    path = None if report is None else Path(options.get("cwd") or ".") / report

    async def evaluate(value: Json, ctx: Context) -> Evaluation:
        # A report of an earlier iteration must not count for this one.
        before = _stamp(path)
        result = await run_check(shell, value, ctx)
        # A stub writes no report, so its counts are those of its output.
        file = path if ctx.run.stubs is None else None
        counts, problem = await _count(file, before, result)
        if counts is None:
            cure = "report, the file in JUnit's XML format that it writes"
            cure = f"add {cure}" if path is None else f"correct {cure}"
            raise _broken(
                name,
                f"{problem}, and the command {result.ending}. Correct the command, or {cure}",
                result,
            )
        # "0 of 0 pass" would be a perfect score for an output that deletes all tests.
        if not counts.total:
            problem = f"no test ran, and the command {result.ending}"
            raise _broken(name, f"{problem}. Correct the command, or the folder in cwd", result)
        return _evaluation(name, counts, result, _missing(name, counts, ctx))

    return FunctionStep(
        evaluate,
        name=name,
        fingerprint=digest_of("tests", shell.fingerprint, str(report)),
        reports=False,
    )


setattr(test_report, "__test__", False)  # noqa: B010  # pytest would collect it as a test


def _missing(name: str, counts: _Counts, ctx: Context) -> str:
    """Return how many tests are missing since the first iteration that counted them, with a warning."""
    for item in ctx.history:
        earlier = item.evaluation.details.get(name) if item.evaluation is not None else None
        if not isinstance(earlier, Mapping) or not isinstance(earlier.get("total"), int):
            continue
        # Compared with the first iteration that counted, so that tests cannot disappear one at a time.
        missing = earlier["total"] - counts.total
        if missing <= 0:
            return ""
        text = (
            f"{missing} fewer {'test' if missing == 1 else 'tests'} than in iteration {item.number}"
        )
        ctx.warn(f"{name}: {counts.total} ran, {text}", code="fewer_tests")
        return text
    return ""


async def _count(
    path: Path | None, before: Stamp, result: CommandResult
) -> tuple[_Counts | None, str]:
    """Return the counts, or None and the problem."""
    if path is None:
        summary = _from_summary(_COLOUR.sub("", result.stdout))
        return summary, "there is no summary of pytest in its output"
    if _stamp(path) == before:
        return None, f"it did not write {path}"
    try:
        return await in_thread(_from_report, path), ""
    except (OSError, ValueError) as error:
        return None, f"{path} cannot be read as a test report: {error}"


def _broken(name: str, problem: str, result: CommandResult) -> EvaluationError:
    printed = output_of(result)
    return broken(f"{name}: {problem}{f': {printed}' if printed else ''}")


def _evaluation(name: str, counts: _Counts, result: CommandResult, missing: str) -> Evaluation:
    total = counts.total
    # For example a failure in teardown or a coverage limit: the tests pass, the command does not.
    failed = result.exit_code != 0 and not counts.failing
    gap = f"{counts.passing} of {total} tests pass"
    if failed:
        gap += f", but the command {result.ending}"
    if missing:
        gap += f", {missing}"
    passed = not counts.failing and not failed
    printed = output_of(result)
    return Evaluation(
        # One more failing test, so that the score stays below 1.
        counts.passing / (total + failed),
        passed,
        f"{gap}\n{printed}" if printed else gap,
        tuple(counts.failures[:LISTED]),
        (Criterion(name, passed, "" if passed else gap),),
        details={name: {"passing": counts.passing, "total": total}},
    )


def _from_summary(text: str) -> _Counts | None:
    """Read the last line such as "2 failed, 7 passed in 0.12s"."""
    lines = text.splitlines()
    # The last summary: the tested code may print text that looks like one before it.
    for line in reversed(lines[-SUMMARY_LINES:]):
        counts, _, time = line[:NAMED].strip("= ").rpartition(" in ")
        if not _TIME.fullmatch(time):
            continue
        if counts == "no tests ran":
            return _Counts()
        parts = [_COUNT.fullmatch(part) for part in counts.split(", ")]
        numbers = {part[2]: int(part[1]) for part in parts if part is not None}
        # A part that does not match means that the line is not a summary.
        if len(numbers) == len(parts):
            failures = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
            return _Counts(
                sum(numbers.get(word, 0) for word in _PASSING),
                sum(numbers.get(word, 0) for word in _FAILING),
                [line[:NAMED] for line in failures[-LISTED:]],
            )
    return None


def _stamp(path: Path | None) -> Stamp:
    """Return values that change when a file is written again."""
    if path is None or not path.is_file():
        return None
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _from_report(path: Path) -> _Counts:
    report = read_report_file(path)
    failures = report.failures
    return _Counts(
        report.passing,
        len(failures),
        [f"{case.id}: {case.message}"[:NAMED] for case in failures],
    )
