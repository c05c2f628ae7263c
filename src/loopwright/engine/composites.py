"""Composite steps: sequence, parallel, fallback, retry and with_timeout.

A composite step has no effect itself: it is replayed by running it again over the recorded effects.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack, overload

from ..errors import (
    ConfigurationError,
    StepError,
    StepTimeout,
    Stopped,
)
from ..journal import Entry
from ..records import Reason, Result, Status, Stop, codec
from ..records.codec import Json
from ..records.typed import ValueType, either_type, members_type, same_type
from .concurrency import at_once_of, run_all
from .context import Context
from .deadlines import DeadlineScope
from .outcomes import RANKED, Wrapper, attempt, combined, outputs_by_name
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

__all__ = ["Wrapper", "fallback", "parallel", "retry", "sequence", "with_timeout"]


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


@dataclass(frozen=True)
class _Sequence(_Named):
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


@dataclass(frozen=True)
class _Parallel(_Named):
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
            ended = await run_all(jobs, limit)
        parts = [(n, p, r) for (n, p), r in zip(self.members, ended, strict=True)]
        output = outputs_by_name({n: r.output for n, _, r in parts})
        return combined(self.name, output, parts, ctx)


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


@dataclass(frozen=True)
class _Fallback(_Named):
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


@dataclass(frozen=True)
class _Retrying(Wrapper):
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
                # The wait before a recorded attempt is over.
                if not _is_recorded(ctx, f"attempt-{number + 1}"):
                    await ctx.sleep(self._wait(number, error, ctx.run.random))
            else:
                return result
        raise AssertionError("unreachable")

    def _wait(self, number: int, error: StepError, random: Callable[[], float]) -> float:
        # The random part keeps clients that failed together from retrying together.
        jittered = random() * min(self.longest, self.delay * 2.0 ** (number - 1))
        return max(error.retry_after or 0.0, jittered)


def _is_recorded(ctx: Context, name: str) -> bool:
    """Return whether an earlier process began the part with this name."""
    replay = ctx.run.replay
    return replay is not None and replay.began(ctx.below(name)) is not None


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


@dataclass(frozen=True)
class _Limited(Wrapper):
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
        inner = ctx.child(ctx.path)
        inner.gate = DeadlineScope(ctx.path, ctx.gate, deadline=start + self.seconds, stop=stop)
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


retrying, limited = retry, with_timeout  # the names of version 0.1
