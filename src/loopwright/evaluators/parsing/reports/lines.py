"""Reports in lines: `go test -json` and TAP.

Sources: `go doc test2json`, and https://testanything.org/tap-version-14-specification.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .cases import MESSAGE, CaseList, TestCase, TestReport, TestState, UnreadableReport

__all__ = ["read_go", "read_tap"]

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
