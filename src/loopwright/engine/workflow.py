"""Named steps with dependencies: a graph that is itself a step."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Mapping, Sequence

from ..errors import ConfigurationError, StepError, Stopped, nearest
from ..records import Reason, Result, StepOutcome, Stop, codec
from ..records.codec import Json
from .composites import Unsatisfied, attempt, combined
from .concurrency import run_all
from .context import Context
from .run_state import Run
from .scope import Scope
from .step import CompositeStep, Step, StepLike, as_step, digest_of

__all__ = ["Workflow"]


class Workflow(CompositeStep):
    """Named steps with dependencies, run as one step.

    A step without `needs` is given the workflow's input, one with a single need that step's output,
    one with several an object of their outputs by name. Steps run in written order, moved later by
    their needs, `at_once` at a time (default 1: nothing is concurrent unless you say so). The
    output is that of the step named by `output`, else of the last one.

    It goes on after a loop that is exhausted or impossible. Its own status is the worst of those of
    its steps, without the statuses that a step accepts (`Loop(accept=…)`).

    Raises:
        ConfigurationError: for an unknown need or a circle, naming it.
    """

    def __init__(
        self,
        name: str,
        steps: Mapping[str, StepLike],
        *,
        needs: Mapping[str, Sequence[str]] | None = None,
        at_once: int = 1,
        output: str = "",
    ) -> None:
        _check_shape(name, steps, {} if needs is None else needs)
        self.name = name
        self.steps = {key: as_step(value, name=key) for key, value in steps.items()}
        self.supplies = self.steps.keys()
        self.needs = {key: tuple((needs or {}).get(key, ())) for key in self.steps}
        self.at_once = codec.whole(f"workflow {name}: at_once", at_once, least=1)
        self.output = output or next(reversed(self.steps))
        for key in [*(needs or {}), self.output, *(n for ns in self.needs.values() for n in ns)]:
            if key not in self.steps:
                hint = nearest(str(key), self.steps)
                raise ConfigurationError(f"workflow {name}: there is no step {key!r}{hint}")
        self.order = self._order()

    def parts(self) -> Iterable[Step]:
        return self.steps.values()

    def _order(self) -> list[str]:
        order: list[str] = []
        left = list(self.steps)
        while left:
            ready = next((k for k in left if all(n in order for n in self.needs[k])), None)
            if ready is None:
                circle = " -> ".join(_circle(self.needs, left))
                raise ConfigurationError(f"workflow {self.name}: steps need each other: {circle}")
            order.append(ready)
            left.remove(ready)
        return order

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of its steps and their order."""
        parts = (f"{k} {self.needs[k]} {s.fingerprint}" for k, s in self.steps.items())
        return digest_of("workflow", self.name, self.output, *parts)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run its steps to the end, or to the first that fails."""
        return await self.inside(self._scope(value, ctx.scope), value, ctx)

    def _scope(self, value: Json, outer: Scope | None) -> Scope:
        return Scope(self.name, value, outer)

    async def inside(self, scope: Scope, value: Json, ctx: Context) -> Result:
        """Run its steps with their variables in `scope`."""
        inner = Context(ctx.run, ctx.path, ctx.gate, ctx.account, scope)
        ended: dict[str, Result] = {}
        try:
            await self._drive(inner, value, ended)
        except Unsatisfied as short:
            self._not_run(ctx, scope)
            found = short.result
            return Result(found.status, found.reason, str(short), found.output, name=self.name)
        except (StepError, Stopped, asyncio.CancelledError) as error:
            if _stop_of(error, ctx.run) is not None:
                self._not_run(ctx, scope)
            raise
        output = ended[self.output].output
        return combined(
            self.name, output, [(key, self.steps[key], ended[key]) for key in self.order], ctx
        )

    async def _drive(self, ctx: Context, value: Json, ended: dict[str, Result]) -> None:
        """Run the steps, each when those that it needs have ended."""
        order = self.order
        if self.at_once == 1:
            for key in order:
                self._keep(ctx, key, await self._one(ctx, key, value, ended), ended)
            return
        await run_all(
            [functools.partial(self._one, ctx, key, value, ended) for key in order],
            self.at_once,
            ready=lambda place: all(need in ended for need in self.needs[order[place]]),
            done=lambda place, result: self._keep(ctx, order[place], result, ended),
        )

    async def _one(
        self, ctx: Context, key: str, value: Json, ended: Mapping[str, Result]
    ) -> Result:
        needs = self.needs[key]
        given = value
        if len(needs) == 1:
            given = ended[needs[0]].output
        elif needs:
            given = {name: ended[name].output for name in needs}
        if ctx.scope is None or ctx.scope.parent is not None:
            return await attempt(ctx, key, self.steps[key], given)
        return await self._told(ctx, key, given)

    async def _told(self, ctx: Context, key: str, value: Json) -> Result:
        """Run a step of the root workflow and record how it ended."""
        run, path = ctx.run, ctx.below(key)
        began = None if run.replay is None else run.replay.began(path)
        began = run.now() if began is None else began
        try:
            result = await attempt(ctx, key, self.steps[key], value)
        except (StepError, Stopped, asyncio.CancelledError) as error:
            if (stop := _stop_of(error, run)) is not None:
                found = error.result if isinstance(error, StepError) else None
                if found is None and ctx.scope is not None:
                    found = ctx.scope.loops.get(key)
                run.step_ended(path, _outcome(key, stop, run.now() - began, found))
            raise
        stop = Stop(result.reason, result.detail)
        run.step_ended(path, _outcome(key, stop, run.now() - began, result))
        return result

    def _not_run(self, ctx: Context, scope: Scope) -> None:
        """Record which steps of the root workflow are left out where it ends early."""
        for key in self.order if scope.parent is None else ():
            if key not in ctx.run.outcomes:
                ctx.run.step_ended(ctx.below(key), StepOutcome(key))

    def _keep(self, ctx: Context, key: str, result: Result, ended: dict[str, Result]) -> None:
        ended[key] = result
        assert ctx.scope is not None
        ctx.scope.keep(key, result)
        if ctx.scope.parent is None:
            ctx.run.steps[key] = result.output


def _check_shape(
    name: object, steps: Mapping[str, StepLike], needs: Mapping[str, Sequence[str]]
) -> None:
    if not isinstance(name, str):
        raise ConfigurationError(f"workflow: name: {name!r} is not text")
    for field, value in (("steps", steps), ("needs", needs)):
        if not isinstance(value, Mapping):
            raise ConfigurationError(
                f"workflow {name}: {field}: {value!r} is not an object; give one by names of steps"
            )
    if not steps:
        raise ConfigurationError(f"workflow {name}: has no steps; give at least one")
    for key in steps:
        if not isinstance(key, str):
            raise ConfigurationError(f"workflow {name}: the name {key!r} of a step is not text")
        if "/" in key:
            raise ConfigurationError(
                f"workflow {name}: the step {key!r} has a slash; it is part of paths"
            )
    for key, needed in needs.items():
        if isinstance(needed, str) or not isinstance(needed, Sequence):
            raise ConfigurationError(
                f"workflow {name}: needs of {key!r}: give a list of steps, not {needed!r}"
            )


def _outcome(name: str, stop: Stop, seconds: float, found: Result | None) -> StepOutcome:
    """Return how a step ended, with what it has."""
    given = (None, ()) if found is None else (found.output, found.items)
    return StepOutcome(
        name, stop.reason.status, stop.reason, stop.detail, round(seconds, 6), *given
    )


def _stop_of(error: BaseException, run: Run) -> Stop | None:
    """Return how a step ended that raised; None if its process was interrupted, as it goes on then."""
    if isinstance(error, StepError):
        found = error.result
        return Stop(Reason.ERROR if found is None else found.reason, str(error))
    if isinstance(error, Stopped):
        return error.stop
    return run.cancelled


def _circle(needs: Mapping[str, Sequence[str]], left: Sequence[str]) -> list[str]:
    path = [left[0]]
    while True:
        following = next(n for n in needs[path[-1]] if n in left)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
