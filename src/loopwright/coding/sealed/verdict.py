"""The evaluations of a sealed check: whether its result is to be believed, its score, and the feedback.

It also has the options of a sealed check, what is recorded of the base before the first iteration, and signs in a
change that a person should read it. Signs are listed and never a verdict: each has honest uses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from ...engine.loop_options import one_of
from ...errors import ConfigurationError
from ...evaluators.check import output_of
from ...evaluators.test_report import TestCase, TestState
from ...records import Criterion, Evaluation, Tampering, as_evaluation
from ...records.codec import Json
from .measure import ALL, Baseline, BaselineComparison, Canary, Runner, TestRun, feedback_of

__all__ = [
    "MAX_SIGNS",
    "ON_TAMPER",
    "CheckVerdict",
    "SealOptions",
    "Sealed",
    "evaluation_as_written",
    "evaluation_of_base",
    "evaluation_of_exit",
    "evaluation_of_tests",
    "failing_of",
    "gated",
    "held_out_figures",
    "rejected",
    "suspicious_lines",
    "touched",
    "unsatisfied",
    "verdict_of",
    "with_details",
]


@dataclass(frozen=True)
class CheckVerdict:
    """The result of one run of a sealed check.

    Args:
        forged: why it is not to be believed, or "".
        tally: the tests, or None if there is no report.
        problem: why there is none, or why a complete report is not enough.
        exit_code: the exit code of the command.
    """

    forged: str = ""
    tally: BaselineComparison | None = None
    problem: str = ""
    exit_code: int = 0

    @property
    def passed(self) -> bool:
        """Whether every test of the report passes."""
        return not self.forged and self.tally is not None and self.tally.passed


def verdict_of(
    measured: TestRun,
    runner: Runner | None,
    baseline: Baseline,
    canary: Canary | None,
    allowed: Collection[str] = frozenset(),
) -> CheckVerdict:
    """Return the result of a run of the check on the files of an iteration.

    Args:
        measured: how the command ended, and its report.
        runner: the test program; None for the report of another program.
        baseline: the tests of the base.
        canary: the canaries that were in the copy, or None without.
        allowed: the tests of the base that may be missing.
    """
    ended, report = measured.result, measured.report
    code = ended.exit_code
    if report is None:
        # A program that could not begin, such as one whose settings import broken code, wrote none either.
        if code in ((0,) if runner is None else runner.normal_exits):
            return CheckVerdict(f"the test program {ended.ending}, but {measured.problem}")
        printed = output_of(ended)
        problem = f"the test program {ended.ending} and {measured.problem}"
        return CheckVerdict("", None, f"{problem}\n{printed}" if printed else problem, code)
    if canary is not None:
        if wrong := canary.holds(report):
            return CheckVerdict(f"{wrong}")
        report = canary.without(report)
    if code < 0:
        return CheckVerdict(f"the test program {ended.ending} after it wrote its report")
    tally = baseline.tally(report, allowed)
    if gone := tally.gone(measured.shown):
        return CheckVerdict(gone)
    # The canary that must fail makes the command fail, too.
    fails = canary is not None or any(case.failing for case in report.cases)
    if fails and code == 0:
        return CheckVerdict("its report has failing tests, but it exited with 0")
    return CheckVerdict("", tally, "", code)


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


ON_TAMPER = ("put_back", "reject", "stop")


@dataclass(frozen=True)
class SealOptions:
    """The options of a sealed check, as `tests` explains them."""

    protect: tuple[str, ...] = ("auto",)
    allow: tuple[str, ...] = ()
    allow_new: bool = True
    on_tamper: str = "put_back"
    setup: Sequence[str] | str = ""
    link: tuple[str, ...] = ()
    held_out: str = ""
    held_out_every: bool = False
    held_out_required: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        *,
        protect: Sequence[str],
        allow: Sequence[str],
        on_tamper: str,
        setup: Sequence[str] | str,
        link: Sequence[str],
        **more: Any,
    ) -> Self:
        """Return the checked options of `tests` or of a sealed metric.

        Args:
            name: the evaluator, for messages.
            protect, allow, on_tamper, setup, link: as `tests` explains them.
            **more: the options that only `tests` has.

        Raises:
            ConfigurationError: for a pattern that leads out of the workspace, or an unknown `on_tamper`.
        """
        one_of(f"{name}: on_tamper", on_tamper, ON_TAMPER)
        return cls(
            protect=_patterns(f"{name}: protect", protect),
            allow=_patterns(f"{name}: allow", allow),
            on_tamper=on_tamper,
            setup=setup if isinstance(setup, str) else tuple(setup),
            link=_patterns(f"{name}: link", link),
            **more,
        )


@dataclass(frozen=True)
class Sealed:
    """What is recorded of the base before the first iteration.

    Args:
        protected: the digests of the protected files by path.
        baseline: the tests and their states; None for a command without a report.
        canaries: whether the test program runs tests that are added beside the others (`beside`), only if
            they are named (`named`), or not at all (`none`).
        paths: the folders of the copy that come first on the import path.
        evaluation: the evaluation of the base.
        written: the protected files, and folders of them, that the check itself writes; None in earlier records.
    """

    protected: Mapping[str, str]
    baseline: Baseline | None
    canaries: str
    paths: tuple[str, ...]
    evaluation: Evaluation
    written: frozenset[str] | None = frozenset()

    def to_json(self) -> Json:
        """Return it as the journal has it."""
        baseline = self.baseline
        return {
            "protected": dict(self.protected),
            "states": None if baseline is None else dict(baseline.states),
            "flaky": [] if baseline is None else list(baseline.flaky),
            "canaries": self.canaries,
            "paths": list(self.paths),
            "evaluation": self.evaluation.to_json(),
            "written": None if self.written is None else sorted(self.written),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Sealed:
        """Return what `to_json` wrote."""
        states = data["states"]
        return cls(
            data["protected"],
            None if states is None else Baseline(states, tuple(data["flaky"])),
            data["canaries"],
            tuple(data["paths"]),
            as_evaluation(data["evaluation"]),
            None if data.get("written") is None else frozenset(data["written"]),
        )


def _patterns(owner: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return patterns of paths inside the workspace.

    Raises:
        ConfigurationError: for one that leads out of it.
    """
    if isinstance(values, str):
        raise ConfigurationError(f"{owner}: use a list, such as [{values!r}]")
    for value in values:
        if not isinstance(value, str) or not value or value.startswith(("/", "../")):
            raise ConfigurationError(
                f"{owner}: {value!r} is not a path inside the workspace, or a pattern of one"
            )
    return tuple(values)


MAX_SIGNS = 20
_LENGTH = 120  # characters of a line
# What the sign may be for, and how it looks.
_SIGNS: Mapping[str, re.Pattern[str]] = {
    "names the test program": re.compile(
        r"\b_?pytest\b|\bunittest\b|PYTEST_|NODE_OPTIONS|node:test|\btesting\.Testing\b"
    ),
    "changes loaded modules": re.compile(r"\bsys\.modules\b|\bsys\.meta_path\b|require\.cache"),
    "ends the process": re.compile(
        r"\bos\._exit\b|\bos\.kill\b|\bprocess\.exit\b|\bos\.Exit\b|\batexit\b|process\.on\(.exit"
    ),
    "is equal to everything": re.compile(r"\b__eq__\b.*True|lambda\b[^:]*:\s*True\b"),
    "changes what assert means": re.compile(r"#\s*(define|undef)\s+(assert|NDEBUG)\b"),
    "uses the network": re.compile(
        r"\burllib\.request\b|\brequests\.(get|post)\b|\bsocket\.socket\b|\bfetch\("
    ),
    "waits": re.compile(r"\btime\.sleep\b|\bsetTimeout\("),
    "inspects its caller": re.compile(r"\binspect\.stack\b|\bsys\._getframe\b|\bcurrentframe\("),
}


def suspicious_lines(patch: str, skip: Iterable[str] = ()) -> list[str]:
    """Return the added lines of a patch that carry a sign, each with its file and the reason.

    >>> patch = "+++ b/shop.py\\n+import os; os._exit(0)\\n+total = 3\\n"
    >>> suspicious_lines(patch)
    ['shop.py: ends the process: import os; os._exit(0)']
    """
    skipped, found, path = frozenset(skip), list[str](), ""
    for line in patch.splitlines():
        if line.startswith("+++ "):
            path = line[4:].removeprefix("b/").strip()
        elif line.startswith("+") and path not in skipped:
            text = line[1:].strip()
            signs = (name for name, sign in _SIGNS.items() if sign.search(text))
            if (sign := next(signs, "")) and len(found) < MAX_SIGNS:
                found.append(f"{path}: {sign}: {text[:_LENGTH]}")
    return found
