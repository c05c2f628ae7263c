"""A Python function as a tool: its signature is the schema, its docstring the description."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Unpack, get_type_hints, overload

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
from ..engine.functions import in_thread
from ..engine.step import Function, source_digest
from ..errors import ConfigurationError
from ..records import codec
from ..records.codec import Json
from .base import Tool, ToolOptions, ToolSet

__all__ = ["FunctionTool", "as_tool", "tool"]

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
            problems = error.errors()[:3]
            return "; ".join(f"{_place(one['loc'])}{one['msg']}" for one in problems)
        return ""

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> object:
        model = self._model.model_validate(arguments)
        values = {name: getattr(model, name) for name in type(model).model_fields}
        if self._context:
            values[self._context] = ctx
        call = functools.partial(self.function, **values)
        # A plain function may block, and other steps of the run must continue.
        result = call() if self._is_async else await in_thread(call)
        return _as_json(await result if inspect.isawaitable(result) else result)


def _as_json(value: object) -> object:
    """Return pydantic models as JSON. The codec checks all other values."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else value


def _place(path: tuple[int | str, ...]) -> str:
    return f"{'.'.join(str(part) for part in path)}: " if path else ""


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
