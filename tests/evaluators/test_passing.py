"""The share of tests that pass: read from a summary or a report, or no verdict."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from checking import error, found, gaps, same

from loopwright import Loop, MaxIterations, Passed, run_sync
from loopwright.evaluators import test_report as tests_of


def printing(text: str, code: int = 0) -> str:
    """Return a script that prints a text and exits with a code."""
    return f"cat <<'EOF'\n{text}\nEOF\nexit {code}"


@pytest.mark.parametrize(
    ("text", "code", "share", "gap"),
    [
        ("===== 9 passed in 0.12s =====", 0, 1.0, ""),
        ("7 passed, 2 failed in 0.12s", 1, 7 / 9, "7 of 9 tests pass"),
        ("2 failed, 7 passed, 3 skipped, 1 xfailed, 4 warnings in 61.20s (0:01:01)", 1, 7 / 9,
         "7 of 9 tests pass"),
        ("1 passed, 1 error in 0.1s", 1, 0.5, "1 of 2 tests pass"),
        ("2 errors in 0.1s", 2, 0.0, "0 of 2 tests pass"),
        ("\x1b[32m===== \x1b[1m1 passed\x1b[0m\x1b[32m in 0.01s\x1b[0m =====", 0, 1.0, ""),
        ("9 passed in 0.12s\n1 passed, and more in 0.1s", 0, 1.0, ""),
        ("1 failed in 1.00s\n9 passed in 0.12s\nbye", 0, 1.0, ""),
        ("9 passed in 0.12s", 1, 0.9, "9 of 9 tests pass, but the command exited with 1"),
    ],
)  # fmt: skip
def test_the_share_is_read_from_the_summary(text: str, code: int, share: float, gap: str) -> None:
    """Skipped and expected failures do not count; code that cannot be collected is a failing test."""
    evaluation = found(tests_of(printing(text, code)), "x")
    assert evaluation.score == pytest.approx(share)
    assert evaluation.passed is (share == 1.0)
    assert gaps(evaluation) == ([gap] if gap else [])
    assert evaluation.feedback.startswith(gap)


def test_the_failing_tests_are_the_improvements() -> None:
    """What pytest lists as failed is what is to be done."""
    text = "FAILED a.py::b - assert 1 == 2\nERROR c.py\n1 failed, 1 error in 0.1s"
    evaluation = found(tests_of(printing(text, 1)), "x")
    assert evaluation.improvements == ("FAILED a.py::b - assert 1 == 2", "ERROR c.py")


REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="m" name="a"/><testcase classname="m" name="b"><skipped/></testcase>
<testcase classname="m" name="c"><failure message="1 != 2">…</failure></testcase>
<testcase name="d"><error message="boom"/><system-out/></testcase>
</testsuite></testsuites>"""


def test_the_share_is_read_from_a_report(tmp_path: Path) -> None:
    """A file in JUnit's XML that the command writes is counted case by case."""
    script = f"cat > out.xml <<'EOF'\n{REPORT}\nEOF\nexit 1"
    evaluation = found(tests_of(script, report="out.xml", cwd=tmp_path), "x")
    assert (evaluation.score, evaluation.passed) == (pytest.approx(1 / 3), False)
    assert evaluation.improvements == ("m::c: 1 != 2", "d: boom")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("true", "did not write {path}"),
        ("echo '<testcase' > out.xml", "{path} cannot be read as a test report: "),
        ("echo '<!DOCTYPE a><a/>' > out.xml", "it has a document type, which reports do not need"),
        ("head -c 68000000 /dev/zero > out.xml", "it is larger than 67108864 bytes"),
    ],
)
def test_a_report_that_cannot_be_read_is_no_verdict(
    script: str, message: str, tmp_path: Path
) -> None:
    """Whatever the exit code, the evaluator is broken, and nothing is scored."""
    (tmp_path / "out.xml").write_text(REPORT)  # of an earlier run: it says nothing of this one
    path = tmp_path / "out.xml"
    kind, said = error(tests_of(script, report="out.xml", cwd=tmp_path))
    assert (kind, message.format(path=path) in said) == ("evaluator_broken", True), said
    path.unlink()
    kind, said = error(tests_of(f"{script}; exit 1", report="out.xml", cwd=tmp_path))
    assert (kind, message.format(path=path) in said) == ("evaluator_broken", True), said


NO_SUMMARY = "there is no summary of pytest in its output"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("exit 127", "exited with 127"),
        (["no-such-program"], "there is no such program on PATH"),
        ("true", NO_SUMMARY),
        ("exit 5", NO_SUMMARY),
        (printing("SyntaxError: invalid syntax", 1), NO_SUMMARY),
        (printing("10 cats in 0.1 hours", 2), NO_SUMMARY),
        (printing("No module named pytest", 1), "No module named pytest"),
        (printing("no tests ran in 0.01s", 5), "no test ran, and the command exited with 5"),
        (printing("3 skipped in 0.01s"), "no test ran, and the command exited with 0"),
    ],
)
def test_tests_that_cannot_be_run_are_a_broken_evaluator(command: Any, says: str) -> None:
    """A command that cannot start, says nothing of tests or runs none decides nothing."""
    kind, said = error(tests_of(command))
    assert (kind, says in said) == ("evaluator_broken", True), said


def test_the_hint_names_the_key() -> None:
    """`report` is what the key is called, in documents and in Python."""
    assert (
        "add report, the file in JUnit's XML format that it writes" in error(tests_of("exit 5"))[1]
    )


@pytest.mark.parametrize("on_failure", ["halt", "continue", "retry"])
def test_a_broken_evaluator_ends_the_loop(on_failure: str) -> None:
    """The loop stops at once as failed, without a score, and nothing is handed to adapt."""
    seen: list[Any] = []
    loop = Loop(
        same, tests_of("exit 5"), seen.append, until=Passed() | MaxIterations(5),
        on_failure=on_failure, retry_delay=0,
    )  # fmt: skip
    result = run_sync(loop, "x")
    assert (result.status.value, result.reason.value) == ("failed", "evaluator_unusable")
    assert (len(result.history), seen) == (1, [])
    assert result.history[0].evaluation is None
    assert "exited with 5" in result.detail


def test_a_report_with_fewer_tests_says_so(tmp_path: Path) -> None:
    """The row and a warning name what is missing since the first iteration; more tests are fine."""
    counts = ["7 passed, 2 failed", "6 passed", "5 passed, 1 failed", "9 passed, 1 failed"]
    replies = iter(f"{count} in 0.1s" for count in counts)
    tests = tests_of("cat; exit 1")
    loop = Loop(lambda _: next(replies), tests, name="fix", until=MaxIterations(4))
    result = run_sync(loop, "x")
    said = [item.feedback.splitlines()[0] for item in result.history]
    assert said == [
        "7 of 9 tests pass",
        "6 of 6 tests pass, but the command exited with 1, 3 fewer tests than in iteration 1",
        "5 of 6 tests pass, 3 fewer tests than in iteration 1",
        "9 of 10 tests pass",
    ]
    assert result.warnings == (
        "fewer_tests: fix/2/evaluate: tests: 6 ran, 3 fewer tests than in iteration 1",
    )
    assert result.history[0].evaluation.details == {"tests": {"passing": 7, "total": 9}}  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_summary_of_pytest_itself_is_read(tmp_path: Path) -> None:
    """The counts are those of a real run, by summary and by report."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 1 == 2\n"
        "@pytest.mark.skip\ndef test_c(): pass\n@pytest.mark.xfail\ndef test_d(): assert 0\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--junitxml=a.xml", "test_it.py"]
    by_summary = found(tests_of(command, cwd=tmp_path), "x")
    by_report = found(tests_of("cp a.xml b.xml; exit 1", report="b.xml", cwd=tmp_path), "x")
    assert by_summary.score == by_report.score == 0.5
    assert by_summary.improvements == ("FAILED test_it.py::test_b - assert 1 == 2",)
    assert by_report.improvements == ("test_it::test_b: assert 1 == 2",)
