"""Named steps with dependencies, run as one step."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

from ..errors import ConfigurationError, StepError, Stopped, Suspended, nearest
from ..records import Reason, Result, StepOutcome, Stop, codec
from ..records.codec import Json
from ..records.typed import ValueType, same_type
from .composites import Unsatisfied, at_once_of, attempt, combined, outputs_by_name, run_all
from .context import Context, Scope
from .files import Snapshots, StateSource
from .run_state import Run
from .step import (
    CompositeStep,
    In,
    Out,
    Step,
    StepLike,
    as_step,
    digest_of,
    fingerprinted,
    former_version,
)

__all__ = ["Workflow"]

T = TypeVar("T")


class Workflow(CompositeStep[In, Out]):
    """Named steps with dependencies, run as one step.

    The input of a step is the workflow's input, the output of the one step that it needs, or an object
    of the outputs of the several steps that it needs. The workflow continues after a loop that is
    exhausted or impossible. Its status is the worst of its steps', without those that a step accepts
    (`Loop(accept=…)`).

    Args:
        name: its name in paths.
        steps: steps or functions by name, in the order in which they run.
        needs: for each step the names of the steps that run before it.
        at_once: the most steps that run at a time.
        output: the step whose output is the workflow's, or its name. Default: the last one.
        workspace: a `Workspace` in which all its commands run. Default: none.

    Raises:
        ConfigurationError: for an unknown or circular need, an unknown output, or no steps.

    Example:
        >>> from loopwright import Workflow, run_sync
        >>> steps = {"draft": str.strip, "publish": str.upper}
        >>> run_sync(Workflow("post", steps, needs={"publish": ["draft"]}), " a ").output
        'A'
    """

    keeps_types = True

    @overload
    def __init__(
        self: Workflow[Any, T],
        name: str,
        steps: Mapping[str, StepLike],
        *,
        needs: Mapping[str, Sequence[str]] | None = ...,
        at_once: int = ...,
        output: Step[Any, T],
        workspace: StateSource | None = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: Workflow[Any, Any],
        name: str,
        steps: Mapping[str, StepLike],
        *,
        needs: Mapping[str, Sequence[str]] | None = ...,
        at_once: int = ...,
        output: str | Callable[..., Any] = ...,
        workspace: StateSource | None = ...,
    ) -> None: ...

    def __init__(
        self,
        name: str,
        steps: Mapping[str, StepLike],
        *,
        needs: Mapping[str, Sequence[str]] | None = None,
        at_once: int = 1,
        output: str | StepLike = "",
        workspace: StateSource | None = None,
    ) -> None:
        _check_shape(name, steps, {} if needs is None else needs)
        self.name = name
        self.steps = self.named_steps = {
            key: as_step(value, name=key) for key, value in steps.items()
        }
        self.supplies = self.steps.keys()
        self.needs = {key: tuple((needs or {}).get(key, ())) for key in self.steps}
        self.at_once = codec.integer(f"workflow {name}: at_once", at_once, minimum=1)
        if not isinstance(output, str):
            keys = [key for key, other in steps.items() if other is output]
            if not keys:
                raise ConfigurationError(
                    f"workflow {name}: output: {output!r:.60} is not one of its steps; use a step, or a name"
                )
            output = keys[0]
        self.output = output or next(reversed(self.steps))
        for key in [*(needs or {}), self.output, *(n for ns in self.needs.values() for n in ns)]:
            if key not in self.steps:
                hint = nearest(str(key), self.steps)
                raise ConfigurationError(f"workflow {name}: there is no step {key!r}{hint}")
        self.order = self._order()
        self.workspace = workspace
        if workspace is not None and not workspace.copies:
            check_one_folder(self, workspace)

    @property
    def input_type(self) -> ValueType | None:
        """The declared type of the steps that receive the workflow's input, if they agree."""
        types = [step.input_type for key, step in self.steps.items() if not self.needs[key]]
        if None in types:
            return None
        return types[0] if all(same_type(types[0], other) for other in types) else None

    @property
    def output_type(self) -> ValueType | None:
        """The declared type of the output step."""
        return self.steps[self.output].output_type

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

    @fingerprinted
    def fingerprint(self) -> str:
        """A digest of its steps and their order."""
        parts = (f"{k} {self.needs[k]} {s.fingerprint}" for k, s in self.steps.items())
        # Later options are added only if they are set, so that earlier journals stay valid.
        state = []
        if self.workspace is not None:
            rule = _former_rule(self) if former_version() < 2 else ""
            state = [f"workspace {self.workspace.fingerprint_with(rule or 'last')}"]
        return digest_of("workflow", self.name, self.output, *parts, *state)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run its steps to the end, or to the first that fails."""
        return await self.in_workspace(self._scope(value, ctx.scope), value, ctx)

    async def in_workspace(self, scope: Scope, value: Json, ctx: Context) -> Result:
        """Run its steps in its workspace, if it has one: each continues from the files of the step before."""
        if self.workspace is None or ctx.run.stubs is not None:
            return await self.inside(scope, value, ctx)
        files = Snapshots(ctx.run, ctx.path, self.workspace)
        scope.work_in(files)
        try:
            await files.begin()
            await files.resume()
            result = await self.inside(scope, value, ctx)
        except Suspended:
            await files.suspend()
            raise
        return replace(result, workspace=await files.finish(result))

    def _scope(self, value: Json, outer: Scope | None) -> Scope:
        return Scope(self.name, value, outer, members=self.steps)

    async def inside(self, scope: Scope, value: Json, ctx: Context) -> Result:
        """Run its steps with their variables in `scope`."""
        inner = Context(ctx.run, ctx.path, ctx.gate, ctx.account, scope)
        ended: dict[str, Result] = {}
        order = self.order
        try:
            # Without concurrency no tasks are needed, and a traceback shows the caller.
            if self.at_once == 1:
                for key in order:
                    self._keep(inner, key, await self._one(inner, key, value, ended), ended)
            else:
                with at_once_of(inner, self.name, self.at_once) as limit:
                    # Each when the steps that it needs have ended.
                    await run_all(
                        [functools.partial(self._one, inner, key, value, ended) for key in order],
                        limit,
                        ready=lambda place: all(need in ended for need in self.needs[order[place]]),
                        done=lambda place, result: self._keep(inner, order[place], result, ended),
                        count=ctx.run.count,
                    )
        except Unsatisfied as short:
            self._not_run(ctx, scope)
            last = short.result
            return Result(last.status, last.reason, str(short), last.output, name=self.name)
        except (StepError, Stopped, asyncio.CancelledError) as error:
            # An interrupted process records nothing: a resume may still run these steps.
            if _stop_of(error, ctx.run) is not None:
                self._not_run(ctx, scope)
            raise
        output = ended[self.output].output
        return combined(
            self.name, output, [(key, self.steps[key], ended[key]) for key in order], ctx
        )

    async def _one(
        self, ctx: Context, key: str, value: Json, ended: Mapping[str, Result]
    ) -> Result:
        needs = self.needs[key]
        if len(needs) == 1:
            value = ended[needs[0]].output
        elif needs:
            value = outputs_by_name({name: ended[name].output for name in needs})
        if ctx.scope is None or ctx.scope.parent is not None:
            return await attempt(ctx, key, self.steps[key], value)
        return await self._recorded(ctx, key, value)

    async def _recorded(self, ctx: Context, key: str, value: Json) -> Result:
        """Run a step of the root workflow and record how it ended."""
        run, path = ctx.run, ctx.below(key)
        began = None if run.replay is None else run.replay.began(path)
        began = run.now() if began is None else began
        try:
            result = await attempt(ctx, key, self.steps[key], value)
        except (StepError, Stopped, asyncio.CancelledError) as error:
            if (stop := _stop_of(error, run)) is not None:
                partial = error.result if isinstance(error, StepError) else None
                if partial is None and ctx.scope is not None:
                    partial = ctx.scope.loops.get(key)
                run.step_ended(path, _outcome(key, stop, run.now() - began, partial))
            raise
        stop = Stop(result.reason, result.detail)
        run.step_ended(path, _outcome(key, stop, run.now() - began, result))
        return result

    def _not_run(self, ctx: Context, scope: Scope) -> None:
        """Record the steps of the root workflow that do not run because it ends early."""
        # Only the steps of the root are in the result.
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
                f"workflow {name}: {field}: {value!r} is not an object; use one by names of steps"
            )
    if not steps:
        raise ConfigurationError(f"workflow {name}: has no steps; add at least one")
    for key in steps:
        if not isinstance(key, str):
            raise ConfigurationError(f"workflow {name}: the name {key!r} of a step is not text")
        if "/" in key:
            raise ConfigurationError(
                f"workflow {name}: the step {key!r} has a slash; it is part of paths"
            )
    for key, needed in needs.items():
        # Text is a sequence too: `needs={"b": "a"}` would need a step for each letter.
        if isinstance(needed, str) or not isinstance(needed, Sequence):
            raise ConfigurationError(
                f"workflow {name}: needs of {key!r}: use a list of steps, not {needed!r}"
            )


def _outcome(name: str, stop: Stop, seconds: float, result: Result | None) -> StepOutcome:
    """Return how a step ended, with its output and items so far."""
    return StepOutcome(
        name,
        status=stop.reason.status,
        reason=stop.reason,
        detail=stop.detail,
        seconds=round(seconds, 6),
        output=None if result is None else result.output,
        items=() if result is None else result.items,
    )


def _stop_of(error: BaseException, run: Run) -> Stop | None:
    """Return the stop of a step that raised; None if the process was interrupted, as it can be resumed."""
    if isinstance(error, StepError):
        result = error.result
        return Stop(Reason.ERROR if result is None else result.reason, str(error))
    if isinstance(error, Stopped):
        return error.stop
    return run.cancelled


def check_one_folder(step: Step, source: StateSource) -> None:
    """Refuse loops with candidates in a workspace of which there cannot be several.

    Raises:
        ConfigurationError: names the loop.
    """
    if (several := getattr(step, "candidates", None)) is not None:
        several.check_workspace(source, step.name)
    for part in step.parts():
        check_one_folder(part, source)


def _former_rule(step: Step) -> str:
    """Return the rule for the parent of the first loop in a step that has one, as the workspace had it before."""
    own = getattr(step, "former_rule", "")
    return own or next(filter(None, map(_former_rule, step.parts())), "")


def _circle(needs: Mapping[str, Sequence[str]], left: Sequence[str]) -> list[str]:
    # Each remaining step needs a remaining one, so the walk comes back to a step that it has visited.
    path = [left[0]]
    while True:
        following = next(n for n in needs[path[-1]] if n in left)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
