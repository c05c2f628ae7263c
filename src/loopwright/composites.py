"""Steps made of steps: sequence, parallel, fallback, retrying, limited.

A composite has no effect of its own: it is replayed by running it again over the effects on record.
It is exhausted if a part is, so that no success is silent about a loop that was not satisfied.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import codec
from .codec import Json
from .context import Context
from .errors import ConfigurationError, StepError, StepTimeout, Stopped, Suspended
from .journal import Entry
from .records import Reason, Result, Status, Stop
from .runtime import Gate
from .step import as_step, digest_of
from .together import gather

__all__ = [
    "Composite",
    "Unsatisfied",
    "attempt",
    "fallback",
    "gather",
    "limited",
    "parallel",
    "retrying",
    "sequence",
]


class Composite:
    """A step made of steps: it has no effect of its own."""

    effect = False
    required = False
    reserve = None
    idempotent = True
    supplies: Collection[str] = ()  # names that templates inside it see, beyond those always there
    name: str

    @property
    def depth(self) -> int:
        """How many loops nest in it."""
        return max((getattr(part, "depth", 0) for part in self.made_of()), default=0)

    def made_of(self) -> Iterable[Any]:
        """Return the steps that it is made of."""
        return ()

    @functools.cached_property
    def unsupplied(self) -> Mapping[str, str]:
        """The names that templates in it need and nothing in it supplies, with a sentence on each."""
        found: dict[str, str] = {}
        for part in self.made_of():
            found |= getattr(part, "unsupplied", {})
        return {name: told for name, told in found.items() if name not in self.supplies}

    def _end(self, output: Json, ended: list[Result], ctx: Context) -> Result:
        """Return how the whole ended: exhausted if any part was, with that part's reason."""
        short = next((r for r in ended if r.status is Status.EXHAUSTED), None)
        if short is not None:
            return Result(Status.EXHAUSTED, short.reason, short.detail, output, name=self.name)
        reached = next((r for r in reversed(ended) if r.reason is not Reason.COMPLETED), None)
        reason = reached.reason if reached else Reason.COMPLETED
        detail = reached.detail if reached else f"{ctx.path or self.name} completed"
        return Result(Status.SATISFIED, reason, detail, output, name=self.name)


class Unsatisfied(StepError):
    """A required loop was not satisfied; `result` is what it has."""

    def __init__(self, result: Result, path: str) -> None:
        super().__init__(f"{path} is required, but {result.detail}", path=path, kind="exhausted")
        self.result = result


async def attempt(ctx: Context, name: str, inner: Any, value: Json) -> Result:
    """Run a part and return how it ended; a failed loop raises like a failed function.

    Raises:
        StepError: if it failed, or is required and was not satisfied.
    """
    result = await ctx.outcome(name, inner, value)
    path = ctx.below(name)
    if result.status is Status.FAILED:
        raise StepError(result.detail, path=path, kind=result.reason.value)
    if result.status is Status.EXHAUSTED and inner.required:
        raise Unsatisfied(result, path)
    return result


class _Parts(Composite):
    """Steps under names of their own."""

    parts: tuple[tuple[str, Any], ...]

    def made_of(self) -> Iterable[Any]:
        return [part for _, part in self.parts]


class _Around(Composite):
    """One step, run in a way of its own."""

    inner: Any

    def made_of(self) -> Iterable[Any]:
        return [self.inner]


@dataclass(frozen=True)
class _Sequence(_Parts):
    name: str
    parts: tuple[tuple[str, Any], ...]

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("sequence", *(f"{n} {s.fingerprint}" for n, s in self.parts))

    async def run(self, value: Json, ctx: Context) -> Result:
        ended = []
        for name, part in self.parts:
            result = await attempt(ctx, name, part, value)
            value = result.output
            ended.append(result)
        return self._end(value, ended, ctx)


def sequence(*steps: Any, name: str = "sequence") -> Any:
    """Run steps one after the other, each on the output of the one before."""
    return _Sequence(name, _named(steps))


def _named(steps: tuple[Any, ...]) -> tuple[tuple[str, Any], ...]:
    if not steps:
        raise ConfigurationError("give at least one step")
    made = [as_step(s) for s in steps]
    names = [s.name.replace("/", "-") for s in made]  # they become parts of paths
    taken = {name for name in names if names.count(name) == 1}
    found = []
    for name, part in zip(names, made, strict=True):
        if names.count(name) > 1:
            numbered = (f"{name}-{n}" for n in itertools.count(1))
            name = next(each for each in numbered if each not in taken)
            taken.add(name)
        found.append((name, part))
    return tuple(found)


@dataclass(frozen=True)
class _Parallel(_Parts):
    name: str
    parts: tuple[tuple[str, Any], ...]
    at_once: int

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("parallel", *(f"{n} {s.fingerprint}" for n, s in self.parts))

    async def run(self, value: Json, ctx: Context) -> Result:
        room = asyncio.Semaphore(self.at_once)
        broken: list[str] = []

        async def branch(name: str, part: Any) -> Result | None:
            async with room:
                if broken:  # what waited for room begins nothing after a failure
                    return None
                try:
                    return await attempt(ctx, name, part, value)
                except Suspended:  # the others need not wait for its answer
                    raise
                except BaseException:
                    broken.append(name)
                    raise

        ended = await gather([branch(name, part) for name, part in self.parts])
        output = {n: r.output for (n, _), r in zip(self.parts, ended, strict=True)}
        return self._end(output, ended, ctx)


def parallel(*steps: Any, name: str = "parallel", at_once: int = 16) -> Any:
    """Run steps at once on the same input; the output is an object of their outputs by name.

    At most `at_once` run at a time; the first failure cancels the others.
    """
    return _Parallel(name, _named(steps), codec.whole("parallel: at_once", at_once, least=1))


@dataclass(frozen=True)
class _Fallback(_Parts):
    name: str
    parts: tuple[tuple[str, Any], ...]

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("fallback", *(f"{n} {s.fingerprint}" for n, s in self.parts))

    async def run(self, value: Json, ctx: Context) -> Result:
        best: Result | None = None
        errors = []
        for name, part in self.parts:
            try:
                result = await attempt(ctx, name, part, value)
            except StepError as error:
                errors.append(f"{name}: {error}")
                continue
            if result.satisfied:
                return self._end(result.output, [result], ctx)
            best = _better(best, result)
        if best is not None:
            return self._end(best.output, [best], ctx)
        raise StepError(
            "every strategy failed: " + "; ".join(errors), path=ctx.path, kind="all_failed"
        )


def _better(best: Result | None, other: Result) -> Result:
    if best is None:
        return other
    scores = [r.best.score if r.best and r.best.score is not None else -1.0 for r in (best, other)]
    return other if scores[1] > scores[0] else best


def fallback(*steps: Any, name: str = "fallback") -> Any:
    """Try steps in order until one is satisfied: a failed one, or an exhausted loop, leads to the
    next.

    If none is satisfied, the best exhausted one is the outcome; if all fail, so does this.
    """
    return _Fallback(name, _named(steps))


@dataclass(frozen=True)
class _Retrying(_Around):
    name: str
    inner: Any
    attempts: int
    delay: float
    longest: float

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("retrying", self.inner.fingerprint, str(self.attempts))

    @property
    def required(self) -> bool:  # type: ignore[override]
        return bool(self.inner.required)

    async def run(self, value: Json, ctx: Context) -> Result:
        for number in range(1, self.attempts + 1):
            try:
                result = await attempt(ctx, f"attempt-{number}", self.inner, value)
            except StepError as error:
                if number == self.attempts or not error.retryable:
                    raise
                if not _tried(ctx, f"attempt-{number + 1}"):
                    await ctx.sleep(self._wait(number, error, ctx.run.random))
            else:
                return result
        raise AssertionError("unreachable")

    def _wait(self, number: int, error: StepError, random: Callable[[], float]) -> float:
        told = getattr(error, "retry_after", None) or 0.0
        jittered = random() * min(self.longest, self.delay * 2.0 ** (number - 1))
        return float(max(told, jittered))


def _tried(ctx: Context, name: str) -> bool:
    """Whether a replay already holds this attempt: nobody waits twice for the same moment."""
    replay = ctx.run.replay
    return replay is not None and replay.began(ctx.below(name)) is not None


def retrying(
    inner: Any, *, attempts: int = 3, delay: float = 0.5, longest: float = 30.0, name: str = ""
) -> Any:
    """Run a step again when it fails, at most `attempts` times in all; permanent errors are not
    retried.

    Waits uniform(0, min(longest, delay * 2^k)) seconds after attempt k+1 (exponential back-off with
    full jitter), never less than the error's `retry_after`, never past the deadline.
    """
    made = as_step(inner)
    return _Retrying(
        name or made.name,
        made,
        codec.whole("retrying: attempts", attempts, least=1),
        codec.number("retrying: delay", delay, least=0),
        codec.number("retrying: longest", longest, least=0),
    )


@dataclass(frozen=True)
class _Limited(_Around):
    name: str
    inner: Any
    seconds: float

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("limited", self.inner.fingerprint)

    @property
    def required(self) -> bool:  # type: ignore[override]
        return bool(self.inner.required)

    async def run(self, value: Json, ctx: Context) -> Result:
        began = ctx.run.replay.began(ctx.path) if ctx.run.replay else None
        start = ctx.run.now() if began is None else began
        stop = Stop(Reason.TIMEOUT, f"{self.name} took longer than its {self.seconds:g} s")
        inner = ctx.child(ctx.path)
        inner.gate = Gate(ctx.path, ctx.gate, deadline=start + self.seconds, stop=stop)
        try:
            return await attempt(inner, "within", self.inner, value)
        except Stopped as stopped:
            if stopped.owner != ctx.path:
                raise
        ctx.run.append(Entry("expired", ctx.path, ctx.run.now()))
        raise StepTimeout(stop.detail, path=ctx.path)


def limited(inner: Any, seconds: float) -> Any:
    """Run a step within `seconds`; over that it is cancelled and fails with StepTimeout."""
    limit = codec.number("timeout: seconds", seconds, least=0, above=True)
    made = as_step(inner)
    return _Limited(made.name, made, limit)
