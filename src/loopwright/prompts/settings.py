"""The models and settings of a prompt, its requests, and the conversation that it continues in a loop.

One conversation serves all iterations of a loop, within limits:

1. An exchange is a question and its reply. The oldest exchanges are left out first, always both messages.
2. A failed iteration adds no exchange.
3. With a summary, the model summarises the exchanges that are left out, once, in a recorded call at
   `summary` below the prompt. The summary is placed at the beginning of the first message, because some
   models require that user and assistant alternate.
4. After a resume, the conversation is read from the journal: the questions, the replies, the summaries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ..engine.context import Context, Scope
from ..engine.run_record import OnText
from ..engine.step import MODEL_NAME, FunctionStep, former_version
from ..errors import ConfigurationError
from ..models import Message, Reply, Request, Target, Timers, call_model
from ..models.protocol import (
    MAX_TOOL_CALLS,
    SAMPLING,
    ModelSettings,
    checked_cutoff,
    checked_headers,
    checked_sampling,
    checked_settings,
    header_digests,
)
from ..models.registry import MODEL_VARIABLE, Models, models_of, split_model
from ..models.reply_text import THINKING
from ..records import codec
from ..records.codec import Json

__all__ = [
    "CarriedConversation",
    "Conversation",
    "PromptSettings",
    "continued",
    "settings_of",
    "warn_of",
    "with_schema",
]


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
        text_field: the field that takes the text of a reply without a value for the schema.
        max_tool_calls_per_reply: the most calls of a reply; one with more is refused.
        cache: whether replies are kept, as in `ModelSettings`. No part of the fingerprint: it asks nothing else.

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
    text_field: str = ""
    max_tool_calls_per_reply: int = MAX_TOOL_CALLS
    cache: Json = None

    def unsupplied(self, owner: str) -> dict[str, str]:
        """Return a message for each alias of a model, which only the models of a run define."""
        return {
            MODEL_NAME
            + alias: f"{owner}: model: {alias!r} is not a model; write provider:model, like "
            f"openai:gpt-4o, or define it with Models(names={{{alias!r}: …}})"
            for alias in self.models
            if ":" not in alias
        }

    def __post_init__(self) -> None:
        for model in self.models:
            if not isinstance(model, str) or not model.strip(":") or ":" in model:
                split_model(model)  # a name without a colon is an alias of `Models(names=…)`
        if self.temperature is not None:
            codec.number("temperature", self.temperature, minimum=0, maximum=2)
        if self.max_tokens is not None:
            codec.integer("max_tokens", self.max_tokens, minimum=1)
        codec.integer("max_tool_calls_per_reply", self.max_tool_calls_per_reply, minimum=1)
        object.__setattr__(self, "sampling", checked_sampling(self.sampling))
        checked_headers(self.headers)
        checked_cutoff(self.on_cutoff, schema=self.schema is not None)
        if self.schema is not None and not isinstance(self.schema, Mapping):
            if hasattr(self.schema, "model_json_schema"):
                kind = getattr(self.schema, "__name__", "Model")
                raise ConfigurationError(
                    f"schema: {kind} is a class. Pass its JSON Schema: schema={kind}.model_json_schema()"
                )
            raise ConfigurationError(
                f"schema: {self.schema!r:.60} is not a JSON Schema. Use an object."
            )

    def models_of_run(self, ctx: Context) -> tuple[str, ...]:
        """Return the models, or the default model of the run.

        Raises:
            ConfigurationError: If no model is set.
        """
        default = ctx.run.resources.get("model") or models_of(ctx).default
        models = self.models or ((str(default),) if default else ())
        if not models:
            raise ConfigurationError(
                f"{ctx.path}: no model is set. Set model='provider:model' for the prompt or the run, or "
                f"{MODEL_VARIABLE} in the environment."
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
            ModelError: If no model and no attempt is left.
        """
        request, targets = self.request(messages, ctx)
        # After the request is built: contents are bytes, and settings of a fingerprint are JSON.
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
            ConfigurationError: If no model is set.
        """
        models = models_of(ctx)
        if models.settings:
            return replace(self, **self._defaults(models.settings))._request(messages, ctx, models)
        return self._request(messages, ctx, models)

    def _request(
        self, messages: Sequence[Message], ctx: Context, models: Models
    ) -> tuple[Request, tuple[Target, ...]]:
        first, *others = (models.resolve(name) for name in self.models_of_run(ctx))
        # The most specific address wins: of the prompt, then of the run, then of its models.
        url = self.base_url or str(ctx.run.resources.get("model_url") or "") or models.base_url
        # The user did not choose a default limit, so it is raised once instead of failing.
        default_limit = self.max_tokens is None and self.cap is not None
        request = Request(
            tuple(messages), first[1], first[0],
            temperature=self.temperature, max_tokens=self.max_tokens or self.cap, schema=self.schema,
            base_url=url, api_key_env=self.api_key_env, timeouts=self.timeouts,
            on_cutoff=self.on_cutoff or ("retry" if default_limit else ""), extra=self.sampling, headers=self.headers, strict=self.strict,
            text_field=self.text_field, max_tool_calls=self.max_tool_calls_per_reply, cache=self.cache,
        )  # fmt: skip
        return request, tuple(Target(provider, model) for provider, model in others)

    def _defaults(self, settings: ModelSettings) -> dict[str, Any]:
        """Return the fields that the settings of the run's models set and this prompt does not."""
        common = settings_of((), cast("Mapping[str, Json]", settings))
        fields: dict[str, Any] = {
            "sampling": {**common.sampling, **self.sampling},
            "headers": {**common.headers, **self.headers},
        }
        if self.temperature is None:
            fields["temperature"] = common.temperature
        if self.max_tokens is None:
            fields["max_tokens"] = common.max_tokens
        if self.cache is None:
            fields["cache"] = common.cache
        # Equal to the default counts as not set.
        if self.timeouts == Timers():
            fields["timeouts"] = common.timeouts
        # Address and key together: a key must not be sent to another server.
        if not self.base_url and not self.api_key_env:
            fields |= {"base_url": common.base_url, "api_key_env": common.api_key_env}
        # A truncated JSON value cannot be accepted.
        if not self.on_cutoff and not (self.schema is not None and common.on_cutoff == "accept"):
            fields["on_cutoff"] = common.on_cutoff
        return fields

    def to_json(self) -> Json:
        """Return the settings for the fingerprint, with digests of headers, which may contain keys."""
        # Only values that differ from the default: recorded fingerprints stay valid when a setting is added.
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
        max_tokens, schema = self.max_tokens, self.schema
        if former_version() < 1:  # a default limit was a limit, and judges had no mark
            max_tokens = more.pop("cap") if max_tokens is None else max_tokens
            more.pop("timeouts", None)
            schema = _without_mark(schema)
        return {
            "models": list(self.models),
            "temperature": self.temperature,
            "max_tokens": max_tokens,
            "schema": schema,
            "base_url": self.base_url,
            **({"api_key_env": self.api_key_env} if self.api_key_env else {}),
            **self.sampling,
            **{name: value for name, value in more.items() if value},
        }


def settings_of(
    model: str | Sequence[str],
    settings: Mapping[str, Json],
    *,
    schema: Mapping[str, Json] | None = None,
    temperature: float | None = None,
    cap: int | None = None,
    strict: bool = False,
) -> PromptSettings:
    """Return the settings of a step. `temperature` is the default temperature.

    Raises:
        ConfigurationError: For an unknown setting, with the nearest name, or a value out of range.
    """
    values = checked_settings(settings)
    seconds = values.get("timeout")
    return PromptSettings(
        models=(model,) if isinstance(model, str) else tuple(model),
        temperature=values.get("temperature", temperature),
        max_tokens=values.get("max_tokens"),
        schema=schema,
        base_url=values.get("base_url", ""),
        api_key_env=values.get("api_key_env", ""),
        timeouts=Timers() if seconds is None else Timers(seconds, seconds, seconds),
        sampling={name: value for name, value in values.items() if name in SAMPLING},
        headers=values.get("extra_headers") or {},
        on_cutoff=values.get("on_cutoff") or "",
        cap=cap,
        strict=strict,
        cache=values.get("cache"),
    )


def warn_of(reply: Reply, ctx: Context) -> None:
    """Add the warnings of a reply to the run, which stores each sentence once."""
    # Such as a setting that the endpoint does not support.
    for warning in reply.warnings:
        ctx.run.warn(warning)
    for repair in reply.repairs:
        # Every reasoning model sends thinking blocks, so their removal is not a correction.
        if repair == THINKING:
            continue
        ctx.warn(f"a reply was corrected before it was read: {repair}", code="repaired_reply")
    if reply.finish == "length":
        ctx.warn(
            "the reply was cut off at max_tokens, and on_cutoff: accept keeps it", code="cut_off"
        )


def with_schema(settings: PromptSettings, schema: Mapping[str, Json] | None) -> PromptSettings:
    """Return the same settings with another schema."""
    return replace(settings, schema=schema)


def _without_mark(schema: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    """Return the schema of a judge's reply as it was before replies had a mark."""
    if schema is None or "mark" not in schema.get("properties", {}):
        return schema
    properties = {name: one for name, one in schema["properties"].items() if name != "mark"}
    required = [name for name in schema.get("required", ()) if name != "mark"]
    return {**schema, "properties": properties, "required": required}


SUMMARY_TOKENS = 1_024  # the limit of one summary
_CHARACTERS_PER_TOKEN = 4  # the usual estimate for English; no tokeniser fits all models
# The texts of summaries are part of recorded requests. A new wording would repeat the calls.
_INSTRUCTION = (
    "Summarise this conversation, so that it can continue without these messages. Keep decisions, facts, "
    "numbers and open questions. Reply with the summary only."
)
_BEFORE = "Summary of the earlier conversation:"
_SUMMARY = "summary"
_ATTEMPT = re.compile(r"/attempt-[0-9]+(?=/|$)")  # a part of the path of a step that is retried
_Exchange = tuple[Message, Message]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Limits on the earlier messages that a prompt in a loop sends again.

    The limits apply to the messages of earlier iterations, without the system message, the question of
    this iteration and the summary.

    Args:
        max_messages: The maximum number of messages, 2 or more. Default: no limit.
        max_tokens: The maximum number of tokens, where 4 characters count as one. Default: no limit.
        summary: Whether a model call summarises the messages that are left out, in at most 1,024 tokens.
            It needs a limit. Default: False.

    Raises:
        ConfigurationError: For a number that is too small, or a summary without a limit.

    Example:
        >>> from loopwright.prompts import prompt
        >>> step = prompt("Go on.", conversation=Conversation(max_messages=10, summary=True))
        >>> step.conversation.max_messages
        10
    """

    max_messages: int | None = None
    max_tokens: int | None = None
    summary: bool = False

    def __post_init__(self) -> None:
        if self.max_messages is not None:
            # An exchange has two messages and is never split, so a limit of 1 would send none.
            codec.integer("conversation: max_messages", self.max_messages, minimum=2)
        if self.max_tokens is not None:
            codec.integer("conversation: max_tokens", self.max_tokens, minimum=1)
        # Without a limit nothing is left out, so the summary would never be made.
        if self.summary and not self.bounded:
            raise ConfigurationError(
                "conversation: summary needs a limit. Add max_messages or max_tokens."
            )

    @property
    def bounded(self) -> bool:
        """Whether there is a limit."""
        return self.max_messages is not None or self.max_tokens is not None

    def to_json(self) -> Json:
        """Return the limits as JSON."""
        limits = {"max_messages": self.max_messages, "max_tokens": self.max_tokens}
        return {**limits, "summary": self.summary}

    def kept(self, exchanges: Sequence[_Exchange]) -> int:
        """Return the number of the latest exchanges that are within the limits."""
        number = tokens = 0
        for exchange in reversed(exchanges):
            # Rounded up for each message, so that many short messages are not free.
            tokens += sum(-(-len(one.content) // _CHARACTERS_PER_TOKEN) for one in exchange)
            over = self.max_tokens is not None and tokens > self.max_tokens
            if over or (self.max_messages is not None and 2 * (number + 1) > self.max_messages):
                break
            number += 1
        return number


@dataclass(frozen=True, slots=True)
class CarriedConversation:
    """The earlier exchanges of a prompt, and the summary of the first `covered` ones."""

    exchanges: tuple[_Exchange, ...] = ()
    summary: str = ""
    covered: int = 0

    def left_out(self, limits: Conversation) -> tuple[_Exchange, ...]:
        """Return the exchanges that are beyond the limits and in no summary."""
        return self.exchanges[self.covered : len(self.exchanges) - limits.kept(self.exchanges)]

    def request(self, left_out: Sequence[_Exchange]) -> Message:
        """Return the message that asks for a summary."""
        parts = [f"{_BEFORE}\n{self.summary}"] if self.summary else []
        for question, answer in left_out:
            parts += [f"User:\n{question.content}", f"Assistant:\n{answer.content}"]
        return Message("user", "\n\n".join([_INSTRUCTION, *parts]))

    def summarised(self, summary: str, limits: Conversation) -> CarriedConversation:
        """Return the same conversation with a summary of all that is beyond the limits."""
        covered = len(self.exchanges) - limits.kept(self.exchanges)
        return replace(self, summary=summary, covered=covered)

    def messages(self, question: Message, limits: Conversation) -> list[Message]:
        """Return the messages to send: those within the limits, and the question."""
        first = len(self.exchanges) - limits.kept(self.exchanges)
        sent = [*(message for pair in self.exchanges[first:] for message in pair), question]
        if self.summary:
            sent[0] = replace(sent[0], content=f"{_BEFORE}\n{self.summary}\n\n{sent[0].content}")
        return sent

    def answered(self, question: Message, reply: Reply) -> CarriedConversation:
        """Return the conversation after another exchange."""
        return replace(self, exchanges=(*self.exchanges, (question, reply.message())))


async def continued(
    settings: PromptSettings,
    messages: Sequence[Message],
    limits: Conversation,
    ctx: Context,
    *,
    on_text: OnText | None = None,
    contents: Mapping[str, bytes] | None = None,
) -> Reply:
    """Send a question in the conversation of the earlier iterations, and return the reply.

    `messages` are the system message, if there is one, and the question.
    """
    *head, question = messages
    conversation = _earlier(ctx, limits)
    # Recorded, because a resumed run reads the conversation from the journal (rule 4).
    await ctx.call("said", _RECORD_QUESTION, question.content)
    if limits.summary and (left_out := conversation.left_out(limits)):
        summary_settings = replace(
            settings, schema=None, max_tokens=None, cap=SUMMARY_TOKENS, on_cutoff="accept"
        )
        inner = ctx.child(ctx.below(_SUMMARY))
        summary = await summary_settings.ask([conversation.request(left_out)], inner)
        conversation = conversation.summarised(summary.text, limits)
        _store(ctx, conversation)  # a retry of this step sends the same summary
    reply = await settings.ask(
        [*head, *conversation.messages(question, limits)], ctx, on_text=on_text, contents=contents
    )
    # Files are sent with their own question only, because the record of a question is its text.
    _store(ctx, conversation.answered(replace(question, files=()), reply))
    return reply


def _earlier(ctx: Context, limits: Conversation) -> CarriedConversation:
    """Return the conversation of the previous iterations, from the scope or the journal."""
    scope = _loop_scope(ctx)
    # The first iteration has no earlier exchange, also if the loop runs again inside an outer loop.
    if scope is None or scope.begun == scope.number:
        return CarriedConversation()
    part = _part(ctx, scope)
    conversation: CarriedConversation | None = scope.talked(part)
    if conversation is not None:
        return conversation
    return _recorded(ctx, scope, part, limits)


def _store(ctx: Context, conversation: CarriedConversation) -> None:
    """Store the conversation for the next iteration."""
    scope = _loop_scope(ctx)
    if scope is not None:
        scope.talk(_part(ctx, scope), conversation)


def _loop_scope(ctx: Context) -> Scope | None:
    """Return the scope of the nearest loop; a workflow inside its body has no iterations."""
    scope = ctx.scope
    # Items of a list are independent, so a list does not carry a conversation.
    while scope is not None and (not scope.number or scope.total):
        scope = scope.parent
    return scope


def _part(ctx: Context, scope: Scope) -> str:
    """Return the position of a prompt inside an iteration, which is the same for each retry."""
    return _ATTEMPT.sub("", ctx.path.removeprefix(scope.iteration_path))


def _recorded(ctx: Context, scope: Scope, part: str, limits: Conversation) -> CarriedConversation:
    """Return the conversation of the previous iterations from the journal."""
    replay = ctx.run.replay
    if replay is None:
        return CarriedConversation()
    questions: dict[int, Json] = {}
    exchanges: dict[int, _Exchange] = {}
    summaries: dict[int, str] = {}
    begin = f"{scope.path}/"
    for path, entry in replay.finished.items():
        place, _, last = path.rpartition("/")
        digits, slash, rest = place.removeprefix(begin).partition("/")
        # Rule 2: an iteration without a reply leaves no exchange.
        if entry.error is not None or not place.startswith(begin) or not digits.isdecimal():
            continue
        number = int(digits)
        others = scope.line is not None and number not in scope.line
        if number >= scope.number or others:
            continue
        # Of several candidates, the chosen one has the conversation.
        chosen = f"candidate-{scope.history[number - 1].candidate}/"
        inner = _ATTEMPT.sub("", slash + rest.removeprefix(chosen))
        if inner not in (part, f"{part}/{_SUMMARY}"):
            continue
        # The path of the summary below the prompt.
        if inner != part:
            if last.startswith("attempt-"):
                summaries[number] = Reply.from_json(entry.value).text
        elif last == "said":
            questions[number] = entry.value
        elif last.startswith("attempt-") and number in questions:
            reply = Reply.from_json(entry.value).message()
            exchanges[number] = (Message("user", questions[number]), reply)
    conversation = CarriedConversation(tuple(exchanges[number] for number in sorted(exchanges)))
    if not summaries:
        return conversation
    latest = max(summaries)
    before = tuple(exchanges[number] for number in sorted(exchanges) if number < latest)
    # The same calculation as during the run, because the number itself is not recorded.
    covered = len(before) - limits.kept(before)
    return replace(conversation, summary=summaries[latest], covered=covered)


async def _echo(value: Json) -> Json:
    return value


_RECORD_QUESTION = FunctionStep(_echo, name="said", fingerprint="note.said/1")
