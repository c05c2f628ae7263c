"""Requests to a model and its replies: the interface between the engine and every provider.

Rules:

1. A `Model` makes at most one request to an endpoint per `complete`. `call_model` makes retries, failover
   and re-asks as separate calls, so that each is recorded and counted.
2. A truncated reply is a `ModelError` with the received text.
3. A blank or truncated reply is an error, unless the request accepts truncated text. Thinking is not part of
   the text, the data or a later message. Reading a reply twice changes nothing.
4. Estimates of tokens are upper bounds: one token is at least one byte of text.
5. All values are plain JSON or frozen, and convert to JSON and back without a change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, cast

from ..errors import ConfigurationError, ModelError, nearest
from ..records import NOTHING, Usage, codec
from ..records.codec import Json
from .files import FileReference
from .replies.text import is_blank, words_of
from .replies.values import read_loosely, read_value
from .settings import checked_cutoff, checked_headers, header_digests

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "MAX_TOOL_CALLS",
    "Finish",
    "Message",
    "Model",
    "Reply",
    "Request",
    "Timers",
    "ToolCall",
    "ToolDefinition",
    "input_at_most",
    "received",
    "tokens_at_most",
]

DEFAULT_MAX_TOKENS = 4096  # below the limit of every current model, so that no provider rejects it
IMAGE_TOKENS = 20_000  # of one image, above the most that a provider counts
PER_MESSAGE = 16  # tokens that a chat template adds around one message, generously
PER_TOOLS = 512  # tokens of the instructions that providers add when there are tools
MAX_TOOL_CALLS = 128  # of one reply; a model that repeats itself writes calls without end
Finish = Literal["stop", "length", "refused", "tool_calls"]
Role = Literal["system", "user", "assistant", "tool"]

_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool that a model requests.

    Args:
        id: the ID of the call; the result refers to it.
        name: the name of the tool.
        arguments: the arguments as JSON; default None.

    Example:

    >>> ToolCall("call-1", "add", {"a": 1}).to_json()
    {'id': 'call-1', 'name': 'add', 'arguments': {'a': 1}}
    """

    id: str
    name: str
    arguments: Json = None

    def to_json(self) -> Json:
        """Return a JSON object."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> ToolCall:
        """Return the call of an object from `to_json`."""
        return cls(data["id"], data["name"], data.get("arguments"))


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool that a model may call.

    Args:
        name: the name that the model calls.
        description: the purpose of the tool, for the model; default "".
        schema: the JSON Schema of the arguments; default: an object without properties.

    Raises:
        ConfigurationError: for an empty name or a schema that is not an object.

    Example:

    >>> ToolDefinition("now", "The current time.").to_json()["schema"]
    {'type': 'object', 'properties': {}}
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
        """Return a JSON object."""
        return {"name": self.name, "description": self.description, "schema": dict(self.schema)}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Args:
        role: system, user, assistant or tool.
        content: the text; default "".
        tool_calls: the calls that an assistant requests; default none.
        call_id: for a `tool` message, the ID of the call that it answers.
        name: for a `tool` message, the name of the tool.
        parts: the provider's form of an assistant's message with reasoning and signatures, an opaque
            versioned JSON value. The same library uses it instead of the text. Default None.
        files: for a `user` message, the files that it sends; `Request.contents` has their bytes.

    Raises:
        ConfigurationError: for an unknown role, content that is not text, or a `tool` message without
            `call_id`.

    Example:

    >>> Message("user", "Capital of France?").to_json()
    {'role': 'user', 'content': 'Capital of France?'}
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""
    parts: Json = None
    files: tuple[FileReference, ...] = ()

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            hint = nearest(str(self.role), _ROLES) or f"; use one of {', '.join(_ROLES)}"
            raise ConfigurationError(f"message: role: {self.role!r} is unknown{hint}")
        if not isinstance(self.content, str):
            raise ConfigurationError(f"message: content: {self.content!r} is not text")
        # Lone surrogates and NUL cannot be stored; normalised here, the request and its record are equal.
        object.__setattr__(self, "content", codec.normalise(self.content))
        if self.role == "tool" and not self.call_id:
            raise ConfigurationError(
                "message: call_id: is missing; name the call that this tool message answers"
            )

    def to_json(self) -> Json:
        """Return a JSON object without empty fields."""
        data: dict[str, Json] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            data["tool_calls"] = [call.to_json() for call in self.tool_calls]
        data |= {
            key: value for key in ("call_id", "name", "parts") if (value := getattr(self, key))
        }
        if self.files:
            data["files"] = [file.to_json() for file in self.files]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Message:
        """Return the message of an object from `to_json`."""
        calls = tuple(ToolCall.from_json(call) for call in data.get("tool_calls", ()))
        rest = {key: data[key] for key in ("call_id", "name", "parts") if key in data}
        files = tuple(FileReference.from_json(file) for file in data.get("files", ()))
        return cls(data["role"], data.get("content", ""), calls, files=files, **rest)


@dataclass(frozen=True, slots=True)
class Timers:
    """The time limits of a call in seconds. The deadline of the run applies as well.

    Args:
        first_byte: until the reply begins; default 60.
        idle: between two pieces of content; keep-alives do not count. Default 60.
        whole: for the entire reply; default 600.
        answer: for all attempts at one answer and the waits between them; default None: the limits of
            the policy.

    Raises:
        ConfigurationError: for a value that is not above 0.

    Example:

    >>> Timers(first_byte=5).whole
    600.0
    """

    first_byte: float = 60.0
    idle: float = 60.0
    whole: float = 600.0
    answer: float | None = None

    def __post_init__(self) -> None:
        for name in ("first_byte", "idle", "whole"):
            value = codec.number(f"timeouts: {name}", getattr(self, name), minimum=0, above=True)
            object.__setattr__(self, name, value)
        if self.answer is not None:
            codec.number("timeouts: answer", self.answer, minimum=0, above=True)


@dataclass(frozen=True, slots=True)
class Request:
    """One request to one model.

    Args:
        messages: the conversation, the oldest message first.
        model: the model's name at its provider.
        provider: a name of `PROVIDERS`, such as openai, anthropic, gemini, ollama or
            openai_compatible.
        temperature: 0 to 2; default None: the default of the provider.
        max_tokens: the token limit of the reply; default None: the limit of the provider.
        schema: a JSON Schema for `Reply.data`; default None: the reply is text.
        schema_name: the name of the schema at the provider; default "reply".
        tools: the tools that the model may call; `Reply.tool_calls` has the calls. Default none.
        timeouts: time limits; default `Timers()`.
        base_url: the address of another endpoint; default "": the provider's own.
        api_key_env: the environment variable with the key for `base_url`; default "": no key is sent.
        max_tool_calls: the highest number of tool calls in one reply; default 128. A reply with more
            is refused.
        on_cutoff: the reaction to a reply that reaches `max_tokens`: `fail`, `retry` with a larger
            limit, or `accept` the text. Default "": `fail` with `max_tokens`, else `retry`.
        strict: read the value of `schema` as strict JSON; default False.
        text_field: the field that takes the text of a reply without a value for `schema`; default "": such
            a reply is an error.
        extra: other settings (top_p, seed, stop; see `ModelSettings`) and fields of the provider.
        headers: additional headers; the journal has digests of their values.
        path, run_id: the position of the call in its run; not sent.
        contents: the bytes of the files in the messages, by digest; never recorded. Default none.

    Raises:
        ConfigurationError: for a request without a user message, a model or a provider, or a value out
            of range.

    Example:

    >>> Request((Message("user", "hello"),), model="gpt-4o", provider="openai").cutoff
    'retry'
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
    text_field: str = ""
    extra: Mapping[str, Json] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    run_id: str = ""
    max_tool_calls: int = MAX_TOOL_CALLS
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", tuple(self.messages))
        codec.integer("request: max_tool_calls", self.max_tool_calls, minimum=1)
        object.__setattr__(self, "tools", tuple(self.tools))
        if not any(message.role in ("user", "tool") for message in self.messages):
            raise ConfigurationError("request: messages: give at least one message of a user")
        for name in ("model", "provider"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ConfigurationError(f"request: {name}: is empty; name one")
        if self.temperature is not None:
            codec.number("request: temperature", self.temperature, minimum=0, maximum=2)
        if self.max_tokens is not None:
            codec.integer("request: max_tokens", self.max_tokens, minimum=1)
        if self.schema is not None and not isinstance(self.schema, Mapping):
            raise ConfigurationError("request: schema: give a JSON Schema, an object")
        # The usual words need no check: the default, and the one that judges set.
        if self.on_cutoff not in ("", "retry"):
            checked_cutoff(self.on_cutoff, schema=self.schema is not None)
        if self.headers:
            checked_headers(self.headers)

    @property
    def cutoff(self) -> str:
        """The reaction to a truncated reply: fail, retry or accept."""
        # A limit that the user set is intended; the limit of a provider is not.
        return self.on_cutoff or ("retry" if self.max_tokens is None else "fail")

    @property
    def prompt(self) -> str:
        """The text of all messages, for rules of scripted replies and estimates."""
        return "\n".join(message.content for message in self.messages)

    def to_json(self) -> Json:
        """Return the sent fields as a JSON object, without timeouts, path and run."""
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
        # A default is left out, so that the digests of requests in older journals stay the same.
        if self.max_tool_calls != MAX_TOOL_CALLS:
            data["max_tool_calls"] = self.max_tool_calls
        if self.headers:
            data["headers"] = header_digests(self.headers)
        data["messages"] = [message.to_json() for message in self.messages]
        return cast("Json", codec.normalise(data, what="request"))


def tokens_at_most(text: str) -> int:
    """Return an upper bound of a text's tokens: no token is shorter than a byte of UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def input_at_most(request: Request) -> int:
    """Return an upper bound of a request's input tokens."""
    total = 0
    for message in request.messages:
        total += PER_MESSAGE + tokens_at_most(message.content)
        for call in message.tool_calls:
            total += PER_MESSAGE + tokens_at_most(codec.encode(call.to_json()))
        total += sum(_file_tokens(file) for file in message.files)
        if message.parts is not None:
            total += tokens_at_most(codec.encode(message.parts))
    if request.schema is not None:
        # It may be sent twice: as the format and, to servers that ignore formats, in words.
        total += PER_TOOLS + 2 * tokens_at_most(codec.encode(_json(request.schema)))
    if request.tools:
        total += PER_TOOLS + sum(tokens_at_most(codec.encode(t.to_json())) for t in request.tools)
    return total


def _file_tokens(file: FileReference) -> int:
    """Return an upper bound of the input tokens of a file; a page or second of others takes no more."""
    return IMAGE_TOKENS if file.media_type.startswith("image/") else file.size


def _json(schema: Mapping[str, Json]) -> Json:
    return codec.normalise(dict(schema), what="schema")


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a model.

    Args:
        text: the answer without thinking.
        data: the value for the schema of the request; default None.
        usage: calls, tokens and dollars; default none.
        finish: why the reply ended: `stop`, `tool_calls`, `refused`, or `length` for accepted truncated
            text. Default `stop`.
        model: the model's name as the provider reports it; default "".
        provider: the name of the provider; default "".
        tool_calls: the requested calls; default none.
        parts: the provider's form of the message; see `Message`.
        warnings: sentences for people; default none.
        repairs: descriptions of the changes that were needed to read the text; default none.
        thinking: the text before the answer; default "".

    Example:

    >>> Reply("Paris").message().role
    'assistant'
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
        """Return the assistant's message that continues the conversation."""
        return Message("assistant", self.text, self.tool_calls, parts=self.parts)

    def to_json(self) -> dict[str, Json]:
        """Return a JSON object without empty fields."""
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
            # For readers of the journal; `finish` alone is easy to overlook.
            data["cut_off"] = True
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Reply:
        """Return the reply of an object from `to_json`."""
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


def received(reply: Reply, request: Request) -> Reply:
    """Return a reply as steps use it: own words as text, data that fits the schema.

    Raises:
        ModelError: `truncated`, `malformed` or `empty_output`, with the text of the reply.
    """
    words = words_of(reply.text)
    text = words.text
    repairs = tuple(dict.fromkeys((*reply.repairs, *words.repairs)))
    read = replace(
        reply, text=codec.normalise(text), thinking=reply.thinking + words.thinking, repairs=repairs
    )
    if reply.finish == "length":
        if request.cutoff != "accept" or is_blank(text):
            raise _cut_off(read, request)
        return read
    if request.schema is not None and reply.data is None and not is_blank(reply.text):
        # The answer follows after the results of the tools.
        if reply.tool_calls:
            return read
        reading = read_value(reply.text, request.schema, strict=request.strict)
        if reading.problem and request.text_field:
            reading = read_loosely(reply.text, request.text_field, reading.failure)
        if reading.problem:
            detail = f"did not answer in the format: {reading.failure}"
            raise _failure("malformed", detail, read, request, problem=reading.complaint)
        repairs = tuple(dict.fromkeys((*repairs, *reading.repairs)))
        read = replace(read, data=codec.normalise(reading.value), repairs=repairs)
    if is_blank(text) and not reply.tool_calls and read.data is None:
        what = "wrote thinking only" if words.unclosed or read.thinking else "wrote nothing"
        raise _failure("empty_output", what, read, request)
    if is_blank(text) and read.data is not None:
        return replace(read, text=codec.encode(read.data))
    return read


def _cut_off(reply: Reply, request: Request) -> ModelError:
    """Return the error of a reply that reached its token limit."""
    limit = f" of {request.max_tokens:,} tokens" if request.max_tokens else ""
    inside = " inside its thinking" if is_blank(reply.text) and reply.thinking else ""
    other = (
        ", or set on_cutoff: retry (once more with a larger limit)"
        if request.cutoff == "accept"
        else ", or set on_cutoff: fail, retry (once more with a larger limit) or, for text only, accept "
        "(the truncated text is the output)"
    )
    blank = " before its first word" if request.cutoff == "accept" and not inside else ""
    detail = f"was cut off at its limit{limit}{inside}{blank}; raise max_tokens{other}"
    return _failure("truncated", detail, reply, request, fields=("max_tokens", "on_cutoff"),
                  reason="thinking" if inside else "")  # fmt: skip


def _failure(
    kind: str,
    detail: str,
    reply: Reply,
    request: Request,
    *,
    problem: str = "",
    reason: str = "",
    fields: tuple[str, ...] = (),
) -> ModelError:
    return ModelError(
        f"{request.provider}/{request.model} {detail}", kind=kind, path=request.path,
        usage=reply.usage, partial=reply.text, problem=problem, reason=reason, fields=fields,
    )  # fmt: skip


class Model(Protocol):
    """An object that answers requests: a provider, a script, or your own class.

    Example:

    >>> class Echo:
    ...     async def complete(self, request, *, on_text=None):
    ...         return Reply(request.prompt)
    """

    async def complete(
        self, request: Request, *, on_text: Callable[[str], None] | None = None
    ) -> Reply:
        """Answer one request with at most one call to an endpoint.

        `on_text` receives each piece of text as it arrives; the reply may still fail later.

        Raises:
            ModelError: for every failure, with one of `KINDS`.
        """
