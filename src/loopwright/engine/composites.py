"""Composite steps: sequence, parallel, fallback, retry and with_timeout, with their concurrency and outcome.

1. A composite step has no effect itself: it is replayed by running it again over the recorded effects.
2. Concurrent jobs start in order, a number at a time that a person may change. An error cancels the other jobs,
   a question to a person does not.
3. The outcome is that of the part, or the worst of several, so that no success hides an unsatisfied loop.
4. A part that fails raises an error, as a function does.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack, overload

from ..errors import (
    BudgetExceeded,
    ConfigurationError,
    StepError,
    StepTimeout,
    Stopped,
    Suspended,
)
from ..journal import Entry
from ..records import Reason, Result, Status, Stop, codec
from ..records.codec import Json
from ..records.typed import (
    CARRIERS,
    TypedMembers,
    Value,
    ValueType,
    either_type,
    members_type,
    same_type,
)
from .context import Context
from .deadlines import DeadlineScope
from .run_state import Run
from .step import (
    AsyncFunction,
    CompositeStep,
    In,
    Out,
    Step,
    StepLike,
    as_step,
    digest_of,
    fingerprinted,
)

__all__ = [
    "RANKED",
    "AtOnce",
    "Unsatisfied",
    "Wrapper",
    "at_once_of",
    "attempt",
    "checked",
    "combined",
    "fallback",
    "outputs_by_name",
    "parallel",
    "path_of",
    "retry",
    "run_all",
    "sequence",
    "with_timeout",
]

T = TypeVar("T")


class AtOnce:
    """The most jobs of a step that run at a time: the declared number, or the one that a person set.

    Args:
        run: the run.
        path: the path of the step, under which a person names it.
        declared: the number that the step declares.
    """

    __slots__ = ("_changed", "_path", "_run", "declared")

    def __init__(self, run: Run, path: str, declared: int) -> None:
        self._run = run
        self._path = path
        self.declared = declared
        self._changed: asyncio.Future[None] | None = None

    def __call__(self) -> int:
        """Return the number in force."""
        tuned = self._run.tuned
        most: int = self.declared if tuned is None else self._tuned(tuned.of(self._path))
        return most

    def at(self, active: float) -> int:
        """Return the number that was in force at an active second of the run."""
        tuned = self._run.tuned
        most: int = self.declared if tuned is None else self._tuned(tuned.of(self._path, active))
        return most

    def _tuned(self, limits: Mapping[str, Json]) -> Json:
        return limits.get("at_once", self.declared)

    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done when the number changes."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def tune(self, limits: Mapping[str, Json]) -> None:
        """Wake the step that starts the jobs: a raised number counts before one of them ends."""
        if "at_once" in limits and self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def refresh(self) -> None:
        """Do nothing: a number of jobs does not depend on the budgets above."""


def path_of(ctx: Context, name: str) -> str:
    """Return the path under which a person names a step: it ends with the step's name."""
    return ctx.path if ctx.path.rsplit("/", 1)[-1] == name else ctx.below(name)


@contextlib.contextmanager
def at_once_of(ctx: Context, name: str, declared: int) -> Iterator[AtOnce | int]:
    """Open the number of jobs of a step to changes, while the step runs.

    Args:
        ctx: the context of the step.
        name: its name.
        declared: the number that it declares.

    Returns:
        The number, for `run_all`; a plain number in a run that cannot be tuned.
    """
    run = ctx.run
    if run.silent:
        yield declared
        return
    path = path_of(ctx, name)
    # With a slash at the end, which no path has: a loop inside the step may have the same path.
    key = f"{path}/"
    limit = run.open_loops[key] = AtOnce(run, path, declared)
    try:
        yield limit
    finally:
        run.open_loops.pop(key, None)


async def run_all(
    jobs: Sequence[Callable[[], Coroutine[object, object, T]]],
    limit: int | AtOnce | None = None,
    *,
    ready: Callable[[int], bool] | None = None,
    done: Callable[[int, T], None] | None = None,
    over: Callable[[], bool] | None = None,
    in_order: bool = False,
    count: Callable[[int], None] = lambda more: None,
) -> list[T]:
    """Run jobs and return their values in the order of the jobs.

    The first error cancels the other jobs. A job that asks a person cancels nothing: the others
    continue as far as they can, then its question is raised.

    Args:
        jobs: functions that return coroutines.
        limit: the most jobs that run at a time, which may change while they run. Default: all.
        ready: whether the job at a position may start. Default: each may.
        done: called with the position and the value of each job that ends.
        over: whether to stop: no other job starts, the running ones are cancelled, and the values of
            the jobs that ended are returned.
        in_order: whether a question ends the start of further jobs while they run one at a time.
        count: called with changes of the number of branches of the run, `Run.count`.
    """
    counted = 1  # the caller, which the jobs replace
    waiting = list(range(len(jobs)))
    running: dict[asyncio.Task[T], int] = {}
    ended: dict[int, asyncio.Task[T]] = {}
    asked = False
    # Without any of these there is nothing to do between the start and the first error.
    each = limit or ready or done or over
    when = asyncio.FIRST_COMPLETED if each else asyncio.FIRST_EXCEPTION
    try:
        while over is None or not over():
            startable = waiting if ready is None else [n for n in waiting if ready(n)]
            most = limit() if callable(limit) else limit or len(jobs)
            if in_order and asked and most == 1:
                startable = []
            for number in startable[: max(0, most - len(running))]:
                waiting.remove(number)
                running[asyncio.ensure_future(jobs[number]())] = number
            if not running:
                break
            if len(running) != counted:
                count(len(running) - counted)
                counted = len(running)
            waits: list[asyncio.Future[T] | asyncio.Future[None]] = [*running]
            if callable(limit):
                waits.append(limit.changed())
            await asyncio.wait(waits, return_when=when)
            finished = [task for task in running if task.done()]
            # Values before errors, and in order: `done` records what ended at the same moment as an
            # error.
            for task in sorted(finished, key=lambda task: (_broken(task), running[task])):
                number = running.pop(task)
                ended[number] = task
                if done is not None and not _broken(task):
                    done(number, task.result())
            if any(map(_failed, finished)):
                break
            asked = asked or any(map(_broken, finished))
    finally:
        await _cancel(running)
        if counted != 1:
            count(1 - counted)
    every = [ended[number] for number in sorted(ended)]
    # The error of the earliest job is raised, even if that job failed while it was being cancelled: a
    # replay must raise the same error.
    if any(map(_failed, every)):
        ended |= {number: task for task, number in running.items()}
        every = [ended[number] for number in sorted(ended)]
    errors = [e for task in every if not task.cancelled() and (e := task.exception()) is not None]
    # A question only if none has another error.
    for error in sorted(errors, key=lambda error: isinstance(error, Suspended)):
        raise error
    return [task.result() for task in every]


async def _cancel(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Cancel tasks and wait for them."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        # Retrieved, so that asyncio does not report the exception as never retrieved.
        _ = task.cancelled() or task.exception()


def _broken(task: asyncio.Task[object]) -> bool:
    return task.cancelled() or task.exception() is not None


def _failed(task: asyncio.Task[object]) -> bool:
    return task.cancelled() or not isinstance(task.exception(), Suspended | None)


# From the worst to the best.
RANKED = tuple(
    Status(word)
    for word in ("cancelled", "suspended", "failed", "impossible", "exhausted", "satisfied")
)


def combined(
    name: str, output: Json, ended: Sequence[tuple[str, Step, Result]], ctx: Context
) -> Result:
    """Return the result of a step: that of the worst of its parts, each a (name, step, result).

    Of several equal ones, the first counts. A status that a part accepts does not count.
    """
    counting = [(part, r) for part, step, r in ended if r.status.value not in step.accept]
    if not all(r.satisfied for _, r in counting):
        part, worst = min(counting, key=lambda item: RANKED.index(item[1].status))
        named = worst.detail.startswith((f"{part}: ", f"{part} "))
        return Result(
            worst.status,
            worst.reason,
            worst.detail if named else f"{part}: {worst.detail}",
            output,
            name=name,
            also=worst.also,
            # The document continued after this failure, so the step around this one does too.
            gone_on=worst.status is Status.FAILED,
            error=worst.error,
            cause=worst.cause,
        )
    reached = next((r for _, r in reversed(counting) if r.reason is not Reason.COMPLETED), None)
    reason = reached.reason if reached else Reason.COMPLETED
    detail = reached.detail if reached else f"{ctx.path or name} completed"
    accepted = [f"{part} {r.status.value}" for part, s, r in ended if r.status.value in s.accept]
    if accepted:
        detail = f"{detail}; accepted: {', '.join(accepted)}"
    return Result(Status.SATISFIED, reason, detail, output, name=name)


def outputs_by_name(outputs: dict[str, Json]) -> Json:
    """Return the outputs of several parts as an object that carries their declared types, if any has one."""
    if CARRIERS.isdisjoint(map(type, outputs.values())):
        return outputs
    return TypedMembers(outputs)


class Unsatisfied(StepError):
    """A required loop was not satisfied; `result` is its result."""

    result: Result

    def __init__(self, result: Result, path: str) -> None:
        detail = f"{path} is required, but {result.detail}"
        budget = result.reason is Reason.BUDGET
        super().__init__(detail, path=path, kind="budget" if budget else result.status.value)
        self.result = result
        self.caused_by(result)


class _OverBudget(Unsatisfied, BudgetExceeded):
    """A required loop used up its budget."""


class Wrapper(CompositeStep):
    """One step, run in another way: it counts for the workflow around it as that step does."""

    inner: Step

    def parts(self) -> Iterable[Step]:
        return [self.inner]

    @property
    def input_type(self) -> ValueType | None:
        return self.inner.input_type

    @property
    def output_type(self) -> ValueType | None:
        return self.inner.output_type

    @property
    def required(self) -> bool:
        return self.inner.required

    @property
    def accept(self) -> tuple[str, ...]:
        return self.inner.accept

    @property
    def scores_only(self) -> bool:
        return self.inner.scores_only


async def attempt(ctx: Context, name: str, inner: Step, value: Json) -> Result:
    """Run a part and return its result; a failed loop raises an error, as a failed function does.

    Raises:
        StepError: if it failed and its failure is not tolerated, or it is required and not satisfied.
    """
    return checked(await ctx.outcome(name, inner, value), inner, ctx.below(name))


def checked(result: Result, inner: Step, path: str) -> Result:
    """Return the result of a part if the step around it continues.

    Raises:
        StepError: if it failed and its failure is not tolerated, or it is required and not satisfied.
    """
    if result.status is Status.SATISFIED:
        return result
    if result.status is Status.FAILED and not result.gone_on:
        raise StepError.of(result, path)
    if inner.required:
        kind = _OverBudget if result.reason is Reason.BUDGET else Unsatisfied
        raise kind(result, path)
    return result


A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class _Named(CompositeStep):
    """Several steps, each with its name in paths."""

    members: tuple[tuple[str, Step], ...]
    keeps_types: ClassVar[bool] = True

    def parts(self) -> Iterable[Step]:
        return [part for _, part in self.members]


@dataclass(frozen=True, eq=False, repr=False)
class _Sequence(Value, _Named):
    name: str
    members: tuple[tuple[str, Step], ...]

    @property
    def input_type(self) -> ValueType | None:
        return self.members[0][1].input_type

    @property
    def output_type(self) -> ValueType | None:
        return self.members[-1][1].output_type

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("sequence", *(f"{n} {s.fingerprint}" for n, s in self.members))

    @property
    def scores_only(self) -> bool:
        return self.members[-1][1].scores_only

    async def run(self, value: Json, ctx: Context) -> Result:
        ended = []
        for name, part in self.members:
            result = await attempt(ctx, name, part, value)
            value = result.output
            ended.append((name, part, result))
        return combined(self.name, value, ended, ctx)


@overload
def sequence(a: StepLike[In, Out], /, *, name: str = ...) -> CompositeStep[In, Out]: ...
@overload
def sequence(
    a: StepLike[In, A], b: StepLike[A, Out], /, *, name: str = ...
) -> CompositeStep[In, Out]: ...
@overload
def sequence(
    a: StepLike[In, A], b: StepLike[A, B], c: StepLike[B, Out], /, *, name: str = ...
) -> CompositeStep[In, Out]: ...
@overload
def sequence(
    a: StepLike[In, A],
    b: StepLike[A, B],
    c: StepLike[B, C],
    d: StepLike[C, Out],
    /,
    *,
    name: str = ...,
) -> CompositeStep[In, Out]: ...
@overload
def sequence(
    a: StepLike[In, A],
    b: StepLike[A, B],
    c: StepLike[B, C],
    d: StepLike[C, D],
    e: StepLike[D, Out],
    /,
    *,
    name: str = ...,
) -> CompositeStep[In, Out]: ...
@overload
def sequence(
    a: StepLike[In, A],
    b: StepLike[A, B],
    c: StepLike[B, C],
    d: StepLike[C, D],
    e: StepLike[D, E],
    f: StepLike[E, Out],
    /,
    *,
    name: str = ...,
) -> CompositeStep[In, Out]: ...
@overload
def sequence(
    a: StepLike,
    b: StepLike,
    c: StepLike,
    d: StepLike,
    e: StepLike,
    f: StepLike,
    g: StepLike,
    /,
    *more: StepLike,
    name: str = ...,
) -> CompositeStep: ...
def sequence(*steps: StepLike, name: str = "sequence") -> CompositeStep:
    """Run steps one after the other, each on the output of the previous one.

    Args:
        steps: steps or functions, at least one. Two of the same name get numbers in their paths.
        name: the name of the sequence in paths.

    Returns:
        A step. Its output is that of the last step, its status the worst of theirs.

    Raises:
        ConfigurationError: without steps.

    Example:
        >>> from loopwright import run_sync, sequence
        >>> run_sync(sequence(str.strip, str.upper), " a ").output
        'A'
    """
    return _Sequence(name, _named(steps))


def _named(steps: tuple[StepLike, ...]) -> tuple[tuple[str, Step], ...]:
    if not steps:
        raise ConfigurationError("give at least one step")
    parts = [as_step(s) for s in steps]
    names = [part.name.replace("/", "-") for part in parts]  # a slash separates the parts of a path
    # A generated name must not be the name of another step: steps a, a and a-1 become a-2, a-3 and a-1.
    used = {name for name in names if names.count(name) == 1}
    named = []
    for name, part in zip(names, parts, strict=True):
        if names.count(name) > 1:
            numbered = (f"{name}-{n}" for n in itertools.count(1))
            name = next(free for free in numbered if free not in used)
            used.add(name)
        named.append((name, part))
    return tuple(named)


@dataclass(frozen=True, eq=False, repr=False)
class _Parallel(Value, _Named):
    name: str
    members: tuple[tuple[str, Step], ...]
    at_once: int

    @functools.cached_property
    def output_type(self) -> ValueType | None:
        return members_type({name: part.output_type for name, part in self.members}, self.name)

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("parallel", *(f"{n} {s.fingerprint}" for n, s in self.members))

    async def run(self, value: Json, ctx: Context) -> Result:
        # Functions and not coroutines: a coroutine that never starts is reported as never awaited.
        jobs = [functools.partial(attempt, ctx, n, part, value) for n, part in self.members]
        with at_once_of(ctx, self.name, self.at_once) as limit:
            ended = await run_all(jobs, limit, count=ctx.run.count)
        parts = [(n, p, r) for (n, p), r in zip(self.members, ended, strict=True)]
        return combined(self.name, outputs_by_name({n: r.output for n, _, r in parts}), parts, ctx)


def parallel(
    *steps: StepLike[In, Any], name: str = "parallel", at_once: int = 16, **named: StepLike[In, Any]
) -> CompositeStep[In, dict[str, Any]]:
    """Run steps concurrently on the same input. The first failure cancels the others.

    Args:
        steps: steps or functions. With those in `named`, at least one.
        name: the name of the step in paths.
        at_once: the most steps that run at a time.
        named: steps or functions by the name that they have in the output.

    Returns:
        A step. Its output is an object of the outputs by name, its status the worst of the steps'.

    Raises:
        ConfigurationError: without steps, or for `at_once` below 1.

    Example:
        >>> from loopwright import parallel, run_sync
        >>> run_sync(parallel(str.upper, low=str.lower), "Ab").output
        {'upper': 'AB', 'low': 'ab'}
    """
    limit = codec.integer("parallel: at_once", at_once, minimum=1)
    members = _named(steps) if steps or not named else ()
    if taken := sorted({key for key, _ in members} & named.keys()):
        raise ConfigurationError(f"parallel: two steps have the name {taken[0]!r}")
    members += tuple((key, as_step(part, name=key)) for key, part in named.items())
    return _Parallel(name, members, limit)


@dataclass(frozen=True, eq=False, repr=False)
class _Fallback(Value, _Named):
    name: str
    members: tuple[tuple[str, Step], ...]

    @functools.cached_property
    def input_type(self) -> ValueType | None:
        types = [part.input_type for _, part in self.members]
        return types[0] if all(same_type(types[0], other) for other in types) else None

    @functools.cached_property
    def output_type(self) -> ValueType | None:
        return either_type([part.output_type for _, part in self.members], self.name)

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("fallback", *(f"{n} {s.fingerprint}" for n, s in self.members))

    async def run(self, value: Json, ctx: Context) -> Result:
        best: tuple[str, Step, Result] | None = None
        failed: Result | None = None  # of the best failed loop
        errors = []
        for name, part in self.members:
            try:
                result = await attempt(ctx, name, part, value)
            except StepError as error:
                errors.append(f"{name}: {error}")
                failed = _better(failed, error.result)
                continue
            if result.satisfied or result.status.value in part.accept:
                return combined(self.name, result.output, [(name, part, result)], ctx)
            # An unsatisfied loop is kept: the next alternative may be worse.
            if best is None or _better(best[2], result) is result:
                best = name, part, result
        if best is not None:
            return combined(self.name, best[2].output, [best], ctx)
        detail = "every strategy failed: " + "; ".join(errors)
        if failed is not None:  # with the output of the best failed loop, which the caller may use
            result = Result(
                Status.FAILED,
                Reason.ALL_FAILED,
                detail,
                failed.output,
                name=self.name,
                error=failed.error,
                cause=failed.cause,
            )
            raise StepError.of(result, ctx.path)
        raise StepError(detail, path=ctx.path, kind="all_failed")


def _better(best: Result | None, other: Result | None) -> Result | None:
    """Return the result with the better status, then the better score; the first on ties."""
    if best is None or other is None:
        return best or other
    ranks = [
        (RANKED.index(r.status), r.best.score if r.best and r.best.score is not None else -1.0)
        for r in (best, other)
    ]
    return other if ranks[1] > ranks[0] else best


@overload
def fallback(*steps: AsyncFunction[In, Out], name: str = ...) -> CompositeStep[In, Out]: ...
@overload
def fallback(*steps: StepLike[In, Out], name: str = ...) -> CompositeStep[In, Out]: ...
def fallback(*steps: StepLike[In, Out], name: str = "fallback") -> CompositeStep[In, Out]:
    """Run steps in order on the same input until one is satisfied.

    Args:
        steps: steps or functions, at least one.
        name: the name of the step in paths.

    Returns:
        A step. Its result is that of the first satisfied step, else that of the best loop that did not
        fail (the best status, then the highest score). If all fail, it fails as `all_failed`.

    Raises:
        ConfigurationError: without steps.

    Example:
        >>> from loopwright import fallback, run_sync
        >>> run_sync(fallback(int, str), "ten").output
        'ten'
    """
    return _Fallback(name, _named(steps))


@dataclass(frozen=True, eq=False, repr=False)
class _Retrying(Value, Wrapper):
    keeps_types: ClassVar[bool] = True
    name: str
    inner: Step
    attempts: int
    delay: float
    longest: float

    @fingerprinted
    def fingerprint(self) -> str:
        # Without the delays: a recorded run may resume with other ones.
        return digest_of("retrying", self.inner.fingerprint, str(self.attempts))

    async def run(self, value: Json, ctx: Context) -> Result:
        for number in range(1, self.attempts + 1):
            try:
                result = await attempt(ctx, f"attempt-{number}", self.inner, value)
            except StepError as error:
                if number == self.attempts or not error.retryable:
                    raise
                replay = ctx.run.replay
                # The wait before a recorded attempt is over.
                if replay is None or replay.began(ctx.below(f"attempt-{number + 1}")) is None:
                    # The random part keeps clients that failed together from retrying together.
                    longest = min(self.longest, self.delay * 2.0 ** (number - 1))
                    await ctx.sleep(max(error.retry_after or 0.0, ctx.run.random() * longest))
            else:
                return result
        raise AssertionError("unreachable")


class RetryOptions(TypedDict, total=False):
    """The options of `retry`, which explains them."""

    attempts: int
    delay: float
    longest: float
    name: str


@overload
def retry(
    inner: AsyncFunction[In, Out], **options: Unpack[RetryOptions]
) -> CompositeStep[In, Out]: ...
@overload
def retry(inner: StepLike[In, Out], **options: Unpack[RetryOptions]) -> CompositeStep[In, Out]: ...
def retry(
    inner: StepLike[In, Out],
    *,
    attempts: int = 3,
    delay: float = 0.5,
    longest: float = 30.0,
    name: str = "",
) -> CompositeStep[In, Out]:
    """Run a step again when it fails. Errors that are not retryable end it at once.

    The wait after attempt k is uniform(0, min(longest, delay * 2^(k-1))) seconds: exponential back-off
    with full jitter (Brooker, AWS Architecture Blog, 2015). It is at least the error's `retry_after` and
    never goes past a deadline.

    Args:
        inner: the step or function.
        attempts: the most attempts in all.
        delay: the longest first wait, in seconds.
        longest: the longest wait, in seconds.
        name: its name in paths. Default: that of the step.

    Returns:
        A step with the result of the last attempt.

    Raises:
        ConfigurationError: for `attempts` below 1, or a negative time.

    Example:
        >>> from loopwright import retry, run_sync
        >>> run_sync(retry(int, attempts=2, delay=0), "4").output
        4
    """
    step = as_step(inner)
    return _Retrying(
        name or step.name,
        step,
        codec.integer("retry: attempts", attempts, minimum=1),
        codec.number("retry: delay", delay, minimum=0),
        codec.number("retry: longest", longest, minimum=0),
    )


@dataclass(frozen=True, eq=False, repr=False)
class _Limited(Value, Wrapper):
    keeps_types: ClassVar[bool] = True
    name: str
    inner: Step
    seconds: float

    @fingerprinted
    def fingerprint(self) -> str:
        # Without the seconds: a recorded run may resume with another limit.
        return digest_of("limited", self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        # The limit counts from the recorded beginning, so that a resume does not extend it.
        began = ctx.run.replay.began(ctx.path) if ctx.run.replay else None
        start = ctx.run.now() if began is None else began
        stop = Stop(Reason.TIMEOUT, f"{self.name} took longer than its {self.seconds:g} s")
        gate = DeadlineScope(ctx.path, ctx.gate, deadline=start + self.seconds, stop=stop)
        inner = Context(ctx.run, ctx.path, gate, ctx.account, ctx.scope)
        try:
            return await attempt(inner, "within", self.inner, value)
        except Stopped as stopped:
            # A deadline of an outer loop ends that loop; it is not a failure of this step.
            if stopped.owner != ctx.path:
                raise
        ctx.run.append(Entry("expired", ctx.path, ctx.run.now()))
        raise StepTimeout(stop.detail, path=ctx.path)


@overload
def with_timeout(inner: AsyncFunction[In, Out], seconds: float) -> CompositeStep[In, Out]: ...
@overload
def with_timeout(inner: StepLike[In, Out], seconds: float) -> CompositeStep[In, Out]: ...
def with_timeout(inner: StepLike[In, Out], seconds: float) -> CompositeStep[In, Out]:
    """Give a step a time limit. At the limit it is cancelled and fails with StepTimeout.

    Args:
        inner: the step or function.
        seconds: the limit, above 0. Time while the process is down does not count.

    Returns:
        A step with the result of `inner`.

    Raises:
        ConfigurationError: for a limit that is not above 0.

    Example:
        >>> from loopwright import run_sync, with_timeout
        >>> run_sync(with_timeout(str.upper, 5.0), "a").output
        'A'
    """
    limit = codec.number("timeout: seconds", seconds, minimum=0, above=True)
    step = as_step(inner)
    return _Limited(step.name, step, limit)
