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
from pathlib import Path
from typing import Any, Unpack, cast, overload

from ..engine.context import Context
from ..engine.step import MODEL_NAME, CompositeStep, In, Out, digest_of
from ..engine.text_listeners import OnText, text_listener
from ..errors import ConfigurationError, StepError
from ..models import Message, Reply, Request, Target, Timers, call_model, own_words
from ..models.files import File
from ..models.protocol import MAX_TOOL_CALLS
from ..models.registry import MODEL_VARIABLE, Models, models_of, split_model
from ..models.replies.own_words import THINKING
from ..models.settings import (
    SAMPLING,
    ModelSettings,
    checked_cutoff,
    checked_headers,
    checked_sampling,
    checked_settings,
    header_digests,
)
from ..records import Reason, Result, Status, codec
from ..records.codec import Json
from ..records.excerpts import VALUE_CHARS, shortened
from ..records.typed import ValueType, value_type
from ..templates.variables import FIXED, TemplatedValue, fill, rendered
from .conversation import SUMMARY_TOKENS, Conversation, earlier, keep, note_question
from .files import Files, PromptFiles

__all__ = ["Prompt", "PromptSettings", "Reask", "asking_of", "prompt", "warn_of"]

QUOTED = 4_000  # characters of a reply that are quoted back to the model
Text = str | TemplatedValue | Callable[[Json, Context], str]


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """The models and the settings of a prompt, as one object.

    Args:
        models: names such as `openai:gpt-4o`; the first that is available answers.
        temperature: 0 to 2.
        max_tokens: the token limit of a reply.
        schema: a JSON Schema of structured output.
        base_url, api_key_env: another server, and the variable with its key.
        timeouts: the time limits of a call.
        sampling: the other settings of `ModelSettings`.
        headers: the headers of each request.
        on_cutoff: what follows a cut reply: `fail`, `retry` or `accept`.
        cap: the token limit without `max_tokens`.
        strict: whether a value is read as strict JSON.
        max_tool_calls_per_reply: the most calls of a reply; one with more is refused.

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

    def unsupplied(self, owner: str) -> dict[str, str]:
        """Return a sentence for each name that only the models of a run can explain, by its key."""
        return {
            MODEL_NAME
            + short: f"{owner}: model: {short!r} is not a model; write provider:model, like "
            f"openai:gpt-4o, or define it with Models(names={{{short!r}: …}})"
            for short in self.models
            if ":" not in short
        }

    def __post_init__(self) -> None:
        for model in self.models:
            if not isinstance(model, str) or not model.strip(":") or ":" in model:
                split_model(model)  # a name without a colon is one of `Models(names=…)`
        if self.temperature is not None:
            codec.number("temperature", self.temperature, minimum=0, maximum=2)
        if self.max_tokens is not None:
            codec.integer("max_tokens", self.max_tokens, minimum=1)
        codec.integer("max_tool_calls_per_reply", self.max_tool_calls_per_reply, minimum=1)
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
        default = ctx.run.resources.get("model") or models_of(ctx).default
        models = self.models or ((str(default),) if default else ())
        if not models:
            raise ConfigurationError(
                f"{ctx.path}: no model is named; give model='provider:model' to the prompt or to the "
                f"run, or set {MODEL_VARIABLE} in the environment"
            )
        return models

    async def ask(
        self,
        messages: Sequence[Message],
        ctx: Context,
        *,
        judge: bool = False,
        on_text: OnText | None = None,
        contents: Mapping[str, bytes] | None = None,
    ) -> Reply:
        """Call the first model, and the next ones if it is not available.

        Raises:
            ModelError: when nothing is left to try.
        """
        request, targets = self.request(messages, ctx)
        if contents:
            request = replace(request, contents=contents)
        reply = Reply.from_json(
            await call_model(ctx, "", request, failover=targets, judge=judge, on_text=on_text)
        )
        warn_of(reply, ctx)
        return reply

    def request(
        self, messages: Sequence[Message], ctx: Context
    ) -> tuple[Request, tuple[Target, ...]]:
        """Return the request to the first model, and the other models as failover targets.

        Raises:
            ConfigurationError: if no model is named.
        """
        models = models_of(ctx)
        if models.settings:
            return replace(self, **self._defaults(models.settings))._request(messages, ctx, models)
        return self._request(messages, ctx, models)

    def _request(
        self, messages: Sequence[Message], ctx: Context, models: Models
    ) -> tuple[Request, tuple[Target, ...]]:
        first, *others = (models.resolve(name) for name in self.named(ctx))
        url = self.base_url or str(ctx.run.resources.get("model_url") or "") or models.base_url
        request = Request(
            tuple(messages), first[1], first[0],
            temperature=self.temperature, max_tokens=self.max_tokens or self.cap, schema=self.schema,
            base_url=url, api_key_env=self.api_key_env, timeouts=self.timeouts,
            on_cutoff=self._cutoff(), extra=self.sampling, headers=self.headers, strict=self.strict,
            max_tool_calls=self.max_tool_calls_per_reply,
        )  # fmt: skip
        return request, tuple(Target(provider, model) for provider, model in others)

    def _defaults(self, settings: ModelSettings) -> dict[str, Any]:
        """Return the fields that the settings of the run's models set and this prompt does not."""
        common = asking_of((), cast("Mapping[str, Json]", settings))
        fields: dict[str, Any] = {
            "sampling": {**common.sampling, **self.sampling},
            "headers": {**common.headers, **self.headers},
        }
        if self.temperature is None:
            fields["temperature"] = common.temperature
        if self.max_tokens is None:
            fields["max_tokens"] = common.max_tokens
        if self.timeouts == Timers():
            fields["timeouts"] = common.timeouts
        if not self.base_url and not self.api_key_env:  # a key belongs to its server
            fields |= {"base_url": common.base_url, "api_key_env": common.api_key_env}
        if not self.on_cutoff and not (self.schema is not None and common.on_cutoff == "accept"):
            fields["on_cutoff"] = common.on_cutoff
        return fields

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
    given = checked_settings(settings)
    seconds = given.get("timeout")
    return PromptSettings(
        models=(model,) if isinstance(model, str) else tuple(model),
        temperature=given.get("temperature", temperature),
        max_tokens=given.get("max_tokens"),
        schema=schema,
        base_url=given.get("base_url", ""),
        api_key_env=given.get("api_key_env", ""),
        timeouts=Timers() if seconds is None else Timers(seconds, seconds, seconds),
        sampling={name: value for name, value in given.items() if name in SAMPLING},
        headers=given.get("extra_headers") or {},
        on_cutoff=given.get("on_cutoff") or "",
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
        if repair == THINKING:  # what every reasoning model sends is no correction
            continue
        ctx.warn(f"a reply was corrected before it was read: {repair}", code="repaired_reply")
    if reply.finish == "length":
        ctx.warn("the reply was cut off at max_tokens, and on_cutoff: accept keeps it")


class Prompt(CompositeStep[In, Out]):
    """A prompt as a step. See `prompt`.

    Its output is the reply's text, or its data if there is a schema.

    Args:
        text: a template, a compiled template, or a function of the input and the context.
        name: the name of the step; default "prompt".
        system: the system message, like `text`; default "": none.
        asking: the models and their settings.
        carried: use one conversation for all iterations of a loop; default False: each iteration starts
            a new conversation.
        conversation: the same within limits; default None.
        read: returns the output for a reply; default: its data, else its text.
        on_text: receives the text of the reply as it arrives; default none.
        files: the files of the user message, see `prompt`; default none.
        files_root: the folder that paths of files are relative to and must not leave; default: the
            working folder.

    Raises:
        TemplateError: for an invalid template, with its line and column.

    Example:

    >>> Prompt("Capital of {{ input }}?", asking=PromptSettings(("openai:gpt-4o",))).name
    'prompt'
    """

    asks_model = True

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
        on_text: OnText | None = None,
        files: Files | Sequence[File | TemplatedValue] = (),
        files_root: Path | None = None,
    ) -> None:
        self.name = name
        self.text = fill(text) if isinstance(text, str) else text
        self.system = fill(system) if isinstance(system, str) else system
        self.asking = asking
        self.unsupplied: dict[str, str] = asking.unsupplied(f"prompt {name!r}")
        self.conversation = conversation or (Conversation() if carried else None)
        self.read = read or _output
        self.input_type: ValueType | None = None
        self.output_type: ValueType | None = None
        self.files = PromptFiles(files, files_root)
        self.on_text = on_text if on_text is None else text_listener(on_text)

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
        if self.files:
            parts.append(f"files {self.files.fingerprint}")
        return digest_of("prompt", *parts)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Render the template, call the model and read the reply."""
        question, contents = await self.question(value, ctx)
        system = filled_in(self.system, value, ctx)
        head = [Message("system", system)] if system else []
        if self.conversation is None:
            reply = await self.asking.ask(
                [*head, question], ctx, on_text=self.on_text, contents=contents
            )
        else:
            reply = await self._continued(
                [*head, question], self.conversation, ctx, contents=contents
            )
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

    async def question(self, value: Json, ctx: Context) -> tuple[Message, Mapping[str, bytes]]:
        """Return the user message, and the contents of its files by digest."""
        text = filled_in(self.text, value, ctx)
        attached = await self.files.attach(value, ctx)
        return Message("user", text, files=attached.references), attached.contents or {}

    async def _continued(
        self,
        messages: Sequence[Message],
        limits: Conversation,
        ctx: Context,
        *,
        contents: Mapping[str, bytes],
    ) -> Reply:
        """Ask in the conversation of the earlier iterations, and keep it with the reply."""
        *head, question = messages
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
        reply = await self.asking.ask(
            [*head, *talk.messages(question, limits)],
            ctx,
            on_text=self.on_text,
            contents=contents,
        )
        # A file is sent with its own question only, as a resumed run reads texts from the record.
        keep(ctx, talk.answered(replace(question, files=()), reply))
        return reply

    async def asked_again(self, value: Json, reply: str, complaint: str, ctx: Context) -> Json:
        """Ask again in one conversation with the reply and its problem; return the output."""
        system = filled_in(self.system, value, ctx)
        quoted = own_words(reply)[:QUOTED]
        question, contents = await self.question(value, ctx)
        messages = [
            *([Message("system", system)] if system else []),
            question,
            *([Message("assistant", quoted)] if quoted.strip() else []),
            Message("user", complaint),
        ]
        reply_again = await self.asking.ask(messages, ctx, on_text=self.on_text, contents=contents)
        return self.read(reply_again)


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


class PromptOptions(ModelSettings, total=False):
    """The options of `prompt`, which explains them."""

    model: str | Sequence[str]
    name: str
    system: str
    strict: bool
    carried: bool
    conversation: Conversation | None
    on_text: OnText | None
    files: Files
    files_root: str | Path | None


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
    on_text: OnText | None = None,
    files: Files = (),
    files_root: str | Path | None = None,
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
        on_text: receives the text of the reply as it arrives, such as `print`; `f(text)` or
            `f(text, call)`. Default none.
        files: the files of the user message: `File` objects and templates of a path or an address, or a
            function of the input that returns these. Default none.
        files_root: the folder that paths of files are relative to and must not leave; default: the
            working folder.
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
        text,
        name=name,
        system=system,
        asking=asking,
        carried=carried,
        conversation=conversation,
        on_text=on_text,
        files=files,
        files_root=None if files_root is None else Path(files_root),
    )
    step.unsupplied |= _unsupplied(name, text) | _unsupplied(name, system)
    for item in step.files.items if not callable(files) else ():
        if isinstance(item, TemplatedValue):
            step.unsupplied |= _unsupplied(name, str(item.source))
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
