"""`tests`: the share of tests that pass, with the tests that fail by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...engine.context import Context
from ...engine.step import FunctionStep, digest_of
from ...evaluators.check import output_of
from ...records import Criterion, Evaluation
from ...records.codec import Json
from ...tools.sandbox import Sandbox, SandboxMode
from .measure import Measured, TestCommand, feedback_of, unusable

__all__ = ["tests"]

LISTED = 50  # failing tests in the improvements
NAMED = 300  # characters of one name with its message


def tests(
    command: Sequence[str] | str,
    *,
    report: str = "auto",
    name: str = "tests",
    timeout: float | None = 600,
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = (),
    cwd: str | Path | None = None,
    sandbox: Sandbox | SandboxMode = "none",
) -> FunctionStep[object, Evaluation]:
    """Make an evaluator that runs a test command in the folder of the loop.

    The score is the share of tests that pass. `passed` means that the command exits with 0 and no test
    fails. `details[name]` has `passing`, `total` and `failing`, the ids of the failing tests. A command
    without a report passes or fails by its exit code.

    Args:
        command: A list of words, or the text of a script for `/bin/sh -e`. It is constant.
        report: `auto` asks pytest, node, go or gotestsum for a report; `none` uses the exit code; `stdout`
            is a report that the command prints; another text is a file, or a pattern of files, that it
            writes. JUnit's XML, TRX, `go test -json` and TAP are read. Default: `auto`.
        name: The name of the criterion. Default: "tests".
        timeout: Seconds until the command and its processes are ended. Default: 600.
        env: More environment variables.
        pass_env: Names of our variables that are passed on.
        cwd: The folder. Default: that of the loop's workspace, else that of this process.
        sandbox: The isolation of the command, as in `shell`; a word means one without a network. Default: `none`.

    Returns:
        A step from any output to an Evaluation.

    Raises:
        EvaluationError: At run time, of kind `evaluator_broken` if the command cannot run or its report is
            missing; of kind `check_error` at its timeout.

    Example:
        >>> from loopwright import run_sync
        >>> run_sync(tests("printf '1..2\\\\nok 1 - adds\\\\nnot ok 2 - divides\\\\n'", report="stdout"), "").output.score
        0.5
    """
    isolation = Sandbox(sandbox, network=False) if isinstance(sandbox, str) else sandbox
    runs = TestCommand(command, report, timeout, env, pass_env, isolation)

    async def evaluate(value: Json, ctx: Context) -> Evaluation:
        del value
        measured = await runs.run(Path(cwd or "."), ctx)
        return evaluation_of(name, runs, measured)

    return FunctionStep(
        evaluate,
        name=name,
        fingerprint=digest_of("tests", repr((command, report, sorted(env or {}), tuple(pass_env)))),
        reports=False,
    )


setattr(tests, "__test__", False)  # noqa: B010  # pytest would collect it as a test


def evaluation_of(name: str, runs: TestCommand, measured: Measured) -> Evaluation:
    """Return the evaluation of one run of a test command.

    Raises:
        EvaluationError: if the report is missing, or no test ran.
    """
    ended = measured.result
    if measured.report is None:
        # Without an expected report, an exit code says nothing about single tests.
        if measured.problem and runs.has_report:
            raise unusable(name, measured)
        passed = ended.exit_code == 0
        gap = "" if passed else ended.ending
        feedback = output_of(ended) if passed else f"{name} {ended.ending}\n{output_of(ended)}"
        return Evaluation(
            1.0 if passed else 0.0, passed, feedback, criteria=(Criterion(name, passed, gap),)
        )
    failures = measured.report.failures
    passing = measured.report.passing
    total = passing + len(failures)
    if not total:
        raise unusable(name, measured)
    # For example a coverage limit: the tests pass, the command does not.
    failed = ended.exit_code != 0 and not failures
    gap = f"{passing} of {total} tests pass"
    if failed:
        gap += f", but the command {ended.ending}"
    passed = not failures and ended.exit_code == 0
    feedback = gap if passed else f"{gap}\n{feedback_of(measured, failures)}"
    return Evaluation(
        # One more failing test, so that the score stays below 1.
        passing / (total + failed),
        passed,
        feedback,
        tuple(f"{case.id}: {case.message}"[:NAMED] for case in failures[:LISTED]),
        (Criterion(name, passed, "" if passed else gap),),
        details={
            name: {
                "passing": passing,
                "total": total,
                "failing": sorted(case.id for case in failures),
            }
        },
    )
