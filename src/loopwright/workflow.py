"""Named steps with dependencies: a graph that is itself a step."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import codec
from .codec import Json
from .composites import Composite, Unsatisfied, attempt
from .context import Context
from .errors import ConfigurationError, Suspended, nearest
from .records import Result, Status
from .runtime import Scope
from .step import as_step, digest_of
from .together import question_of

__all__ = ["Workflow"]


class Workflow(Composite):
    """Named steps with dependencies, run as one step.

    A step without `needs` is given the workflow's input, one with a single need that step's output,
    one with several an object of their outputs by name. Steps run in written order, moved later by
    their needs, `at_once` at a time (default 1: nothing is concurrent unless you say so). The
    output is that of the step named by `output`, else of the last one.

    Raises:
        ConfigurationError: for an unknown need or a circle, naming it.
    """

    def __init__(
        self,
        name: str,
        steps: Mapping[str, Any],
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

    def made_of(self) -> Iterable[Any]:
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
            found = short.result
            return Result(Status.EXHAUSTED, found.reason, str(short), found.output, name=self.name)
        output = ended[self.output].output
        return self._end(output, [ended[key] for key in self.order], ctx)

    async def _drive(self, ctx: Context, value: Json, ended: dict[str, Result]) -> None:
        waiting = list(self.order)
        flying: dict[asyncio.Task[Result], str] = {}
        asks: dict[str, Suspended] = {}
        try:
            while waiting or flying:
                ready = [k for k in waiting if all(n in ended for n in self.needs[k])]
                if asks and not ready and not flying:
                    break  # all that is left needs what waits for a person
                if self.at_once == 1:
                    key = ready[0]
                    waiting.remove(key)
                    self._keep(ctx, key, await self._one(ctx, key, value, ended), ended)
                    continue
                for key in ready[: self.at_once - len(flying)]:
                    waiting.remove(key)
                    flying[asyncio.ensure_future(self._one(ctx, key, value, ended))] = key
                ready_now, _ = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
                # What is done is kept before a failure of the same moment ends the workflow.
                done = sorted(ready_now, key=lambda t: (_broken(t), self.order.index(flying[t])))
                for task in done:
                    key = flying.pop(task)
                    if (asked := question_of(task)) is None:
                        self._keep(ctx, key, task.result(), ended)
                    else:
                        asks[key] = asked
        finally:
            for task in flying:
                task.cancel()
            if flying:
                await asyncio.wait(flying)
        if asks:
            raise min(asks.items(), key=lambda item: self.order.index(item[0]))[1]

    async def _one(
        self, ctx: Context, key: str, value: Json, ended: Mapping[str, Result]
    ) -> Result:
        needs = self.needs[key]
        given = value
        if len(needs) == 1:
            given = ended[needs[0]].output
        elif needs:
            given = {name: ended[name].output for name in needs}
        return await attempt(ctx, key, self.steps[key], given)

    def _keep(self, ctx: Context, key: str, result: Result, ended: dict[str, Result]) -> None:
        ended[key] = result
        assert ctx.scope is not None
        ctx.scope.keep(key, result)
        if ctx.scope.parent is None:
            ctx.run.steps[key] = result.output


def _check_shape(name: Any, steps: Any, needs: Any) -> None:
    if not isinstance(name, str):
        raise ConfigurationError(f"workflow: name: {name!r} is not text")
    for what, given in (("steps", steps), ("needs", needs)):
        if not isinstance(given, Mapping):
            raise ConfigurationError(
                f"workflow {name}: {what}: {given!r} is not an object; give one by names of steps"
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
    for key, given in needs.items():
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise ConfigurationError(
                f"workflow {name}: needs of {key!r}: give a list of steps, not {given!r}"
            )


def _broken(task: asyncio.Task[Result]) -> bool:
    return task.cancelled() or task.exception() is not None


def _circle(needs: Mapping[str, Sequence[str]], left: Sequence[str]) -> list[str]:
    path = [left[0]]
    while True:
        following = next(n for n in needs[path[-1]] if n in left)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
