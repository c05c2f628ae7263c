"""Requests to a model, with their settings and files, and its replies: the interface to every provider.

1. A `Model` makes at most one request to an endpoint per `complete`. `call_model` makes retries, failover
   and re-asks as separate calls, so that each is recorded and counted.
2. A truncated reply is a `ModelError` with the received text.
3. A blank or truncated reply is an error, unless the request accepts truncated text. Thinking is not part of
   the text, the data or a later message. Reading a reply twice changes nothing.
4. Estimates of tokens are upper bounds: one token is at least one byte of text.
5. All values are plain JSON or frozen, and convert to JSON and back without a change.
6. A prompt may send files: images, audio, PDF and text.
"""

from __future__ import annotations

import hashlib
import math
import mimetypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol, TypedDict, cast
from urllib.parse import urlsplit

from ..errors import ConfigurationError, ModelError, listed, nearest
from ..records import NOTHING, Usage, codec
from ..records.codec import Json
from .reply_text import is_blank, words_of
from .reply_values import read_loosely, read_value

__all__ = [
    "CUTOFFS",
    "DEFAULT_MAX_TOKENS",
    "EFFORTS",
    "MAX_FILE_BYTES",
    "MAX_TOOL_CALLS",
    "SAMPLING",
    "File",
    "FileReference",
    "Finish",
    "Message",
    "Model",
    "ModelSettings",
    "Reply",
    "Request",
    "Timers",
    "ToolCall",
    "ToolDefinition",
    "checked_cutoff",
    "checked_headers",
    "checked_sampling",
    "checked_settings",
    "header_digests",
    "input_at_most",
    "received",
    "tokens_at_most",
]

MAX_FILE_BYTES = 20_000_000  # the limit of the providers for one request, in which a file is base64
_PREFIXES = ("image/", "audio/", "text/")
_OTHERS = ("application/pdf", "application/json", "application/x-yaml", "application/xml")


@dataclass(frozen=True, slots=True)
class File:
    """A file that a prompt sends to its model; give one of `path`, `url` and `data`.

    Args:
        path: a local file, under `files_root` of the prompt. At most 20 MB.
        url: the address of an image, which the provider loads.
        data: the content, with `media_type`. At most 20 MB.
        media_type: such as `image/png`, `audio/wav`, `application/pdf`, `text/plain`. Default: that of
            the ending of `path` or `url`.

    Raises:
        ConfigurationError: for no source or several, an unknown media type, or content that is too large.

    Example:

    >>> File("chart.png").media_type
    'image/png'
    """

    path: str | os.PathLike[str] = ""
    url: str = field(default="", kw_only=True)
    data: bytes | None = field(default=None, kw_only=True, repr=False)
    media_type: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        path = os.fspath(self.path)
        if sum((bool(path), bool(self.url), self.data is not None)) != 1:
            raise ConfigurationError("file: give one of a path, url= and data=")
        if self.data is not None and not isinstance(self.data, bytes):
            raise ConfigurationError("file: data: is not bytes; read the file in binary mode")
        object.__setattr__(self, "path", path)
        name = path or urlsplit(self.url).path
        kind = self.media_type or mimetypes.guess_type(name)[0] or ""
        object.__setattr__(self, "media_type", kind)
        if not kind.startswith(_PREFIXES) and kind not in _OTHERS:
            unknown = f"{kind} cannot be sent" if kind else "the media type is unknown"
            raise ConfigurationError(
                f"file {name or 'data'!r:.200}: {unknown}; give media_type= of an image, audio, PDF or text"
            )
        if self.url:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigurationError(
                    f"file: {self.url!r:.200} is not an address; use https://…"
                )
            if parts.username is not None or parts.password is not None:
                raise ConfigurationError(
                    "file: the address contains a user or password; give data= instead"
                )
            if not kind.startswith("image/"):
                raise ConfigurationError(
                    f"file {self.url!r:.200}: only images are sent by address; give the file by path or data="
                )
        check_size(name or "data", len(self.data or b""))

    def described(self) -> Json:
        """Return the file as JSON, with a digest in place of content."""
        description: dict[str, Json] = {"media_type": self.media_type}
        if self.path:
            description["path"] = Path(self.path).as_posix()
        elif self.url:
            description["url"] = self.url
        else:
            description["data"] = hashlib.sha256(self.data or b"").hexdigest()
        return description

    def read(self, root: Path) -> bytes:
        """Return the content of `data`, or of `path` under a folder.

        Raises:
            ConfigurationError: for a path outside the folder, one that cannot be read, or a large file.
        """
        if self.data is not None:
            return self.data
        # Resolved before the check, so that a link inside the folder cannot lead out of it.
        path = Path(os.path.realpath(root / self.path))
        if not path.is_relative_to(os.path.realpath(root)):
            raise ConfigurationError(
                f"file {self.path!r} is outside {root}; give files_root= of another folder"
            )
        try:
            # Checked before reading: the file may be larger than the memory.
            check_size(str(self.path), path.stat().st_size)
            return path.read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"file {self.path!r} cannot be read: {error.strerror or error}"
            ) from None


def check_size(name: str, size: int) -> None:
    """Raise ConfigurationError for content of more than 20 MB."""
    if size > MAX_FILE_BYTES:
        raise ConfigurationError(
            f"file {name!r:.200} has {size:,} bytes; the limit is {MAX_FILE_BYTES:,}"
        )


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file of a message as it is recorded: its digest or address, never its content.

    Args:
        media_type: the media type.
        digest: the SHA-256 digest of the content; default "".
        url: the address of an image; default "".
        name: the name of the file; default "".
        size: the size in bytes; default 0.

    Example:

    >>> FileReference("image/png", url="https://example.org/a.png").to_json()
    {'media_type': 'image/png', 'url': 'https://example.org/a.png'}
    """

    media_type: str
    digest: str = ""
    url: str = ""
    name: str = ""
    size: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return a JSON object without empty fields."""
        names = ("media_type", "digest", "url", "name", "size")
        return {name: value for name in names if (value := getattr(self, name))}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> FileReference:
        """Return the reference of an object from `to_json`."""
        return cls(**data)


CUTOFFS = ("fail", "retry", "accept")
EFFORTS = ("none", "minimal", "low", "medium", "high")
SAMPLING = (
    "top_p", "seed", "stop", "reasoning_effort", "frequency_penalty", "presence_penalty",
    "extra_body",
)  # fmt: skip
# Headers are recorded as digests and shown to people, so a key must not be one of them.
_SECRET = ("authorization", "proxy-authorization", "cookie", "set-cookie")
_KEYS = ("api-key", "apikey", "api_key", "token", "secret", "password", "credential")
# Another value of these would break the connection or send it elsewhere (request smuggling).
_OURS = ("host", "content-length", "content-type", "transfer-encoding", "connection")


class ModelSettings(TypedDict, total=False):
    """The settings of a model call; a setting that the endpoint does not support is left out with a warning.

    `temperature`: 0 to 2. `max_tokens`: limit of the reply. `top_p`: 0 to 1. `seed`: an integer. `stop`: one
    or several texts that end the reply. `reasoning_effort`: none to high. `frequency_penalty` and
    `presence_penalty`: -2 to 2. `timeout`: seconds for one call. `on_cutoff`: the reaction to a reply that
    reaches `max_tokens`: `fail` (default with `max_tokens`), `retry` (default without: once more with a
    larger limit) or `accept` (text only: the truncated text is the output). `extra_body`: more fields of the
    request. `extra_headers`: more headers, without keys. `base_url`: the address of another server.
    `api_key_env`: the environment variable with its key. `cache`: whether replies are kept for equal requests:
    `run`, `store`, `off` (default), or `{where, ttl, sampling, scope}`.

    Example:
        >>> settings: ModelSettings = {"temperature": 0.2, "max_tokens": 200}
        >>> settings["max_tokens"]
        200
    """

    temperature: float | None
    max_tokens: int | None
    top_p: float | None
    seed: int | None
    stop: str | list[str] | None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None
    frequency_penalty: float | None
    presence_penalty: float | None
    timeout: float | None
    on_cutoff: Literal["fail", "retry", "accept"] | None
    extra_body: Mapping[str, Json] | None
    extra_headers: Mapping[str, str] | None
    base_url: str
    api_key_env: str
    cache: Literal["run", "store", "off"] | Mapping[str, Json] | None


def checked_settings(settings: Mapping[str, Json]) -> ModelSettings:
    """Return the settings that are not None.

    Raises:
        ConfigurationError: for an unknown setting, with the nearest name, or a value out of range.
    """
    for name in settings:
        if name not in ModelSettings.__annotations__:
            hint = nearest(name, ModelSettings.__annotations__)
            raise ConfigurationError(f"{name}: is not a setting of a model call{hint}")
    checked = {name: value for name, value in settings.items() if value is not None}
    if "temperature" in checked:
        codec.number("temperature", checked["temperature"], minimum=0, maximum=2)
    if "max_tokens" in checked:
        codec.integer("max_tokens", checked["max_tokens"], minimum=1)
    if "timeout" in checked:
        checked["timeout"] = codec.number("timeout", checked["timeout"], minimum=0, above=True)
    for name in ("base_url", "api_key_env"):
        if not isinstance(checked.get(name, ""), str):
            raise ConfigurationError(f"{name}: {checked[name]!r:.80} is not text")
    checked |= checked_sampling({name: checked[name] for name in SAMPLING if name in checked})
    checked_headers(checked.get("extra_headers", {}))
    checked_cutoff(checked.get("on_cutoff", ""), schema=False)
    if "cache" in checked:
        from .cache import Caching  # few calls have one

        Caching.of(checked["cache"])
    return cast("ModelSettings", checked)


def checked_sampling(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings that are not None.

    Raises:
        ConfigurationError: for an unknown setting, with the nearest name, or a value out of range.
    """
    checked: dict[str, Json] = {}
    for name, value in settings.items():
        if name not in SAMPLING:
            hint = nearest(name, SAMPLING) or listed(name, SAMPLING, lead="use one of")
            raise ConfigurationError(f"{name}: is not a setting of a model call{hint}")
        if value is not None:
            checked[name] = _CHECKS[name](name, value)
    return checked


def _share(name: str, value: Json) -> float:
    return codec.number(name, value, minimum=0, maximum=1)


def _seed(name: str, value: Json) -> int:
    # True is an int for Python and not a seed.
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"{name}: {value!r} is not an integer")
    return value


def _stop(name: str, value: Json) -> Json:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts:
        raise ConfigurationError(f"{name}: {value!r:.80} is not a text or a list of texts")
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ConfigurationError(
                f"{name}: {text!r:.80} is not a text with at least one character"
            )
    return value if isinstance(value, str) else list(texts)


def _effort(name: str, value: Json) -> str:
    if value not in EFFORTS:
        hint = nearest(str(value), EFFORTS) or f"; use one of {', '.join(EFFORTS)}"
        raise ConfigurationError(f"{name}: {value!r:.40} is unknown{hint}")
    return str(value)


def _penalty(name: str, value: Json) -> float:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not ok or not -2 <= value <= 2:
        raise ConfigurationError(f"{name}: {value!r:.40} is not a number from -2 to 2")
    return float(value)


def _body(name: str, value: Json) -> Json:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigurationError(f"{name}: {value!r:.80} is not an object")
    return codec.normalise(dict(value), what=name)


_CHECKS = {
    "top_p": _share,
    "seed": _seed,
    "stop": _stop,
    "reasoning_effort": _effort,
    "frequency_penalty": _penalty,
    "presence_penalty": _penalty,
    "extra_body": _body,
}


def checked_cutoff(value: str, *, schema: bool) -> str:
    """Check and return `on_cutoff`; "" is the default.

    Raises:
        ConfigurationError: for another word, or for `accept` with a schema.
    """
    if value and value not in CUTOFFS:
        hint = nearest(str(value), CUTOFFS) or f"; use one of {', '.join(CUTOFFS)}"
        raise ConfigurationError(f"on_cutoff: {value!r:.40} is unknown{hint}")
    if value == "accept" and schema:
        raise ConfigurationError(
            "on_cutoff: accept is for text; a truncated JSON value cannot be read: use fail or retry"
        )
    return value


def header_digests(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the recorded form of headers: their names and digests of their values."""
    return {
        name.lower(): hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        for name, value in headers.items()
    }


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Check and return the additional headers of a request.

    Raises:
        ConfigurationError: for a header with a key, a header that the client sets, or one that is not text.
    """
    if not isinstance(headers, Mapping):
        raise ConfigurationError(f"extra_headers: {headers!r:.80} is not an object")
    for name, value in headers.items():
        plain = str(name).lower()
        if not isinstance(name, str) or not name or not isinstance(value, str):
            raise ConfigurationError(f"extra_headers: {name!r:.40}: name and value must be text")
        if plain in _SECRET or any(part in plain for part in _KEYS):
            raise ConfigurationError(
                f"extra_headers: {name} contains a key; name its environment variable in api_key_env"
            )
        # A line break would end the header and begin another one.
        if plain in _OURS or any(c in name + value for c in "\r\n\0") or not name.isascii():
            raise ConfigurationError(f"extra_headers: {name!r:.40} cannot be set; leave it out")
    return dict(headers)


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
        cache: the setting `cache` of `ModelSettings`; not sent. Default none.

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
    cache: Json = field(default=None, repr=False, compare=False)

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
        # A page or second of another file takes no more tokens than it has bytes.
        total += sum(
            IMAGE_TOKENS if file.media_type.startswith("image/") else file.size
            for file in message.files
        )
        if message.parts is not None:
            total += tokens_at_most(codec.encode(message.parts))
    if request.schema is not None:
        # It may be sent twice: as the format and, to servers that ignore formats, in words.
        schema = codec.normalise(dict(request.schema), what="schema")
        total += PER_TOOLS + 2 * tokens_at_most(codec.encode(schema))
    if request.tools:
        total += PER_TOOLS + sum(tokens_at_most(codec.encode(t.to_json())) for t in request.tools)
    return total


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
