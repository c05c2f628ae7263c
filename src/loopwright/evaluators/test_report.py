"""The share of tests that pass, read from what a test command reports."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from ..engine.context import Context
from ..engine.step import FunctionStep, digest_of
from ..engine.threads import in_thread
from ..errors import EvaluationError
from ..records import Criterion, Evaluation
from ..records.codec import Json
from ..tools.process import CommandResult
from ..tools.shell import ShellStep, Value
from .check import broken, look, output_of

__all__ = ["share_passing"]

REPORT_BYTES = 16 * 1024 * 1024
LISTED = 50  # failing tests that are named
NAMED = 300  # characters of one name with its message
SUMMARY_LINES = 200  # of the end of the output, in which the summary is looked for

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}m")
_COUNT = re.compile(r"(\d{1,9}) ([a-z ]{1,24})")
_TIME = re.compile(r"[0-9.]{1,12}s(?: \([0-9a-z:., ]{1,40}\))?")
_PASSING = ("passed", "xpassed")
_FAILING = ("failed", "error", "errors")
Stamp = tuple[int, int, int] | None


@dataclass
class _Tally:
    """How many tests passed and failed; those skipped or expected to fail are neither."""

    passing: int = 0
    failing: int = 0
    lost: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many tests were counted."""
        return self.passing + self.failing


def share_passing(
    command: Sequence[str] | str,
    *,
    report: str | Path | None = None,
    name: str = "tests",
    args: Sequence[Value] = (),
    env: Mapping[str, Value] | None = None,
    stdin: Value = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
) -> FunctionStep:
    """Make an evaluator that runs tests and scores the share of them that pass.

    The counts are read from the last summary line that pytest prints, or from `report`, a file in
    JUnit's XML that the command writes (relative to `cwd`). Skipped tests and expected failures do
    not count. `passed` means that all pass and the command exits with 0; a command that fails
    although every test passes counts as one more failing test. Code that cannot be collected is a
    failing test too. The feedback is the tail of the output, the improvements are the failing tests.
    Fewer tests than in the first iteration of the loop are told in the feedback and as a warning. The
    output is the command's stdin unless `stdin` says otherwise; the options are those of `shell`.

    Raises:
        EvaluationError: of kind `evaluator_broken`, when the command cannot be run, says nothing of
            tests or runs none; of kind `check_error`, when it takes longer than `timeout` seconds.
    """
    shell = ShellStep(command, name=name, args=args, env=env, stdin=stdin, cwd=cwd, timeout=timeout)
    path = None if report is None else Path(cwd or ".") / report

    async def judged(value: Json, ctx: Context) -> Evaluation:
        before = _stamp(path)
        result = await look(shell, value, ctx)
        tally, problem = await _tally(path, before, result)
        if tally is None:
            raise _broken(
                name, f"{problem}, and the command {result.ending}; {_cure(path)}", result
            )
        if not tally.total:
            told = f"no test ran, and the command {result.ending}"
            raise _broken(name, f"{told}; correct the command, or the folder in cwd", result)
        return _evaluation(name, tally, result, _missing(name, tally, ctx))

    return FunctionStep(
        judged,
        name=name,
        fingerprint=digest_of("tests", shell.fingerprint, str(report)),
        reports=False,
    )


def _missing(name: str, tally: _Tally, ctx: Context) -> str:
    """Return how many tests are gone since the first iteration that counted them, with a warning."""
    for item in ctx.history:
        counted = item.evaluation.details.get(name) if item.evaluation is not None else None
        if not isinstance(counted, Mapping) or not isinstance(counted.get("total"), int):
            continue
        if counted["total"] <= tally.total:
            return ""
        gone = counted["total"] - tally.total
        told = f"{gone} fewer {'test' if gone == 1 else 'tests'} than in iteration {item.number}"
        ctx.warn(f"{name}: {tally.total} ran, {told}")
        return told
    return ""


async def _tally(
    path: Path | None, before: Stamp, result: CommandResult
) -> tuple[_Tally | None, str]:
    """Return the counts, or None and what is wrong."""
    if path is None:
        found = _from_summary(_COLOUR.sub("", result.stdout))
        return found, "there is no summary of pytest in its output"
    if _stamp(path) == before:
        return None, f"it did not write {path}"
    try:
        return await in_thread(_from_report, path), ""
    except (OSError, ValueError) as error:
        return None, f"{path} cannot be read as JUnit's XML: {error}"


def _broken(name: str, problem: str, result: CommandResult) -> EvaluationError:
    said = output_of(result)
    return broken(f"{name}: {problem}{f': {said}' if said else ''}")


def _cure(path: Path | None) -> str:
    if path is not None:
        return "correct the command, or report, the file that it writes"
    return "correct the command, or give report, the file in JUnit's XML that it writes"


def _evaluation(name: str, counted: _Tally, result: CommandResult, missing: str) -> Evaluation:
    total = counted.total
    failed = result.exit_code != 0 and not counted.failing
    gap = f"{counted.passing} of {total} tests pass"
    if failed:
        gap += f", but the command {result.ending}"
    if missing:
        gap += f", {missing}"
    passed = not counted.failing and not failed
    said = output_of(result)
    return Evaluation(
        counted.passing / (total + failed),
        passed,
        f"{gap}\n{said}" if said else gap,
        tuple(counted.lost[:LISTED]),
        (Criterion(name, passed, "" if passed else gap),),
        details={name: {"passing": counted.passing, "total": total}},
    )


def _from_summary(text: str) -> _Tally | None:
    """Read the last line like "2 failed, 7 passed in 0.12s"."""
    lines = text.splitlines()
    for line in reversed(lines[-SUMMARY_LINES:]):
        counts, _, time = line[:NAMED].strip("= ").rpartition(" in ")
        if not _TIME.fullmatch(time):
            continue
        if counts == "no tests ran":
            return _Tally()
        parts = [_COUNT.fullmatch(part) for part in counts.split(", ")]
        found = {part[2]: int(part[1]) for part in parts if part is not None}
        if len(found) == len(parts):
            lost = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
            return _Tally(
                sum(found.get(word, 0) for word in _PASSING),
                sum(found.get(word, 0) for word in _FAILING),
                [line[:NAMED] for line in lost[-LISTED:]],
            )
    return None


def _stamp(path: Path | None) -> Stamp:
    """Return what tells a file from an older one of its name."""
    if path is None or not path.is_file():
        return None
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _from_report(path: Path) -> _Tally:
    with path.open("rb") as file:
        data = file.read(REPORT_BYTES + 1)
    if len(data) > REPORT_BYTES:
        raise ValueError(f"it is larger than {REPORT_BYTES} bytes")
    reader = _ReportReader()
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ValueError(str(error)) from None
    return reader.tally


class _ReportReader:
    """Counts the test cases of a report; a document type, which could hold a bomb, is refused."""

    def __init__(self) -> None:
        self.tally = _Tally()
        self._case, self._outcome, self._message = "", "", ""
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._refuse

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "testcase":
            parts = (attributes.get(key, "") for key in ("classname", "name"))
            self._case = "::".join(part for part in parts if part) or "a test without a name"
            self._outcome = ""
        elif self._case and tag in ("failure", "error"):
            self._outcome, self._message = "failed", attributes.get("message", "")
        elif self._case and tag == "skipped":
            self._outcome = self._outcome or "skipped"

    def _end(self, tag: str) -> None:
        if tag != "testcase":
            return
        if self._outcome == "failed":
            self.tally.failing += 1
            self.tally.lost.append(f"{self._case}: {self._message}"[:NAMED])
        elif not self._outcome:
            self.tally.passing += 1
        self._case = ""

    def _refuse(self, *_: object) -> None:
        raise ValueError("it has a document type, which no report needs")
