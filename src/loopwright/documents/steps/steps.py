"""Steps that only documents need: inputs with templates, conditions, tolerance, calls of other documents."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ...engine.budget import reports
from ...engine.composites import Wrapper, attempt
from ...engine.context import Context
from ...engine.scope import Scope
from ...engine.step import CompositeStep, Leaf, Step, StepLike, digest_of
from ...engine.workflow import Workflow
from ...errors import StepError
from ...records import Reason, Result, Status, Usage, codec, own
from ...records.codec import Json
from ...templates import Expression
from ...templates.variables import TemplatedValue, rendered
from .loop_node import ungrouped

__all__ = [
    "Accepting",
    "CallDocument",
    "Conditional",
    "ContinueOnError",
    "DefaultOutput",
    "DocumentWorkflow",
    "Required",
    "RootWorkflow",
    "SetValue",
    "WithInput",
    "in_place",
    "prepared",
]  # fmt: skip


class WithInput(Leaf):
    """A leaf whose input is filled in from the variables around it."""

    fingerprint: str
    idempotent: bool
    reports: bool
    required: bool
    reserve: Callable[[Json], Usage | None] | None

    def __init__(self, inner: Leaf, given: TemplatedValue) -> None:
        self.inner = inner
        self.given = given
        self.name: str = inner.name
        self.required: bool = inner.required
        self.reserve = inner.reserve
        self.idempotent: bool = inner.idempotent
        self.fingerprint = digest_of(inner.fingerprint, codec.canonical(given.source))
        self.reports = reports(inner)

    def act(self, value: Json, ctx: Context) -> Any:
        """Act on the filled-in input."""
        return self.inner.act(own(rendered(self.given, ctx, value)), ctx)


async def in_place(ctx: Context, name: str, inner: Step, value: Json) -> Result:
    """Run a step where another stands: a leaf as the part `name`, a step made of steps at its very path.

    Raises:
        StepError: if it failed and nobody goes on after it.
    """
    if not isinstance(inner, CompositeStep):
        return await attempt(ctx, name, inner, value)
    result = await inner.run(value, ctx)
    if result.status is Status.FAILED and not result.gone_on:
        raise StepError.of(result, ctx.path)
    return result


class PreparedWhole(Wrapper):
    """A step made of steps whose input is filled in from the variables around it."""

    fingerprint: str

    inner: CompositeStep

    def __init__(self, inner: CompositeStep, given: TemplatedValue) -> None:
        self.inner = inner
        self.given = given
        self.name = inner.name
        self.fingerprint = digest_of(inner.fingerprint, codec.canonical(given.source))

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the inner step on the filled-in input."""
        given = codec.normalise(rendered(self.given, ctx, value), what="input")
        return await self.inner.run(given, ctx)


def prepared(inner: Step, given: TemplatedValue) -> Step:
    """Return `inner` with its input filled in from templates."""
    if isinstance(inner, CompositeStep):
        return PreparedWhole(inner, given)
    assert isinstance(inner, Leaf)
    return WithInput(inner, given)


class SetValue(Leaf):
    """A value with templates filled in: it acts on nothing, and is on record like any step."""

    fingerprint: str

    wordless = True  # its output is part of its input, never the word of a judge
    reports = False

    def __init__(self, name: str, value: TemplatedValue) -> None:
        self.name = name
        self.value = value
        self.fingerprint = digest_of("set", codec.canonical(value.source))

    async def act(self, value: Json, ctx: Context) -> Json:
        """Return the value."""
        return rendered(self.value, ctx, value)


@dataclass(frozen=True)
class Conditional(Wrapper):
    """A step that is skipped unless an expression is true; a skipped step's output is null."""

    name: str
    inner: Step
    condition: Expression | TemplatedValue
    text: str

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("when", self.text, self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        if not rendered(self.condition, ctx, value):
            return Result(
                Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} skipped", None, name=self.name
            )
        if isinstance(self.inner, CompositeStep):
            return await self.inner.run(value, ctx)
        return await attempt(ctx, "do", self.inner, value)


@dataclass(frozen=True)
class ContinueOnError(Wrapper):
    """A step whose failure is a warning; its output is the best that a failed loop has, else null.

    A loop (`counts`), and what is made of loops, keeps the status of its failure, which counts for
    the workflow; of another step the warning is all.
    """

    name: str
    inner: Step
    counts: bool = False

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("tolerant", self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        try:
            if not isinstance(self.inner, CompositeStep):
                return await ctx.outcome("try", self.inner, value)
            result = await self.inner.run(value, ctx)
        except StepError as error:
            return self._after(error, ctx)
        if result.status is Status.FAILED and not result.gone_on:
            return self._gone_on(ctx.path, result, ctx)
        return result

    def _after(self, error: StepError, ctx: Context) -> Result:
        """Return how the step ended, by an error that it raised."""
        path, found = error.path or ctx.path, error.result
        if found is not None:
            return self._gone_on(path, replace(found, name=self.name), ctx)
        kept = ctx.scope.loops.get(self.name) if ctx.scope is not None else None
        output = kept.output if kept is not None else None
        if self.counts or kept is not None:
            failed = Result(Status.FAILED, Reason.ERROR, str(error), output, name=self.name)
            return self._gone_on(path, failed, ctx)
        ctx.run.warn(f"{path}: {error}; the workflow goes on without it")
        return Result(Status.SATISFIED, Reason.COMPLETED, str(error), name=self.name)

    def _gone_on(self, path: str, result: Result, ctx: Context) -> Result:
        what = "without it" if result.output is None else "with the best that it has"
        ctx.run.warn(f"{path}: {result.detail}; the workflow goes on {what}")
        return replace(result, gone_on=True)


@dataclass(frozen=True)
class DefaultOutput(Wrapper):
    """A step with an output for where it has none: skipped, failed and tolerated, or nothing kept."""

    name: str
    inner: Step
    output: Json

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("otherwise", codec.canonical(self.output), self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        result = await in_place(ctx, "do", self.inner, value)
        return replace(result, output=self.output) if result.output is None else result


@dataclass(frozen=True)
class Accepting(Wrapper):
    """A step whose status does not count for its workflow where it is one of `statuses`."""

    name: str
    inner: Step
    statuses: tuple[str, ...]

    @property
    def accept(self) -> tuple[str, ...]:
        return self.statuses

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("accepting", " ".join(self.statuses), self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        return await in_place(ctx, "do", self.inner, value)


@dataclass(frozen=True)
class Required(Wrapper):
    """A step without which its workflow does not go on: not satisfied, it ends it with its status."""

    name: str
    inner: Step
    required = True

    @property
    def fingerprint(self) -> str:
        return digest_of("required", self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        return await in_place(ctx, "do", self.inner, value)


class DocumentWorkflow(Workflow):
    """The workflow of a document: a frame of variables of its own, which nothing outside reaches into."""

    def __init__(
        self, name: str, steps: Mapping[str, StepLike], *, env: Mapping[str, str], **options: Any
    ):
        super().__init__(name, steps, **options)
        self.env = dict(env)

    def _scope(self, value: Json, outer: Scope | None) -> Scope:
        scope = Scope(self.name, value, outer)
        scope.variables = {"env": self.env}
        return scope

    async def inside(self, scope: Scope, value: Json, ctx: Context) -> Result:
        """Run its steps with their variables in `scope`."""
        result = await super().inside(scope, value, ctx)
        return replace(result, output=ungrouped(result.output))

    async def called(
        self,
        value: Json,
        given: Mapping[str, Json],
        ctx: Context,
        expose: Sequence[str] = (),
        constants: Mapping[str, str] = MappingProxyType({}),
    ) -> Result:
        """Run it for a caller that gives it variables, whose loop keeps the outputs of the steps in `expose`."""
        scope = self._scope(value, ctx.scope)
        env = {name: constants.get(name, value) for name, value in self.env.items()}
        scope.variables = {**given, "env": env}
        result = await self.inside(scope, value, ctx)
        if expose and ctx.scope is not None:
            ctx.scope.parts = {name: scope.outputs.get(name) for name in expose}
        return result


@dataclass(frozen=True)
class CallDocument(CompositeStep):
    """A call of another document, with variables."""

    name: str
    workflow: DocumentWorkflow
    given: TemplatedValue
    expose: tuple[str, ...] = ()

    def parts(self) -> Iterable[Step]:
        return [self.workflow]

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("call", self.workflow.fingerprint, codec.canonical(self.given.source))

    async def run(self, value: Json, ctx: Context) -> Result:
        filled = codec.normalise(rendered(self.given, ctx, value), what="with")
        given = {k: v for k, v in filled.items() if k != "input"}
        text = filled.get("input", value if not given else lines(given))
        return await self.workflow.called(text, given, ctx, self.expose)


class RootWorkflow(CompositeStep):
    """The root workflow of a run, with variables from outside."""

    fingerprint: str

    def __init__(self, workflow: DocumentWorkflow, given: Mapping[str, str]) -> None:
        self.workflow = workflow
        self.given = dict(given)
        self.name = workflow.name
        self.fingerprint = digest_of("root", workflow.fingerprint, codec.canonical(self.given))

    def parts(self) -> Iterable[Step]:
        return [self.workflow]

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the workflow with its variables; one of the name of a constant stands in its place."""
        return await self.workflow.called(value, self.given, ctx, constants=self.given)


def lines(given: Mapping[str, Json]) -> str:
    """Return variables as `key: value` lines in written order: the input of a child that is given no `input`."""
    return "\n".join(f"{key}: {codec.text_of(value)}" for key, value in given.items())
