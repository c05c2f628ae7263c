"""What a model is asked and what it answers: the seam between the engine and every provider.

Rules:

1. A `Model` makes at most one request to an endpoint per `complete`. Retries, failover and re-asks
   are calls of their own, made by `call_model`, so that each is journaled and counted.
2. A reply is whole or it is an error: what was cut off is a `ModelError` that carries the part.
3. Everything here is plain JSON or a frozen value, and goes to JSON and back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

from ..errors import ConfigurationError, nearest
from ..records import NOTHING, Usage, codec
from ..records.codec import Json
from .settings import checked_cutoff, checked_headers, header_digests

__all__ = [
    "MAX_TOOL_CALLS",
    "Finish",
    "Message",
    "Model",
    "Reply",
    "Request",
    "Timers",
    "ToolCall",
    "ToolDefinition",
]

MAX_TOOL_CALLS = 128  # of one reply
Finish = Literal["stop", "length", "refused", "tool_calls"]
Role = Literal["system", "user", "assistant", "tool"]

_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants to be called: its call's id, the tool's name, its arguments."""

    id: str
    name: str
    arguments: Json = None

    def to_json(self) -> Json:
        """Return it as a JSON object."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> ToolCall:
        """Return the call that `to_json` wrote."""
        return cls(data["id"], data["name"], data.get("arguments"))


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool that the model may ask for; `schema` is the JSON Schema of its arguments, an object.

    Raises:
        ConfigurationError: for an empty name or a schema that is no object.
    """

    name: str
    description: str = ""
    schema: Mapping[str, Json] = field(default_factory=lambda: {"type": "object", "properties": {}})

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigurationError("tool: name: is empty; give the name that the model calls")
        if not isinstance(self.schema, Mapping):
            raise ConfigurationError(f"tool {self.name!r}: schema: give a JSON Schema, an object")

    def to_json(self) -> Json:
        """Return it as a JSON object."""
        return {"name": self.name, "description": self.description, "schema": dict(self.schema)}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    `tool_calls` are what an assistant asked for, `call_id` and `name` say which call a `tool`
    message answers. `parts` is the provider's own form of an assistant's message, an opaque and
    versioned JSON value: where the same library reads it again it stands for the rest (reasoning,
    signatures), anywhere else `content` and `tool_calls` do.

    Raises:
        ConfigurationError: for an unknown role, or content that is not text.
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""
    parts: Json = None

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            hint = nearest(str(self.role), _ROLES) or f"; use one of {', '.join(_ROLES)}"
            raise ConfigurationError(f"message: role: {self.role!r} is unknown{hint}")
        if not isinstance(self.content, str):
            raise ConfigurationError(f"message: content: {self.content!r} is not text")
        object.__setattr__(self, "content", codec.normalise(self.content))
        if self.role == "tool" and not self.call_id:
            raise ConfigurationError("message: call_id: a tool's message names the call it answers")

    def to_json(self) -> Json:
        """Return it as a JSON object without the fields that say nothing."""
        data: dict[str, Json] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            data["tool_calls"] = [call.to_json() for call in self.tool_calls]
        data |= {
            key: value for key in ("call_id", "name", "parts") if (value := getattr(self, key))
        }
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Message:
        """Return the message that `to_json` wrote."""
        calls = tuple(ToolCall.from_json(call) for call in data.get("tool_calls", ()))
        rest = {key: data[key] for key in ("call_id", "name", "parts") if key in data}
        return cls(data["role"], data.get("content", ""), calls, **rest)


@dataclass(frozen=True, slots=True)
class Timers:
    """How long a call may take, in seconds.

    `first_byte` until the reply begins, `idle` between two pieces of *content* (keep-alives do not
    count), `whole` for all of it. The deadline of the run cuts all three. `answer` is for all calls that are tried for
    one answer, with the waits between them; None leaves that to the policy.
    """

    first_byte: float = 60.0
    idle: float = 60.0
    whole: float = 600.0
    answer: float | None = None

    def __post_init__(self) -> None:
        for name in ("first_byte", "idle", "whole"):
            value = codec.number(f"timeouts: {name}", getattr(self, name), least=0, above=True)
            object.__setattr__(self, name, value)
        if self.answer is not None:
            codec.number("timeouts: answer", self.answer, least=0, above=True)


@dataclass(frozen=True, slots=True)
class Request:
    """One question to one model.

    Args:
        messages: the conversation, oldest first.
        model: the model's name at its provider.
        provider: a name of `PROVIDERS`: openai, anthropic, gemini, deepseek, ollama, lm_studio or
            openai_compatible.
        temperature: 0 to 2; None leaves it to the provider.
        max_tokens: the cap on what is written; None leaves it to the provider.
        schema: a JSON Schema; the reply's `data` then is a value that meets it.
        schema_name: what the schema is called, for providers that name it.
        tools: what the model may ask for; the calls come back in `Reply.tool_calls`.
        timeouts: see Timers.
        base_url: the endpoint, instead of the provider's own.
        api_key_env: the name of the key for `base_url`; without it no key is sent there.
        max_tool_calls: how many tools one reply may call; a reply with more is refused while it is read.
        on_cutoff: what follows a reply cut off at `max_tokens`: fail, retry with a larger limit, or
            accept the text; "" is fail where `max_tokens` is given, else retry.
        strict: read the value of `schema` as strict JSON only.
        extra: further settings: top_p, seed, stop and others of `ModelSettings`, and fields of the
            provider's own.
        headers: headers of its own; what goes to JSON of a value is its digest.
        path, run_id: where in which run the call is made; not sent.

    Raises:
        ConfigurationError: for a request that could not mean anything.
    """

    messages: tuple[Message, ...]
    model: str
    provider: str
    temperature: float | None = None
    max_tokens: int | None = None
    schema: Mapping[str, Json] | None = None
    schema_name: str = "reply"
    tools: tuple[ToolDefinition, ...] = ()
    timeouts: Timers = Timers()
    base_url: str = ""
    api_key_env: str = ""
    on_cutoff: str = ""
    strict: bool = False
    extra: Mapping[str, Json] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    run_id: str = ""
    max_tool_calls: int = MAX_TOOL_CALLS

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", tuple(self.messages))
        codec.whole("request: max_tool_calls", self.max_tool_calls, least=1)
        object.__setattr__(self, "tools", tuple(self.tools))
        if not any(message.role in ("user", "tool") for message in self.messages):
            raise ConfigurationError("request: messages: give at least one message of a user")
        for name in ("model", "provider"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ConfigurationError(f"request: {name}: is empty; name one")
        if self.temperature is not None:
            codec.number("request: temperature", self.temperature, least=0, most=2)
        if self.max_tokens is not None:
            codec.whole("request: max_tokens", self.max_tokens, least=1)
        if self.schema is not None and not isinstance(self.schema, Mapping):
            raise ConfigurationError("request: schema: give a JSON Schema, an object")
        checked_cutoff(self.on_cutoff, schema=self.schema is not None)
        if self.headers:
            checked_headers(self.headers)

    @property
    def cutoff(self) -> str:
        """What follows a reply that was cut off: fail, retry or accept."""
        return self.on_cutoff or ("retry" if self.max_tokens is None else "fail")

    @property
    def prompt(self) -> str:
        """The text of all messages, as rules of scripted replies and estimates read it."""
        return "\n".join(message.content for message in self.messages)

    def to_json(self) -> Json:
        """Return what is sent, as a JSON object: not the timeouts, the path or the run."""
        data: dict[str, Json] = {"provider": self.provider, "model": self.model}
        names = ("temperature", "max_tokens", "base_url", "api_key_env", "on_cutoff", "strict")
        data |= {
            name: value for name in names if (value := getattr(self, name)) not in (None, "", False)
        }
        if self.schema is not None:
            data |= {"schema": dict(self.schema), "schema_name": self.schema_name}
        if self.tools:
            data["tools"] = [tool.to_json() for tool in self.tools]
        if self.extra:
            data["extra"] = dict(self.extra)
        if self.max_tool_calls != MAX_TOOL_CALLS:
            data["max_tool_calls"] = self.max_tool_calls
        if self.headers:
            data["headers"] = header_digests(self.headers)
        data["messages"] = [message.to_json() for message in self.messages]
        return cast("Json", codec.normalise(data, what="request"))


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered.

    `text` is what the model says itself, `thinking` what it wrote before; `data` is the value that
    meets the request's schema, `finish` why it ended (`length` only where a cut text is accepted),
    `model` what the provider says answered. `parts` is what a next message needs to resume the
    conversation; see Message. `warnings` are sentences for people, `repairs` what was done to the
    text to read it.
    """

    text: str
    data: Json = None
    usage: Usage = NOTHING
    finish: Finish = "stop"
    model: str = ""
    provider: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    parts: Json = None
    warnings: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    thinking: str = ""

    def message(self) -> Message:
        """Return it as the assistant's message of the conversation that goes on."""
        return Message("assistant", self.text, self.tool_calls, parts=self.parts)

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object without the fields that say nothing."""
        data: dict[str, Json] = {"text": self.text}
        if self.data is not None:
            data["data"] = self.data
        if self.tool_calls:
            data["tool_calls"] = [call.to_json() for call in self.tool_calls]
        data |= {"finish": self.finish, "model": self.model, "provider": self.provider}
        data["usage"] = self.usage.to_json()
        if self.parts is not None:
            data["parts"] = self.parts
        for name in ("warnings", "repairs"):
            if value := getattr(self, name):
                data[name] = list(value)
        if self.thinking:
            data["thinking"] = self.thinking
        if self.finish == "length":
            data["cut_off"] = True
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reply:
        """Return the reply that `to_json` wrote."""
        return cls(
            text=data["text"],
            data=data.get("data"),
            usage=Usage.from_json(data.get("usage")),
            finish=data.get("finish", "stop"),
            model=data.get("model", ""),
            provider=data.get("provider", ""),
            tool_calls=tuple(ToolCall.from_json(call) for call in data.get("tool_calls", ())),
            parts=data.get("parts"),
            warnings=tuple(data.get("warnings", ())),
            repairs=tuple(data.get("repairs", ())),
            thinking=data.get("thinking", ""),
        )


class Model(Protocol):
    """Whatever answers requests: a provider, a script, or a class of your own."""

    async def complete(
        self, request: Request, *, on_text: Callable[[str], None] | None = None
    ) -> Reply:
        """Answer one request with at most one call to an endpoint.

        `on_text` is called with each piece of text as it comes; it may be cut off later.

        Raises:
            ModelError: whatever went wrong, with a kind of the fault vocabulary.
        """
