"""A prompt as a step: a template rendered, a model asked, the reply as output.

Rules:

1. The prompt is rendered once; what a value contains is never rendered again.
2. Every attempt is an effect of its own, journaled, reserved in the ledger and paid for once.
3. A truncated or refused reply is an error, never an output.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from . import codec
from .codec import Json
from .composites import Composite
from .context import Context
from .errors import ConfigurationError
from .models import Message, Reply, Request, Target, Timers, call_model
from .records import Reason, Result, Status
from .runtime import Scope
from .step import FunctionStep, digest_of
from .variables import FIXED, Filled, fill, rendered

__all__ = ["Again", "Asking", "Prompt", "prompt"]

Text = str | Filled | Callable[[Json, Context], str]


@dataclass(frozen=True, slots=True)
class Asking:
    """How a model is asked: `models` are `provider:model`, the first that is available answers.

    `temperature` 0 to 2, `max_tokens` of the reply, `schema` a JSON Schema of structured output, `base_url` and
    `api_key_env` for an endpoint of one's own.

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

    def __post_init__(self) -> None:
        for model in self.models:
            split_model(model)
        if self.temperature is not None:
            codec.number("temperature", self.temperature, least=0, most=2)
        if self.max_tokens is not None:
            codec.whole("max_tokens", self.max_tokens, least=1)

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
            ModelFault: when nothing is left to try.
        """
        request, targets = self.request(messages, ctx)
        reply = await call_model(ctx, "", request, failover=targets, judge=judge)
        return Reply.from_json(reply)

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
            temperature=self.temperature, max_tokens=self.max_tokens, schema=self.schema,
            base_url=self.base_url or str(ctx.run.resources.get("model_url") or ""),
            api_key_env=self.api_key_env, timeouts=self.timeouts,
        )  # fmt: skip
        return request, tuple(Target(provider, model) for provider, model in others)

    def to_json(self) -> Json:
        """Return what makes one way of asking differ from another."""
        return {
            "models": list(self.models),
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "schema": self.schema,
            "base_url": self.base_url,
            **({"api_key_env": self.api_key_env} if self.api_key_env else {}),
        }


class Prompt(Composite):
    """A prompt as a step; its output is the reply's text, or its data where a schema is given.

    `carried` makes the rounds of a loop one conversation; else every round starts afresh.
    """

    def __init__(
        self,
        text: Text,
        *,
        name: str = "prompt",
        system: Text = "",
        asking: Asking,
        carried: bool = False,
        read: Callable[[Reply], Json] | None = None,
    ) -> None:
        self.name = name
        self.text = fill(text) if isinstance(text, str) else text
        self.system = fill(system) if isinstance(system, str) else system
        self.asking = asking
        self.carried = carried
        self.read = read or _output

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
        for warning in reply.warnings:
            ctx.warn(warning)
        output = self.read(reply)
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", output, name=self.name
        )


class Again(Composite):
    """A prompt whose reply was no use, asked once more in the same conversation.

    Its input says what was replied and what is wrong with it: `{"reply": ..., "complaint": ...}`.
    """

    def __init__(self, asked: Prompt, name: str) -> None:
        self.asked = asked
        self.name = name
        self.fingerprint = digest_of("again", asked.fingerprint)

    async def run(self, value: Mapping[str, Json], ctx: Context) -> Result:
        """Ask again; the output is that of the prompt."""
        asked, given = self.asked, ctx.scope.initial if ctx.scope else None
        system = filled_in(asked.system, given, ctx)
        talk = [
            *([Message("system", system)] if system else []),
            Message("user", filled_in(asked.text, given, ctx)),
            Message("assistant", value["reply"]),
            Message("user", value["complaint"]),
        ]
        output = asked.read(await asked.asking.ask(talk, ctx))
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", output, name=self.name
        )


def _output(reply: Reply) -> Json:
    return reply.text if reply.data is None else reply.data


def filled_in(text: Text, value: Json, ctx: Context) -> str:
    """Return a text as it is said: with its template filled in."""
    if isinstance(text, Filled):
        return codec.text_of(rendered(text, ctx, value))
    return text if isinstance(text, str) else text(value, ctx)


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


_SAID = FunctionStep(_echo, name="said")
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
    temperature: float | None = None,
    max_tokens: int | None = None,
    schema: Mapping[str, Json] | None = None,
    base_url: str = "",
    api_key_env: str = "",
    carried: bool = False,
) -> Prompt:
    """Make a step that sends a template to a model.

    The template sees `value` (the step's input), `loop` and the outputs of earlier steps; see
    `variables`. `model` is `provider:model`, or several tried in order; default: that of the run.
    `carried` makes the rounds of a loop one conversation. `base_url` is a server of one's own and
    `api_key_env` names the key for it.

    Raises:
        TemplateError: for a template that cannot be read, with its line and column. A name that no step
            supplies is an error of `run`, before anything is asked.
        ConfigurationError: for a template that is no text, a model without its provider, or a number
            out of its range.
    """
    for what, given in (("text", text), ("system", system)):
        if not isinstance(given, str):
            raise ConfigurationError(f"prompt {name!r}: {what}: {given!r:.40} is no template")
    models = (model,) if isinstance(model, str) else tuple(model)
    asking = Asking(models, temperature, max_tokens, schema, base_url, api_key_env)
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


def with_schema(asking: Asking, schema: Mapping[str, Json] | None) -> Asking:
    """Return the same way of asking, for structured output."""
    return replace(asking, schema=schema)
