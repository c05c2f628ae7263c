"""What a loop does with evaluations that call its task impossible, are undecided, or were tampered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..errors import ConfigurationError, nearest
from ..records import Evaluation, History, Iteration, Reason, Stop
from ..records.codec import integer
from ..records.excerpts import shortened
from .step import Step

__all__ = ["Impossible", "Undecided", "tampering_stop", "without_judge"]

UNDECIDED_THEN = ("fail", "pause", "accept_check", "reject")
NO_CHECK = (
    "loop: undecided: accept_check needs a deterministic evaluator and a judge. Use a list with a check "
    "and a judge, or then: reject."
)
UNJUDGED = "unjudged"  # the code of a warning, and its sentence
UNJUDGED_SENTENCE = "the judge could not decide, so the deterministic evaluators decided alone"
FORGED_IN_A_ROW = 3  # results that are not to be believed, until the loop ends
FEEDBACK_SHOWN = 200  # characters of feedback in the sentence on why a loop ended


@dataclass(frozen=True)
class Impossible:
    """When evaluations that call the task impossible end a loop, with the status `impossible`.

    Only decided iterations count; one of them that does not say so starts the count again. Before the end,
    such an evaluation is not met, and its reason is feedback.

    Args:
        floor: The first iteration that counts. Default: 3.
        looks: How many decided iterations in a row must say so. Default: 2.

    Raises:
        ConfigurationError: For a number below 1, or fewer looks than 2.

    Example:
        >>> from loopwright import Evaluation, Impossible, Loop, run_sync
        >>> no = Evaluation(impossible=True, feedback="the file does not exist")
        >>> result = run_sync(Loop(str, lambda text: no, impossible=Impossible(floor=1)), "task")
        >>> result.status.value, result.iterations
        ('impossible', 2)
    """

    floor: int = 3
    looks: int = 2

    def __post_init__(self) -> None:
        integer("impossible: floor", self.floor, minimum=1)
        # One look is one vote of a model, and a wrong one would give up a task that can be done.
        integer("impossible: looks", self.looks, minimum=2)

    def check(self, history: History) -> Stop | None:
        """Return the stop after the last look that is needed, or None."""
        if not len(history) or not _impossible(history[-1]):
            return None
        looks = 0
        for item in reversed(history):
            if item.number < self.floor:
                break
            if item.error is not None or item.interrupted or item.undecided:
                continue
            if not _impossible(item):
                break
            looks += 1
        if looks < self.looks:
            return None
        why = shortened(" ".join(history[-1].feedback.split()), FEEDBACK_SHOWN)
        detail = f"{self.looks} evaluations in a row say that the task is impossible"
        return Stop(Reason.IMPOSSIBLE, f"{detail}: {why}" if why else detail)


def _impossible(item: Iteration) -> bool:
    return item.evaluation is not None and item.evaluation.impossible


@dataclass(frozen=True)
class Undecided:
    """What a loop does after evaluations in a row that could not decide.

    Args:
        after: The evaluations in a row. Default: 2.
        then: `fail` ends the loop as `evaluator_unusable`; `pause` asks a person for the verdict;
            `accept_check` lets the deterministic evaluators decide alone; `reject` counts the output as not
            met, without a score. Default: `fail`.

    Raises:
        ConfigurationError: For an unknown word, or a number below 1.

    Example:
        >>> from loopwright import Evaluation, Loop, MaxIterations, Undecided, run_sync
        >>> unsure = Evaluation(undecided=True, feedback="no answer")
        >>> loop = Loop(str, lambda text: unsure, until=MaxIterations(3), undecided=Undecided(1, "reject"))
        >>> run_sync(loop, "task").reason.value
        'max_iterations'
    """

    after: int = 2
    then: str = "fail"

    def __post_init__(self) -> None:
        integer("undecided: after", self.after, minimum=1)
        if self.then not in UNDECIDED_THEN:
            raise ConfigurationError(
                f"undecided: then: {self.then!r} is none of {', '.join(UNDECIDED_THEN)}{nearest(str(self.then), UNDECIDED_THEN)}"
            )

    def due(self, history: History) -> bool:
        """Return whether the policy applies to an undecided evaluation that follows this history."""
        row = 1
        for item in reversed(history):
            # An evaluation without the judge continues the row: the judge has not decided since.
            if item.evaluation is None or not (item.undecided or item.evaluation.unjudged):
                break
            row += 1
        return row >= self.after

    def rejected(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation in place of an undecided one that counts as not met."""
        return Evaluation(
            passed=False,
            feedback=evaluation.feedback,
            votes=evaluation.votes,
            details=evaluation.details,
            unjudged=True,
        )


@runtime_checkable
class JudgedWithChecks(Protocol):
    """An evaluator of several whose deterministic members can decide alone."""

    @property
    def checks(self) -> bool:
        """Whether it has a deterministic member."""

    def deciding_alone(self, policy: Undecided) -> Step | None:
        """Return the evaluator with this policy; None without a deterministic member before a judge."""


def has_check(evaluate: Step) -> bool:
    """Return whether an evaluator has a deterministic member whose verdict is known, or is one."""
    mixed = isinstance(evaluate, JudgedWithChecks) and evaluate.checks
    return mixed or not evaluate.asks_model


def without_judge(evaluate: Step, policy: Undecided) -> Step:
    """Return an evaluator whose deterministic members decide alone if its judge cannot.

    Raises:
        ConfigurationError: If there is no deterministic member.
    """
    part = evaluate.deciding_alone(policy) if isinstance(evaluate, JudgedWithChecks) else None
    if part is None:
        raise ConfigurationError(NO_CHECK, option="undecided")
    return part


def tampering_stop(history: History) -> Stop | None:
    """Return the stop of a loop whose latest iteration tampered for the last time that is allowed."""
    last = history.last
    evaluation = None if last is None else last.evaluation
    tampered = None if evaluation is None else evaluation.tampered
    if last is None or tampered is None:
        return None
    if tampered.action == "stop":
        return Stop(Reason.TAMPERED, f"iteration {last.number}: {tampered.why}")
    latest = history[-FORGED_IN_A_ROW:] if len(history) >= FORGED_IN_A_ROW else ()
    if latest and all(_forged(item.evaluation) for item in latest):
        return Stop(
            Reason.TAMPERED,
            f"the results of {FORGED_IN_A_ROW} iterations in a row are forged, the last one because "
            f"{tampered.why}",
        )
    return None


def _forged(evaluation: Evaluation | None) -> bool:
    tampered = None if evaluation is None else evaluation.tampered
    return tampered is not None and tampered.kind == "forged"
