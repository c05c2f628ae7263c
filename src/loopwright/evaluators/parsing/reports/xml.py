"""Reports in XML: JUnit's format, in the variants of its writers, and TRX of `dotnet test`.

Sources: https://github.com/testmoapp/junitxml (variants of JUnit) and the schema vstst.xsd (TRX).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.parsers import expat

from .cases import MESSAGE, CaseList, TestCase, TestReport, TestState, UnreadableReport

__all__ = ["read_xml"]

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
            self._begin(tag, attributes)
        # Outside of a test these tags belong to the suite, such as an error of its setup.
        elif self._case is not None:
            self._outcome(tag, attributes)

    def _begin(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._case, self._message, self._text, self._kept = attributes, "", [], 0
        self._state = TestState.PASSED
        if tag == "UnitTestResult":
            outcome = attributes.get("outcome", "").lower()
            self._state = _OUTCOMES.get(outcome, TestState.FAILED)

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
        self.cases.add(TestCase(self._id(tag), self._state, self._message or _line(text), text))
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


def _line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
