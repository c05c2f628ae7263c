"""The providers that there are: each is one that the client library knows, at its address and with its key."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

import pytest

from loopwright.errors import ConfigurationError, ModelError
from loopwright.models import PROVIDERS, Message, ProviderModel, Request, endpoint_of

# What the client library calls them, and where they differ from it.
LIBRARY = {
    "openai": "openai", "deepseek": "deepseek", "anthropic": "anthropic", "gemini": "google",
    "openrouter": "openrouter", "groq": "groq", "mistral": "mistral", "xai": "xai", "together": "together",
    "moonshot": "moonshotai", "azure": "azure", "bedrock": "bedrock", "vertex": "google_cloud", "ollama": "ollama",
    **{name: name for name in ("alibaba", "cerebras", "crusoe", "fireworks", "meta", "nebius", "ovhcloud",
                              "sambanova", "vercel", "vllm", "zai")},
}  # fmt: skip
OURS = {"lm_studio", "llama_cpp", "openai_compatible"}  # any server that speaks Chat Completions
# Providers of the library that Loopwright does not offer.
OTHERS = {
    "openai_codex",
    "openai_chatgpt",
    "github_copilot",  # a login of a person instead of a key
    "bedrock_mantle",
    "heroku",
    "snowflake",
    "litellm",
    "gateway",  # an address for each account
    "cohere",
    "huggingface",
    "typesafe",
    "system_one",
    "openai_decisions",  # an API of its own
    "github",  # retired
    "elevenlabs",
    "sentence_transformers",
    "voyageai",  # no text models
}
PLACES = {
    "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com",
    "AWS_REGION": "eu-central-1",
    "GOOGLE_CLOUD_LOCATION": "europe-west4",
    "GOOGLE_CLOUD_PROJECT": "mine",
}


def ask(provider: str, url: str = "", key: str = "") -> Request:
    return Request((Message("user", "x"),), "m", provider, base_url=url, api_key_env=key)


def source_of(name: str) -> str:
    """Return the text of the library's module for a provider, whether its package is installed or not."""
    package = importlib.import_module("pydantic_ai.providers")
    folder = next(iter(package.__path__))
    return Path(folder, f"{name}.py").read_text(encoding="utf-8")


def test_every_provider_is_one_of_the_client_library() -> None:
    """The list has nothing that the library does not support, but servers of one's own."""
    assert set(PROVIDERS) == {*LIBRARY, *OURS}
    for name in LIBRARY.values():
        assert "class" in source_of(name)


def test_every_provider_of_the_client_library_is_offered_or_listed_as_another() -> None:
    """A provider that a new version of the library adds is noticed here."""
    package = importlib.import_module("pydantic_ai.providers")
    modules = {m.name for m in pkgutil.iter_modules(package.__path__) if m.name[0] != "_"}
    offered = {"openai_compatible", *LIBRARY.values()}
    assert modules == offered | OTHERS
    assert not offered & OTHERS


@pytest.mark.parametrize("name", [n for n in LIBRARY if PROVIDERS[n].keys])
def test_keys_have_the_names_that_the_library_gives_them(name: str) -> None:
    """At least one of the names of a provider's key is the one that the library reads."""
    text = source_of(LIBRARY[name])
    if name == "bedrock":
        text += (
            inspect.getsource(importlib.import_module("pydantic_ai.providers"))
            + "AWS_BEARER_TOKEN_BEDROCK"
        )
    assert any(key in text for key in PROVIDERS[name].keys)


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in LIBRARY
        if PROVIDERS[n].api == "chat" and n not in ("azure", "mistral", "ollama", "vllm")
    ],
)
def test_addresses_are_those_of_the_library(name: str) -> None:
    """A provider's own address is the one that the library would call."""
    assert PROVIDERS[name].base_url.removesuffix("/openai/v1") in source_of(LIBRARY[name])


@pytest.mark.parametrize(
    ("provider", "base", "key"),
    [
        ("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        ("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        ("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        ("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
        ("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        ("moonshot", "https://api.moonshot.ai/v1", "MOONSHOTAI_API_KEY"),
        ("moonshotai", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
        ("azure", "https://mine.openai.azure.com/openai/v1", "AZURE_OPENAI_API_KEY"),
        ("bedrock", "https://bedrock-runtime.eu-central-1.amazonaws.com", "AWS_BEARER_TOKEN_BEDROCK"),
        ("bedrock", "https://bedrock-runtime.eu-central-1.amazonaws.com", ""),
        ("vertex", "https://europe-west4-aiplatform.googleapis.com", ""),
        ("google-vertex", "https://europe-west4-aiplatform.googleapis.com", ""),
    ],
)  # fmt: skip
def test_a_request_goes_to_the_providers_own_address_with_its_key(
    provider: str, base: str, key: str
) -> None:
    """The address is the provider's, or the one that the environment says, and the key its own."""
    found = endpoint_of(ask(provider), {key: "canary"} if key else {}, PLACES)
    assert (found.base_url, found.own, found.key) == (base, True, "canary" if key else "")


def test_without_its_key_a_provider_says_which_one() -> None:
    """A missing key is one sentence with the names that it may have."""
    with pytest.raises(ConfigurationError, match="set MOONSHOTAI_API_KEY or MOONSHOT_API_KEY"):
        endpoint_of(ask("moonshot"), {})


@pytest.mark.parametrize(
    ("provider", "names"),
    [("azure", "AZURE_OPENAI_ENDPOINT"), ("bedrock", "AWS_REGION or AWS_DEFAULT_REGION")],
)
def test_a_provider_whose_place_is_unknown_says_what_to_set(provider: str, names: str) -> None:
    """What only the environment knows is asked for by name."""
    with pytest.raises(ConfigurationError, match=f"the address is unknown; set {names}"):
        endpoint_of(ask(provider), {})


def test_a_key_of_a_placed_provider_goes_nowhere_else() -> None:
    """The key of one's own Azure resource is sent to that resource only."""
    keys = {"AZURE_OPENAI_API_KEY": "canary"}
    for url in ("https://other.openai.azure.com", "https://evil.example"):
        with pytest.raises(ConfigurationError, match="belongs to https://mine"):
            endpoint_of(ask("openai_compatible", url, "AZURE_OPENAI_API_KEY"), keys, PLACES)
        assert endpoint_of(ask("azure", url), keys, PLACES).key == ""


@pytest.mark.parametrize(
    ("provider", "modules", "install"),
    [
        (
            "bedrock",
            ["boto3", "pydantic_ai.providers.bedrock"],
            r"pip install 'loopwright\[models\]' 'pydantic-ai-slim\[bedrock\]'",
        ),
        (
            "vertex",
            ["google.genai", "pydantic_ai.providers.google_cloud"],
            r"pip install 'loopwright\[google\]'",
        ),
        (
            "anthropic",
            ["anthropic", "pydantic_ai.models.anthropic"],
            r"pip install 'loopwright\[anthropic\]'",
        ),
    ],
)
def test_a_missing_package_is_one_sentence(
    provider: str, modules: list[str], install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider whose package is not installed says what to install."""
    for module in modules:  # another test may have imported the library's own module
        monkeypatch.setitem(sys.modules, module, None)
    keys = {"ANTHROPIC_API_KEY": "canary"}
    with pytest.raises(ModelError, match=install):
        asyncio.run(ProviderModel(keys, places=PLACES).complete(ask(provider)))
