"""The models and settings of a prompt, and the requests that follow from them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, cast

from ..engine.context import Context
from ..engine.run_record import OnText
from ..engine.step import MODEL_NAME, former_version
from ..errors import ConfigurationError
from ..models import Message, Reply, Request, Target, Timers, call_model
from ..models.protocol import MAX_TOOL_CALLS
from ..models.registry import MODEL_VARIABLE, Models, models_of, split_model
from ..models.replies.text import THINKING
from ..models.settings import (
    SAMPLING,
    ModelSettings,
    checked_cutoff,
    checked_headers,
    checked_sampling,
    checked_settings,
    header_digests,
)
from ..records import codec
from ..records.codec import Json

__all__ = ["PromptSettings", "accepts_asking", "settings_of", "warn_of", "with_schema"]

_P = ParamSpec("_P")


def accepts_asking(function: Callable[_P, None]) -> Callable[_P, None]:
    """Let a constructor accept `asking`, the name of `model_settings` in version 0.1, for one more release."""

    @functools.wraps(function)
    def accepting(*args: _P.args, **options: _P.kwargs) -> None:
        if "asking" in options:
            options["model_settings"] = options.pop("asking")
        function(*args, **options)

    return accepting


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
            raise ConfigurationError(_no_schema(self.schema))

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
        request = Request(
            tuple(messages), first[1], first[0],
            temperature=self.temperature, max_tokens=self.max_tokens or self.cap, schema=self.schema,
            base_url=url, api_key_env=self.api_key_env, timeouts=self.timeouts,
            on_cutoff=self._cutoff(), extra=self.sampling, headers=self.headers, strict=self.strict,
            text_field=self.text_field, max_tool_calls=self.max_tool_calls_per_reply,
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

    def _cutoff(self) -> str:
        """Return the reaction to a truncated reply."""
        # The user did not choose a default limit, so it is raised once instead of failing.
        default_limit = self.max_tokens is None and self.cap is not None
        return self.on_cutoff or ("retry" if default_limit else "")

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
    )


def _no_schema(schema: object) -> str:
    if hasattr(schema, "model_json_schema"):
        name = getattr(schema, "__name__", "Model")
        return f"schema: {name} is a class. Pass its JSON Schema: schema={name}.model_json_schema()"
    return f"schema: {schema!r:.60} is not a JSON Schema. Use an object."


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
