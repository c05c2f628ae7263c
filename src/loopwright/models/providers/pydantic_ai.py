"""The client library behind `ProviderModel`: its models, messages and settings.

Importing it takes seconds, so it is imported for the first request of a real model.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import httpx2
from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model as LibraryModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from ...errors import ConfigurationError
from ...records.codec import Json
from ..protocol import Message, Request
from .endpoints import Endpoint

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["PARTS", "AnyModel", "LibraryRequest", "build", "convert", "dump_parts", "rungs"]

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
        ConfigurationError: for an extra setting that cannot be sent to the provider.
    """
    notes: list[str] = []
    settings = _settings(endpoint, model, request, notes)
    _check_files(endpoint, model, request)
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
    _add_effort(endpoint, model, request, settings, body)
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


def _add_effort(
    endpoint: Endpoint,
    model: AnyModel,
    request: Request,
    settings: dict[str, Json],
    body: dict[str, Json],
) -> None:
    """Add the reasoning effort in the form that the endpoint takes."""
    effort = request.extra.get("reasoning_effort")
    if effort is None:
        return
    if endpoint.api == "chat" and not _is_known(endpoint):
        body.setdefault("reasoning_effort", effort)  # another server gets it unchanged
    elif model.profile.get("supports_thinking", False):
        settings["thinking"] = False if effort == "none" else effort
    else:
        settings["reasoning_effort"] = effort  # removed by the caller, with a note


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


def _check_files(endpoint: Endpoint, model: AnyModel, request: Request) -> None:
    """Raise ConfigurationError for a file that the profile of the model says it cannot read."""
    for file in (file for message in request.messages for file in message.files):
        flag = next((f for start, f in _FILE_FLAGS if file.media_type.startswith(start)), "")
        what = f"{request.provider}:{request.model}"
        if flag and model.profile.get(flag) is False:
            raise ConfigurationError(
                f"files: {what} does not read {file.media_type}; use a model that does"
            )
        if file.url and endpoint.api not in _LOADS_URLS:
            raise ConfigurationError(
                f"files: {what} does not load {file.url:.200}; give the file by path or data="
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
        if message.role != "assistant":
            pending.append(_part(message, contents))
            continue
        if pending:
            converted.append(ModelRequest(parts=pending))
            pending = []
        converted.extend(_response(message))
    if pending:
        converted.append(ModelRequest(parts=pending))
    return converted


def _part(
    message: Message, contents: Mapping[str, bytes]
) -> SystemPromptPart | UserPromptPart | ToolReturnPart:
    if message.role == "system":
        return SystemPromptPart(content=message.content)
    if message.role == "tool":
        return ToolReturnPart(
            tool_name=message.name, content=message.content, tool_call_id=message.call_id
        )
    return UserPromptPart(content=_user_content(message, contents))


def _response(message: Message) -> list[ModelMessage]:
    recorded_messages = _load_parts(message.parts)
    if recorded_messages:
        return recorded_messages
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


def _load_parts(parts: Json) -> list[ModelMessage]:
    """Return the library's messages, or none if another version or model wrote them."""
    if not isinstance(parts, dict) or any(parts.get(key) != value for key, value in PARTS.items()):
        return []
    try:
        loaded = ModelMessagesTypeAdapter.validate_python(parts.get("messages"))
    except ValidationError:
        return []
    return loaded if all(isinstance(message, ModelResponse) for message in loaded) else []
