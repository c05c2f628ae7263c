"""The evaluations of a check: score, verdict, and the feedback for the next iteration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...evaluators.check import output_of
from ...evaluators.parsing.reports import TestCase, TestState
from ...records import Criterion, Evaluation, Tampering
from ...records.codec import Json
from .baseline import Baseline, BaselineComparison
from .measure import ALL, TestRun, feedback_of
from .verdict import CheckVerdict

__all__ = [
    "evaluation_as_written",
    "evaluation_of_base",
    "evaluation_of_exit",
    "evaluation_of_tests",
    "failing_of",
    "gated",
    "held_out_figures",
    "rejected",
    "touched",
    "unsatisfied",
    "with_details",
]

LISTED = 50  # failing tests in the improvements
NAMED = 300  # characters of one name with its message
SHOWN = 3  # paths in a sentence


def evaluation_of_exit(name: str, measured: TestRun) -> Evaluation:
    """Return the evaluation of a command of which only the exit code is known."""
    ended = measured.result
    passed = ended.exit_code == 0
    gap = "" if passed else ended.ending
    feedback = output_of(ended) if passed else f"{name} {ended.ending}\n{output_of(ended)}"
    return Evaluation(
        1.0 if passed else 0.0, passed, feedback, criteria=(Criterion(name, passed, gap),)
    )


def evaluation_of_base(name: str, measured: TestRun, baseline: Baseline) -> Evaluation:
    """Return the evaluation of the base."""
    assert measured.report is not None
    verdict = CheckVerdict("", baseline.tally(measured.report), "", measured.result.exit_code)
    return evaluation_of_tests(name, measured, verdict, baseline)


def evaluation_of_tests(
    name: str, measured: TestRun, verdict: CheckVerdict, baseline: Baseline
) -> Evaluation:
    """Return the evaluation of a report that is to be believed, or of a program that wrote none."""
    tally = verdict.tally
    if tally is None:
        return Evaluation(
            0.0,
            False,
            f"{name}: {verdict.problem}",
            criteria=(Criterion(name, False, verdict.problem.partition("\n")[0]),),
            details={name: _details(BaselineComparison(len(baseline.counting)), baseline)},
        )
    failures = tuple(tally.failing.values())
    # A flaky test may fail without a reason in the code.
    only_flaky = any(case.id in baseline.flaky for case in failing_of(measured))
    failed = verdict.exit_code != 0 and not failures and not only_flaky
    gap = f"{tally.passing} of {tally.total} tests pass"
    if failed:
        # For example a coverage limit: the tests pass, the command does not.
        gap += f", but the command {measured.result.ending}"
    passed = not failures and not failed and not tally.gone()
    feedback = gap if passed else f"{gap}\n{feedback_of(measured, failures)}"
    return Evaluation(
        # One more failing test, so that the score stays below 1.
        tally.passing / max(1, tally.total + failed),
        passed,
        feedback,
        tuple(f"{measured.shown(case.id)}: {case.message}"[:NAMED] for case in failures[:LISTED]),
        (Criterion(name, passed, "" if passed else gap),),
        details={name: _details(tally, baseline)},
    )


def _details(tally: BaselineComparison, baseline: Baseline) -> dict[str, Json]:
    details: dict[str, Json] = {
        "passing": tally.passing,
        "total": tally.total,
        "failing": sorted(tally.failing),
        "sealed": True,
    }
    return {**details, "flaky": list(baseline.flaky)} if baseline.flaky else details


def failing_of(measured: TestRun) -> tuple[TestCase, ...]:
    """Return the failing tests of a run; none without a report."""
    return () if measured.report is None else measured.report.failures


def evaluation_as_written(
    name: str, evaluation: Evaluation, run: TestRun, listed: TestRun, added: Sequence[str]
) -> Evaluation:
    """Return the evaluation of files on which the command fails although the sealed check passes.

    Args:
        name: the name of the criterion.
        evaluation: that of the sealed check.
        run: the run of the command as it is written.
        listed: a run of the same files with a report, if there is one.
        added: the tests that the sealed check did not run.
    """
    more = f" and {len(added) - SHOWN} more" if len(added) > SHOWN else ""
    what = f", with {', '.join(added[:SHOWN])}{more}" if added else ""
    gap = f"the command {run.result.ending} on the files as you leave them{what}"
    failures = failing_of(listed)
    return unsatisfied(
        name,
        replace(
            evaluation,
            feedback=output_of(run.result)[-ALL:],
            improvements=tuple(
                f"{listed.shown(case.id)}: {case.message}"[:NAMED] for case in failures[:LISTED]
            ),
        ),
        gap,
        [case.id for case in failures] or ["the command as it is written"],
    )


def unsatisfied(
    name: str, evaluation: Evaluation, why: str, failing: Iterable[str] = ()
) -> Evaluation:
    """Return an evaluation of a sealed check that passes as one with one more test, which fails.

    Args:
        name: the name of the criterion.
        evaluation: that of the sealed check.
        why: the sentence that leads the feedback.
        failing: the ids that stand for that test.
    """
    details = evaluation.details.get(name) or {}
    # The exit code of a command without a report is one test.
    passing, total = details.get("passing", 1), details.get("total", 1)
    return with_details(
        name,
        replace(
            evaluation,
            score=passing / (total + 1),
            passed=False,
            feedback=f"{name}: {why}\n{evaluation.feedback}".strip(),
            criteria=(Criterion(name, False, why),),
        ),
        {"failing": sorted(failing)} if failing else {},
    )


def touched(evaluation: Evaluation, tampered: Tampering) -> Evaluation:
    """Return the evaluation of the clean copy, with a sentence on the files that were put back."""
    sentence = f"{tampered.why}: the check does not use your version of protected files. Change the code instead."
    return replace(evaluation, feedback=f"{sentence}\n{evaluation.feedback}", tampered=tampered)


def held_out_figures(measured: TestRun, baseline: Baseline, folder: str) -> dict[str, Json] | None:
    """Return how many held-out tests pass, or None if none of them ran.

    They are those in their folder; without folders in its ids, those of the report that the base does not have.
    """
    cases = () if measured.report is None else measured.report.cases
    inside = [case for case in cases if folder in case.id]
    held_out = inside or [case for case in cases if case.id not in baseline.states]
    ran = [case for case in held_out if case.ran]
    if not ran:
        return None
    passing = sum(case.state is TestState.PASSED for case in ran)
    return {"passing": passing, "total": len(ran), "score": passing / len(ran)}


def with_details(name: str, evaluation: Evaluation, more: Mapping[str, Json]) -> Evaluation:
    """Return an evaluation with more details, which are for a person and not part of the feedback."""
    details = dict(evaluation.details)
    details[name] = {**(details.get(name) or {}), **more}
    return replace(evaluation, details=details)


def gated(evaluation: Evaluation, figures: Mapping[str, Json]) -> Evaluation:
    """Return an evaluation that passes only if the held-out tests do."""
    if not evaluation.passed or figures["passing"] == figures["total"]:
        return evaluation
    # Without names and messages: an agent that knew the tests would write code for them.
    gap = "the tests pass, but tests that you cannot read do not; solve the task in general"
    return replace(
        evaluation,
        score=min(evaluation.score or 0.0, figures["score"]),
        passed=False,
        feedback=gap,
        criteria=(*evaluation.criteria, Criterion("held_out", False, gap)),
    )


def rejected(name: str, tampered: Tampering) -> Evaluation:
    """Return the evaluation of an iteration that does not count."""
    what = (
        "its result is not to be believed"
        if tampered.kind == "forged"
        else "protected files changed"
    )
    sentence = (
        f"{name}: {what}: {tampered.why}. The iteration does not count, and its files are put back."
    )
    return Evaluation(
        None, False, sentence, criteria=(Criterion(name, False, tampered.why),), tampered=tampered
    )
