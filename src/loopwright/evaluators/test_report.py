"""The share of tests that pass, read from the report of a test command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from ..engine.context import Context
from ..engine.functions import in_thread
from ..engine.step import FunctionStep, digest_of
from ..errors import EvaluationError
from ..records import Criterion, Evaluation
from ..records.codec import Json
from ..tools.commands import CommandOptions, ShellStep
from ..tools.process import CommandResult
from .check import broken, output_of, run_check
from .parsing.reports import read_report_file

__all__ = ["share_passing", "test_report"]

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
share_passing = test_report  # the former name, for one release


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
