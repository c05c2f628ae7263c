"""The loop: adapt, execute, evaluate, record, decide, again, until a condition ends it.

Rules:

1. One record per round, failed or not; the record is committed before the decision.
2. Every produced output is evaluated, and adapt is the first act of the next round: n rounds adapt
   n-1 times.
3. Conditions are asked after each record; what bounds time and money is asked before each effect
   too.
4. Running out is a result: it carries the best output, the history and the reason.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import codec
from .approving import MOMENTS, approved
from .codec import Json
from .composites import Composite, retrying
from .conditions import (
    CEILING,
    AnyOf,
    Budget,
    Condition,
    Deadline,
    MaxIterations,
    PhaseLimit,
    Timeout,
    prefer,
    tag_of,
)
from .context import Context
from .course import Course
from .errors import ConfigurationError, Stopped, Suspended, nearest
from .records import History, Iteration, Reason, Result, Status, Stop
from .step import as_step, digest_of

__all__ = ["DEFAULT_LIMIT", "Loop"]

DEFAULT_LIMIT = 10  # iterations of a loop that names no limit
MAX_DEPTH = 8  # loops within loops
FAILURES_IN_A_ROW = 3
UNDECIDED_IN_A_ROW = 2


@dataclass(frozen=True)
class Loop(Composite):
    """A declared loop: what to do, how to judge it, how to go on, and when to stop.

    Args:
        execute: makes an output from an input: `f(input)` or `f(input, ctx)`, or any step.
        evaluate: judges an output: returns a score from 0 to 1, True or False, or an Evaluation.
        adapt: makes the next input from the last Iteration, failed or not; default: it stays.
        until: conditions of which any ends the loop, asked after each round.
        guards: the same, asked before each effect too.
        on_failure: `halt` ends the loop at the first error; `continue` records it, hands it to
            adapt and goes on, up to 3 in a row; `retry` tries the failed step again,
            `max_retries` times (2: three attempts in all).
        retry_delay: seconds; waits uniform(0, retry_delay * 2^k) after attempt k+1.
        keep: what an unsatisfied loop returns: its `best` output by score, or its `last`.
        min_iterations: completed iterations before a condition other than a limit may end it.
        required: whether a workflow ends when this loop is not satisfied.
        rejudge: how often the output is judged again at the end, for the result's `reported_score`:
            the score by which it was chosen is the highest of several, so it flatters (2 will do).
        approve: when a person is asked whether to go on: `iteration` between the rounds, `limit` when
            its iterations are used up, or both. The run is suspended until then.
        on_iteration: called with each Iteration once it is committed; its failure is a warning.
        on_terminate: called with the Result, once, on every path.

    Raises:
        ConfigurationError: for a loop that could not mean anything.
    """

    execute: Any
    evaluate: Any = None
    adapt: Any = None
    until: Condition | None = None
    guards: Condition | None = None
    name: str = ""
    on_failure: str = field(default="halt", kw_only=True)
    max_retries: int = field(default=2, kw_only=True)
    retry_delay: float = field(default=0.5, kw_only=True)
    keep: str = field(default="best", kw_only=True)
    min_iterations: int = field(default=1, kw_only=True)
    required: bool = field(default=False, kw_only=True)
    rejudge: int = field(default=0, kw_only=True)
    approve: str | Sequence[str] = field(default=(), kw_only=True)
    on_iteration: Callable[[Iteration], Any] | None = field(default=None, kw_only=True)
    on_terminate: Callable[[Result], Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check()
        put = functools.partial(object.__setattr__, self)
        for stage in ("execute", "evaluate", "adapt"):
            if (given := getattr(self, stage)) is not None or stage == "execute":
                made = as_step(given)
                if self.on_failure == "retry":
                    made = retrying(made, attempts=self.max_retries + 1, delay=self.retry_delay)
                put(stage, made)
        put("name", self.name or self.execute.name)
        if "/" in self.name:
            raise ConfigurationError(f"loop: name: {self.name!r} has a slash; it is part of paths")
        if self.depth > MAX_DEPTH:
            raise ConfigurationError(
                f"loop: {self.name}: loops nest {self.depth} deep; {MAX_DEPTH} is the most"
            )
        put("members", tuple(self._conditions()))
        put("approve", (self.approve,) if isinstance(self.approve, str) else tuple(self.approve))
        for moment in self.approve:
            _one_of("approve", moment, MOMENTS)

    def _check(self) -> None:
        _one_of("on_failure", self.on_failure, ("halt", "continue", "retry"))
        _one_of("keep", self.keep, ("best", "last"))
        codec.whole("loop: max_retries", self.max_retries, least=0)
        if codec.whole("loop: min_iterations", self.min_iterations, least=1) > CEILING:
            raise ConfigurationError(
                f"loop: min_iterations: {self.min_iterations} is above the ceiling of {CEILING}; "
                f"give at most {CEILING}"
            )
        codec.whole("loop: rejudge", self.rejudge, least=0)
        codec.number("loop: retry_delay", self.retry_delay, least=0)
        for name in ("until", "guards"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, Condition):
                raise ConfigurationError(
                    f"loop: {name}: {given!r} is not a condition; give one, or several with | or & "
                    "between them"
                )
        for name in ("on_iteration", "on_terminate"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise ConfigurationError(f"loop: {name}: {given!r} is not a function")
        if not isinstance(self.name, str):
            raise ConfigurationError(f"loop: name: {self.name!r} is not text")

    def _conditions(self) -> Iterator[Condition]:
        """Iterate over what is asked after each round: all members, with limits inside an "and"
        outside it too."""
        seen: list[Condition] = []
        for tree in (self.until, self.guards):
            if tree is not None:
                seen += [*tree.flat(), *tree.limits()]
        if not any(isinstance(c, MaxIterations | PhaseLimit) for c in seen):
            seen.append(MaxIterations(max(DEFAULT_LIMIT, self.min_iterations)))
        yield from dict.fromkeys(seen)

    members: tuple[Condition, ...] = field(init=False, repr=False, compare=False, default=())

    @functools.cached_property
    def depth(self) -> int:
        """How many loops nest in it, itself included."""
        return 1 + super().depth

    def made_of(self) -> Iterator[Any]:
        yield from (part for part in (self.execute, self.evaluate, self.adapt) if part is not None)

    @property
    def limit(self) -> int:
        """The most iterations that it can run."""
        return min(c.limit for c in self.members if isinstance(c, MaxIterations | PhaseLimit))

    @functools.cached_property
    def bounds(self) -> list[Json]:
        """Its conditions and guards as JSON, to be shown."""
        return [condition.to_json() for condition in self.members]

    @functools.cached_property
    def fingerprint(self) -> str:
        parts = (self.execute, self.evaluate, self.adapt)
        return digest_of(
            "loop",
            self.name,
            *("" if part is None else part.fingerprint for part in parts),
            *(codec.encode(condition.to_json()) for condition in self.members),
            f"{self.on_failure} {self.max_retries} {self.keep} {self.min_iterations}",
            *([f"rejudge {self.rejudge}"] if self.rejudge else []),
            *([f"approve {' '.join(self.approve)}"] if self.approve else []),
        )

    @functools.cached_property
    def watched(self) -> tuple[Condition, ...]:
        """Guards that time or spending can trip between rounds: those of ours cannot, but for
        limits."""
        if self.guards is None:
            return ()
        known = type(self).__module__.partition(".")[0]
        return tuple(
            g for g in self.guards.flat() if not type(g).__module__.startswith(known + ".")
        )

    @functools.cached_property
    def plain(self) -> bool:
        """Whether its steps are functions of a value, which nothing but the journal comes between."""
        return all(
            part.effect and not part.wants_context and part.reserve is None
            for part in self.made_of()
        )

    @functools.cached_property
    def seconds(self) -> float:
        """The seconds that it may be active, or infinity."""
        return min((c.seconds for c in self.members if isinstance(c, Timeout)), default=math.inf)

    @functools.cached_property
    def wall(self) -> float:
        """The moment of the wall clock at which it must end, or infinity."""
        found = (c.timestamp() for c in self.members if isinstance(c, Deadline))
        return min(found, default=math.inf)

    @functools.cached_property
    def budget(self) -> Budget | None:
        """The tightest of its budgets, unit by unit."""
        caps = [c for c in self.members if isinstance(c, Budget)]
        if not caps:
            return None

        def tightest(unit: str) -> Any:
            given = [v for c in caps if (v := getattr(c, unit)) is not None]
            return min(given) if given else None

        return Budget(tightest("calls"), tightest("tokens"), tightest("usd"))

    @functools.cached_property
    def goals(self) -> tuple[Condition, ...]:
        """Its conditions of success."""
        return tuple(c for c in self.members if c.goal and not c.hard)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run it to its end, from where the journal stands."""
        course = Course(self, value, ctx)
        cut = course.cut
        if course.known is not None:
            if cut is not None:
                raise cut
            return course.known
        stop = None if cut is None else cut.stop
        try:
            if len(course.history) and cut is None:
                stop = self._next(course)
            while stop is None:
                try:
                    cut = await course.round()
                except Stopped as stopped:  # nothing of a new round was begun
                    cut = stopped
                stop = self._next(course) if cut is None else cut.stop
            ending = self._ending(stop, course.history)
            reported = await course.rejudged(ending) if self.rejudge and cut is None else None
        except Suspended as suspended:
            course.leave(suspended.stop)
            raise
        if ending.reason is Reason.MAX_ITERATIONS:
            self._warn_of_unread(course)
        result = await course.finish(ending, cut, reported)
        if cut is not None and cut.owner != course.path:
            raise cut
        return result

    def _warn_of_unread(self, course: Course) -> None:
        """Warn if no condition of success could ever hold, as no evaluation said what they read."""
        judged = False
        for item in course.history:
            if item.eligible:
                for goal in self.goals:
                    if goal.told(item):
                        return
                judged = True
        for goal in self.goals if judged else ():
            short = "it has no evaluate" if self.evaluate is None else f"no round had {goal.reads}"
            course.run.warn(f"{course.path}: {short}, so {tag_of(type(goal))} could not hold")

    def _next(self, course: Course) -> Stop | None:
        stop = self.decide(course.history, course.members)
        return approved(course, stop) if self.approve else stop

    def decide(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return why the loop should end after its latest record: a pure function of what was
        recorded, and of the limits that a person raised (`members`, by default its own)."""
        failures, undecided = history.streaks
        if failures and (stop := self._failed(history)) is not None:
            return stop
        if undecided >= UNDECIDED_IN_A_ROW:
            detail = f"the judge could not be read {undecided} times in a row"
            return Stop(Reason.EVALUATOR_UNUSABLE, detail)
        stops: list[Stop] | None = None
        for condition in members or self.members:
            stop = condition.check(history)
            if stop is not None and (not condition.early or len(history) >= self.min_iterations):
                stops = [stop] if stops is None else [*stops, stop]
        return prefer(stops) if stops is not None else None

    def _failed(self, history: History) -> Stop | None:
        last = history[-1]
        error = last.error
        if error is None or last.interrupted:
            return None
        if self.on_failure != "continue":
            return Stop(Reason.ERROR, f"iteration {last.number}: {error.stage}: {error.message}")
        if history.failures >= FAILURES_IN_A_ROW:
            detail = (
                f"{history.failures} iterations in a row failed, the last with: {error.message}"
            )
            return Stop(Reason.REPEATED_FAILURE, detail)
        return None

    def _ending(self, stop: Stop, history: History) -> Stop:
        """Return the stop to report: a loop of which every round failed has failed, whatever ended
        it."""
        if stop.reason.status is not Status.EXHAUSTED:
            return stop
        if history.failures < len(history):
            return stop
        failed = [item for item in history if not item.interrupted]
        if not failed:
            return stop
        detail = f"all {len(failed)} iterations failed, the last with: {failed[-1].feedback}"
        return Stop(Reason.ALL_FAILED, detail, (stop.reason, *stop.also))


def _one_of(name: str, value: Any, words: tuple[str, ...]) -> None:
    if value not in words:
        raise ConfigurationError(
            f"loop: {name}: {value!r} is none of {', '.join(words)}{nearest(str(value), words)}"
        )


def any_of(*conditions: Condition | None) -> Condition | None:
    """Return the conditions joined by "or", without the missing ones; None if there is none."""
    found = tuple(c for c in conditions if c is not None)
    return None if not found else found[0] if len(found) == 1 else AnyOf(found)
