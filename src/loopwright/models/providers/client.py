"""Requests through the client library: its models and messages, formats of structured output, streamed replies.

1. Three timers: until the reply begins, between two pieces of content, and for the entire reply.
   Keep-alives and empty pieces reset none of them.
2. A stream is complete when it states a finish reason. Without one it is an error.
3. A truncated value is never parsed; `received` decides how a reply is read.

Importing this module takes seconds: `endpoints` imports it for the first request of a real model.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import httpx2
from pydantic import ValidationError
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from ...errors import Billed, ConfigurationError, ModelError
from ...records import NOTHING, Usage, codec
from ...records.codec import Json
from ...records.display import cut
from ...records.redaction import Redactor
from ..errors import NOT_RUNNING, too_many_calls
from ..protocol import Message, Reply, Request, ToolCall, input_at_most, received, tokens_at_most
from ..reply_text import read_json
from ..reply_values import read_loosely, read_value, several
from .endpoints import Allowed, Endpoint, is_loopback_name, origin_of
from .transport import EXCHANGE, EndpointStatus, ResponseTrace, Transport, from_status, translate

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = [
    "PARTS",
    "AnyModel",
    "LibraryRequest",
    "Requests",
    "build",
    "convert",
    "dump_parts",
    "rungs",
]

AnyModel: TypeAlias = LibraryModel[Any]  # its parameter is the client of a provider

# The major version of the library whose message JSON is recorded; other versions read the text instead.
PARTS = {"library": "pydantic-ai", "version": 2}
NO_KEY = "put-in-by-the-transport"  # the SDKs require a key, and must not hold the real one
# The library knows the abilities of the models of these providers.
_OURS = frozenset({"openai", "anthropic", "gemini", "deepseek"})
_SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_SETTINGS = frozenset({*_SAMPLING, "top_k", "seed", "parallel_tool_calls", "thinking"})
# These need a conversion; all other extras are fields of the request's body.
_APART = frozenset({"stop", "reasoning_effort", "extra_body"})
# The library separates thinking where one chunk of the stream is exactly a tag, so the result depends on
# the chunks. These tags never occur; `own_words` separates thinking in the complete text.
_NO_TAGS = ("<loopwright:no-thinking-tag>", "</loopwright:no-thinking-tag>")


def build(endpoint: Endpoint, name: str, client: httpx2.AsyncClient, rung: str) -> AnyModel:
    """Return the library's model of an endpoint, for one format of structured output.

    Raises:
        ImportError: if the library's support for the provider is not installed.
    """
    return _BUILDERS[endpoint.api](endpoint, name, client, rung)


def _openai_client(endpoint: Endpoint, client: httpx2.AsyncClient) -> AsyncOpenAI:
    from openai import AsyncOpenAI

    # Empty and not absent, because the SDK reads absent values from the environment.
    return AsyncOpenAI(
        api_key=NO_KEY, admin_api_key="", organization="", project="", webhook_secret="",
        base_url=endpoint.base_url, http_client=client, max_retries=0,
    )  # fmt: skip


def _responses(endpoint: Endpoint, name: str, client: httpx2.AsyncClient, rung: str) -> AnyModel:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    del rung
    provider = OpenAIProvider(openai_client=_openai_client(endpoint, client))
    return OpenAIResponsesModel(name, provider=provider)


def _chat(endpoint: Endpoint, name: str, client: httpx2.AsyncClient, rung: str) -> AnyModel:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.deepseek import DeepSeekProvider
    from pydantic_ai.providers.ollama import OllamaProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    sdk = _openai_client(endpoint, client)
    profile = OpenAIModelProfile(
        supports_json_object_output=rung == "json_object", thinking_tags=_NO_TAGS
    )
    if not _is_known(endpoint):
        # The abilities of another server are tried, because its model's name does not tell them.
        profile |= OpenAIModelProfile(
            supports_json_schema_output=True,
            native_output_requires_schema_in_instructions=True,
            # Other servers may reject fields such as `strict` and `max_completion_tokens`.
            openai_supports_strict_tool_definition=False,
            openai_chat_supports_max_completion_tokens=False,
        )
    if endpoint.provider == "deepseek":
        return OpenAIChatModel(name, provider=DeepSeekProvider(openai_client=sdk), profile=profile)
    if endpoint.provider == "ollama":
        return OpenAIChatModel(name, provider=OllamaProvider(openai_client=sdk), profile=profile)
    local = OpenAICompatibleProvider(endpoint.provider, openai_client=sdk)
    return OpenAIChatModel(name, provider=local, profile=profile)


def _anthropic(endpoint: Endpoint, name: str, client: httpx2.AsyncClient, rung: str) -> AnyModel:
    del rung
    # Imported by name, because type checkers see these modules only where the extra is installed.
    sdk = importlib.import_module("anthropic")
    models = importlib.import_module("pydantic_ai.models.anthropic")
    providers = importlib.import_module("pydantic_ai.providers.anthropic")
    client_object = sdk.AsyncAnthropic(
        api_key=NO_KEY, base_url=endpoint.base_url, http_client=client, max_retries=0
    )
    provider = providers.AnthropicProvider(anthropic_client=client_object)
    return cast("AnyModel", models.AnthropicModel(name, provider=provider))


def _gemini(endpoint: Endpoint, name: str, client: httpx2.AsyncClient, rung: str) -> AnyModel:
    del rung
    models = importlib.import_module("pydantic_ai.models.google")
    providers = importlib.import_module("pydantic_ai.providers.google")
    provider = providers.GoogleProvider(
        api_key=NO_KEY, http_client=client, base_url=endpoint.base_url
    )
    return cast("AnyModel", models.GoogleModel(name, provider=provider))


def _vertex(endpoint: Endpoint, name: str, client: httpx2.AsyncClient, rung: str) -> AnyModel:
    del rung
    models = importlib.import_module("pydantic_ai.models.google")
    providers = importlib.import_module("pydantic_ai.providers.google_cloud")
    location = endpoint.host.removesuffix("-aiplatform.googleapis.com")
    provider = providers.GoogleCloudProvider(
        project=endpoint.project or None, location=location, http_client=client,
        base_url=endpoint.base_url,
    )  # fmt: skip
    return cast("AnyModel", models.GoogleModel(name, provider=provider))


def _bedrock(endpoint: Endpoint, name: str, client: httpx2.AsyncClient, rung: str) -> AnyModel:
    """Return a model of Bedrock; its library opens the connections and signs with the machine's credentials."""
    del client, rung
    models = importlib.import_module("pydantic_ai.models.bedrock")
    providers = importlib.import_module("pydantic_ai.providers.bedrock")
    # The library requires the region, which is a part of the address.
    region = endpoint.host.removeprefix("bedrock-runtime.").removesuffix(".amazonaws.com")
    key_argument = {"api_key": endpoint.key} if endpoint.key else {}
    provider = providers.BedrockProvider(
        base_url=endpoint.base_url, region_name=region, **key_argument
    )
    return cast("AnyModel", models.BedrockConverseModel(name, provider=provider))


_BUILDERS = {
    "responses": _responses, "chat": _chat, "anthropic": _anthropic, "gemini": _gemini, "vertex": _vertex,
    "bedrock": _bedrock,
}  # fmt: skip


def _is_known(endpoint: Endpoint) -> bool:
    return endpoint.own and endpoint.provider in _OURS


def rungs(endpoint: Endpoint, model: AnyModel) -> tuple[str, ...]:
    """Return the formats of structured output to try at an endpoint, best first."""
    if endpoint.api == "chat" and not _is_known(endpoint):
        return ("json_schema", "json_object", "tool", "prompted")
    native = model.profile.get("supports_json_schema_output", False)
    objects = endpoint.api == "chat"
    return (
        *(["json_schema"] if native else []),
        *(["json_object"] if objects else []),
        "tool",
        "prompted",
    )


@dataclass(frozen=True)
class LibraryRequest:
    """A request in the library's types; `notes` name the settings that are not sent."""

    messages: list[ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters
    notes: tuple[str, ...]


def convert(endpoint: Endpoint, model: AnyModel, request: Request, rung: str) -> LibraryRequest:
    """Return a request in the library's types.

    Raises:
        ConfigurationError: for an extra setting or a file that cannot be sent to the provider.
    """
    notes: list[str] = []
    settings = _settings(endpoint, model, request, notes)
    for file in (file for message in request.messages for file in message.files):
        flag = next((f for start, f in _FILE_FLAGS if file.media_type.startswith(start)), "")
        what = f"{request.provider}:{request.model}"
        # The profile of the model says what it cannot read.
        if flag and model.profile.get(flag) is False:
            raise ConfigurationError(
                f"files: {what} does not read {file.media_type}; use a model that does"
            )
        if file.url and endpoint.api not in _LOADS_URLS:
            raise ConfigurationError(
                f"files: {what} does not load {file.url:.200}; give the file by path or data="
            )
    return LibraryRequest(
        _messages(request.messages, request.contents),
        settings,
        _parameters(request, rung),
        tuple(notes),
    )


def _settings(
    endpoint: Endpoint, model: AnyModel, request: Request, notes: list[str]
) -> ModelSettings:
    settings: dict[str, Json] = {k: v for k, v in request.extra.items() if k in _SETTINGS}
    body = {k: v for k, v in request.extra.items() if k not in _SETTINGS | _APART}
    further = request.extra.get("extra_body")
    body |= further if isinstance(further, dict) else {}
    if "stop" in request.extra:
        stop = request.extra["stop"]
        settings["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    effort = request.extra.get("reasoning_effort")
    if effort is not None and endpoint.api == "chat" and not _is_known(endpoint):
        body.setdefault("reasoning_effort", effort)  # another server gets it unchanged
    elif effort is not None and model.profile.get("supports_thinking", False):
        settings["thinking"] = False if effort == "none" else effort
    elif effort is not None:
        settings["reasoning_effort"] = effort  # removed below, with a note
    refused = {*model.unsupported_settings, "reasoning_effort"}
    for name in [n for n in settings if n in refused or _refuses_sampling(model, n)]:
        setting = "stop" if name == "stop_sequences" else name
        notes.append(f"setting_ignored: {setting} was left out: {request.model} does not take it")
        del settings[name]
    if body and "extra_body" in model.unsupported_settings:
        raise ConfigurationError(f"extra: {', '.join(body)} cannot be sent to {endpoint.provider}")
    if body:
        settings["extra_body"] = body
    if request.max_tokens is not None:
        settings["max_tokens"] = request.max_tokens
    if endpoint.api == "responses":
        settings["openai_store"] = False  # the provider must not store the conversation
    # Loopwright retries and measures time itself; this timeout only replaces the library's own.
    settings |= {"max_retries": 0, "timeout": request.timeouts.whole}
    return cast("ModelSettings", settings)


def _refuses_sampling(model: AnyModel, name: str) -> bool:
    """Whether a reasoning model refuses this sampling setting."""
    profile = cast("OpenAIModelProfile", model.profile)
    if name not in _SAMPLING or not profile.get("openai_supports_reasoning", False):
        return False
    efforts = profile.get("openai_reasoning_efforts")
    optional = profile.get("openai_supports_reasoning_effort_none", False)
    if efforts is not None:
        optional = "none" in efforts
    return not optional or profile.get("thinking_enabled_by_default", False)


def _parameters(request: Request, rung: str) -> ModelRequestParameters:
    tools = [
        ToolDefinition(
            name=t.name, description=t.description, parameters_json_schema=dict(t.schema)
        )
        for t in request.tools
    ]
    if request.schema is None:
        return ModelRequestParameters(function_tools=tools)
    schema = dict(request.schema)
    name = request.schema_name
    # Servers without response formats usually support tools: the answer is the arguments of a call.
    if rung == "tool":
        answer = ToolDefinition(
            name=name, description="Give the answer.", parameters_json_schema=schema, kind="output"
        )
        return ModelRequestParameters(
            function_tools=tools, output_mode="tool", output_tools=[answer], allow_text_output=False
        )
    return ModelRequestParameters(
        function_tools=tools,
        output_mode="native" if rung == "json_schema" else "prompted",
        output_object=OutputObjectDefinition(json_schema=schema, name=name),
    )


# The profile's field for a media type, and the APIs that load an image from its address. For the others
# the library would load it here, past the checks of addresses.
_FILE_FLAGS = (
    ("image/", "supports_image_input"),
    ("audio/", "supports_audio_file_input"),
    ("application/pdf", "supports_document_input"),
)
_LOADS_URLS = ("responses", "chat", "anthropic")


def _user_content(message: Message, contents: Mapping[str, bytes]) -> str | list[UserContent]:
    """Return a text, or a text with its files; files of text are added to the text."""
    if not message.files:
        return message.content
    items: list[UserContent] = [message.content]
    for file in message.files:
        if file.url:
            items.append(ImageUrl(url=file.url, media_type=file.media_type))
        elif file.media_type.startswith(("image/", "audio/")) or file.media_type == _PDF:
            content = contents[file.digest]
            items.append(BinaryContent(content, media_type=file.media_type))
        else:
            text = contents[file.digest].decode("utf-8", "replace")
            items.append(f"File {file.name}:\n{text}" if file.name else text)
    return items


_PDF = "application/pdf"


def _messages(messages: Sequence[Message], contents: Mapping[str, bytes]) -> list[ModelMessage]:
    """Return a conversation in the library's messages; all messages between two replies are one request."""
    converted: list[ModelMessage] = []
    pending: list[SystemPromptPart | UserPromptPart | ToolReturnPart] = []
    for message in messages:
        if message.role == "system":
            pending.append(SystemPromptPart(content=message.content))
        elif message.role == "tool":
            pending.append(
                ToolReturnPart(
                    tool_name=message.name, content=message.content, tool_call_id=message.call_id
                )
            )
        elif message.role == "user":
            pending.append(UserPromptPart(content=_user_content(message, contents)))
        else:
            if pending:
                converted.append(ModelRequest(parts=pending))
                pending = []
            converted.extend(_response(message))
    if pending:
        converted.append(ModelRequest(parts=pending))
    return converted


def _response(message: Message) -> list[ModelMessage]:
    recorded = message.parts
    # Not if another version or model wrote them.
    if isinstance(recorded, dict) and all(recorded.get(k) == v for k, v in PARTS.items()):
        try:
            loaded = ModelMessagesTypeAdapter.validate_python(recorded.get("messages"))
        except ValidationError:
            loaded = []
        if loaded and all(isinstance(message, ModelResponse) for message in loaded):
            return loaded
    parts: list[TextPart | ToolCallPart] = (
        [TextPart(content=message.content)] if message.content else []
    )
    for call in message.tool_calls:
        arguments = call.arguments if call.arguments is not None else {}
        parts.append(ToolCallPart(tool_name=call.name, args=arguments, tool_call_id=call.id))
    return [ModelResponse(parts=parts)] if parts else []


def dump_parts(response: ModelResponse) -> Json:
    """Return a reply in the library's JSON, or None if its text is complete without it."""
    if all(isinstance(part, TextPart) for part in response.parts):
        return None
    return {**PARTS, "messages": ModelMessagesTypeAdapter.dump_python([response], mode="json")}


class _Ladder:
    """The formats of structured output that one model at one endpoint may support, best first."""

    __slots__ = ("at", "proven", "rungs")

    def __init__(self, rungs: tuple[str, ...]) -> None:
        self.rungs = rungs
        self.at = 0
        self.proven = False

    @property
    def rung(self) -> str:
        """The format of the next request."""
        return self.rungs[self.at]

    @property
    def last(self) -> bool:
        """Whether no other format is left."""
        return self.at == len(self.rungs) - 1

    # A format that has worked failed because of one reply, and not because the endpoint lacks it.
    def failed(self, rung: str) -> None:
        """Move to the next format, unless another call did, or this format has worked before."""
        if rung == self.rung and not self.last and not self.proven:
            self.at += 1


@dataclass
class _Session:
    """The connections and library models of one event loop."""

    clients: dict[Endpoint, httpx2.AsyncClient] = field(default_factory=dict)
    models: dict[tuple[Endpoint, str, str], AnyModel] = field(default_factory=dict)


class Requests:
    """Makes requests; `trusted` are the certificate authorities for https, once they are loaded."""

    def __init__(
        self, allowed: Allowed, redactor: Redactor, max_bytes: int, trusted: ssl.SSLContext | None
    ) -> None:
        self.trusted = trusted
        self._allowed = allowed
        self.redactor = redactor
        self._max_bytes = max_bytes
        self._ladders: dict[tuple[str, str], _Ladder] = {}
        # Connections belong to one event loop; `asyncio.run` in a program makes several.
        self._sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Session]
        self._sessions = weakref.WeakKeyDictionary()

    async def aclose(self) -> None:
        """Close the connections that this event loop opened."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        for client in session.clients.values() if session else ():
            await client.aclose()

    @staticmethod
    def load(endpoint: Endpoint) -> None:
        """Import the client library, its table of prices, and what one API needs of both."""
        for name in ("genai_prices.data", "anyio.streams.stapled", "pydantic_ai.models.openai"):
            importlib.import_module(name)
        # Some modules are imported by the first model that is built, so build one and discard it.
        no_authorities = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client = httpx2.AsyncClient(verify=no_authorities, timeout=None, trust_env=False)
        build(endpoint, "none", client, "prompted")

    @staticmethod
    def public_certificates() -> ssl.SSLContext:
        return httpx2.create_ssl_context(trust_env=False)

    async def ask(
        self,
        endpoint: Endpoint,
        request: Request,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Make one request and return the complete reply.

        Raises:
            ModelError: for every failure of the request.
        """
        # A context variable reaches the transport through the library, which has no parameter for it.
        exchange = ResponseTrace(sends=request.headers)
        EXCHANGE.set(exchange)
        key = (endpoint.base_url, request.model)
        if key not in self._ladders:
            preferred = self._model(endpoint, request.model, "json_schema")
            self._ladders[key] = _Ladder(rungs(endpoint, preferred))
        ladder = self._ladders[key]
        rung = ladder.rung
        model = self._model(endpoint, request.model, rung)
        library_request = convert(endpoint, model, request, rung)
        answer = StreamedReply()
        notes = [*endpoint.notes, *library_request.notes]
        listener = _Listener(on_text, self.redactor, notes)
        formatted = request.schema is not None and not ladder.last and not ladder.proven
        try:
            await read(
                model, library_request, request, answer, exchange=exchange, on_text=listener.send
            )
            listener.end()
            notes += exchange.notes
            reply = reply_of(answer, endpoint, request, rung, tuple(notes))
        except Exception as error:  # no endpoint may raise another error
            what = f"{request.provider}/{request.model}"
            failure = translate(error, exchange, what, formatted=formatted)
            # The most frequent first error: Ollama is not running.
            if failure.reason == "unreachable" and is_loopback_name(endpoint.host):
                where = origin_of(endpoint.base_url)
                failure.reason = NOT_RUNNING
                failure.args = (
                    f"{what}: no server answers at {where}; start it, or give base_url",
                )
            failure.partial = failure.partial or answer.text
            failure.usage = failure.usage or answer.usage()
            if request.schema is not None and (
                failure.reason == "format_unsupported" or failure.kind == "malformed"
            ):
                ladder.failed(rung)
            # The chain of a foreign exception may hold the request, and with it the input.
            raise failure from None
        if reply.data is not None:
            ladder.proven = True
        return reply

    def _model(self, endpoint: Endpoint, name: str, rung: str) -> AnyModel:
        # A closed loop may stay alive in a reference cycle, and with it its connections.
        for loop in [loop for loop in self._sessions if loop.is_closed()]:
            del self._sessions[loop]
        session = self._sessions.setdefault(asyncio.get_running_loop(), _Session())
        key = (endpoint, name, rung)
        if key not in session.models:
            if endpoint not in session.clients:
                # A plain http endpoint needs no certificates: an empty context is cheap and fails safe.
                tls = self.trusted or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                transport = Transport(endpoint, self._allowed, tls, self._max_bytes)
                session.clients[endpoint] = httpx2.AsyncClient(
                    transport=transport, timeout=None, follow_redirects=False, trust_env=False
                )
            session.models[key] = build(endpoint, name, session.clients[endpoint], rung)
        return session.models[key]


class _Listener:
    """Sends text to the caller without secrets; a failure of the caller is a note."""

    def __init__(
        self, on_text: Callable[[str], None] | None, redactor: Redactor, notes: list[str]
    ) -> None:
        self._on_text = on_text
        self._filter = redactor.streamed()
        self._notes = notes

    def send(self, piece: str) -> None:
        if self._on_text is not None:
            self._pass_on(self._filter.feed(piece))

    def end(self) -> None:
        if self._on_text is not None:
            self._pass_on(self._filter.flush())

    def _pass_on(self, text: str) -> None:
        if not text or self._on_text is None:
            return
        try:
            self._on_text(text)
        except Exception as error:  # a listener must not change the call
            self._on_text = None
            self._notes.append(f"listener_failed: a listener to the text failed: {error}")


# Of one call: a count beyond it is an error of the server, and would break sums.
MAX_TOKENS = 10**12
# Finish reasons of servers that stopped in the middle; the library reads an unknown one as "stop".
_BROKEN = frozenset({"error", "abort", "aborted", "cancelled", "failed", "timeout"})


@dataclass
class StreamedReply:
    """The part of one reply that has arrived."""

    pieces: list[str] = field(default_factory=list)
    stream: StreamedResponse | None = None
    response: ModelResponse | None = None

    @property
    def text(self) -> str:
        """The text that has arrived."""
        return "".join(self.pieces)

    def usage(self) -> Usage:
        """Return the usage that the endpoint has reported."""
        return NOTHING if self.stream is None else _usage(self.stream.usage, 0)


async def read(
    model: AnyModel,
    library_request: LibraryRequest,
    request: Request,
    answer: StreamedReply,
    exchange: ResponseTrace,
    on_text: Callable[[str], None],
) -> None:
    """Send a request and read its stream into `answer`, under the request's timers.

    Raises:
        ModelError: of kind unknown_outcome if a timer ran out; other exceptions are the library's.
    """
    timers, now = request.timeouts, asyncio.get_running_loop().time
    # The limit for the reply holds even if pieces arrive until it passes.
    last = now() + timers.whole
    try:
        async with asyncio.timeout_at(min(now() + timers.first_byte, last)) as scope:
            async with model_request_stream(
                model, library_request.messages, model_settings=library_request.settings,
                model_request_parameters=library_request.parameters, instrument=False,
            ) as stream:  # fmt: skip
                answer.stream = stream
                called = 0
                exchange.began = True
                scope.reschedule(min(now() + timers.idle, last))
                async for event in stream:
                    # Checked for each part, because the library compares a new part with all parts before it.
                    called += isinstance(event, PartStartEvent) and isinstance(
                        event.part, ToolCallPart
                    )
                    if called > request.max_tool_calls:
                        raise too_many_calls(request, called)
                    piece, content = _content(event)
                    if piece:
                        answer.pieces.append(piece)
                        on_text(piece)
                    if content:
                        scope.reschedule(min(now() + timers.idle, last))
                answer.response = stream.get()
    # The library or the SDK may raise TimeoutError for a reason of its own.
    except TimeoutError:
        if not scope.expired():
            raise
        raise _late(request, exchange, answer, now() >= last) from None


def _late(
    request: Request, exchange: ResponseTrace, answer: StreamedReply, whole: bool
) -> ModelError:
    what = f"{request.provider}/{request.model}"
    if exchange.status >= 300:  # the endpoint reported an error and then stalled
        return from_status(EndpointStatus(exchange.status, headers=exchange.headers), what)
    timers = request.timeouts
    if whole:
        reason, detail = "call_timeout", f"took longer than {timers.whole:g} s"
    elif exchange.began:
        reason, detail = "idle_timeout", f"wrote nothing for {timers.idle:g} s"
    else:
        reason, detail = "first_byte_timeout", f"did not begin within {timers.first_byte:g} s"
    return ModelError(
        f"{what} {detail}; {len(answer.text)} characters had arrived",
        kind="unknown_outcome",
        reason=reason,
    )


def _content(event: object) -> tuple[str, bool]:
    """Return the text of an event, and whether the event has any content."""
    if isinstance(event, PartStartEvent):
        part = event.part
        text = part.content if isinstance(part, TextPart) else ""
        silent = isinstance(part, TextPart | ThinkingPart) and not part.has_content()
        return text, bool(text) or not silent
    if isinstance(event, PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, TextPartDelta):
            return delta.content_delta, bool(delta.content_delta)
        return "", bool(getattr(delta, "content_delta", None) or getattr(delta, "args_delta", None))
    return "", False


class _Failed(Protocol):
    """Returns an error of the call, with the text and the usage of the reply."""

    def __call__(
        self,
        kind: str,
        detail: str,
        *,
        reason: str = "",
        billed: Billed | None = None,
        problem: str = "",
    ) -> ModelError: ...


def reply_of(
    answer: StreamedReply, endpoint: Endpoint, request: Request, rung: str, notes: tuple[str, ...]
) -> Reply:
    """Return the reply of a finished stream.

    Raises:
        ModelError: if it is truncated, refused, empty, or not in the requested format.
    """
    response = answer.response
    assert response is not None
    what = f"{request.provider}/{request.model}"
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    usage = _usage(response.usage, tokens_at_most(text), request)

    def failed(
        kind: str,
        detail: str,
        *,
        reason: str = "",
        billed: Billed | None = None,
        problem: str = "",
    ) -> ModelError:
        return ModelError(
            f"{what} {detail}", kind=kind, usage=usage, partial=text, reason=reason,
            billed=billed, problem=problem,
        )  # fmt: skip

    _check_end(response, endpoint, failed)
    truncated = response.finish_reason == "length"
    calls = _calls(response, failed) if not truncated else []
    data: Json = None
    if request.schema is not None and rung == "tool" and not truncated:
        data, calls = _answered(calls, request, failed)
    thinking = "".join(p.content for p in response.parts if isinstance(p, ThinkingPart))
    reply = Reply(
        text=text,
        data=data,
        usage=usage,
        finish="length" if truncated else "tool_calls" if calls else "stop",
        model=response.model_name or request.model,
        provider=endpoint.provider,
        tool_calls=tuple(calls),
        parts=dump_parts(response),
        warnings=notes,
        thinking=thinking,
    )
    return received(reply, request)


def _check_end(response: ModelResponse, endpoint: Endpoint, failed: _Failed) -> None:
    """Refuse a reply without a finish reason, or with one that means it is incomplete."""
    details = response.provider_details or {}
    raw = details.get("finish_reason")
    reason = response.finish_reason
    # A refusal ends the reply normally, so it must be checked before incomplete replies.
    if reason == "content_filter":
        refusal = details.get("refusal")
        why = f": {cut(refusal, 200)}" if isinstance(refusal, str) and refusal else ""
        raise failed("refused", f"refused to answer{why}", reason="content_filter")
    if reason == "error" or str(raw).lower() in _BROKEN:
        detail = f"broke its reply off ({raw})"
        raise failed("transient", detail, reason="stream_incomplete", billed="maybe")
    # For Chat Completions the library reads a missing finish reason as "stop". It may also mean a lost connection.
    if not (raw if endpoint.api == "chat" else raw or reason) or response.state == "suspended":
        detail = "ended its stream without a finish reason: the reply may be incomplete"
        raise failed("transient", detail, reason="stream_incomplete", billed="maybe")


def _calls(response: ModelResponse, failed: _Failed) -> list[ToolCall]:
    calls = []
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            arguments: Json = part.args if part.args is not None else {}
            problem = ""
            if isinstance(arguments, str):
                # Some servers send an empty text for a call without arguments.
                reading = read_json(arguments if arguments.strip() else "{}")
                arguments, problem = reading.value, reading.detail
            if problem or not isinstance(arguments, dict):
                problem = problem or "they are not a JSON object"
                detail = f"the arguments of {part.tool_name!r} cannot be read: {problem}"
                advice = f"{detail[0].upper()}{detail[1:]}. Call it again, with one JSON object."
                raise failed("malformed", f"called a tool wrongly: {detail}", problem=advice)
            calls.append(ToolCall(part.tool_call_id, part.tool_name, codec.normalise(arguments)))
    return calls


def _answered(
    calls: list[ToolCall], request: Request, failed: _Failed
) -> tuple[Json, list[ToolCall]]:
    """Return the value of the call that gives the answer, and the calls of other tools."""
    answers = [c for c in calls if c.name == request.schema_name]
    others = [c for c in calls if c not in answers]
    if not answers:
        return None, others
    text = codec.encode(answers[0].arguments)
    reading = read_value(text, request.schema or {}, strict=request.strict)
    # A model may call the answer tool several times; of different values none is certain.
    if any(codec.canonical(c.arguments) != codec.canonical(answers[0].arguments) for c in answers):
        reading = several(len(answers))
    if reading.problem and request.text_field:
        reading = read_loosely(text, request.text_field, reading.failure)
    if reading.problem:
        detail = f"did not answer in the format: {reading.failure}"
        error = failed("malformed", detail, problem=reading.complaint)
        error.partial = error.partial or text
        raise error
    return codec.normalise(reading.value), others


def _usage(reported: RequestUsage, output_bound: int, request: Request | None = None) -> Usage:
    """Return the reported usage; with a request, missing counts are estimated at their upper bound."""
    told = (getattr(reported, name, 0) for name in ("input_tokens", "output_tokens"))
    counts = [min(MAX_TOKENS, n) if isinstance(n, int) and n > 0 else 0 for n in told]
    if request is None:
        return Usage(1, counts[0], counts[1]) if any(counts) else NOTHING
    bounds = (input_at_most(request), output_bound)
    missing = not counts[0] or (not counts[1] and output_bound > 0)
    if not missing and not getattr(reported, "unmeasured_requests", 0):
        return Usage(1, counts[0], counts[1])
    upper = [max(count, bound) for count, bound in zip(counts, bounds, strict=True)]
    return Usage(1, upper[0], upper[1], estimated=1)
