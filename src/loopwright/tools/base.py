"""Tools: functions that a model or a step calls by name with arguments.

1. A call is one effect in the journal: its arguments, its output or error, and its time.
2. The failure of a call is a value, `{"error": {"kind", "message"}}`, and the model or the step reacts
   to it. Only the end of the run (a deadline, a cancellation) is raised.
3. If the process died during a call of a tool that is not idempotent, the call is not repeated: the run
   suspends as `needs_attention`.
4. A tool with `approve` acts only after a person has approved the call and its arguments.
5. The caller receives at most 1 MiB of an output; of a longer one the beginning and the end, around a
   marker. The journal keeps the complete output once, as a file named by its digest.
6. A prompt receives at most 32,000 characters of an output, with the same marker.
7. An output of more than 64 MiB is an error.
8. Of a Python function as a tool, the signature is the schema and the docstring the description.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Protocol,
    TypedDict,
    Unpack,
    get_type_hints,
    overload,
    runtime_checkable,
)

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticSchemaGenerationError,
    ValidationError,
    create_model,
)
from pydantic.errors import PydanticUserError

from ..engine.context import Context
from ..engine.deadlines import watch
from ..engine.functions import in_thread
from ..engine.run_state import NO_EXIT, NO_STUB, Stub
from ..engine.step import Function, Leaf, digest_of, fingerprinted, source_digest
from ..errors import ConfigurationError, StepError
from ..records import codec
from ..records import json_schema as structured
from ..records.codec import Json
from ..records.display import marker, shown
from ..records.redaction import described

if TYPE_CHECKING:
    from ..models.protocol import ToolDefinition

__all__ = [
    "HARD_LIMIT",
    "INLINE_BYTES",
    "FunctionTool",
    "Tool",
    "ToolOptions",
    "ToolSet",
    "as_tool",
    "bounded",
    "call_tool",
    "error_of",
    "message_of",
    "tool",
]

INLINE_BYTES = 1024 * 1024  # of an output that is passed on complete
HARD_LIMIT = 64 * 1024 * 1024  # bytes of an output that are accepted
_BYTES_OF_CHARACTER = 4  # at most, in UTF-8


def bounded(output: Json, limit: int = HARD_LIMIT) -> tuple[Json, dict[str, Json]]:
    """Return the output for the caller, and the size and digest of a shortened one.

    A value above 1 MiB becomes a text: its beginning and its end around a marker. The second value is
    empty if nothing was left out, otherwise `{"bytes", "sha256"}` of the complete output.

    Raises:
        StepError: `output_too_large` above `limit` bytes.
    """
    if isinstance(output, int | float | bool | None):
        return output, {}
    if isinstance(output, str) and len(output) * _BYTES_OF_CHARACTER <= INLINE_BYTES:
        return output, {}
    text = output if isinstance(output, str) else codec.encode(output)
    data = text.encode()
    if len(data) > limit:
        raise StepError(
            f"its output has {len(data):,} bytes or more, at most {limit:,} are read; ask for less of it",
            kind="output_too_large",
            retryable=False,
        )
    if len(data) <= INLINE_BYTES:
        return output, {}
    # Room for the marker, so that the result stays below the limit and is not shortened again.
    half = (INLINE_BYTES - 100) // 2
    head, end = data[:half].decode(errors="ignore"), data[-half:].decode(errors="ignore")
    omitted = len(data) - len(head.encode()) - len(end.encode())
    digest = hashlib.sha256(data).hexdigest()
    return f"{head}\n{marker(omitted)}\n{end}", {"bytes": len(data), "sha256": digest}


NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # the tool names that every provider accepts
SHOWN_ARGUMENTS = 2_000  # characters in the question of an approval, which a person has to read
WHOLE = "whole"  # the key of a long output in the record of the effect; it is in recorded journals
APPROVAL = "approval"  # the name of the question below the name of the call


class ToolOptions(TypedDict, total=False):
    """The options that all kinds of tools share. See Tool."""

    description: str
    idempotent: bool
    approve: bool
    timeout: float | None
    limit: int


class Tool(Leaf):
    """A function that is called by name with arguments. Subclasses implement `invoke`.

    Args:
        name: 1 to 64 letters, digits, - and _.
        description: The purpose of the tool and when to call it, for the model.
        schema: The JSON Schema of the arguments, an object. Default: no arguments.
        idempotent: Whether a call may run twice after a crash. Default: false.
        approve: Whether a person must approve each call. Default: false.
        timeout: Seconds for one call. None: no limit except that of the loop. Default: 60.
        limit: The maximum bytes of output. Default: 64 MiB.

    Raises:
        ConfigurationError: For an invalid name, timeout or limit.

    Example:
        >>> class Clock(Tool):
        ...     async def invoke(self, arguments, ctx):
        ...         return "12:00"
        >>> Clock("clock", description="Return the time.").problem_with({})
        ''
    """

    idempotent: bool
    reports = False  # whether it reports its cost; a command may, but does not declare it

    def __init__(
        self,
        name: str,
        *,
        description: str = "",
        schema: Mapping[str, Json] | None = None,
        idempotent: bool = False,
        approve: bool = False,
        timeout: float | None = 60.0,
        limit: int = HARD_LIMIT,
    ) -> None:
        if not NAME.fullmatch(name):
            raise ConfigurationError(
                f"tool: {name!r} is not a valid name. Use 1 to 64 letters, digits, - and _."
            )
        self.name = name
        self.description = description
        self.schema: Mapping[str, Json] = schema or {"type": "object", "properties": {}}
        self.idempotent = idempotent
        self.approve = approve
        self.timeout = timeout
        if timeout is not None:
            self.timeout = codec.number(f"tool {name}: timeout", timeout, minimum=0, above=True)
        self.limit = codec.integer(f"tool {name}: limit", limit, minimum=1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    @fingerprinted
    def fingerprint(self) -> str:
        """A digest of the name, the schema and `meaning`."""
        return digest_of("tool", self.name, codec.canonical(dict(self.schema)), self.meaning())

    def meaning(self) -> str:
        """Return what distinguishes this tool from others with the same name and schema."""
        return ""

    def renamed(self, name: str, **options: Unpack[ToolOptions]) -> Tool:
        """Return the same tool under another name, with other options."""
        tool = copy.copy(self)
        tool.name = name[:64]
        tool.__dict__.update(options)
        # The cached value belongs to the old name.
        tool.__dict__.pop("fingerprint", None)
        return tool

    def described(self) -> ToolDefinition:
        """Return the definition that a model receives."""
        from ..models.protocol import ToolDefinition

        return ToolDefinition(self.name, self.description, self.schema)

    def problem_with(self, arguments: Json) -> str:
        """Return the problem of invalid arguments in one sentence, or "" if they are valid."""
        try:
            return structured.problem_with(arguments, self.schema)
        except ConfigurationError as error:
            return str(error)

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> object:
        """Run the tool with valid arguments. An exception becomes an error as data."""
        raise NotImplementedError

    def stub_output(self, stub: Stub) -> Json:
        """Return the output of a call that a stub replaces.

        Raises:
            StepError: `bad_stub` for an exit code, which only commands have.
        """
        if stub.exit is not None:
            raise StepError(f"{self.name}: {NO_EXIT}", kind="bad_stub", retryable=False)
        return stub.output

    async def act(self, value: Json, ctx: Context) -> Json:
        """Run as a step: call the tool with `value` as arguments and return its output.

        Raises:
            StepError: With the kind of the call's error.
        """
        if problem := self.problem_with(value):
            raise StepError(f"{self.name}: {problem}", kind="invalid_arguments", retryable=False)
        result = await _outcome(self, value, ctx)
        if (error := result.get("error")) is not None:
            raise StepError(
                f"{self.name}: {error['message']}", kind=error["kind"],
                exception=error.get("exception", ""), traceback=error.get("traceback", ""),
            )  # fmt: skip
        return result.get(WHOLE, result["output"])


@runtime_checkable
class ToolSet(Protocol):
    """Several tools that a run lists when it first needs them, such as those of an MCP server."""

    name: str

    @property
    def fingerprint(self) -> str:
        """A digest that changes with the declaration of the set."""

    async def tools(self, ctx: Context) -> Sequence[Tool]:
        """Return the tools.

        Raises:
            StepError: If they cannot be listed.
        """


@dataclass(frozen=True, slots=True)
class _Call(Leaf):
    """One call of a tool as an effect. Its output says how the call ended."""

    tool: Tool
    name: str

    @property
    def idempotent(self) -> bool:
        return self.tool.idempotent

    @property
    def fingerprint(self) -> str:
        return self.tool.fingerprint

    async def act(self, value: Json, ctx: Context) -> Json:
        return await _outcome(self.tool, value, ctx)


async def call_tool(ctx: Context, name: str, tool: Tool, arguments: Json) -> dict[str, Json]:
    """Call a tool once, as the effect `name` inside the current step.

    Args:
        ctx: The context of the step.
        name: The name of the effect in the journal.
        tool: The tool.
        arguments: Its arguments, an object.

    Returns:
        `{"tool", "arguments", "output"}`, or `"error": {"kind", "message"}` instead of `output`. If only
        the ends of the output are included, `"omitted": {"bytes", "sha256"}` describes the complete one,
        which the journal has as `"whole"` of the effect.

    Raises:
        Suspended: While a person has not approved it, or if the process died during the call.

    Example:
        >>> from loopwright import run_sync
        >>> from loopwright.tools import tool
        >>> @tool
        ... def double(n: int) -> int:
        ...     return 2 * n
        >>> async def use(value, ctx):
        ...     return (await call_tool(ctx, "double", double, {"n": value}))["output"]
        >>> run_sync(use, 4).output
        8
    """
    call: dict[str, Json] = {"tool": tool.name, "arguments": arguments}
    if problem := tool.problem_with(arguments):
        return {**call, **error_of("invalid_arguments", f"{tool.name}: {problem}")}
    if tool.approve:
        answer = _answer(ctx, name, tool, arguments)
        if answer.get("approve") is not True:
            reason = str(answer.get("reason") or "no reason")
            return {**call, **error_of("denied", f"a person did not allow this call: {reason}")}
        # The person may have corrected the arguments, which then have to fit the schema as well.
        if "arguments" in answer:
            arguments = call["arguments"] = answer["arguments"]
            if problem := tool.problem_with(arguments):
                why = f"{tool.name}: the arguments as a person changed them: {problem}"
                return {**call, **error_of("invalid_arguments", why)}
    try:
        result = await ctx.call(name, _Call(tool, tool.name), arguments)
    except StepError as error:  # a person declared that the uncertain call failed
        if error.kind == NO_STUB:  # the caller of the dry run corrects it, not the model
            raise
        return {**call, **error_of(error.kind, str(error))}
    # A person who resolves an interrupted call enters its output and not this object.
    if not isinstance(result, dict) or not result.keys() & {"output", "error"}:
        result = {"output": result}
    if "error" in result:  # a model does not receive the traceback
        return {**call, **error_of(result["error"]["kind"], result["error"]["message"])}
    return {**call, **{key: part for key, part in result.items() if key != WHOLE}}


def _answer(ctx: Context, name: str, tool: Tool, arguments: Json) -> Mapping[str, Json]:
    """Return a person's answer. Any text is a refusal with that reason."""
    shown_arguments = shown(codec.encode(arguments), SHOWN_ARGUMENTS)
    question = f"call {tool.name} with {shown_arguments}?"
    request = {"kind": "tool", "tool": tool.name, "arguments": arguments, "question": question}
    waits = f"{ctx.below(name)}: waits for a person to approve: {question}"
    answer = ctx.ask(f"{name}/{APPROVAL}", request, waits)
    # Anything but a clear yes is a refusal: a typing error must not run a tool.
    if answer is True:
        return {"approve": True}
    if isinstance(answer, Mapping):
        return answer
    return {"approve": False, "reason": answer if isinstance(answer, str) else ""}


async def _outcome(tool: Tool, arguments: Json, ctx: Context) -> dict[str, Json]:
    """Make a call and return its output or error. No exception of the tool is raised."""
    # Code that blocks the event loop cannot be interrupted, so it is reported.
    watched = (
        watch(ctx.path, tool.timeout) if tool.timeout is not None and ctx is not None else None
    )
    try:
        async with asyncio.timeout(tool.timeout) as limit:
            stubs = ctx.run.stubs
            if stubs is not None:
                output = tool.stub_output(stubs.of(ctx.path, "tool"))
            else:
                # A copy, because the journal holds the arguments and a tool may change its own.
                output = await tool.invoke(codec.copied(arguments), ctx)
            output = codec.normalise(output, what="output")
        output = ctx.run.clean(output)  # before it is cut: half a key could not be redacted
        inline, omitted = bounded(output, tool.limit)
    except StepError as error:
        if error.kind == NO_STUB:
            raise
        return error_of(error.kind, ctx.run.error_text(str(error)))
    except TimeoutError as error:
        if limit.expired():
            return error_of("timeout", f"it took longer than {tool.timeout:g} s and was stopped")
        return error_of("TimeoutError", ctx.run.error_text(str(error)) or "TimeoutError")
    except Exception as error:  # the tool of a user may raise anything
        text = ctx.run.error_text(" ".join(str(error).split()))[:2000]
        name = type(error).__name__
        error_value = error_of(name, f"{name}: {text}" if text else name)
        exception, traceback = described(error, whole=ctx.run.debug, redact=ctx.run.redact)
        error_value["error"] |= {"exception": exception, "traceback": codec.normalise(traceback)}
        return error_value
    finally:
        if watched is not None and (report := watched.end()):
            ctx.run.warn(report, code="blocking_event_loop")
    return {"output": inline, **({"omitted": omitted, WHOLE: output} if omitted else {})}


def error_of(kind: str, message: str) -> dict[str, Json]:
    """Return an error as data."""
    return {"error": {"kind": kind, "message": codec.normalise(message)}}


def message_of(call: Mapping[str, Json]) -> str:
    """Return the text of a call for a model: its output, or its error as JSON."""
    if "error" in call:
        return shown(codec.encode({"error": call["error"]}))
    return shown(call["output"])


_ARGUMENT = re.compile(r"\s*\**(\w+)\s*(?:\([^)]*\))?:\s*(.+)")
_SECTION = re.compile(r"\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Example|Examples):\s*")


class FunctionTool(Tool):
    """A Python function as a tool. See `tool`."""

    def __init__(
        self, function: Function, *, name: str = "", **options: Unpack[ToolOptions]
    ) -> None:
        self.function = function
        name = name or getattr(function, "__name__", type(function).__name__)
        about, arguments = _documentation(function)
        self._context, self._model = _model_of(function, name, arguments)
        self._is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        schema = self._model.model_json_schema()
        schema.pop("title", None)
        options["description"] = options.get("description") or about
        super().__init__(name, schema=schema, **options)

    def meaning(self) -> str:
        return source_digest(inspect.unwrap(self.function))

    def problem_with(self, arguments: Json) -> str:
        if not isinstance(arguments, Mapping):
            return f"the arguments are {codec.encode(arguments)[:60]}, not an object"
        try:
            self._model.model_validate(arguments)
        except ValidationError as error:
            return "; ".join(
                f"{'.'.join(map(str, one['loc']))}{': ' if one['loc'] else ''}{one['msg']}"
                for one in error.errors()[:3]
            )
        return ""

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> object:
        model = self._model.model_validate(arguments)
        values = {name: getattr(model, name) for name in type(model).model_fields}
        if self._context:
            values[self._context] = ctx
        call = functools.partial(self.function, **values)
        # A plain function may block, and other steps of the run must continue.
        result = call() if self._is_async else await in_thread(call)
        if inspect.isawaitable(result):
            result = await result
        # Pydantic models as JSON. The codec checks all other values.
        dump = getattr(result, "model_dump", None)
        return dump(mode="json") if callable(dump) else result


def _model_of(
    function: Function, name: str, descriptions: Mapping[str, str]
) -> tuple[str, type[BaseModel]]:
    """Return the name of the context parameter ("" if there is none), and a model of the others."""
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise ConfigurationError(
            f"tool {name}: its signature cannot be read ({error}). Annotate every parameter with a type "
            "that its module defines or imports."
        ) from None
    context, fields = "", dict[str, Any]()
    for one in parameters:
        # Without annotations the name `ctx` decides, as for steps.
        hint = hints.get(one.name, Any)
        if hint is Context or (one.name == "ctx" and one.annotation is one.empty):
            context = one.name
            continue
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY):
            raise ConfigurationError(
                f"tool {name}: {one.name}: models call tools by name. Use named parameters only."
            )
        default = ... if one.default is one.empty else one.default
        fields[one.name] = (hint, Field(default, description=descriptions.get(one.name)))
    try:
        # Extra arguments are errors: a model that invents one expects an effect that it does not have.
        model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, NameError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(
            f"tool {name}: the type of a parameter has no JSON Schema: {reason}. Use str, int, float, "
            "bool, lists, dicts, dataclasses or pydantic models."
        ) from None
    return context, model


def _documentation(function: Function) -> tuple[str, dict[str, str]]:
    """Return a docstring without its sections, and the descriptions in its Args section by name."""
    about: list[str] = []
    arguments: dict[str, str] = {}
    section = last = ""
    for line in (inspect.getdoc(function) or "").splitlines():
        if match := _SECTION.fullmatch(line):
            section, last = match[1], ""
        elif not section:
            about.append(line)
        elif section.startswith(("Arg", "Param")):
            if match := _ARGUMENT.fullmatch(line):
                last = match[1]
                arguments[last] = match[2].strip()
            elif last and line.strip():
                arguments[last] += f" {line.strip()}"
    return "\n".join(about).strip(), arguments


@overload
def tool(function: Function, *, name: str = "", **options: Unpack[ToolOptions]) -> FunctionTool: ...
@overload
def tool(
    function: None = None, *, name: str = "", **options: Unpack[ToolOptions]
) -> Callable[[Function], FunctionTool]: ...
def tool(
    function: Function | None = None, *, name: str = "", **options: Unpack[ToolOptions]
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a Python function a tool, as a decorator or a call.

    The types of its parameters become the JSON Schema of the arguments. Its docstring becomes the
    description, and an `Args:` section describes the arguments. A parameter of type Context receives
    the step's context. A plain function runs in a thread.

    Args:
        function: The function. Without it, a decorator is returned.
        name: 1 to 64 letters, digits, - and _. Default: the function's name.
        **options: `description` (default: the docstring), `idempotent` (whether a call may run twice
            after a crash; default: false), `approve` (whether a person must approve each call; default:
            false), `timeout` (seconds for one call, default 60; None: no limit except that of the loop),
            `limit` (bytes of output; default 64 MiB).

    Returns:
        A FunctionTool, or a decorator that makes one.

    Raises:
        ConfigurationError: For a signature that has no JSON Schema.

    Example:
        >>> @tool(idempotent=True)
        ... def add(a: int, b: int = 1) -> int:
        ...     '''Add two numbers.'''
        ...     return a + b
        >>> add.name, add.schema["required"]
        ('add', ['a'])
    """
    if function is None:
        return lambda inner: FunctionTool(inner, name=name, **options)
    return FunctionTool(function, name=name, **options)


def as_tool(target: object) -> Tool | ToolSet:
    """Return a tool or a set of tools unchanged, and a function as a FunctionTool.

    Raises:
        ConfigurationError: For any other object.
    """
    if isinstance(target, Tool | ToolSet):
        return target
    if callable(target):
        return FunctionTool(target)
    raise ConfigurationError(
        f"{target!r} is not a tool. Use a function, tool(…), command_tool(…) or an MCP server."
    )
