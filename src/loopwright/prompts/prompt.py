"""A prompt as a step: a template rendered, a model asked, the reply as output.

Rules:

1. The prompt is rendered once; what a value contains is never rendered again.
2. Every attempt is an effect of its own, journaled, reserved in the ledger and paid for once.
3. A refused reply is an error, never an output; one that was cut off only where `on_cutoff: accept`
   says so, and then the run warns of it.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from ..engine.context import Context
from ..engine.scope import Scope
from ..engine.step import CompositeStep, FunctionStep, digest_of
from ..errors import ConfigurationError, nearest
from ..models import Message, Reply, Request, Target, Timers, call_model, own_words
from ..models.protocol import MAX_TOOL_CALLS
from ..models.settings import (
    SAMPLING,
    ModelSettings,
    checked_cutoff,
    checked_headers,
    checked_sampling,
    header_digests,
)
from ..records import Reason, Result, Status, codec
from ..records.codec import Json
from ..records.excerpts import VALUE_CHARS, shortened
from ..templates.variables import FIXED, TemplatedValue, fill, rendered

__all__ = ["Prompt", "PromptSettings", "Reask", "asking_of", "prompt", "warn_of"]

QUOTED = 4_000  # characters of a reply that are quoted back to the model
Text = str | TemplatedValue | Callable[[Json, Context], str]


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """How a model is asked: `models` are `provider:model`, the first that is available answers.

    `temperature` 0 to 2, `max_tokens` of the reply, `schema` a JSON Schema of structured output, `base_url` and
    `api_key_env` for an endpoint of one's own. `sampling` holds the other settings of `ModelSettings`,
    `headers` are sent along. `cap` is the limit of tokens where no `max_tokens` is given, `strict` reads a
    value as strict JSON only. A reply with more than `max_tool_calls_per_reply` calls is refused.

    Raises:
        ConfigurationError: for a model without its provider, or a number out of its range.
    """

    models: tuple[str, ...] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    schema: Mapping[str, Json] | None = None
    base_url: str = ""
    api_key_env: str = ""
    timeouts: Timers = field(default_factory=Timers)
    sampling: Mapping[str, Json] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    on_cutoff: str = ""
    cap: int | None = None
    strict: bool = False
    max_tool_calls_per_reply: int = MAX_TOOL_CALLS

    def __post_init__(self) -> None:
        for model in self.models:
            split_model(model)
        if self.temperature is not None:
            codec.number("temperature", self.temperature, least=0, most=2)
        if self.max_tokens is not None:
            codec.whole("max_tokens", self.max_tokens, least=1)
        codec.whole("max_tool_calls_per_reply", self.max_tool_calls_per_reply, least=1)
        object.__setattr__(self, "sampling", checked_sampling(self.sampling))
        checked_headers(self.headers)
        checked_cutoff(self.on_cutoff, schema=self.schema is not None)
        if self.schema is not None and not isinstance(self.schema, Mapping):
            raise ConfigurationError(_no_schema(self.schema))

    def named(self, ctx: Context) -> tuple[str, ...]:
        """Return the models, or the run's default.

        Raises:
            ConfigurationError: if nothing names a model.
        """
        default = ctx.run.resources.get("model")
        found = self.models or ((str(default),) if default else ())
        if not found:
            raise ConfigurationError(
                f"{ctx.path}: no model is named; give model='provider:model' here, or "
                "resources={'model': …} to the run"
            )
        return found

    async def ask(self, messages: Sequence[Message], ctx: Context, *, judge: bool = False) -> Reply:
        """Ask the first model, and those after it when it is not available.

        Raises:
            ModelError: when nothing is left to try.
        """
        request, targets = self.request(messages, ctx)
        reply = Reply.from_json(await call_model(ctx, "", request, failover=targets, judge=judge))
        warn_of(reply, ctx)
        return reply

    def request(
        self, messages: Sequence[Message], ctx: Context
    ) -> tuple[Request, tuple[Target, ...]]:
        """Return the question to the first model, and where to go on with it.

        Raises:
            ConfigurationError: if nothing names a model.
        """
        first, *others = (split_model(name) for name in self.named(ctx))
        request = Request(
            tuple(messages), first[1], first[0],
            temperature=self.temperature, max_tokens=self.max_tokens or self.cap, schema=self.schema,
            base_url=self.base_url or str(ctx.run.resources.get("model_url") or ""),
            api_key_env=self.api_key_env, timeouts=self.timeouts, on_cutoff=self._cutoff(),
            extra=self.sampling, headers=self.headers, strict=self.strict,
            max_tool_calls=self.max_tool_calls_per_reply,
        )  # fmt: skip
        return request, tuple(Target(provider, model) for provider, model in others)

    def _cutoff(self) -> str:
        """Return what follows a cut reply: a limit of our own is no reason to fail at once."""
        ours = self.max_tokens is None and self.cap is not None
        return self.on_cutoff or ("retry" if ours else "")

    def to_json(self) -> Json:
        """Return what makes one way of asking differ from another; of headers the digests."""
        more: dict[str, Json] = {
            "on_cutoff": self.on_cutoff,
            "cap": self.cap,
            "strict": self.strict,
        }
        if self.timeouts != Timers():
            more["timeouts"] = repr(self.timeouts)
        if self.max_tool_calls_per_reply != MAX_TOOL_CALLS:
            more["max_tool_calls_per_reply"] = self.max_tool_calls_per_reply
        if self.headers:
            more["headers"] = header_digests(self.headers)
        return {
            "models": list(self.models),
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "schema": self.schema,
            "base_url": self.base_url,
            **({"api_key_env": self.api_key_env} if self.api_key_env else {}),
            **self.sampling,
            **{name: value for name, value in more.items() if value},
        }


def asking_of(
    model: str | Sequence[str],
    settings: Mapping[str, Any],
    *,
    schema: Mapping[str, Json] | None = None,
    temperature: float | None = None,
    cap: int | None = None,
    strict: bool = False,
) -> PromptSettings:
    """Return how a model is asked with the settings of a step; `temperature` is what it is else.

    Raises:
        ConfigurationError: for an unknown setting, with the nearest name, or a value out of range.
    """
    for name in settings:
        if name not in ModelSettings.__annotations__:
            hint = nearest(name, ModelSettings.__annotations__)
            raise ConfigurationError(f"{name}: is no setting of a model call{hint}")
    given = {name: value for name, value in settings.items() if value is not None}
    seconds = given.get("timeout")
    if seconds is not None:
        seconds = codec.number("timeout", seconds, least=0, above=True)
    return PromptSettings(
        models=(model,) if isinstance(model, str) else tuple(model),
        temperature=given.get("temperature", temperature),
        max_tokens=given.get("max_tokens"),
        schema=schema,
        base_url=given.get("base_url", ""),
        api_key_env=given.get("api_key_env", ""),
        timeouts=Timers() if seconds is None else Timers(seconds, seconds, seconds),
        sampling={name: given[name] for name in SAMPLING if name in given},
        headers=given.get("extra_headers", {}),
        on_cutoff=given.get("on_cutoff", ""),
        cap=cap,
        strict=strict,
    )


def _no_schema(given: Any) -> str:
    if hasattr(given, "model_json_schema"):
        name = getattr(given, "__name__", "Model")
        return f"schema: {name} is a class; give its JSON Schema: schema={name}.model_json_schema()"
    return f"schema: {given!r:.60} is not a JSON Schema; give an object"


def warn_of(reply: Reply, ctx: Context) -> None:
    """Add what a reply warns of to the run's warnings: that a setting was left out once in a run."""
    for warning in reply.warnings:
        ctx.run.warn(warning)
    if reply.finish == "length":
        ctx.warn("the reply was cut off at max_tokens, and on_cutoff: accept keeps it")


class Prompt(CompositeStep):
    """A prompt as a step; its output is the reply's text, or its data where a schema is given.

    `carried` makes the rounds of a loop one conversation; else every round starts afresh.
    """

    def __init__(
        self,
        text: Text,
        *,
        name: str = "prompt",
        system: Text = "",
        asking: PromptSettings,
        carried: bool = False,
        read: Callable[[Reply], Json] | None = None,
    ) -> None:
        self.name = name
        self.text = fill(text) if isinstance(text, str) else text
        self.system = fill(system) if isinstance(system, str) else system
        self.asking = asking
        self.carried = carried
        self.read = read or _output

    def calling_at_most(self, number: int) -> Prompt:
        """Return the same prompt, whose replies may have so many calls of tools."""
        made = copy.copy(self)
        made.asking = replace(self.asking, max_tool_calls_per_reply=number)
        made.__dict__.pop("fingerprint", None)
        return made

    @functools.cached_property
    def fingerprint(self) -> str:
        """What makes one prompt differ from another; made when it is asked for, as a check never does."""
        shown = (
            getattr(t, "source", getattr(t, "__qualname__", "")) for t in (self.text, self.system)
        )
        asking = codec.canonical(self.asking.to_json())
        return digest_of("prompt", *(codec.canonical(s) for s in shown), asking)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Render, ask and read."""
        said = Message("user", filled_in(self.text, value, ctx))
        talk = _talk(ctx) if self.carried else []
        system = filled_in(self.system, value, ctx)
        head = [Message("system", system)] if system else []
        if self.carried:
            await ctx.call(
                "said", _SAID, said.content
            )  # a resume takes the conversation up from here
        reply = await self.asking.ask([*head, *talk, said], ctx)
        if self.carried:
            _carry(ctx, [*talk, said, reply.message()])
        output = self.read(reply)
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", output, name=self.name
        )

    async def asked_again(self, value: Json, reply: str, complaint: str, ctx: Context) -> Json:
        """Return the output of the prompt once more, asked in one conversation with its reply."""
        system = filled_in(self.system, value, ctx)
        quoted = own_words(reply)[:QUOTED]
        talk = [
            *([Message("system", system)] if system else []),
            Message("user", filled_in(self.text, value, ctx)),
            *([Message("assistant", quoted)] if quoted.strip() else []),
            Message("user", complaint),
        ]
        return self.read(await self.asking.ask(talk, ctx))


class Reask(CompositeStep):
    """A prompt whose reply was no use, asked once more in the same conversation.

    Its input says what was replied and what is wrong with it: `{"reply": ..., "complaint": ...}`.
    """

    fingerprint: str

    def __init__(self, asked: Prompt, name: str) -> None:
        self.asked = asked
        self.name = name
        self.fingerprint = digest_of("again", asked.fingerprint)

    async def run(self, value: Mapping[str, Json], ctx: Context) -> Result:
        """Ask again; the output is that of the prompt."""
        given = ctx.scope.initial if ctx.scope else None
        output = await self.asked.asked_again(given, value["reply"], value["complaint"], ctx)
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", output, name=self.name
        )


def _output(reply: Reply) -> Json:
    return reply.text if reply.data is None else reply.data


def filled_in(text: Text, value: Json, ctx: Context) -> str:
    """Return a text as it is said: with its template filled in."""
    if isinstance(text, TemplatedValue):
        return codec.text_of(rendered(_bounded(text, ctx), ctx, value))
    return text if isinstance(text, str) else text(value, ctx)


def _bounded(text: TemplatedValue, ctx: Context) -> TemplatedValue:
    """Return a template whose values are cut where they are too long for a prompt, with a warning."""
    limit = int(ctx.run.resources.get("max_value_chars") or VALUE_CHARS)

    def see(ctx: Context, value: Json) -> Any:
        seen = text.see(ctx, value)
        if not isinstance(seen, dict):  # of a dialect without commands
            return seen
        short = shortened(seen, limit)
        for name in seen:
            if short[name] is not seen[name] and name in text.names | FIXED:
                ctx.warn(
                    f"{name} has a text of more than {limit:,} characters; it was cut in the prompt"
                )
        return short

    return replace(text, see=see)


def source_of(text: Text) -> str:
    """Return a text as it was written."""
    return text if isinstance(text, str) else str(getattr(text, "source", text))


def _talk(ctx: Context) -> list[Message]:
    """Return the conversation of the rounds before: kept in the scope, or found in the journal."""
    scope = _rounds(ctx)
    if scope is None or scope.number <= 1:
        return []
    part = _part(ctx, scope)
    if scope.talks is not None and part in scope.talks:
        return list(scope.talks[part])
    return _recorded_talk(ctx, scope, part)


def _rounds(ctx: Context) -> Scope | None:
    """Return the scope of the nearest loop: a workflow inside its body has no rounds of its own."""
    scope = ctx.scope
    while scope is not None and (not scope.number or scope.total):
        scope = scope.parent
    return scope


def _part(ctx: Context, scope: Scope) -> str:
    """Return where in a round a prompt is, by whatever try it is reached."""
    return _TRY.sub("", ctx.path.removeprefix(f"{scope.path}/{scope.number}"))


def _recorded_talk(ctx: Context, scope: Scope, part: str) -> list[Message]:
    """Return what was said and answered in the rounds before, as the journal has it."""
    replay = ctx.run.replay
    if replay is None:
        return []
    said: dict[int, Json] = {}
    replied: dict[int, list[Message]] = {}
    begin = f"{scope.path}/"
    for path, entry in replay.finished.items():
        place, _, leaf = path.rpartition("/")
        number, slash, rest = place.removeprefix(begin).partition("/")
        if entry.error is not None or not place.startswith(begin) or not number.isdecimal():
            continue
        if int(number) >= scope.number or _TRY.sub("", slash + rest) != part:
            continue
        if leaf == "said":
            said[int(number)] = entry.value
        elif leaf.startswith("attempt-") and int(number) in said:
            asked = Message("user", said[int(number)])
            replied[int(number)] = [asked, Reply.from_json(entry.value).message()]
    return [message for number in sorted(replied) for message in replied[number]]


async def _echo(value: Json) -> Json:
    return value


_SAID = FunctionStep(_echo, name="said", fingerprint="note.said/1")
_TRY = re.compile(r"/attempt-[0-9]+(?=/|$)")  # of a step that is retried


def split_model(name: str) -> tuple[str, str]:
    """Return provider and model of `provider:model`.

    Raises:
        ConfigurationError: if it is not written so.
    """
    provider, _, model = name.partition(":")
    if not provider or not model:
        raise ConfigurationError(
            f"{name!r} is not a model; write provider:model, like openai:gpt-4o"
        )
    return provider, model


def _carry(ctx: Context, talk: list[Message]) -> None:
    scope = _rounds(ctx)
    if scope is not None:
        scope.talks = {**(scope.talks or {}), _part(ctx, scope): talk}


def prompt(
    text: str,
    *,
    model: str | Sequence[str] = (),
    name: str = "prompt",
    system: str = "",
    schema: Mapping[str, Json] | None = None,
    strict: bool = False,
    carried: bool = False,
    **settings: Unpack[ModelSettings],
) -> Prompt:
    """Make a step that sends a template to a model.

    The template sees `value` (the step's input), `loop` and the outputs of earlier steps; see
    `variables`. `model` is `provider:model`, or several tried in order; default: that of the run.
    With `schema` the output is the one value in the reply that fits it; `strict` reads the reply as one
    strict JSON value. `carried` makes the rounds of a loop one conversation. `settings` are those of
    `ModelSettings`: temperature, max_tokens, top_p, seed, stop, on_cutoff and others.

    Raises:
        TemplateError: for a template that cannot be read, with its line and column. A name that no step
            supplies is an error of `run`, before anything is asked.
        ConfigurationError: for a template that is no text, a model without its provider, or a number
            out of its range.
    """
    for what, given in (("text", text), ("system", system)):
        if not isinstance(given, str):
            raise ConfigurationError(f"prompt {name!r}: {what}: {given!r:.40} is no template")
    asking = asking_of(model, settings, schema=schema, strict=strict)
    made = Prompt(text, name=name, system=system, asking=asking, carried=carried)
    made.unsupplied = _unsupplied(name, text) | _unsupplied(name, system)
    return made


def _unsupplied(name: str, text: str) -> dict[str, str]:
    """Return the names that a template needs beyond those that are always there, and where."""
    found = {}
    for needed in sorted(fill(text).names - FIXED - {"loop"}):
        if "." not in needed:
            place = re.search(rf"{{[{{%][^}}]*?\b({re.escape(needed)})\b", text)
            before = text[: place.start(1)] if place else ""
            line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
            found[needed] = (
                f"prompt {name!r}: template line {line}, column {column}: nothing supplies {needed!r}"
            )
    return found


def with_schema(asking: PromptSettings, schema: Mapping[str, Json] | None) -> PromptSettings:
    """Return the same way of asking, for structured output."""
    return replace(asking, schema=schema)
