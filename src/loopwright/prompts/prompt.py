"""A prompt as a step: it renders a template, calls a model, and returns the reply.

Rules:

1. The prompt is rendered once; template syntax inside a value is never interpreted.
2. Each attempt is a separate effect, recorded in the journal, reserved in the budget and paid once.
3. A refused reply is an error. A truncated reply is an output only with `on_cutoff: accept`, with a
   warning.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack, overload

from ..engine.context import Context
from ..engine.step import CompositeStep, In, Out, digest_of
from ..errors import ConfigurationError, StepError, nearest
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
from ..records.typed import ValueType, value_type
from ..templates.variables import FIXED, TemplatedValue, fill, rendered
from .conversation import SUMMARY_TOKENS, Conversation, earlier, keep, note_question

__all__ = ["Prompt", "PromptSettings", "Reask", "asking_of", "prompt", "warn_of"]

QUOTED = 4_000  # characters of a reply that are quoted back to the model
Text = str | TemplatedValue | Callable[[Json, Context], str]


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """The models and the settings of a prompt.

    `models` are `provider:model`; the first that is available answers. `temperature` is 0 to 2. `schema` is a
    JSON Schema of structured output. `base_url` and `api_key_env` select another server. `sampling` has
    the other settings of `ModelSettings`. `cap` is the token limit without `max_tokens`. `strict` reads a
    value as strict JSON. A reply with more than `max_tool_calls_per_reply` calls is refused.

    Raises:
        ConfigurationError: for a model without its provider, or a number out of range.
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
        """Return the models, or the default model of the run.

        Raises:
            ConfigurationError: if no model is named.
        """
        default = ctx.run.resources.get("model")
        models = self.models or ((str(default),) if default else ())
        if not models:
            raise ConfigurationError(
                f"{ctx.path}: no model is named; give model='provider:model' here, or "
                "resources={'model': …} to the run"
            )
        return models

    async def ask(self, messages: Sequence[Message], ctx: Context, *, judge: bool = False) -> Reply:
        """Call the first model, and the next ones if it is not available.

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
        """Return the request to the first model, and the other models as failover targets.

        Raises:
            ConfigurationError: if no model is named.
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
        """Return the reaction to a truncated reply; a default limit allows one retry."""
        default_limit = self.max_tokens is None and self.cap is not None
        return self.on_cutoff or ("retry" if default_limit else "")

    def to_json(self) -> Json:
        """Return the settings for the fingerprint, with digests of headers."""
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
    settings: Mapping[str, Json],
    *,
    schema: Mapping[str, Json] | None = None,
    temperature: float | None = None,
    cap: int | None = None,
    strict: bool = False,
) -> PromptSettings:
    """Return the settings of a step; `temperature` is the default temperature.

    Raises:
        ConfigurationError: for an unknown setting, with the nearest name, or a value out of range.
    """
    for name in settings:
        if name not in ModelSettings.__annotations__:
            hint = nearest(name, ModelSettings.__annotations__)
            raise ConfigurationError(f"{name}: is not a setting of a model call{hint}")
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


def _no_schema(schema: object) -> str:
    if hasattr(schema, "model_json_schema"):
        name = getattr(schema, "__name__", "Model")
        return f"schema: {name} is a class; give its JSON Schema: schema={name}.model_json_schema()"
    return f"schema: {schema!r:.60} is not a JSON Schema; give an object"


def warn_of(reply: Reply, ctx: Context) -> None:
    """Add the warnings of a reply to the run; the run keeps each sentence once."""
    for warning in reply.warnings:
        ctx.run.warn(warning)
    for repair in reply.repairs:
        ctx.warn(f"a reply was corrected before it was read: {repair}", code="repaired_reply")
    if reply.finish == "length":
        ctx.warn("the reply was cut off at max_tokens, and on_cutoff: accept keeps it")


class Prompt(CompositeStep[In, Out]):
    """A prompt as a step; its output is the reply's text, or its data if there is a schema.

    `prompt` makes one from the settings of a model call.

    Args:
        text: a template, a compiled template, or a function of the input and the context.
        name: the name of the step; default "prompt".
        system: the system message, like `text`; default "": none.
        asking: the models and their settings.
        carried: use one conversation for all iterations of a loop; default False: each iteration starts
            a new conversation.
        conversation: the same within limits; default None.
        read: returns the output for a reply; default: its data, else its text.

    Raises:
        TemplateError: for an invalid template, with its line and column.

    Example:

    >>> Prompt("Capital of {{ input }}?", asking=PromptSettings(("openai:gpt-4o",))).name
    'prompt'
    """

    def __init__(
        self,
        text: Text,
        *,
        name: str = "prompt",
        system: Text = "",
        asking: PromptSettings,
        carried: bool = False,
        conversation: Conversation | None = None,
        read: Callable[[Reply], Json] | None = None,
    ) -> None:
        self.name = name
        self.text = fill(text) if isinstance(text, str) else text
        self.system = fill(system) if isinstance(system, str) else system
        self.asking = asking
        self.conversation = conversation or (Conversation() if carried else None)
        self.read = read or _output
        self.input_type: ValueType | None = None
        self.output_type: ValueType | None = None

    def calling_at_most(self, number: int) -> Prompt:
        """Return the same prompt with another limit of tool calls per reply."""
        limited = copy.copy(self)
        limited.asking = replace(self.asking, max_tool_calls_per_reply=number)
        limited.__dict__.pop("fingerprint", None)
        return limited

    @functools.cached_property
    def fingerprint(self) -> str:
        """The identity of the prompt for replays; computed on first use, because a check needs none."""
        shown = (
            getattr(t, "source", getattr(t, "__qualname__", "")) for t in (self.text, self.system)
        )
        parts = [*(codec.canonical(s) for s in shown), codec.canonical(self.asking.to_json())]
        if self.conversation is not None and self.conversation.bounded:
            parts.append(codec.canonical(self.conversation.to_json()))
        return digest_of("prompt", *parts)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Render the template, call the model and read the reply."""
        question = Message("user", filled_in(self.text, value, ctx))
        system = filled_in(self.system, value, ctx)
        head = [Message("system", system)] if system else []
        if self.conversation is None:
            reply = await self.asking.ask([*head, question], ctx)
        else:
            reply = await self._continued(head, question, self.conversation, ctx)
        output = self._typed(self.read(reply), ctx)
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", output, name=self.name
        )

    def _typed(self, output: Json, ctx: Context) -> Json:
        """Return the output with its declared type.

        Raises:
            StepError: of kind `bad_output`, if it has the schema of the type and is refused by its rules.
        """
        declared = self.output_type
        if declared is None:
            return output
        if problem := declared.check(output):
            message = f"{self.name}: the reply is not a {declared.name}: {problem}"
            raise StepError(message, path=ctx.path, kind="bad_output")
        return declared.attach(output)

    async def _continued(
        self, head: Sequence[Message], question: Message, limits: Conversation, ctx: Context
    ) -> Reply:
        """Ask in the conversation of the earlier iterations, and keep it with the reply."""
        talk = earlier(ctx, limits)
        await note_question(ctx, question)
        if limits.summary and (left_out := talk.left_out(limits)):
            inner = ctx.child(ctx.below("summary"))
            asking = replace(
                self.asking, schema=None, max_tokens=None, cap=SUMMARY_TOKENS, on_cutoff="accept"
            )
            summary = await asking.ask([talk.request(left_out)], inner)
            talk = talk.summarised(summary.text, limits)
            keep(ctx, talk)  # a retry of this step sends the same summary
        reply = await self.asking.ask([*head, *talk.messages(question, limits)], ctx)
        keep(ctx, talk.answered(question, reply))
        return reply

    async def asked_again(self, value: Json, reply: str, complaint: str, ctx: Context) -> Json:
        """Ask again in one conversation with the reply and its problem; return the output."""
        system = filled_in(self.system, value, ctx)
        quoted = own_words(reply)[:QUOTED]
        messages = [
            *([Message("system", system)] if system else []),
            Message("user", filled_in(self.text, value, ctx)),
            *([Message("assistant", quoted)] if quoted.strip() else []),
            Message("user", complaint),
        ]
        return self.read(await self.asking.ask(messages, ctx))


class Reask(CompositeStep):
    """A prompt that is repeated in the same conversation after an unusable reply.

    Its input is the reply and its problem: `{"reply": ..., "complaint": ...}`.
    """

    fingerprint: str

    def __init__(self, asked: Prompt, name: str) -> None:
        self.asked = asked
        self.name = name
        self.fingerprint = digest_of("again", asked.fingerprint)

    async def run(self, value: Mapping[str, Json], ctx: Context) -> Result:
        """Ask again and return the output of the prompt."""
        initial = ctx.scope.initial if ctx.scope else None
        output = await self.asked.asked_again(initial, value["reply"], value["complaint"], ctx)
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", output, name=self.name
        )


def _output(reply: Reply) -> Json:
    return reply.text if reply.data is None else reply.data


def filled_in(text: Text, value: Json, ctx: Context) -> str:
    """Return a text with its template rendered."""
    if isinstance(text, TemplatedValue):
        return codec.text_of(rendered(_bounded(text, ctx), ctx, value))
    return text if isinstance(text, str) else text(value, ctx)


def _bounded(text: TemplatedValue, ctx: Context) -> TemplatedValue:
    """Return the template with values cut to the limit of a prompt; a cut value adds a warning."""
    limit = int(ctx.run.resources.get("max_value_chars") or VALUE_CHARS)

    def see(ctx: Context, value: Json) -> Json:
        variables = text.see(ctx, value)
        if not isinstance(variables, dict):  # the variables of another dialect
            return variables
        short = shortened(variables, limit)
        for name in variables:
            if short[name] is not variables[name] and name in text.names | FIXED:
                ctx.warn(
                    f"{name} has a text of more than {limit:,} characters; it was cut in the prompt"
                )
        return short

    return replace(text, see=see)


def source_of(text: Text) -> str:
    """Return the source of a text."""
    return text if isinstance(text, str) else str(getattr(text, "source", text))


def split_model(name: str) -> tuple[str, str]:
    """Return provider and model of `provider:model`.

    Raises:
        ConfigurationError: for another form.
    """
    provider, _, model = name.partition(":")
    if not provider or not model:
        raise ConfigurationError(
            f"{name!r} is not a model; write provider:model, like openai:gpt-4o"
        )
    return provider, model


class PromptOptions(ModelSettings, total=False):
    """The options of `prompt`, which explains them."""

    model: str | Sequence[str]
    name: str
    system: str
    strict: bool
    carried: bool
    conversation: Conversation | None


@overload
def prompt(
    text: str, *, schema: Mapping[str, Json], **options: Unpack[PromptOptions]
) -> Prompt[object, Any]: ...
@overload
def prompt(
    text: str, *, input: type[In], output: type[Out], **options: Unpack[PromptOptions]
) -> Prompt[In, Out]: ...
@overload
def prompt(
    text: str, *, output: type[Out], **options: Unpack[PromptOptions]
) -> Prompt[object, Out]: ...
@overload
def prompt(text: str, *, input: type[In], **options: Unpack[PromptOptions]) -> Prompt[In, str]: ...
@overload
def prompt(text: str, **options: Unpack[PromptOptions]) -> Prompt[object, str]: ...
def prompt(
    text: str,
    *,
    input: type | None = None,
    output: type | None = None,
    model: str | Sequence[str] = (),
    name: str = "prompt",
    system: str = "",
    schema: Mapping[str, Json] | None = None,
    strict: bool = False,
    carried: bool = False,
    conversation: Conversation | None = None,
    **settings: Unpack[ModelSettings],
) -> Prompt:
    """Make a step that sends a template to a model.

    Args:
        text: the template of the user message. It can use `value` (the input of the step), `loop` and the
            outputs of earlier steps; see `templates.variables`. `run` reports unknown names before any
            model is called.
        model: `provider:model`, or several to try in order; default: the model of the run.
        name: the name of the step; default "prompt".
        system: the template of the system message; default "": none.
        input: the type of its input. Default: any.
        output: the type of its output, such as a dataclass or a pydantic model. The model is asked for a
            reply that fits the JSON Schema of the type. Default: text.
        schema: a JSON Schema, instead of `output`; the output is the JSON value in the reply that fits it.
            Default: none.
        strict: read the reply as one strict JSON value; default False.
        carried: use one conversation for all iterations of a loop; default False.
        conversation: the same within limits; default None. See `Conversation`.
        settings: settings of the model call; see `ModelSettings` for units and defaults.

    Returns:
        A step for a loop or a workflow.

    Raises:
        TemplateError: for an invalid template, with its line and column.
        ConfigurationError: for a template that is not text, a model without its provider, an unknown
            setting, or a value out of range.

    Example:

    >>> import asyncio
    >>> from loopwright import run
    >>> from loopwright.models import Models, ScriptedModel
    >>> ask = prompt("Capital of {{ value }}?", model="openai:gpt-4o", temperature=0)
    >>> models = Models(ScriptedModel([{"prompt": "France", "replies": ["Paris"]}]))
    >>> asyncio.run(run(ask, "France", resources={"models": models})).output
    'Paris'
    """
    for what, template in (("text", text), ("system", system)):
        if not isinstance(template, str):
            raise ConfigurationError(
                f"prompt {name!r}: {what}: {template!r:.40} is not a template; give text"
            )
    declared = None if output is None else value_type(output, name)
    if declared is not None and not declared.is_text:
        if schema is not None:
            raise ConfigurationError(f"prompt {name!r}: give output or schema, not both")
        schema = declared.schema
    asking = asking_of(model, settings, schema=schema, strict=strict)
    step: Prompt[Any, Any] = Prompt(
        text, name=name, system=system, asking=asking, carried=carried, conversation=conversation
    )
    step.unsupplied = _unsupplied(name, text) | _unsupplied(name, system)
    step.output_type = declared
    step.input_type = None if input is None else value_type(input, name)
    return step


def _unsupplied(name: str, text: str) -> dict[str, str]:
    """Return the names that a template needs in addition to the predefined ones, and their positions."""
    missing = {}
    for needed in sorted(fill(text).names - FIXED - {"loop"}):
        if "." not in needed:
            place = re.search(rf"{{[{{%][^}}]*?\b({re.escape(needed)})\b", text)
            before = text[: place.start(1)] if place else ""
            line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
            missing[needed] = (
                f"prompt {name!r}: template line {line}, column {column}: nothing supplies {needed!r}"
            )
    return missing


def with_schema(asking: PromptSettings, schema: Mapping[str, Json] | None) -> PromptSettings:
    """Return the same settings with another schema."""
    return replace(asking, schema=schema)
