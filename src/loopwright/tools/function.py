"""A Python function as a tool: its signature is the schema, its docstring the description."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from ..engine.context import Context
from ..engine.step import source_digest
from ..engine.threads import in_thread
from ..errors import ConfigurationError
from ..records import codec
from ..records.codec import Json
from .base import HARD_LIMIT, Tool

__all__ = ["FunctionTool", "as_tool", "tool"]

_ARGUMENT = re.compile(r"\s*\**(\w+)\s*(?:\([^)]*\))?:\s*(.+)")
_SECTION = re.compile(r"\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Example|Examples):\s*")


class FunctionTool(Tool):
    """A Python function as a tool; see `tool`."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        description: str = "",
        idempotent: bool = False,
        approve: bool = False,
        timeout: float | None = 60.0,
        limit: int = HARD_LIMIT,
    ) -> None:
        self.function = function
        given = name or getattr(function, "__name__", type(function).__name__)
        about, arguments = _documented(function)
        self._takes_context, self._model = _model_of(function, given, arguments)
        self._is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        schema = self._model.model_json_schema()
        schema.pop("title", None)
        super().__init__(
            given, description=description or about, schema=schema, idempotent=idempotent,
            approve=approve, timeout=timeout, limit=limit,
        )  # fmt: skip

    def meaning(self) -> str:
        return source_digest(inspect.unwrap(self.function))

    def problem_with(self, arguments: Json) -> str:
        from pydantic import ValidationError

        if not isinstance(arguments, Mapping):
            return f"the arguments are {codec.encode(arguments)[:60]}, not an object"
        try:
            self._model.model_validate(arguments)
        except ValidationError as error:
            return "; ".join(_sentence(one) for one in error.errors()[:3])
        return ""

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> Any:
        made = self._model.model_validate(arguments)
        given = {name: getattr(made, name) for name in type(made).model_fields}
        if self._takes_context:
            given[self._takes_context] = ctx
        if self._is_async:
            return _plain(await self.function(**given))
        found = await in_thread(functools.partial(self.function, **given))
        return _plain(await found if inspect.isawaitable(found) else found)


def _plain(value: Any) -> Any:
    """Return models of pydantic as JSON; anything else is the codec's to judge."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else value


def _sentence(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    return f"{place}: {error['msg']}" if place else str(error["msg"])


def _model_of(
    function: Callable[..., Any], name: str, about: Mapping[str, str]
) -> tuple[str, type[Any]]:
    """Return the name under which it takes the context ("" if not), and a model of the rest."""
    from pydantic import ConfigDict, Field, PydanticSchemaGenerationError, create_model
    from pydantic.errors import PydanticUserError

    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise ConfigurationError(
            f"tool {name}: its signature cannot be read ({error}); give every parameter a type "
            "that its module knows"
        ) from None
    context, fields = "", {}
    for one in parameters:
        kind = hints.get(one.name, Any)
        if kind is Context or (one.name == "ctx" and one.annotation is one.empty):
            context = one.name
            continue
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY):
            raise ConfigurationError(
                f"tool {name}: {one.name}: a model calls by name; use named parameters only"
            )
        default = ... if one.default is one.empty else one.default
        fields[one.name] = (kind, Field(default, description=about.get(one.name)))
    try:
        model: type[Any] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)  # type: ignore[call-overload]
        model.model_json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, NameError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(
            f"tool {name}: a parameter has a type that is no JSON: {reason}; use str, int, float, "
            "bool, lists, dicts, dataclasses or pydantic models"
        ) from None
    return context, model


def _documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return a docstring without its sections, and what its Args section says, by name."""
    about: list[str] = []
    arguments: dict[str, str] = {}
    section = last = ""
    for line in (inspect.getdoc(function) or "").splitlines():
        if found := _SECTION.fullmatch(line):
            section, last = found[1], ""
        elif not section:
            about.append(line)
        elif section.startswith(("Arg", "Param")):
            if found := _ARGUMENT.fullmatch(line):
                last = found[1]
                arguments[last] = found[2].strip()
            elif last and line.strip():
                arguments[last] += f" {line.strip()}"
    return "\n".join(about).strip(), arguments


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str = "",
    description: str = "",
    idempotent: bool = False,
    approve: bool = False,
    timeout: float | None = 60.0,
    limit: int = HARD_LIMIT,
) -> Any:
    """Make a Python function a tool, as a decorator or a call.

    Its parameters' types become the JSON Schema of the arguments, its docstring the description
    (with an `Args:` section, those of the arguments); a parameter of type Context is given the
    step's context. A plain function runs in a thread. See Tool for the options.

    Raises:
        ConfigurationError: for a signature that no JSON can meet.

    >>> @tool(idempotent=True)
    ... def add(a: int, b: int = 1) -> int:
    ...     '''Add two numbers.'''
    ...     return a + b
    >>> add.name, add.description, add.schema["required"]
    ('add', 'Add two numbers.', ['a'])
    """

    def made(inner: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(
            inner, name=name, description=description, idempotent=idempotent, approve=approve,
            timeout=timeout, limit=limit,
        )  # fmt: skip

    return made if function is None else made(function)


def as_tool(thing: Any) -> Any:
    """Return `thing` as a tool or a set of tools: one as it is, a function as a FunctionTool.

    Raises:
        ConfigurationError: if it is neither.
    """
    if isinstance(thing, Tool) or hasattr(thing, "tools"):
        return thing
    if callable(thing):
        return FunctionTool(thing)
    raise ConfigurationError(
        f"{thing!r} cannot be a tool; give a function, tool(…), command_tool(…) or an MCP server"
    )
