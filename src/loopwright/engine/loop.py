"""The loop as it is declared, and what it decides after each iteration; `loop_run` runs it.

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
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ..conditions import (
    CEILING,
    AnyOf,
    Budget,
    Condition,
    Deadline,
    MaxIterations,
    Passed,
    PhaseLimit,
    Timeout,
    asked,
    has_goal,
    named,
    prefer,
    tag_of,
)
from ..errors import (
    BROKEN_EVALUATOR,
    ConfigurationError,
    LoopwrightWarning,
    nearest,
)
from ..records import History, Iteration, Reason, Result, Status, Stop, codec
from ..records.codec import Json
from ..records.excerpts import shortened
from .budget import CANNOT_BIND, cannot_bind
from .composites import acceptable, retrying
from .context import Context
from .loop_approval import MOMENTS
from .loop_declaration import LoopDeclaration
from .loop_run import LoopRun
from .step import CompositeStep, Leaf, Step, StepLike, as_step, digest_of, source_digest

__all__ = ["DEFAULT_LIMIT", "NO_GOAL", "NO_GOAL_TOLD", "Loop", "any_of"]

DEFAULT_LIMIT = 10  # iterations of a loop that names no limit
MAX_DEPTH = 8  # loops within loops
FAILURES_IN_A_ROW = 3
UNDECIDED_IN_A_ROW = 2
FEEDBACK_SHOWN = 200  # characters of feedback in the sentence on why a loop ended
NO_GOAL = "no_goal"  # the code of the warning, and what it says
NO_GOAL_TOLD = (
    "its evaluator gives scores only, and no condition says which score is enough, so it cannot be "
    "satisfied; give a score_at_least"
)


@dataclass(frozen=True)
class Loop(CompositeStep):
    """A declared loop: what to do, how to judge it, how to go on, and when to stop.

    Args:
        execute: makes an output from an input: `f(input)` or `f(input, ctx)`, or any step.
        evaluate: judges an output: returns a score from 0 to 1, True or False, or an Evaluation.
        adapt: makes the next input from the last Iteration, failed or not; default: it stays.
        until: conditions of which any ends the loop, asked after each round.
        guards: the same, asked before each effect too.
        on_failure: `halt` ends the loop at the first error; `continue` records it, hands it to
            adapt and goes on, up to `max_failures` in a row; `retry` tries the failed step again,
            `max_retries` times (2: three attempts in all). An evaluator that cannot judge any output,
            such as tests without pytest, always ends it as `evaluator_unusable`.
        retry_delay: seconds; waits uniform(0, retry_delay * 2^k) after attempt k+1.
        keep: what an unsatisfied loop returns: its `best` output by score, or its `last`.
        min_iterations: completed iterations before a condition other than a limit may end it.
        max_failures: how many iterations in a row may fail under `continue`; the last of them ends
            the loop (3).
        required: whether a workflow ends when this loop is not satisfied.
        accept: of `failed`, `exhausted` and `impossible`, with which of them the loop is good
            enough for its workflow: they do not count for the workflow's status.
        rejudge: how often the output is judged again at the end, for the result's `reported_score`:
            the score by which it was chosen is the highest of several, so it flatters (2 will do).
        approve: when a person is asked whether to go on: `iteration` between the rounds, `limit` when
            its iterations are used up, or both. The run is suspended until then.
        on_iteration: called with each Iteration once it is committed; its failure is a warning.
        on_terminate: called with the Result, once, on every path.

    Raises:
        ConfigurationError: for a loop that could not mean anything.
    """

    execute: StepLike
    evaluate: StepLike | None = None
    adapt: StepLike | None = None
    until: Condition | None = None
    guards: Condition | None = None
    name: str = ""
    on_failure: str = field(default="halt", kw_only=True)
    max_retries: int = field(default=2, kw_only=True)
    retry_delay: float = field(default=0.5, kw_only=True)
    keep: str = field(default="best", kw_only=True)
    min_iterations: int = field(default=1, kw_only=True)
    required: bool = field(default=False, kw_only=True)
    max_failures: int = field(default=FAILURES_IN_A_ROW, kw_only=True)
    accept: Sequence[str] = field(default=(), kw_only=True)  # type: ignore[assignment]
    rejudge: int = field(default=0, kw_only=True)
    approve: str | Sequence[str] = field(default=(), kw_only=True)
    on_iteration: Callable[[Iteration], Any] | None = field(default=None, kw_only=True)
    on_terminate: Callable[[Result], Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check()
        put = functools.partial(object.__setattr__, self)
        for stage in ("execute", "evaluate", "adapt"):
            if (given := getattr(self, stage)) is not None or stage == "execute":
                made = as_step(given, purpose="evaluate" if stage == "evaluate" else "execute")
                if self.on_failure == "retry":
                    made = retrying(made, attempts=self.max_retries + 1, delay=self.retry_delay)
                put(stage, made)
        put("name", self.name or as_step(self.execute).name)
        if "/" in self.name:
            raise ConfigurationError(f"loop: name: {self.name!r} has a slash; it is part of paths")
        if self.depth > MAX_DEPTH:
            raise ConfigurationError(
                f"loop: {self.name}: loops nest {self.depth} deep; {MAX_DEPTH} is the most"
            )
        put("members", tuple(self._conditions()))
        put("accept", acceptable(f"loop {self.name}", self.accept, required=self.required))
        self._warn_of_no_goal()
        if self.unbound:
            warnings.warn(LoopwrightWarning(self.unbound, code=CANNOT_BIND), stacklevel=4)
        put("approve", (self.approve,) if isinstance(self.approve, str) else tuple(self.approve))
        for moment in self.approve:
            _one_of("approve", moment, MOMENTS)

    def _check(self) -> None:
        _one_of("on_failure", self.on_failure, ("halt", "continue", "retry"))
        _one_of("keep", self.keep, ("best", "last"))
        codec.whole("loop: max_retries", self.max_retries, least=0)
        codec.whole("loop: max_failures", self.max_failures, least=1)
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
        outside it too.

        A loop that is judged and names no condition of success ends when its evaluation passes.
        """
        seen: list[Condition] = []
        for tree in (self.until, self.guards):
            if tree is not None:
                seen += [*tree.flat(), *tree.limits()]
        if self.evaluate is not None and not self.has_goal:
            seen.append(Passed())
        if not any(isinstance(c, MaxIterations | PhaseLimit) for c in seen):
            seen.append(MaxIterations(max(DEFAULT_LIMIT, self.min_iterations)))
        yield from dict.fromkeys(seen)

    @property
    def has_goal(self) -> bool:
        """Whether `until` or `guards` say what success is."""
        return any(has_goal(tree) for tree in (self.until, self.guards))

    def _warn_of_no_goal(self) -> None:
        if self.evaluate is not None and not self.has_goal and as_step(self.evaluate).scores_only:
            told = f"loop {self.name}: {NO_GOAL_TOLD}"
            warnings.warn(LoopwrightWarning(told, code=NO_GOAL), stacklevel=4)

    members: tuple[Condition, ...] = field(init=False, repr=False, compare=False, default=())

    @functools.cached_property
    def depth(self) -> int:
        """How many loops nest in it, itself included."""
        return 1 + super().depth

    def parts(self) -> Iterator[Step]:
        stages = (self.execute, self.evaluate, self.adapt)
        yield from (as_step(stage) for stage in stages if stage is not None)

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
        stages = (self.execute, self.evaluate, self.adapt)
        return digest_of(
            "loop",
            self.name,
            *("" if stage is None else as_step(stage).fingerprint for stage in stages),
            *(_written(condition) for condition in self.members),
            f"{self.on_failure} {self.max_retries} {self.keep} {self.min_iterations}",
            *([f"rejudge {self.rejudge}"] if self.rejudge else []),
            *(
                [f"max_failures {self.max_failures}"]
                if self.max_failures != FAILURES_IN_A_ROW
                else []
            ),
            *([f"accept {' '.join(self.accept)}"] if self.accept else []),
            *([f"approve {' '.join(self.approve)}"] if self.approve else []),
        )

    @functools.cached_property
    def watched(self) -> tuple[Condition, ...]:
        """Guards that time or spending can trip between rounds: those of ours cannot, but for
        limits."""
        if self.guards is None:
            return ()
        return tuple(guard for guard in self.guards.flat() if not guard.ours)

    @functools.cached_property
    def plain(self) -> bool:
        """Whether its steps are functions of a value, which nothing but the journal comes between."""
        return all(
            isinstance(part, Leaf) and not part.wants_context and part.reserve is None
            for part in self.parts()
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

        return Budget(*(tightest(unit) for unit in ("calls", "tokens", "usd", "effects")))

    @functools.cached_property
    def unbound(self) -> str:
        """Why its budget can never be used up, in a sentence, or ""."""
        budget = self.budget
        return "" if budget is None else cannot_bind(self, budget, f"loop {self.name!r}")

    @functools.cached_property
    def goals(self) -> tuple[Condition, ...]:
        """Its conditions of success."""
        return tuple(c for c in self.members if has_goal(c))

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run it to its end, from where the journal stands."""
        # The stages are steps since `__post_init__`.
        return await LoopRun(cast("LoopDeclaration", self), value, ctx).run()

    def decide(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return why the loop should end after its latest record: a pure function of what was
        recorded, and of the limits that a person raised (`members`, by default its own)."""
        failures, undecided = history.streaks
        if failures and (stop := self._failed(history)) is not None:
            return stop
        if undecided >= UNDECIDED_IN_A_ROW:
            detail = f"the evaluation was undecided {undecided} times in a row"
            why = shortened(" ".join(history[-1].feedback.split()), FEEDBACK_SHOWN)
            return Stop(Reason.EVALUATOR_UNUSABLE, f"{detail}: {why}" if why else detail)
        stops: list[Stop] | None = None
        for condition in members or self.members:
            stop = condition.check(history) if condition.ours else asked(condition, history)
            if stop is None:
                continue
            if not condition.early or len(history) >= self.min_iterations or stop.failure:
                stops = [stop] if stops is None else [*stops, stop]
        if stops is None:
            return None
        found = prefer(stops)
        return named(found, self.name) if found is not None and found.failure else found

    def _failed(self, history: History) -> Stop | None:
        last = history[-1]
        error = last.error
        if error is None or last.interrupted:
            return None
        if error.kind == BROKEN_EVALUATOR and error.stage == "evaluate":
            return Stop(Reason.EVALUATOR_UNUSABLE, f"iteration {last.number}: {error.message}")
        if self.on_failure != "continue":
            return Stop(Reason.ERROR, f"iteration {last.number}: {error.stage}: {error.message}")
        if history.failures >= self.max_failures:
            detail = (
                f"{history.failures} iterations in a row failed, the last with: {error.message}"
            )
            return Stop(Reason.REPEATED_FAILURE, detail)
        return None

    def ending(self, stop: Stop, history: History) -> Stop:
        """Return the stop to report: a loop of which every iteration failed has failed, whatever ended it."""
        if stop.reason.status is not Status.EXHAUSTED:
            return stop
        if history.failures < len(history):
            return stop
        failed = [item for item in history if not item.interrupted]
        if not failed:
            return stop
        last = failed[-1].feedback
        detail = f"all {len(failed)} iterations failed, the last with: {last}"
        if len(failed) == 1:
            detail = f"its only iteration failed: {last}"
        return Stop(Reason.ALL_FAILED, detail, (stop.reason, *stop.also))

    def remarks(self, stop: Stop, history: History) -> Iterator[tuple[str, str]]:
        """Iterate over warnings, each a code and a sentence, that no condition of success could hold, as no evaluation had what it
        reads."""
        if stop.reason is not Reason.MAX_ITERATIONS and (
            self.has_goal or stop.reason.status is not Status.EXHAUSTED
        ):
            return
        judged = [item for item in history if item.eligible]
        if any(goal.told(item) for item in judged for goal in self.goals):
            return
        # A score without a verdict: the loop lacks the score that is enough.
        scored = any(item.score is not None for item in history)
        for goal in self.goals if judged else ():
            if not self.has_goal or (scored and isinstance(goal, Passed)):
                yield NO_GOAL, NO_GOAL_TOLD
                continue
            lack = (
                "it has no evaluate" if self.evaluate is None else f"no iteration had {goal.reads}"
            )
            yield "", f"{lack}, so {tag_of(type(goal))} could not hold"


def _written(condition: Condition) -> str:
    """Return what a condition means, as text: of one of the user's, with what its code does."""
    if condition.ours and all(member.ours for member in condition.parts()):
        return codec.encode(condition.to_json())
    if condition.ours:
        return f"{tag_of(type(condition))} {' '.join(map(_written, condition.parts()))}"
    code = source_digest(type(condition).check)
    return f"{tag_of(type(condition))} {codec.encode(condition.field_values())} {code}"


def _one_of(name: str, value: Any, words: tuple[str, ...]) -> None:
    if value not in words:
        raise ConfigurationError(
            f"loop: {name}: {value!r} is none of {', '.join(words)}{nearest(str(value), words)}"
        )


def any_of(*conditions: Condition | None) -> Condition | None:
    """Return the conditions joined by "or", without the missing ones; None if there is none."""
    found = tuple(c for c in conditions if c is not None)
    return None if not found else found[0] if len(found) == 1 else AnyOf(found)
