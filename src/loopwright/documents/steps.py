"""Steps that only documents need: inputs with templates, conditions, tolerance, calls of other documents."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import codec
from ..codec import Json
from ..composites import Composite, attempt
from ..context import Context
from ..errors import StepError
from ..nodes import ungrouped
from ..records import Reason, Result, Status
from ..runtime import Scope
from ..step import digest_of
from ..templates import Expression
from ..variables import Filled, rendered
from ..workflow import Workflow

__all__ = [
    "Called", "DocumentWorkflow", "Otherwise", "Prepared", "Required", "Rooted", "SetStep", "Tolerant", "When",
    "in_place", "prepared",
]  # fmt: skip


class Prepared:
    """A leaf whose input is filled in from the variables around it."""

    effect = True
    wants_context = True

    def __init__(self, inner: Any, given: Filled) -> None:
        self.inner = inner
        self.given = given
        self.name: str = inner.name
        self.required: bool = inner.required
        self.reserve = inner.reserve
        self.idempotent: bool = inner.idempotent
        self.fingerprint = digest_of(inner.fingerprint, codec.canonical(given.source))

    def act(self, value: Json, ctx: Context) -> Any:
        """Act on the filled-in input."""
        return self.inner.act(rendered(self.given, ctx, value), ctx)


class _Around(Composite):
    """A step that runs another in its own place."""

    inner: Any

    def made_of(self) -> Iterable[Any]:
        return [self.inner]

    @property
    def required(self) -> bool:  # type: ignore[override]
        return bool(self.inner.required)


async def in_place(ctx: Context, name: str, inner: Any, value: Json) -> Result:
    """Run a step where another stands: a leaf as the part `name`, a step made of steps at its very path.

    Raises:
        StepError: if it failed.
    """
    if inner.effect:
        return await attempt(ctx, name, inner, value)
    result: Result = await inner.run(value, ctx)
    if result.status is Status.FAILED:
        raise StepError(result.detail, path=ctx.path, kind=result.reason.value)
    return result


class PreparedWhole(_Around):
    """A step made of steps whose input is filled in from the variables around it."""

    def __init__(self, inner: Any, given: Filled) -> None:
        self.inner = inner
        self.given = given
        self.name = inner.name
        self.fingerprint = digest_of(inner.fingerprint, codec.canonical(given.source))

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the inner step on the filled-in input."""
        given = codec.normalise(rendered(self.given, ctx, value), what="input")
        result: Result = await self.inner.run(given, ctx)
        return result


def prepared(inner: Any, given: Filled) -> Any:
    """Return `inner` with its input filled in from templates."""
    return Prepared(inner, given) if inner.effect else PreparedWhole(inner, given)


class SetStep:
    """A value with templates filled in: it acts on nothing, and is on record like any step."""

    effect = True
    required = False
    reserve = None
    idempotent = True
    wants_context = True

    def __init__(self, name: str, value: Filled) -> None:
        self.name = name
        self.value = value
        self.fingerprint = digest_of("set", codec.canonical(value.source))

    async def act(self, value: Json, ctx: Context) -> Json:
        """Return the value."""
        return rendered(self.value, ctx, value)


@dataclass(frozen=True)
class When(_Around):
    """A step that is skipped unless an expression is true; a skipped step's output is null."""

    name: str
    inner: Any
    condition: Expression | Filled
    text: str

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("when", self.text, self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        if not rendered(self.condition, ctx, value):
            return Result(
                Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} skipped", None, name=self.name
            )
        if not self.inner.effect:
            result: Result = await self.inner.run(value, ctx)
            return result
        return await attempt(ctx, "do", self.inner, value)


@dataclass(frozen=True)
class Tolerant(_Around):
    """A step whose failure is a warning; its output is what a failed loop has kept, else null."""

    name: str
    inner: Any

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("tolerant", self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        try:
            if self.inner.effect:
                return await ctx.outcome("try", self.inner, value)
            result: Result = await self.inner.run(value, ctx)
        except StepError as error:
            return self._gone_on(error.path or ctx.path, str(error), None, ctx)
        if result.status is Status.FAILED:
            return self._gone_on(ctx.path, result.detail, result.output, ctx)
        return result

    def _gone_on(self, path: str, detail: str, output: Json, ctx: Context) -> Result:
        ctx.run.warn(f"{path}: {detail}; the workflow goes on without it")
        return Result(Status.SATISFIED, Reason.COMPLETED, detail, output, name=self.name)


@dataclass(frozen=True)
class Otherwise(_Around):
    """A step with an output for where it has none: skipped, failed and tolerated, or nothing kept."""

    name: str
    inner: Any
    output: Json

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("otherwise", codec.canonical(self.output), self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        result = await in_place(ctx, "do", self.inner, value)
        return replace(result, output=self.output) if result.output is None else result


@dataclass(frozen=True)
class Required(_Around):
    """A step without which its workflow does not go on: not satisfied, it ends it as exhausted."""

    name: str
    inner: Any
    required = True

    @property
    def fingerprint(self) -> str:
        return digest_of("required", self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        return await in_place(ctx, "do", self.inner, value)


class DocumentWorkflow(Workflow):
    """The workflow of a document: a frame of variables of its own, which nothing outside reaches into."""

    def __init__(
        self, name: str, steps: Mapping[str, Any], *, env: Mapping[str, str], **options: Any
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
        self, value: Json, given: Mapping[str, Json], ctx: Context, expose: Sequence[str] = ()
    ) -> Result:
        """Run it for a caller that gives it variables, whose loop keeps the outputs of the steps in `expose`."""
        scope = self._scope(value, ctx.scope)
        scope.variables = {**given, "env": self.env}
        result = await self.inside(scope, value, ctx)
        if expose and ctx.scope is not None:
            ctx.scope.parts = {name: scope.outputs.get(name) for name in expose}
        return result


@dataclass(frozen=True)
class Called(Composite):
    """A call of another document, with variables."""

    name: str
    workflow: DocumentWorkflow
    given: Filled
    expose: tuple[str, ...] = ()

    def made_of(self) -> Iterable[Any]:
        return [self.workflow]

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("call", self.workflow.fingerprint, codec.canonical(self.given.source))

    async def run(self, value: Json, ctx: Context) -> Result:
        filled = codec.normalise(rendered(self.given, ctx, value), what="with")
        given = {k: v for k, v in filled.items() if k != "input"}
        text = filled.get("input", value if not given else lines(given))
        return await self.workflow.called(text, given, ctx, self.expose)


class Rooted(Composite):
    """The root workflow of a run, with variables from outside."""

    def __init__(self, workflow: DocumentWorkflow, given: Mapping[str, str]) -> None:
        self.workflow = workflow
        self.given = dict(given)
        self.name = workflow.name
        self.fingerprint = digest_of("root", workflow.fingerprint, codec.canonical(self.given))

    def made_of(self) -> Iterable[Any]:
        return [self.workflow]

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the workflow with its variables."""
        return await self.workflow.called(value, self.given, ctx)


def lines(given: Mapping[str, Json]) -> str:
    """Return variables as `key: value` lines in written order: the input of a child that is given no `input`."""
    return "\n".join(f"{key}: {codec.text_of(value)}" for key, value in given.items())
