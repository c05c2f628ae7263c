"""The results of runs and loops, the reasons for their end with their status, and the outcomes of steps and items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ..errors import ConfigurationError, NotSatisfied, nearest
from . import display
from .codec import Json
from .history import History
from .iteration import NOTHING, Failure, Iteration, Out, Usage, by_purpose
from .typed import Record, Value, json_of, viewed

if TYPE_CHECKING:
    from ..engine.step import Step

# 2 is for invalid usage, as in other command line tools, and 130 for an interrupt.
_EXIT_CODES = {
    "satisfied": 0,
    "exhausted": 3,
    "failed": 1,
    "impossible": 5,
    "suspended": 4,
    "cancelled": 130,
}


class Status(StrEnum):
    """How a run ended; determined by its reason.

    Example:
        >>> from loopwright import Status, run_sync
        >>> result = run_sync(str.upper, "a")
        >>> result.status is Status.SATISFIED, result.status.exit_code
        (True, 0)
    """

    SATISFIED = "satisfied"
    EXHAUSTED = "exhausted"
    FAILED = "failed"
    IMPOSSIBLE = "impossible"
    SUSPENDED = "suspended"
    CANCELLED = "cancelled"

    @property
    def exit_code(self) -> int:
        """The exit code of the command line for this status."""
        return _EXIT_CODES[self.value]


class Reason(StrEnum):
    """Why a loop or run ended.

    The order of the members decides which one is reported when several conditions hold. `status` is the
    status of the reason, `rank` its place in the order, from 0.

    Example:
        >>> Reason("budget").status.value
        'exhausted'
    """

    status: Status
    rank: int

    def __new__(cls, word: str, status: Status = Status.EXHAUSTED) -> Reason:
        """Create a reason with its status."""
        reason = str.__new__(cls, word)
        reason._value_ = word
        reason.status = status
        # Members are created in order, so this is the position.
        reason.rank = len(cls.__members__)
        return reason

    CONDITION_MET = "condition_met", Status.SATISFIED
    COMPLETED = "completed", Status.SATISFIED
    ACCEPTED = "accepted", Status.SATISFIED
    IMPROVED = "improved", Status.SATISFIED
    ALREADY_SATISFIED = "already_satisfied", Status.SATISFIED
    TAMPERED = "tampered", Status.FAILED
    CANCELLED = "cancelled", Status.CANCELLED
    DEADLINE = "deadline"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    ERROR = "error", Status.FAILED
    EVALUATOR_UNUSABLE = "evaluator_unusable", Status.FAILED
    REPEATED_FAILURE = "repeated_failure", Status.FAILED
    ALL_FAILED = "all_failed", Status.FAILED
    ITEMS_FAILED = "items_failed", Status.FAILED
    IMPOSSIBLE = "impossible", Status.IMPOSSIBLE
    ITEMS_EXHAUSTED = "items_exhausted"
    REPEATED_OUTPUT = "repeated_output"
    DEGRADING = "degrading"
    NO_PROGRESS = "no_progress"
    NO_CHANGE = "no_change"
    NO_IMPROVEMENT = "no_improvement"
    SUCCESS_RATE = "success_rate_not_met", Status.FAILED
    PHASE_LIMIT = "phase_limit"
    MAX_ITERATIONS = "max_iterations"
    CEILING = "ceiling"
    STOPPED = "stopped"
    APPROVAL = "approval", Status.SUSPENDED
    NEEDS_ATTENTION = "needs_attention", Status.SUSPENDED
    THROTTLED = "throttled", Status.SUSPENDED
    QUOTA = "quota", Status.SUSPENDED
    WAITING = "waiting", Status.SUSPENDED
    HELD = "held", Status.SUSPENDED


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stop(Value):
    """The decision of a condition that a loop should end.

    Args:
        reason: the reason, or its word.
        detail: a sentence with the figures.
        also: the reasons of other conditions that hold.
        failure: the error of a condition that failed, which also ends the loop.

    Raises:
        ConfigurationError: for an unknown reason (names the nearest), or a detail that is not text.

    Example:
        >>> Stop(Reason.CONDITION_MET, "score 0.9 is at least 0.8").satisfied
        True
    """

    reason: Reason
    detail: str = ""
    also: tuple[Reason, ...] = ()
    failure: Failure | None = None

    def __post_init__(self) -> None:
        # A condition of a user may return the word of a reason.
        if type(self.reason) is not Reason:
            word, words = cast("object", self.reason), [reason.value for reason in Reason]
            if not isinstance(word, str) or word not in words:
                hint = nearest(word, words) if isinstance(word, str) else ""
                raise ConfigurationError(
                    f"Stop: reason: {word!r:.60} is not a Reason{hint}; use Reason.CONDITION_MET for success "
                    "or Reason.STOPPED for giving up, with your own words as the detail"
                )
            object.__setattr__(self, "reason", Reason(word))
        if type(self.detail) is not str:
            raise ConfigurationError(
                f"Stop: detail: {self.detail!r:.60} is not text; use a sentence about the end of the loop"
            )

    @property
    def satisfied(self) -> bool:
        """Whether the loop ends with success."""
        return self.reason.status is Status.SATISFIED

    def to_json(self) -> Json:
        """Return the stop as a JSON object."""
        data = {"reason": self.reason.value, "detail": self.detail, "also": list(self.also)}
        return data if self.failure is None else {**data, "failure": self.failure.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Stop:
        """Return the stop that `to_json` wrote."""
        return cls(
            Reason(data["reason"]),
            data["detail"],
            tuple(Reason(r) for r in data.get("also", ())),
            Failure.from_json(data.get("failure")),
        )


T = TypeVar("T")


@viewed("item", "output")
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ItemOutcome(Record):
    """The outcome of one item of a list.

    Args:
        index: its place in the list and in the output, from 0.
        item: the item.
        status, reason, detail: its end; None and "" for an item that did not run.
        output: its output.
        error: its failure, or None.
    """

    index: int
    item: Json
    status: Status | None = None
    reason: Reason | None = None
    detail: str = ""
    output: Json = None
    error: Failure | None = None

    def to_json(self) -> Json:
        """Return the outcome as a row of the item table."""
        return {
            "index": self.index,
            "item": self.item,
            "status": self.status and self.status.value,
            "reason": self.reason and self.reason.value,
            "detail": self.detail,
            "output": self.output,
            "error": self.error and self.error.to_json(),
        }


def item_outcomes(items: Sequence[Json], done: Sequence[Iteration]) -> tuple[ItemOutcome, ...]:
    """Return the table of a list: a row for each of `items`, with its recorded outcome."""
    records = {record.number: record for record in done}
    rows = (ItemOutcome(index, item) for index, item in enumerate(items))
    return tuple(_outcome(row, records.get(row.index + 1)) for row in rows)


def _outcome(row: ItemOutcome, record: Iteration | None) -> ItemOutcome:
    if record is None:
        return row
    stop = item_stop(record)
    return replace(
        row,
        status=stop.reason.status, reason=stop.reason, detail=stop.detail,
        output=None if record.error is not None else record.output, error=record.error,
    )  # fmt: skip


def item_stop(record: Iteration) -> Stop:
    """Return the stop of an item from its record."""
    if record.error is not None:
        if record.interrupted:
            return Stop(Reason.STOPPED, record.error.message)
        # An error of an inner loop has the reason of that loop as its kind.
        kinds = (r for r in Reason if r.status is Status.FAILED and r.value == record.error.kind)
        return Stop(next(kinds, Reason.ERROR), record.error.message)
    # The journal stores the stop of an item as a vote of its evaluation.
    for vote in record.evaluation.votes if record.evaluation is not None else ():
        if isinstance(vote, Mapping) and "ended" in vote:
            return Stop.from_json(vote["ended"])
    return Stop(Reason.COMPLETED)


@viewed("output", "items")
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StepOutcome(Record):
    """The outcome of a step of a workflow.

    Args:
        name: the name of the step.
        status, reason, detail: its end; None and "" for a step that did not run.
        seconds: active seconds of the run that it took.
        output: its output.
        items: the item table, for a list.
    """

    name: str
    status: Status | None = None
    reason: Reason | None = None
    detail: str = ""
    seconds: float = 0.0
    output: Json = None
    items: tuple[ItemOutcome, ...] = ()

    def to_json(self) -> Json:
        """Return the outcome as a JSON object, without the output: `steps` of the result has it."""
        data: dict[str, Json] = {
            "status": self.status and self.status.value,
            "reason": self.reason and self.reason.value,
            "detail": self.detail,
            "seconds": round(self.seconds, 6),
        }
        if self.items:
            data["items"] = [item.to_json() for item in self.items]
        return data


_NO_LISTS: frozenset[str] = frozenset()  # shared by all runs without a list
_BY_ERRORS = (
    Reason.ERROR, Reason.REPEATED_FAILURE, Reason.ALL_FAILED, Reason.ITEMS_FAILED,
    Reason.SUCCESS_RATE,
)  # fmt: skip


def failure_of(stop: Stop, history: History) -> Failure | None:
    """Return the failure that ended a loop: the latest failed iteration's, if errors ended it."""
    if stop.failure is not None:
        return stop.failure
    if stop.reason not in _BY_ERRORS:
        return None
    # An interrupted iteration has an error too, but it was not the reason of the end.
    failed = (item.error for item in reversed(history) if not item.interrupted)
    return next((error for error in failed if error is not None), None)


def key_of(step: object, members: Mapping[str, object]) -> str:
    """Return the name of a step in a workflow with these members, else its own name."""
    # By identity first: the same function may be a step under another name.
    for key, member in members.items():
        if member is step or getattr(member, "function", None) is step:
            return key
    return getattr(step, "name", "") or getattr(step, "__name__", "")


_COPIED = (
    "output", "history", "loops", "steps", "request", "agents", "items", "outcomes", "workspace", "held_out",
)  # fmt: skip


@viewed(*_COPIED, written=("to_json", "loop_json"))
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Result(Record, Generic[Out]):
    """The result of a run, or of a loop inside it.

    Args:
        status: how it ended.
        reason: why it ended.
        detail: the reason as a sentence with figures.
        output: the output of the best or last iteration, or of the workflow.
        history: the iterations, if the run is a loop.
        usage: calls, tokens and dollars.
        run_id: the id of the run.
        name: the name of the step.
        also: the reasons of other conditions that held.
        loops: the results of inner loops by name; a second loop of the same name by its path without
            iteration numbers, a loop inside a list by its path with the number of the item.
        steps: the outputs of workflow steps by name.
        warnings: warnings of the run.
        seconds: active seconds.
        request: the question to a person, if the run is suspended.
        judging: the part of `usage` that evaluators spent.
        reported_score: the mean of new votes on the output, if the loop asks for them. Unlike the score
            that selected the output, it is not the highest of several.
        agents: the reports of agents by name.
        error: the failure that ended it, or None.
        cause: the user's exception, in the process in which it was raised; journals do not keep it.
        gone_on: the document continues although this step failed.
        items: the item table, for a list; a row for every item.
        outcomes: the outcomes of workflow steps by name.
        total: iterations of all loops and items of all lists.
        members: the steps of the workflow by name, for `of`.
        workspace: where the files of its workspace are: `folder`, `base`, `commit`, `tree`, the
            `iteration` they come from, and the `branch` or `patch` that was made. None without one.
        held_out: the figures of held-out tests by the name of their evaluator: `passing`, `total`, `score`,
            the `visible` score of the same files, and the `gap` between the two. Of the held-out cases of a data
            set also the scores of the `beginning` and the `result`, their paired `difference`, and the number of
            `looks` in `dataset`. None without such tests.
        explored_iterations: the iterations after the normal end, of a loop that explores. They are not in
            `history`, and `usage` counts them.

    Example:
        >>> from loopwright import Loop, ScoreAtLeast, run_sync
        >>> result = run_sync(Loop(lambda n: n + 1, lambda n: n / 4, until=ScoreAtLeast(0.5)), 1)
        >>> result.status.value, result.output, result.iterations
        ('satisfied', 2, 1)
    """

    status: Status
    reason: Reason
    detail: str
    output: Out | None = None
    history: History[Any, Out] = field(default_factory=History)
    usage: Usage = NOTHING
    run_id: str = ""
    name: str = ""
    also: tuple[Reason, ...] = ()
    loops: Mapping[str, Result] = field(default_factory=dict)
    steps: Mapping[str, Json] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    request: Mapping[str, Json] | None = None
    judging: Usage = NOTHING
    reported_score: float | None = None
    agents: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    error: Failure | None = None
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    gone_on: bool = False
    items: tuple[ItemOutcome, ...] = ()
    outcomes: Mapping[str, StepOutcome] = field(default_factory=dict)
    total: int = 0
    members: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)
    workspace: Mapping[str, Json] | None = None
    held_out: Mapping[str, Json] | None = None
    explored_iterations: int = 0

    @property
    def satisfied(self) -> bool:
        """Whether it ended with success."""
        return self.status is Status.SATISFIED

    @property
    def best(self) -> Iteration[Any, Out] | None:
        """The best iteration; see History.best."""
        return self.history.best

    @property
    def front(self) -> list[Iteration[Any, Out]]:
        """The iterations that no other one is better than in all objectives; none with fewer than two objectives."""
        return self.history.front

    @property
    def chains(self) -> dict[int, Iteration[Any, Out]]:
        """The best iteration of each chain of a loop by its number; none in a loop that never began a new one."""
        anew = any(item.chain > 1 for item in self.history)
        return self.history.chains if anew else {}

    @property
    def iterations(self) -> int:
        """The number of iterations in `history`."""
        return len(self.history)

    def unwrap(self) -> Out:
        """Return the output of a satisfied run.

        Raises:
            NotSatisfied: with this result, for any other status; its `__cause__` is the user's
                exception, if one ended the run in this process.
        """
        if not self.satisfied:
            raise NotSatisfied(self)
        return cast("Out", self.output)  # None is a value of Out, if there is none

    def of(self, step: Step[Any, T]) -> T:
        """Return the output of an inner loop or workflow step.

        Args:
            step: the step, such as the Loop that a Workflow contains.

        Raises:
            KeyError: if the result has no output of that name; names those that it has.

        Example:
            >>> from loopwright import Workflow, run_sync, step
            >>> shout = step(str.upper)
            >>> result = run_sync(Workflow("post", {"upper": shout, "size": len}), "a")
            >>> result.of(shout), result.output
            ('A', 1)
        """
        name = key_of(step, self.members)
        # Steps before loops: the output of a step is that of its loop, or what the step made of it.
        if name in self.steps:
            return cast("T", self.steps[name])
        if name in self.loops:
            return cast("T", self.loops[name].output)
        if name == self.name:
            return cast("T", self.output)
        names = ", ".join(dict.fromkeys([*self.steps, *self.loops])) or "none"
        raise KeyError(f"{self.name} has no output of {name!r}; it has: {names}")

    def __repr__(self) -> str:
        return display.result_line(self)

    def __str__(self) -> str:
        return display.result_text(self)

    def _repr_html_(self) -> str:
        return display.result_html(self)

    def loop_json(self) -> Json:
        """Return the row of a loop in the `loops` of the command line's JSON."""
        best = self.best
        return {
            "iterations": self.iterations,
            "exit_reason": self.reason.value,
            "status": self.status.value,
            "detail": self.detail,
            "score": best.score if best else None,
            "best_iteration": best.number if best else None,
            **_measured(best),
            "output": json_of(self.output),
            **self._reported(),
            **self._failed(),
            **({} if self.workspace is None else {"workspace": dict(self.workspace)}),
            **({"items": [item.to_json() for item in self.items]} if self.items else {}),
            "history": [item.to_json() for item in self.history],
        }

    def _reported(self) -> dict[str, Json]:
        data: dict[str, Json] = {}
        if self.reported_score is not None:
            data["reported_score"] = self.reported_score
        if self.held_out:
            data["held_out"] = dict(self.held_out)
        if front := self.front:
            data["front"] = [item.number for item in front]
        if chains := self.chains:
            data["chains"] = [
                {"chain": number, "best": item.number} for number, item in chains.items()
            ]
        if self.explored_iterations:
            data["explored_iterations"] = self.explored_iterations
        return data

    def _failed(self) -> dict[str, Json]:
        return {} if self.error is None else {"error": self.error.to_json()}

    def to_json(self) -> Json:
        """Return the result as the JSON object that the command line prints."""
        # A workflow has no iterations, so lists show the score of its first loop.
        best = self.best or next((r.best for r in self.loops.values() if r.best), None)
        return {
            "run_id": self.run_id,
            "status": self.status.value,
            "reason": self.reason.value,
            "detail": self.detail,
            "also": [reason.value for reason in self.also],
            "output": json_of(self.output),
            "iterations": self.total
            or self.iterations
            or sum(r.iterations for r in self.loops.values()),
            "best": {"iteration": best.number, "score": best.score, **_measured(best)}
            if best
            else None,
            **self._reported(),
            "loops": {name: result.loop_json() for name, result in self.loops.items()},
            "steps": dict(json_of(self.steps)),
            # Left out if empty, as all keys that not every run has.
            **(
                {"outcomes": {name: outcome.to_json() for name, outcome in self.outcomes.items()}}
                if self.outcomes
                else {}
            ),
            **({"agents": {k: dict(v) for k, v in self.agents.items()}} if self.agents else {}),
            **({} if self.workspace is None else {"workspace": dict(self.workspace)}),
            "usage": self.usage.to_json(),
            "usage_by": by_purpose(self.usage, self.judging),
            "seconds": round(self.seconds, 6),
            "warnings": list(self.warnings),
            **self._failed(),
            **({"request": dict(self.request)} if self.request is not None else {}),
        }


def _measured(best: Iteration | None) -> dict[str, Json]:
    if best is None or not best.measures:
        return {}
    return {"measures": {item.name: item.to_json() for item in best.measures}}


class LoopResults(dict[str, Result]):
    """The latest result of each loop by name, in the order of their ends.

    The key of a second loop of the same name is its path without the numbers of iterations and attempts.
    The key of a loop inside a list is its path with the number of the item. `lists` are the paths of the
    lists.
    """

    __slots__ = ("_places", "lists")

    def __init__(self) -> None:
        self._places: dict[str, str] = {}
        self.lists = _NO_LISTS

    def keep(self, path: str, result: Result) -> None:
        """Keep the result of the loop at a path."""
        place, in_list = self._place(path)
        # The first loop of a name keeps the name as its key, also when it ends again.
        first = self._places.setdefault(result.name, place) if not in_list else ""
        key = result.name if first == place else place
        # Removed first, because the order is that of the ends.
        self.pop(key, None)
        self[key] = result

    def _place(self, path: str) -> tuple[str, bool]:
        """Return a path without the numbers of iterations, candidates and attempts, and whether it is in a list."""
        if "/" not in path:
            return path, False
        parts, remaining, in_list = path.split("/"), [], False
        for i, part in enumerate(parts):
            # Numbers differ from iteration to iteration; the number of an item identifies its loop.
            if i and part.removeprefix("attempt-").removeprefix("candidate-").isdigit():
                if "/".join(parts[:i]) not in self.lists:
                    continue
                in_list = True
            remaining.append(part)
        return "/".join(remaining), in_list


_NO_USAGE = NOTHING.to_json()  # of each run without a model


def ended_entry(result: Result) -> dict[str, Json]:
    """Return the value of the entry of a run's end."""
    return {
        "name": result.name,
        "stop": Stop(result.reason, result.detail, result.also).to_json(),
        "output": result.output,
        "iterations": result.history.length,
        "steps": dict(result.steps),
        "warnings": list(result.warnings),
        "usage": _NO_USAGE if result.usage is NOTHING else result.usage.to_json(),
        "seconds": result.seconds,
        "loops": list(result.loops),
        "request": result.request,
        **({} if result.error is None else {"error": result.error.to_json()}),
        **({} if result.workspace is None else {"workspace": dict(result.workspace)}),
    }


def explored_by(own: Result | None, loops: Mapping[str, Result]) -> int:
    """Return the iterations that a loop explored; of another step, those that its loops explored."""
    if own is not None and own.explored_iterations:
        return own.explored_iterations
    return sum(loop.explored_iterations for loop in loops.values())


def failed_part(result: Result, loops: LoopResults) -> Result:
    """Return the result whose failure ended a run: its own, else that of the loop that failed last."""
    if result.error is not None or result.status is not Status.FAILED:
        return result
    return next((loop for loop in reversed(loops.values()) if loop.error is not None), result)
