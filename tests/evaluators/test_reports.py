"""Test reports: each format gives ids and states, and a hostile report gives an error."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.evaluators.test_report import (
    TestCase,
    TestReport,
    TestState,
    UnreadableReport,
    merged,
    read_report,
    read_report_file,
)


def states(text: str | bytes) -> dict[str, str]:
    """Return the state of each test by its id."""
    report = read_report(text.encode() if isinstance(text, str) else text)
    return {name: state.value for name, state in report.states.items()}


PYTEST = """
import pytest
def test_passes(): pass
def test_fails(): assert 1 == 2, "one is not two"
def test_skips(): pytest.skip("later")
@pytest.mark.xfail
def test_expected(): assert False
@pytest.mark.parametrize("n", [1, 2])
def test_many(n): assert n == 1
@pytest.fixture
def broken(): raise OSError("no disk")
def test_setup(broken): pass
"""


def test_pytest_live(tmp_path: Path) -> None:
    """The report of this pytest has each outcome, with parameters in the id."""
    (tmp_path / "test_a.py").write_text(PYTEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=r.xml"]
    subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, timeout=60)
    report = read_report_file(tmp_path / "r.xml")
    assert {name: state.value for name, state in report.states.items()} == {
        "test_a::test_passes": "passed",
        "test_a::test_fails": "failed",
        "test_a::test_skips": "skipped",
        "test_a::test_expected": "xfailed",
        "test_a::test_many[1]": "passed",
        "test_a::test_many[2]": "failed",
        "test_a::test_setup": "error",
    }
    assert "one is not two" in report.failures[0].message


NODE = """
const {test, describe, it} = require('node:test'); const assert = require('node:assert');
test('adds', () => {}); test('divides', () => assert.equal(1, 2)); test('later', {skip: true}, () => {});
describe('group', () => { it('adds', () => {}); it('fails', () => { throw new Error('boom'); }); });
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("reporter", ["junit", "tap"])
def test_node_live(reporter: str, tmp_path: Path) -> None:
    """Both reporters of node give the same ids and states; suites are part of the id."""
    (tmp_path / "a.test.js").write_text(NODE)
    command = ["node", "--test", f"--test-reporter={reporter}", "a.test.js"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, timeout=60)
    assert states(done.stdout) == {
        "adds": "passed",
        "divides": "failed",
        "later": "skipped",
        "group::adds": "passed",
        "group::fails": "failed",
    }
    failures = read_report(done.stdout).failures
    assert [case.id for case in failures if "boom" in case.message + case.text] == ["group::fails"]


# Shortened reports of the named programs.
RECORDED = {
    "jest-junit": (
        '<testsuites name="jest tests"><testsuite name="math" errors="0">'
        '<testcase classname="math adds" name="math adds" time="0.001"/>'
        '<testcase classname="math divides" name="math divides"><failure>Error: expected 2</failure></testcase>'
        "</testsuite></testsuites>",
        {"math adds::math adds": "passed", "math divides::math divides": "failed"},
    ),
    "vitest": (
        '<?xml version="1.0" encoding="UTF-8" ?><testsuites name="vitest tests"><testsuite name="a.test.ts">'
        '<testcase classname="a.test.ts" name="math &gt; adds" time="0.0007"></testcase>'
        '<testcase classname="a.test.ts" name="math &gt; later"><skipped/></testcase>'
        '<testcase classname="a.test.ts" name="math &gt; divides"><failure message="expected 1 to be 2" '
        'type="AssertionError">AssertionError: expected 1 to be 2</failure></testcase></testsuite></testsuites>',
        {
            "a.test.ts::math > adds": "passed",
            "a.test.ts::math > later": "skipped",
            "a.test.ts::math > divides": "failed",
        },
    ),
    "nextest": (
        '<testsuites name="nextest-run"><testsuite name="demo::bin/demo">'
        '<testcase name="tests::adds" classname="demo" timestamp="2026-01-01T00:00:00Z"/>'
        '<testcase name="tests::retried" classname="demo"><flakyFailure type="test failure"/></testcase>'
        '<testcase name="tests::divides" classname="demo"><failure type="test failure">thread panicked'
        "</failure><system-out>x</system-out></testcase></testsuite></testsuites>",
        {
            "demo::tests::adds": "passed",
            "demo::tests::retried": "passed",
            "demo::tests::divides": "failed",
        },
    ),
    "gotestsum": (
        '<testsuites><testsuite name="example.com/m"><properties><property name="go.version" value="1"/>'
        '</properties><testcase classname="example.com/m" name="TestAdd/small"/>'
        '<testcase classname="example.com/m" name="TestDivide"><failure message="Failed" type="">'
        "=== RUN</failure></testcase></testsuite></testsuites>",
        {"example.com/m::TestAdd/small": "passed", "example.com/m::TestDivide": "failed"},
    ),
    "Maven": (
        '<testsuite name="com.x.MathTest"><testcase name="adds" classname="com.x.MathTest"/>'
        '<testcase name="divides" classname="com.x.MathTest"><error message="/ by zero" '
        'type="java.lang.ArithmeticException"><![CDATA[at com.x]]></error></testcase></testsuite>',
        {"com.x.MathTest::adds": "passed", "com.x.MathTest::divides": "error"},
    ),
    "PHPUnit": (
        '<testsuites><testsuite name="all"><testsuite name="Tests\\MathTest"><testsuite name="p">'
        '<testcase name="adds with data set #0" class="Tests\\MathTest" classname="Tests.MathTest"/>'
        '<testcase name="divides" class="Tests\\MathTest" classname="Tests.MathTest">'
        '<failure type="E">Failed asserting</failure></testcase>'
        "</testsuite></testsuite></testsuite></testsuites>",
        {"Tests.MathTest::adds with data set #0": "passed", "Tests.MathTest::divides": "failed"},
    ),
    "RSpec": (
        '<testsuite name="rspec"><testcase classname="spec.math_spec" name="Math adds" file="./spec/math_spec.rb"/>'
        '<testcase classname="spec.math_spec" name="Math later"><skipped/></testcase></testsuite>',
        {"spec.math_spec::Math adds": "passed", "spec.math_spec::Math later": "skipped"},
    ),
    "TRX": (
        '<TestRun xmlns="http://microsoft.com/schemas/VisualStudio/TeamTest/2010"><Results>'
        '<UnitTestResult testName="M.Adds" outcome="Passed"/>'
        '<UnitTestResult testName="M.Later" outcome="NotExecuted"/>'
        '<UnitTestResult testName="M.Divides" outcome="Failed"><Output><ErrorInfo><Message>by zero</Message>'
        "<StackTrace>at M</StackTrace></ErrorInfo></Output></UnitTestResult></Results></TestRun>",
        {"M.Adds": "passed", "M.Later": "skipped", "M.Divides": "failed"},
    ),
    "TAP 14": (
        "TAP version 14\n1..4\nok 1 - adds\nnot ok 2 - divides\n  ---\n  message: 'by zero'\n  ok: 3\n  ...\n"
        "ok 3 # SKIP later\nnot ok 4 - wish # TODO not yet\n",
        {
            "adds": "passed",
            "divides": "failed",
            "a test without a name": "skipped",
            "wish": "xfailed",
        },
    ),
}


@pytest.mark.parametrize("program", RECORDED)
def test_recorded_reports(program: str) -> None:
    """The variants of the format that other programs write are read the same way."""
    text, expected = RECORDED[program]
    assert states(text) == expected


def _events(*events: dict[str, str]) -> str:
    return "\n".join(["# demo", *(json.dumps(event) for event in events)])


def test_go_events() -> None:
    """Tests have ends; a package that fails without a failing test is an error of the package."""
    text = _events(
        {"Action": "start", "Package": "m"},
        {"Action": "run", "Package": "m", "Test": "TestAdd"},
        {"Action": "pass", "Package": "m", "Test": "TestAdd"},
        {"Action": "run", "Package": "m", "Test": "TestDivide"},
        {"Action": "output", "Package": "m", "Test": "TestDivide", "Output": "    m_test.go:5: by zero\n"},
        {"Action": "fail", "Package": "m", "Test": "TestDivide"},
        {"Action": "fail", "Package": "m"},
        {"Action": "build-output", "ImportPath": "m/b [m/b.test]", "Output": "b.go:3: undefined: x\n"},
        {"Action": "start", "Package": "m/b"},
        {"Action": "fail", "Package": "m/b"},
    ).replace("# demo", '{"not": "an event"')  # fmt: skip
    report = read_report(text.encode())
    assert {name: state.value for name, state in report.states.items()} == {
        "m::TestAdd": "passed",
        "m::TestDivide": "failed",
        "m/b": "error",
    }
    assert [case.message for case in report.failures] == [
        "m_test.go:5: by zero",
        "b.go:3: undefined: x",
    ]
    assert report.problem == ""


def test_go_events_without_an_end() -> None:
    """A test that a panic interrupted is an error, and the report is not complete."""
    text = _events({"Action": "run", "Package": "m", "Test": "TestPanics"}).partition("\n")[2]
    report = read_report(text.encode())
    assert [case.state for case in report.cases] == [TestState.ERROR]
    assert report.problem == "1 packages have no end"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1..3\nok 1 - a\n", "its plan is 3 tests, and it has 1"),
        ("ok 1 - a\nBail out! no disk\n", "the tests ended early: no disk"),
        ("ok 1 - a\n", "it has no plan"),
    ],
)
def test_a_tap_report_that_was_cut(text: str, problem: str) -> None:
    """A plan that does not agree with the tests makes the report incomplete."""
    assert read_report(text.encode()).problem == problem


def test_tests_of_one_name_keep_apart() -> None:
    """A second test of the same id gets a number, in one report and in several."""
    cases = (TestCase("a", TestState.PASSED), TestCase("a", TestState.FAILED))
    assert [case.id for case in merged([TestReport(cases[:1]), TestReport(cases[1:])]).cases] == [
        "a",
        "a#2",
    ]
    text = '<testsuite><testcase name="a"/><testcase name="a"/></testsuite>'
    assert list(states(text)) == ["a", "a#2"]


BOMB = '<!DOCTYPE x [<!ENTITY a "1234567890"><!ENTITY b "&a;&a;">]><testsuite>&b;</testsuite>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><testsuite>&a;</testsuite>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "document type"),
        (OUTSIDE, "document type"),
        ("<testsuite><testcase", "unclosed token"),
        ("<html/>", "its first element is html"),
        ("<testsuite>" * 300, "nested more than 200 deep"),
        ("", "it is empty"),
        ("{}", "no line of it is an event"),
        ("9 passed in 0.1s", "neither a plan nor a test"),
        ('<testsuite>' + '<testcase name="a"/>' * 200_001 + "</testsuite>", "more than 200,000 tests"),
        ("    " * 60 + "ok 1", "nested more than 50 deep"),
    ],
)  # fmt: skip
def test_hostile_reports(text: str, message: str) -> None:
    """Entities, endless nesting, too many tests and other texts are refused."""
    with pytest.raises(UnreadableReport, match=message):
        read_report(text.encode())


def test_long_failures_are_cut() -> None:
    """A failure keeps 2,000 characters, however long its text is."""
    long = "x" * 100_000
    case = read_report(
        f'<testsuite><testcase name="{long}"><failure message="{long}">{long}</failure></testcase></testsuite>'.encode()
    ).cases[0]
    assert (len(case.id), len(case.message), len(case.text)) == (1000, 2000, 2000)
