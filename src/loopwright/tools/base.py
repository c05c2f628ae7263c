"""A tool: what a model or a step may call by name with arguments, and how one call of it is made.

Rules:

1. A call is one effect in the journal: its arguments, its output or its error, its time.
2. What goes wrong with a call is a value, `{"error": {"kind", "message"}}`: the model or the step
   decides what follows. Only the end of the run itself (a deadline, a cancel) goes on up.
3. A tool that is not idempotent and was in flight when the process died is not called again: the
   run suspends as `needs_attention`.
4. A tool with `approve` acts only on a person's answer, and never on arguments nobody has seen.

What a tool returned, bounded: what goes on of it and what a model is shown.

Rules:

1. At most 1 MiB goes on to whoever called; of more, its beginning and its end, with a marker between
   them. The journal keeps the whole, once, as a file named by its digest.
2. What re-enters a prompt has at most 32,000 characters, with the same marker.
3. More than 64 MiB is an error, never a value.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..engine.blocking import watch
from ..engine.context import Context
from ..engine.step import Leaf, digest_of
from ..errors import ConfigurationError, StepError
from ..models import structured_output as structured
from ..models.protocol import ToolDefinition as Described
from ..records import codec
from ..records.codec import Json
from ..records.excerpts import marker, shown
from ..records.tracebacks import described

__all__ = [
    "HARD_LIMIT",
    "INLINE_BYTES",
    "Tool",
    "ToolSet",
    "call_tool",
    "error_of",
    "kept",
    "message_of",
    "too_large",
]


INLINE_BYTES = 1024 * 1024  # of a result that goes on whole
HARD_LIMIT = 64 * 1024 * 1024  # bytes of a result that are read at all
_BYTES_OF_CHARACTER = 4  # at most, in UTF-8


def kept(output: Json, limit: int = HARD_LIMIT) -> tuple[Json, dict[str, Json]]:
    """Return an output as it goes on, and what was left out of it.

    A value above 1 MiB becomes a text: its beginning and its end around a marker. The second value
    is empty, or `{"bytes": of the whole, "sha256": of the whole}`.

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
        raise too_large(len(data), limit)
    if len(data) <= INLINE_BYTES:
        return output, {}
    cut = _cut(data, INLINE_BYTES - 100)
    return cut, {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def too_large(size: int, limit: int) -> StepError:
    """Return the error of a result that is not read to its end."""
    return StepError(
        f"its output has {size:,} bytes or more, at most {limit:,} are read; ask for less of it",
        kind="output_too_large",
        retryable=False,
    )


def _cut(data: bytes, room: int) -> str:
    half = room // 2
    head = data[:half].decode(errors="ignore")
    tail = data[-half:].decode(errors="ignore")
    omitted = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n{marker(omitted)}\n{tail}"


NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every provider takes as a tool's name
SHOWN_ARGUMENTS = 2_000  # characters in the question that an approval asks
WHOLE = "whole"  # of an output too long to go on, in the effect's own record
ASKED = "approval"  # what the question is called under the call's own name


class Tool(Leaf):
    """What may be called by name with arguments; a subclass says in `invoke` what it does.

    Args:
        name: 1 to 64 letters, digits, - and _.
        description: what it does and when to call it, for the model.
        schema: the JSON Schema of its arguments, an object.
        idempotent: whether a call may run twice if the process dies under it.
        approve: whether a person must agree to each call first.
        timeout: seconds that one call may take; None for no limit but the loop's own.
        limit: bytes of output that are read at most.

    Raises:
        ConfigurationError: for a name, schema or limit that could not mean anything.
    """

    idempotent: bool

    reports = False  # what it costs; a command may, but does not say so

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
                f"tool: name: {name!r} cannot be called; use 1 to 64 letters, digits, - and _"
            )
        self.name = name
        self.description = description
        self.schema: Mapping[str, Json] = schema or {"type": "object", "properties": {}}
        self.idempotent = idempotent
        self.approve = approve
        self.timeout = timeout
        if timeout is not None:
            self.timeout = codec.number(f"tool {name}: timeout", timeout, least=0, above=True)
        self.limit = codec.whole(f"tool {name}: limit", limit, least=1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of what the tool is: its name, its schema and what makes its kind."""
        return digest_of("tool", self.name, codec.canonical(dict(self.schema)), self.meaning())

    def meaning(self) -> str:
        """Return what else makes this tool differ from another of the same name."""
        return ""

    def renamed(self, name: str) -> Tool:
        """Return the same tool under another name; what it does stays the same."""
        made = copy.copy(self)
        made.name = name[:64]
        made.__dict__.pop("fingerprint", None)
        return made

    def described(self) -> Described:
        """Return it as a model is told of it."""
        return Described(self.name, self.description, self.schema)

    def problem_with(self, arguments: Json) -> str:
        """Return what is wrong with arguments, in one sentence, or ""."""
        try:
            return structured.problem_with(arguments, self.schema)
        except ConfigurationError as error:
            return str(error)

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> Any:
        """Do it, with arguments that meet the schema; what it raises becomes an error as data."""
        raise NotImplementedError

    async def act(self, value: Json, ctx: Context) -> Json:
        """Be a step of its own: call it with `value` as arguments and return its output.

        Raises:
            StepError: of the kind that the call's error has.
        """
        if problem := self.problem_with(value):
            raise StepError(f"{self.name}: {problem}", kind="invalid_arguments", retryable=False)
        found = await outcome(self, value, ctx)
        if (error := found.get("error")) is not None:
            raise StepError(
                f"{self.name}: {error['message']}", kind=error["kind"],
                exception=error.get("exception", ""), traceback=error.get("traceback", ""),
            )  # fmt: skip
        return found.get(WHOLE, found["output"])


class ToolSet(Protocol):
    """Several tools that are found when a run first needs them, like those of an MCP server."""

    name: str

    async def tools(self, ctx: Context) -> Sequence[Tool]:
        """Return the tools.

        Raises:
            StepError: if they cannot be found.
        """


@dataclass(frozen=True, slots=True)
class _Call(Leaf):
    """One call of a tool, as the effect that the journal has; its output is how it ended."""

    tool: Tool
    name: str

    @property
    def idempotent(self) -> bool:
        return self.tool.idempotent

    @property
    def fingerprint(self) -> str:
        return self.tool.fingerprint

    async def act(self, value: Json, ctx: Context) -> Json:
        return await outcome(self.tool, value, ctx)


async def call_tool(ctx: Context, name: str, tool: Tool, arguments: Json) -> dict[str, Json]:
    """Call a tool once, as the effect `name` inside this step.

    Returns `{"tool", "arguments", "output"}`, or `"error": {"kind", "message"}` in place of
    `output`; `"omitted": {"bytes", "sha256"}` beside an output of which only the ends go on: the
    journal has all of it, as `"whole"` of the call's effect.

    Raises:
        Suspended: while a person has not agreed to it, or it was in flight at a crash.
    """
    told: dict[str, Json] = {"tool": tool.name, "arguments": arguments}
    if problem := tool.problem_with(arguments):
        return {**told, **error_of("invalid_arguments", f"{tool.name}: {problem}")}
    if tool.approve:
        answer = _asked(ctx, name, tool, arguments)
        if answer.get("approve") is not True:
            reason = str(answer.get("reason") or "no reason was given")
            return {**told, **error_of("denied", f"a person did not allow this call: {reason}")}
        if "arguments" in answer:
            arguments = told["arguments"] = answer["arguments"]
            if problem := tool.problem_with(arguments):
                why = f"{tool.name}: the arguments as a person changed them: {problem}"
                return {**told, **error_of("invalid_arguments", why)}
    try:
        found = await ctx.call(name, _Call(tool, tool.name), arguments)
    except StepError as error:  # a person said that the call in doubt failed
        return {**told, **error_of(error.kind, str(error))}
    if not isinstance(found, dict) or not found.keys() & {"output", "error"}:
        found = {"output": found}  # a person said what the call in doubt had returned
    if "error" in found:  # what goes on to a model has no traceback
        return {**told, **error_of(found["error"]["kind"], found["error"]["message"])}
    return {**told, **{key: part for key, part in found.items() if key != WHOLE}}


def _asked(ctx: Context, name: str, tool: Tool, arguments: Json) -> Mapping[str, Json]:
    """Return a person's answer; anything but a clear yes is a no with that as its reason."""
    shown_arguments = shown(codec.encode(arguments), SHOWN_ARGUMENTS)
    question = f"call {tool.name} with {shown_arguments}?"
    request = {"kind": "tool", "tool": tool.name, "arguments": arguments, "question": question}
    waits = f"{ctx.below(name)}: waits for a person to approve: {question}"
    answer = ctx.ask(f"{name}/{ASKED}", request, waits)
    if answer is True:
        return {"approve": True}
    if isinstance(answer, Mapping):
        return answer
    return {"approve": False, "reason": answer if isinstance(answer, str) else ""}


async def outcome(tool: Tool, arguments: Json, ctx: Context) -> dict[str, Any]:
    """Make a call and return how it ended; nothing that the tool does is raised."""
    watched = (
        watch(ctx.path, tool.timeout) if tool.timeout is not None and ctx is not None else None
    )
    try:
        async with asyncio.timeout(tool.timeout) as limit:
            output = codec.normalise(await tool.invoke(codec.copied(arguments), ctx), what="output")
        output = ctx.run.clean(output)  # before it is cut: half a key is not known any more
        inline, omitted = kept(output, tool.limit)
    except StepError as error:
        return error_of(error.kind, ctx.run.error_text(str(error)))
    except TimeoutError as error:
        if limit.expired():
            return error_of("timeout", f"it took longer than {tool.timeout:g} s and was given up")
        return error_of("TimeoutError", ctx.run.error_text(str(error)) or "TimeoutError")
    except Exception as error:  # a tool of the user's: whatever it raises is told
        said = ctx.run.error_text(" ".join(str(error).split()))[:2000]
        name = type(error).__name__
        failed = error_of(name, f"{name}: {said}" if said else name)
        exception, traceback = described(error, whole=ctx.run.debug, redact=ctx.run.redact)
        failed["error"] |= {"exception": exception, "traceback": codec.normalise(traceback)}
        return failed
    finally:
        if watched is not None and (report := watched.end()):
            ctx.run.warn(report)
    return {"output": inline, **({"omitted": omitted, WHOLE: output} if omitted else {})}


def error_of(kind: str, message: str) -> dict[str, Any]:
    """Return an error as data."""
    return {"error": {"kind": kind, "message": codec.normalise(message)}}


def message_of(told: Mapping[str, Json]) -> str:
    """Return what a model is shown of a call: its output, or its error as JSON."""
    if "error" in told:
        return shown(codec.encode({"error": told["error"]}))
    return shown(told["output"])
