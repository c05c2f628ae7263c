"""The options of a loop, their checks, and the declaration that a run reads; `Loop` explains the options.

Exploration: a share of the runs of a loop continues to its limits after the normal end. The normal end decides
status, reason and output. The iterations after it are recorded as `explored`, so that replay can say what a later
stop would have been worth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, cast, runtime_checkable

from ..conditions import (
    CEILING,
    UNITS,
    Budget,
    Condition,
    Degrading,
    MaxIterations,
    NoImprovement,
    ScoreAtLeast,
    Timeout,
    stalls,
    tag_of,
)
from ..errors import ConfigurationError, nearest
from ..records import Evaluation, History, Iteration, Reason, Result, Status, Stop, codec
from ..records.codec import integer, number
from ..records.display import shortened
from ..records.typed import Value, ValueType
from .step import Step

if TYPE_CHECKING:
    from .metrics import LoopMetrics

__all__ = [
    "Impossible",
    "LoopDeclaration",
    "LoopLimits",
    "OnStall",
    "Undecided",
    "check_conditions",
    "check_exploration",
    "check_options",
    "check_surroundings",
    "explores",
    "may_continue",
    "measures_only",
    "one_of",
    "refuse_to_act",
    "tampering_stop",
    "with_limits",
    "without_judge",
]

STALL_THEN = ("fresh", "best", "ask", "stop")


@dataclass(frozen=True, eq=False, repr=False)
class OnStall(Value):
    """What a loop does after iterations without progress.

    The first stalls start again: with `best` from the best iteration, with `fresh` from the last one, both
    with a new session of the agent. The stall after the last restart ends the loop as `no_progress`.

    Args:
        then: `fresh`, `best`, `ask` (a person decides) or `stop`. Default: `best`.
        patience: The iterations in a row without progress that are a stall. Default: 2.
        restarts: How many stalls do not end the loop. Default: 1.

    Raises:
        ConfigurationError: For an unknown word, or a number out of range.

    Example:
        >>> OnStall("fresh", patience=3).restarts
        1
    """

    then: str = "best"
    patience: int = 2
    restarts: int = 1

    def __post_init__(self) -> None:
        if self.then not in STALL_THEN:
            raise ConfigurationError(
                f"on_stall: then: {self.then!r} is none of {', '.join(STALL_THEN)}{nearest(str(self.then), STALL_THEN)}"
            )
        integer("on_stall: patience", self.patience, minimum=1)
        integer("on_stall: restarts", self.restarts, minimum=0)

    def check(self, history: History) -> Stop | None:
        """Return the stop after the stall that ends the loop, or None."""
        _, ends = stalls(history, self.patience)
        allowed = 0 if self.then == "stop" else self.restarts
        if len(ends) <= allowed or history.last is None or ends[-1] != history.last.number:
            return None
        times = "once" if len(ends) == 1 else f"{len(ends)} times"
        same = "the score and the failing tests stayed the same"
        if history.last.accepted is not None:
            same = "no iteration was accepted"
        return Stop(Reason.NO_PROGRESS, f"{same} for {self.patience} iterations, {times}")

    def restarts_after(self, history: History) -> int:
        """Return how many stalls there were."""
        return len(stalls(history, self.patience)[1])

    def restarts_now(self, history: History) -> bool:
        """Return whether the next iteration is the first one after a stall."""
        _, ends = stalls(history, self.patience)
        return bool(ends) and history.last is not None and ends[-1] == history.last.number


UNDECIDED_THEN = ("fail", "pause", "accept_check", "reject")
NO_CHECK = (
    "loop: undecided: accept_check needs a deterministic evaluator and a judge. Use a list with a check "
    "and a judge, or then: reject."
)
UNJUDGED = "unjudged"  # the code of a warning, and its sentence
UNJUDGED_SENTENCE = "the judge could not decide, so the deterministic evaluators decided alone"
FORGED_IN_A_ROW = 3  # results that are not to be believed, until the loop ends
FEEDBACK_SHOWN = 200  # characters of feedback in the sentence on why a loop ended


@dataclass(frozen=True, eq=False, repr=False)
class Impossible(Value):
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


@dataclass(frozen=True, eq=False, repr=False)
class Undecided(Value):
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


class LoopDeclaration(Protocol):
    """The members of a loop that its run uses; `Loop` explains them."""

    # A protocol, so that the modules that `loop` imports can use it, and lists can be loops too.

    @property
    def name(self) -> str: ...

    @property
    def execute(self) -> Step: ...

    @property
    def evaluate(self) -> Step | None: ...

    @property
    def sentences(self) -> Mapping[str, Step]: ...

    @property
    def adapt(self) -> Step | None: ...

    @property
    def keep(self) -> str: ...

    @property
    def rejudge(self) -> int: ...

    @property
    def baseline(self) -> bool: ...

    @property
    def on_stall(self) -> OnStall | None: ...

    @property
    def measured(self) -> LoopMetrics | None: ...

    @property
    def undecided(self) -> Undecided: ...

    @property
    def explore(self) -> float: ...

    @property
    def approve(self) -> str | Sequence[str]: ...

    @property
    def on_iteration(self) -> Callable[[Iteration], object] | None: ...

    @property
    def on_terminate(self) -> Callable[[Result], object] | None: ...

    @property
    def input_type(self) -> ValueType | None: ...

    @property
    def output_type(self) -> ValueType | None: ...

    @property
    def iteration_types(self) -> tuple[ValueType | None, ValueType | None]: ...

    @property
    def limit(self) -> int: ...

    @property
    def seconds(self) -> float: ...

    @property
    def wall(self) -> float: ...

    @property
    def budget(self) -> Budget | None: ...

    @property
    def unbound(self) -> str: ...

    @property
    def plain(self) -> bool: ...

    @property
    def members(self) -> tuple[Condition, ...]: ...

    @property
    def watched(self) -> tuple[Condition, ...]: ...

    def decide(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return why the loop ends after the latest record, or None."""

    def at_limit(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return the limit or the failure that ends a loop that explores, or None."""

    def satisfied_by(self, evaluation: Evaluation) -> bool:
        """Return whether the evaluation before the first iteration satisfies the loop."""

    def ending(self, stop: Stop, history: History) -> Stop:
        """Return how the loop ends."""

    def remarks(self, stop: Stop, history: History) -> Iterator[tuple[str, str]]:
        """Iterate over the remarks on an ended loop, as `Loop.remarks` does."""


# After these there is nothing left to explore, or nothing that should go on.
_FINAL = frozenset({
    Reason.MAX_ITERATIONS, Reason.PHASE_LIMIT, Reason.CEILING, Reason.TIMEOUT, Reason.DEADLINE,
    Reason.BUDGET, Reason.CANCELLED, Reason.TAMPERED, Reason.ACCEPTED, Reason.STOPPED,
})  # fmt: skip
_ENDINGS = (Status.SATISFIED, Status.EXHAUSTED, Status.IMPOSSIBLE)


def explores(run_id: str, share: float) -> bool:
    """Return whether a run explores: its ID decides, so that a resumed run decides alike.

    Args:
        run_id: the ID of the run.
        share: the share of runs that explore, from 0 to 1.

    >>> sum(explores(f"run-{number}", 0.1) for number in range(1000))
    97
    """
    # Of the digest and not of the text: IDs with a common beginning would decide alike.
    number = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:7], "big")
    return number < share * 256**7


def may_continue(stop: Stop) -> bool:
    """Return whether a loop that ends for this reason can explore."""
    return stop.reason.status in _ENDINGS and stop.reason not in _FINAL


def check_exploration(loop: LoopDeclaration) -> None:
    """Refuse to explore with a loop that asks people.

    Raises:
        ConfigurationError: names the option.
    """
    stall = loop.on_stall
    if loop.approve or loop.undecided.then == "pause" or (stall and stall.then == "ask"):
        raise ConfigurationError(
            f"loop {loop.name}: explore: a loop that asks a person cannot explore, because the answer would have no "
            "effect. Remove approve, or explore.",
            option="explore",
        )


def refuse_to_act(loop: LoopDeclaration, parts: Iterable[Step]) -> None:
    """Refuse to explore with a loop that acts on the world, if no workspace surrounds it.

    Raises:
        ConfigurationError: names the step.
    """
    acting = next((step for part in parts for step in _acting(part)), None)
    if acting is not None:
        raise ConfigurationError(
            f"loop {loop.name}: explore: {acting.name} acts outside the run, and an explored run would repeat that. "
            "Give the loop a workspace, or declare the step with idempotent=True.",
            option="explore",
        )


def check_surroundings(step: Step, *, in_workspace: bool = False) -> None:
    """Refuse the loops in a step that explore and act on the world outside a workspace.

    Only the start of a run knows the workspaces around a loop: it is built before the workflow that has one.

    Raises:
        ConfigurationError: names the first such loop and its step.
    """
    if not step.explores:
        return
    if getattr(step, "workspace", None) is not None:
        in_workspace = True
    elif getattr(step, "over_list", False) and getattr(step, "at_once", 1) > 1:
        in_workspace = False  # items that run at the same time have no files
    if getattr(step, "explore", 0) and not in_workspace:
        refuse_to_act(cast("LoopDeclaration", step), step.parts())
    for part in step.parts():
        check_surroundings(part, in_workspace=in_workspace)


def _acting(step: Step) -> Iterator[Step]:
    """Iterate over the steps that may not run twice: commands, agents, tools, and functions declared so."""
    if getattr(step, "idempotent", True) is False:
        yield step
    # Of a prompt, or of a judge, which keeps them with their limits.
    tools = getattr(step, "tools", ())
    for tool in getattr(tools, "tools", tools):
        if getattr(tool, "idempotent", False) is not True:
            yield tool
    for part in step.parts():
        yield from _acting(part)


_CONDITIONS: Mapping[str, Callable[[Any], Condition]] = {
    "min_score": ScoreAtLeast,
    "max_iterations": MaxIterations,
    "patience": NoImprovement,
    "timeout": Timeout,
}


class LoopLimits(TypedDict, total=False):
    """The keyword limits of a loop, which `Loop` explains."""

    min_score: float | None
    max_iterations: int | None
    patience: int | None
    max_calls: int | None
    max_total_tokens: int | None
    max_usd: float | None
    timeout: float | None


def with_limits(
    until: Condition | None, guards: Condition | None, limits: LoopLimits
) -> Condition | None:
    """Return `until` joined by "or" with a condition for each keyword limit that is not None.

    Raises:
        ConfigurationError: for an invalid limit, or one that `until` or `guards` names too.
    """
    conditions = _conditions(limits)
    if not conditions:
        return until
    others = [
        other
        for tree in (until, guards)
        if isinstance(tree, Condition)
        for other in (*tree.flat(), *tree.limits())
    ]
    for name, condition in conditions.items():
        for other in others:
            # Two limits of one kind would hide which one the author meant.
            # A budget has several units.
            if type(other) is type(condition) and (
                name not in UNITS or getattr(other, UNITS[name]) is not None
            ):
                raise ConfigurationError(
                    f"loop: {name}: {other!r} is a condition of the loop too; name the limit once"
                )
    # Several units of one budget share a condition, which is joined once.
    for condition in dict.fromkeys(conditions.values()):
        until = condition if until is None else until | condition
    return until


def _conditions(limits: LoopLimits) -> dict[str, Condition]:
    """Return the condition of each limit by its name; the units of a budget share one."""
    values = cast("Mapping[str, Any]", limits)
    # In the order of the declaration, because the order of conditions is part of a fingerprint.
    names = [name for name in LoopLimits.__annotations__ if values.get(name) is not None]
    units = {UNITS[name]: values[name] for name in names if name in UNITS}
    return {
        name: Budget(**units) if name in UNITS else _CONDITIONS[name](values[name])
        for name in names
    }


def check_conditions(
    loop: str, members: Iterable[Condition], metrics: LoopMetrics | None, evaluate: Step | None
) -> None:
    """Check the conditions of a loop against what its evaluator measures.

    Raises:
        ConfigurationError: for a condition on a score that no evaluator gives, or a difference of scores
            above 1.
    """
    scored = metrics is not None and metrics.score is not None
    unscored = evaluate is not None and not scored and measures_only(evaluate)
    objective = metrics.objective if metrics is not None else ""
    for condition in _all_of(members):
        if isinstance(condition, ScoreAtLeast) and unscored:
            raise ConfigurationError(
                f"loop {loop}: {tag_of(type(condition))} can never hold: its evaluator measures a metric and gives no score; "
                "use metric_at_least or metric_at_most, or declare score: {metric, worst, best}"
            )
        # In the unit of the objective, any difference is possible.
        for name in _DIFFERENCES.get(type(condition), ()) if not objective else ():
            if isinstance(getattr(condition, name), str):
                continue  # the sigma of past runs
            number(
                f"{tag_of(type(condition))}: {name}", getattr(condition, name), minimum=0, maximum=1
            )


_DIFFERENCES: Mapping[type[Condition], tuple[str, ...]] = {
    NoImprovement: ("min_delta",),
    Degrading: ("sigma", "tolerance"),
}


def _all_of(conditions: Iterable[Condition]) -> Iterator[Condition]:
    for condition in conditions:
        yield condition
        yield from _all_of(condition.parts())


def measures_only(step: Step) -> bool:
    """Return whether an evaluator gives metrics and never a score."""
    while isinstance(inner := getattr(step, "inner", None), Step):
        step = inner
    return getattr(step, "measures_only", False)


_WORDS = {"on_failure": ("halt", "continue", "retry"), "keep": ("best", "last")}
_LEAST = {"max_retries": 0, "max_failures": 1, "min_iterations": 1, "rejudge": 0}
# The options that are objects, with an example of each.
_POLICIES = (
    ("on_stall", OnStall, "OnStall('best', patience=2)"),
    ("impossible", Impossible, "Impossible(floor=3, looks=2)"),
    ("undecided", Undecided, "Undecided(2, 'reject')"),
)


def check_options(options: Mapping[str, object]) -> None:
    """Check the options of a loop, each alone.

    Raises:
        ConfigurationError: names the first invalid option.
    """
    for name, words in _WORDS.items():
        one_of(f"loop: {name}", options[name], words)
    for name, least in _LEAST.items():
        if name == "max_failures" and options[name] is None:
            continue
        value = codec.integer(f"loop: {name}", options[name], minimum=least)
        if name == "min_iterations" and value > CEILING:
            raise ConfigurationError(
                f"loop: min_iterations: {value} is above the ceiling of {CEILING}; "
                f"use at most {CEILING}"
            )
    codec.number("loop: explore", options["explore"], minimum=0, maximum=1)
    codec.number("loop: retry_delay", options["retry_delay"], minimum=0)
    for name, kind, example in _POLICIES:
        policy = options[name]
        if not isinstance(policy, kind) and not (policy is None and name == "on_stall"):
            raise ConfigurationError(
                f"loop: {name}: {policy!r:.60} is not an {kind.__name__}; use {example}"
            )
    _check_objects(options)


def _check_objects(options: Mapping[str, object]) -> None:
    """Check the conditions, the hooks, the workspace and the name."""
    for name in ("until", "guards"):
        condition = options[name]
        if condition is not None and not isinstance(condition, Condition):
            raise ConfigurationError(
                f"loop: {name}: {condition!r} is not a condition; use one, or several with | or & "
                "between them"
            )
    for name in ("on_iteration", "on_terminate"):
        hook = options[name]
        if hook is not None and not callable(hook):
            raise ConfigurationError(f"loop: {name}: {hook!r} is not a function")
    workspace = options["workspace"]
    # Not a check of its class: workspaces are in a package above the engine.
    if workspace is not None and not hasattr(workspace, "state"):
        raise ConfigurationError(
            f'loop: workspace: {workspace!r:.60} is not a Workspace; use one, such as Workspace(".")'
        )
    if not isinstance(options["name"], str):
        raise ConfigurationError(f"loop: name: {options['name']!r} is not text")


def one_of(name: str, value: object, words: tuple[str, ...]) -> None:
    """Raise ConfigurationError if an option is none of the words."""
    if value not in words:
        raise ConfigurationError(
            f"{name}: {value!r} is none of {', '.join(filter(None, words))}{nearest(str(value), words)}"
        )
