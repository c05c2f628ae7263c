"""Steps that only documents need: templates as inputs, conditions, defaults, calls, items of lists, and memory.

Facts outlive the run. A fact has the key of the effect that wrote it, so an effect that is repeated after a crash does not
write it twice. Any number of runs may append at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..engine.budgets import reports
from ..engine.composites import Wrapper, attempt
from ..engine.context import Context, Scope
from ..engine.functions import FunctionTypes
from ..engine.lists import ItemsStep
from ..engine.loop_memory import MemoryEffect
from ..engine.step import UNREAD, CompositeStep, Leaf, Step, StepLike, digest_of, fingerprinted
from ..engine.workflow import Workflow
from ..errors import ConfigurationError, StepError
from ..records import Reason, Result, Status, Usage, codec
from ..records.codec import Json, text_of
from ..records.typed import CARRIERS, ValueType, json_of, own_json
from ..templates.variables import TemplatedValue, rendered
from .schema.inputs import DeclaredInputs

__all__ = [
    "FILE",
    "Accepting",
    "CallDocument",
    "Conditional",
    "ContinueOnError",
    "DefaultOutput",
    "DocumentWorkflow",
    "Items",
    "RecallFacts",
    "RememberFact",
    "Required",
    "RootWorkflow",
    "SetValue",
    "WithInput",
    "in_place",
    "inside",
    "items_of",
    "prepared",
]

FILE = "file://"
MAX_BYTES = 5_000_000  # every item is recorded, so a larger file belongs into several runs


class Items(ItemsStep):
    """The items that a template or a file gives; the content of a file is recorded too.

    Relative paths start in `folder`. Only a template that itself begins with `file://` names a file; a rendered value
    never does. The file must be `allowed`, or in it if that is a folder.
    """

    fingerprint: str

    def __init__(
        self, source: TemplatedValue, folder: Path, allowed: Path, most: int | None = None
    ) -> None:
        self.source = source
        self.most = most
        self.folder = folder
        self.allowed = allowed
        text = source.source
        self.from_file = isinstance(text, str) and text.lstrip().startswith(FILE)
        self.fingerprint = digest_of("items", codec.canonical(text))

    async def act(self, value: Json, ctx: Context) -> Json:
        """Return the items."""
        source = rendered(self.source, ctx, value)
        if self.from_file:
            source = self._read(codec.text_of(source).strip().removeprefix(FILE), ctx)
        return self.bounded(items_of(source, ctx.path), ctx)

    def _read(self, name: str, ctx: Context) -> str:
        path = inside(self.folder, name, self.allowed)
        if path is None:
            raise _refused(f"{FILE}{name} is outside {self.allowed}", ctx.path)
        try:
            with path.open("rb") as file:
                # One byte more than allowed, instead of the file's size, which may change before the read.
                raw = file.read(MAX_BYTES + 1)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise _refused(f"{FILE}{name} cannot be read: {why}", ctx.path) from error
        if len(raw) > MAX_BYTES:
            raise _refused(f"{FILE}{name} has more than {MAX_BYTES:,} bytes; split it", ctx.path)
        from ..models.reply_text import clean_text

        return clean_text(raw.decode("utf-8-sig", "replace"))


def inside(folder: Path, name: str, root: Path) -> Path | None:
    """Return the file of this name in a folder, or None if it is not the root and not inside it."""
    # The real path, so that a symbolic link does not lead out of the root.
    path = Path(os.path.realpath(folder / name))
    return path if path.is_relative_to(os.path.realpath(root)) else None


def items_of(value: Json, path: str = "") -> list[Json]:
    """Return the items of a value.

    A list is returned unchanged. A text is a JSON array, also in a code fence; otherwise lines of JSON
    objects or arrays; otherwise its lines of text, trimmed and without empty ones.

    Raises:
        StepError: Of kind `items`, for any other value.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        expected = "expected a list, a JSON array or lines of text"
        if value is None:
            raise _refused(
                f"items: there is no value; {expected}. Does the run have an input?", path
            )
        raise _refused(f"items: {expected}, not {type(value).__name__}", path)
    from ..models.reply_text import read_json, strip_fence

    text = strip_fence(value)
    # Only a text that looks like JSON is parsed: a list of lines is the usual reply of a model.
    if text.startswith("["):
        reading = read_json(text)
        if reading.problem is None and isinstance(reading.value, list):
            return reading.value
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # All lines, because a single line of prose means that the text is not JSON lines.
    if lines and all(line[0] in "{[" for line in lines):
        readings = [read_json(line) for line in lines]
        if all(reading.problem is None for reading in readings):
            return [reading.value for reading in readings]
    return list(lines)


def _refused(message: str, path: str) -> StepError:
    return StepError(message, path=path, kind="items", retryable=False)


class _FactStep(Leaf):
    fingerprint: str

    def __init__(self, name: str, space: str, text: TemplatedValue, category: str) -> None:
        self.name = name
        self.space = space
        self.text = text
        self.category = category
        # The names of the two classes below are part of recorded fingerprints.
        self.fingerprint = digest_of(type(self).__name__, space, repr(text.source), category)


class RememberFact(_FactStep):
    """A step that stores a text as a fact. An existing fact is reinforced."""

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Store it, and return its ID."""
        text = text_of(rendered(self.text, ctx, value)).strip()
        if not text:
            # Not retried: the same template renders the same empty text again.
            raise StepError(f"{self.name}: there is no text to remember", retryable=False)
        arguments = {"text": text, "category": self.category}
        return {
            "response": text,
            "fact": await MemoryEffect(self.space, "remember").act(arguments, ctx),
        }


class RecallFacts(_FactStep):
    """A step that returns the facts that share most words with a query, those of high confidence first.

    With an empty query it returns the facts of highest confidence.
    """

    def __init__(
        self, name: str, space: str, text: TemplatedValue, category: str, limit: int
    ) -> None:
        super().__init__(name, space, text, category)
        self.limit = limit
        self.fingerprint = digest_of(self.fingerprint, str(limit))

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Return the facts, as one text and as data."""
        query = text_of(rendered(self.text, ctx, value))
        arguments = {"query": query, "limit": self.limit, "category": self.category}
        facts = await MemoryEffect(self.space, "recall_facts").act(arguments, ctx)
        rows = [fact.to_json() for fact in facts]
        text = "\n".join(f"- {row['text']}" for row in rows)
        return {"response": text, "facts": rows, "num_results": len(rows)}


_GONE_ON = "step_failed"  # the code of the warning of on_failure: continue


class WithInput(Leaf):
    """A leaf step whose input is rendered from the variables around it."""

    idempotent: bool
    reports: bool
    required: bool
    reserve: Callable[[Json], Usage | None] | None
    stub: str
    types: FunctionTypes | None

    def __init__(self, inner: Leaf, template: TemplatedValue) -> None:
        self.inner = inner
        self.template = template
        self.name: str = inner.name
        self.required: bool = inner.required
        self.reserve = inner.reserve
        self.idempotent: bool = inner.idempotent
        self.reports = reports(inner)
        self.stub = inner.stub
        self.types = inner.types and UNREAD

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of(self.inner.fingerprint, codec.canonical(self.template.source))

    def declared(self) -> FunctionTypes | None:
        """Return the types of the inner step's output; templates read the input, as JSON."""
        if self.types is UNREAD:
            types = self.inner.declared()
            self.types = None if types is None else types.for_input_as_json()
        return self.types

    @property
    def output_type(self) -> ValueType | None:
        """The type of the inner step's output."""
        return self.inner.output_type

    def act(self, value: Json, ctx: Context) -> Awaitable[Json]:
        """Act on the rendered input."""
        # A copy: the step may change its input, and variables are shared with later steps.
        types, result = self.inner.declared(), rendered(self.template, ctx, value)
        return self.inner.act(own_json(result) if types is None else types.read(result), ctx)


async def in_place(ctx: Context, name: str, inner: Step, value: Json) -> Result:
    """Run a step in place of its wrapper: a leaf step at the path `name` below, a composite at the same path.

    Raises:
        StepError: If the step failed and does not continue after errors.
    """
    if not isinstance(inner, CompositeStep):
        return await attempt(ctx, name, inner, value)
    result = await inner.run(value, ctx)
    if result.status is Status.FAILED and not result.gone_on:
        raise StepError.of(result, ctx.path)
    return result


class _InPlace(Wrapper):
    """A wrapper that runs its step in its own place."""

    async def run(self, value: Json, ctx: Context) -> Result:
        return await in_place(ctx, "do", self.inner, value)


class CompositeWithInput(Wrapper):
    """A composite step whose input is rendered from the variables around it."""

    inner: CompositeStep

    def __init__(self, inner: CompositeStep, template: TemplatedValue) -> None:
        self.inner = inner
        self.template = template
        self.name = inner.name

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of(self.inner.fingerprint, codec.canonical(self.template.source))

    @property
    def input_type(self) -> ValueType | None:
        """None: the input is for templates, which read JSON."""
        return None

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the inner step on the rendered input."""
        rendered_input = codec.normalise(rendered(self.template, ctx, value), what="input")
        return await self.inner.run(rendered_input, ctx)


def prepared(inner: Step, template: TemplatedValue) -> Step:
    """Return `inner` with its input rendered from templates."""
    if isinstance(inner, CompositeStep):
        return CompositeWithInput(inner, template)
    assert isinstance(inner, Leaf)
    return WithInput(inner, template)


class SetValue(Leaf):
    """A rendered value. It has no side effect and is recorded like any step."""

    fingerprint: str

    wordless = True  # it only rearranges its input, so its output is not text of a model
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
    condition: TemplatedValue
    text: str

    @fingerprinted
    def fingerprint(self) -> str:
        # The words in the fingerprints of this module are former class names; recorded runs contain them.
        return digest_of("when", self.text, self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        if not rendered(self.condition, ctx, value):
            # Satisfied, because a skipped step must not make its workflow fail.
            return Result(
                Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} skipped", None, name=self.name
            )
        if isinstance(self.inner, CompositeStep):
            return await self.inner.run(value, ctx)
        return await attempt(ctx, "do", self.inner, value)


@dataclass(frozen=True)
class ContinueOnError(Wrapper):
    """A step whose failure is a warning. Its output is then the best output of a failed loop, else null.

    A loop, or a composite of loops (`counts`), keeps its failed status, which counts for the workflow.
    For another step only the warning remains.
    """

    name: str
    inner: Step
    counts: bool = False

    @fingerprinted
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
            return self._continued(ctx.path, result, ctx)
        return result

    def _after(self, error: StepError, ctx: Context) -> Result:
        """Return the result of the step after an error that it raised."""
        path, result = error.path or ctx.path, error.result
        if result is not None:
            return self._continued(path, replace(result, name=self.name), ctx)
        # A loop that was cut by an error has registered its best output before.
        ended = ctx.scope.loops.get(self.name) if ctx.scope is not None else None
        if self.counts or ended is not None:
            output = ended.output if ended is not None else None
            failed = Result(Status.FAILED, Reason.ERROR, str(error), output, name=self.name)
            return self._continued(path, failed, ctx)
        ctx.run.warn(f"{error}; the workflow goes on without it", path, code=_GONE_ON)
        return Result(Status.SATISFIED, Reason.COMPLETED, str(error), name=self.name)

    def _continued(self, path: str, result: Result, ctx: Context) -> Result:
        rest = "without it" if result.output is None else "with the best that it has"
        ctx.run.warn(f"{result.detail}; the workflow goes on {rest}", path, code=_GONE_ON)
        return replace(result, gone_on=True)


@dataclass(frozen=True)
class DefaultOutput(_InPlace):
    """A step with a default for a missing output: it is skipped, its failure is accepted, or it has none."""

    name: str
    inner: Step
    output: Json

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("otherwise", codec.canonical(self.output), self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        result = await super().run(value, ctx)
        output = result.output
        if output is None:
            return replace(result, output=self.output)
        return replace(result, output=json_of(output)) if type(output) in CARRIERS else result

    @property
    def output_type(self) -> ValueType | None:
        """None: the default may be of another type than the output of the step."""
        return None


@dataclass(frozen=True)
class Accepting(_InPlace):
    """A step of which the `statuses` do not count for its workflow."""

    name: str
    inner: Step
    statuses: tuple[str, ...]

    @property
    def accept(self) -> tuple[str, ...]:
        return self.statuses

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("accepting", " ".join(self.statuses), self.inner.fingerprint)


@dataclass(frozen=True)
class Required(_InPlace):
    """A step that ends its workflow, with its own status, unless it is satisfied."""

    name: str
    inner: Step
    required = True

    @property
    def fingerprint(self) -> str:
        return digest_of("required", self.inner.fingerprint)


class DocumentWorkflow(Workflow):
    """The workflow of a document, with its own variables, which steps outside cannot change.

    `exposed` makes of its output what steps outside receive. `inputs` are those that it declares.
    """

    def __init__(
        self,
        name: str,
        steps: Mapping[str, StepLike],
        *,
        env: Mapping[str, str],
        exposed: Callable[[Json], Json] | None = None,
        inputs: DeclaredInputs | None = None,
        **options: Any,
    ):
        super().__init__(name, steps, **options)
        self.env, self.exposed, self.inputs = dict(env), exposed, inputs

    def _scope(self, value: Json, outer: Scope | None) -> Scope:
        return self._scope_with({"env": self.env}, value, outer)

    def _scope_with(self, variables: dict[str, Json], value: Json, outer: Scope | None) -> Scope:
        return Scope(self.name, value, outer, members=self.steps, variables=variables)

    async def inside(self, scope: Scope, value: Json, ctx: Context) -> Result:
        """Run its steps with their variables in `scope`."""
        result = await super().inside(scope, value, ctx)
        if self.exposed is None or not isinstance(result.output, Mapping):
            return result
        return replace(result, output=self.exposed(result.output))

    async def called(
        self,
        value: Json,
        variables: Mapping[str, Json],
        ctx: Context,
        expose: Sequence[str] = (),
        constants: Mapping[str, str] = MappingProxyType({}),
    ) -> Result:
        """Run it with variables of a caller; the caller's loop records the outputs of the steps in `expose`."""
        # Only declared constants can be replaced; other variables are separate names.
        env = {name: constants.get(name, value) for name, value in self.env.items()}
        scope = self._scope_with({**variables, "env": env}, value, ctx.scope)
        result = await self.in_workspace(scope, value, ctx)
        # The loop around the call reads them as `loop.steps.NAME`.
        if expose and ctx.scope is not None:
            ctx.scope.expose({name: scope.outputs.get(name) for name in expose})
        return result


@dataclass(frozen=True)
class CallDocument(CompositeStep):
    """A call of another document, with variables."""

    name: str
    workflow: DocumentWorkflow
    variables: TemplatedValue
    expose: tuple[str, ...] = ()

    def parts(self) -> Iterable[Step]:
        return [self.workflow]

    @property
    def output_type(self) -> ValueType | None:
        """The type of the output of the workflow."""
        return self.workflow.output_type

    @fingerprinted
    def fingerprint(self) -> str:
        inputs = self.workflow.inputs
        declared = [] if inputs is None else [codec.canonical(inputs.schema())]
        given = codec.canonical(self.variables.source)
        return digest_of("call", self.workflow.fingerprint, given, *declared)

    async def run(self, value: Json, ctx: Context) -> Result:
        filled = codec.normalise(rendered(self.variables, ctx, value), what="with")
        if (inputs := self.workflow.inputs) is not None:
            try:
                complete = inputs.of_call(filled, value)
            except ConfigurationError as error:
                raise StepError(
                    str(error), path=ctx.path, kind="bad_input", retryable=False
                ) from None
            return await self.workflow.called(complete, {}, ctx, self.expose)
        # `input` in `with:` is the input of the called document, not a variable.
        variables = {k: v for k, v in filled.items() if k != "input"}
        text = filled.get("input", value if not variables else lines(variables))
        return await self.workflow.called(text, variables, ctx, self.expose)


class RootWorkflow(CompositeStep):
    """The root workflow of a run, with variables from outside."""

    def __init__(self, workflow: DocumentWorkflow, variables: Mapping[str, str]) -> None:
        self.workflow = workflow
        self.variables = dict(variables)
        self.name = workflow.name

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("root", self.workflow.fingerprint, codec.canonical(self.variables))

    def parts(self) -> Iterable[Step]:
        return [self.workflow]

    @property
    def output_type(self) -> ValueType | None:
        """The type of the output of the workflow."""
        return self.workflow.output_type

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the workflow with its variables; a variable replaces the constant of the same name."""
        return await self.workflow.called(value, self.variables, ctx, constants=self.variables)


def lines(variables: Mapping[str, Json]) -> str:
    """Return variables as `key: value` lines: the input of a called document without an `input`."""
    return "\n".join(f"{key}: {codec.text_of(value)}" for key, value in variables.items())
