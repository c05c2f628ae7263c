"""Where a request goes, and which key goes with it."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright.errors import ConfigurationError
from loopwright.models import Message, Request, endpoint_of

KEYS = {
    "OPENAI_API_KEY": "sk-openai-canary", "DEEPSEEK_API_KEY": "sk-deepseek-canary",
    "ANTHROPIC_API_KEY": "sk-ant-canary", "GOOGLE_API_KEY": "AIza-canary", "MY_KEY": "my-own-canary",
    "BAD_KEY": "line\nbreak-in-key",
}  # fmt: skip


def ask(provider: str, url: str = "", key: str = "") -> Request:
    return Request((Message("user", "x"),), "m", provider, base_url=url, api_key_env=key)


@pytest.mark.parametrize(
    ("provider", "url", "key", "api", "base", "sent"),
    [
        ("openai", "", "", "responses", "https://api.openai.com/v1", "sk-openai-canary"),
        ("openai", "", "MY_KEY", "responses", "https://api.openai.com/v1", "my-own-canary"),
        ("openai", "https://api.openai.com/v1", "", "responses", "https://api.openai.com/v1", "sk-openai-canary"),
        ("openai", "https://API.openai.com:443/v1/", "", "responses", "https://api.openai.com:443/v1",
         "sk-openai-canary"),
        ("openai", "https://gateway.example/v1", "", "chat", "https://gateway.example/v1", ""),
        ("openai", "https://gateway.example/v1", "MY_KEY", "chat", "https://gateway.example/v1", "my-own-canary"),
        ("openai", "http://localhost:1234", "", "chat", "http://localhost:1234/v1", ""),
        ("openai", "https://api.openai.com.evil.example/v1", "", "chat", "https://api.openai.com.evil.example/v1", ""),
        ("openai", "http://api.openai.com/v1", "", "chat", "http://api.openai.com/v1", ""),
        ("deepseek", "", "", "chat", "https://api.deepseek.com", "sk-deepseek-canary"),
        ("deepseek", "https://proxy.example", "", "chat", "https://proxy.example", ""),
        ("anthropic", "", "", "anthropic", "https://api.anthropic.com", "sk-ant-canary"),
        ("anthropic", "https://proxy.example", "MY_KEY", "anthropic", "https://proxy.example", "my-own-canary"),
        ("gemini", "", "", "gemini", "https://generativelanguage.googleapis.com", "AIza-canary"),
        ("google", "", "", "gemini", "https://generativelanguage.googleapis.com", "AIza-canary"),
        ("ollama", "", "", "chat", "http://localhost:11434/v1", ""),
        ("lm_studio", "", "", "chat", "http://localhost:1234/v1", ""),
        ("lm_studio", "http://localhost:1234/v1", "", "chat", "http://localhost:1234/v1", ""),
        ("ollama", "http://127.0.0.1:11434/api/generate", "", "chat", "http://127.0.0.1:11434/v1", ""),
        ("openai_compatible", "http://[::1]:8000", "MY_KEY", "chat", "http://[::1]:8000/v1", "my-own-canary"),
        ("openai_compatible", "https://host.example/api/v1/chat/completions", "", "chat", "https://host.example/api/v1",
         ""),
        ("openai_compatible", "https://host.example/openai/", "", "chat", "https://host.example/openai", ""),
    ],
)  # fmt: skip
def test_a_key_goes_to_its_own_origin(
    provider: str, url: str, key: str, api: str, base: str, sent: str
) -> None:
    """A provider's key goes to the provider only; elsewhere goes the key that was named, or none."""
    found = endpoint_of(ask(provider, url, key), KEYS)
    assert (found.api, found.base_url, found.key) == (api, base, sent)


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ("http://localhost:1234", None),
        ("http://localhost:1234/", None),
        ("http://localhost:1234/v1/chat/completions", "address_changed: model_url http://localhost:1234/v1/chat/completions is used as http://localhost:1234/v1"),
        ("http://localhost:1234/v1", None),
        ("http://localhost:1234/v1/", None),
        ("http://localhost:1234/custom", None),
    ],
)  # fmt: skip
def test_v1_is_added_once_and_said(given: str, note: str | None) -> None:
    """An address without a path gets /v1, as documented; a remark names an address that loses a part."""
    assert endpoint_of(ask("lm_studio", given), {}).notes == ((note,) if note else ())


@pytest.mark.parametrize(
    ("provider", "url", "key", "message"),
    [
        ("opnai", "", "", "provider: 'opnai' is unknown; did you mean 'openai'?"),
        ("zzz", "", "",
         ("provider: 'zzz' is unknown; use one of openai, deepseek, anthropic, gemini, openrouter, groq, mistral, "
         "xai, together, moonshot, azure, bedrock, vertex, alibaba, "
         "cerebras, crusoe, fireworks, meta, nebius, ovhcloud, sambanova, vercel, zai, ollama, lm_studio, llama_cpp, vllm, openai_compatible")),
        ("openai_compatible", "", "", "model_url: openai_compatible has no default address; give model_url"),
        ("ollama", "localhost:11434", "",
         "model_url: 'localhost:11434' is not an address; give one such as http://localhost:1234/v1"),
        ("ollama", "ftp://localhost/x", "",
         "model_url: 'ftp://localhost/x' is not an address; give one such as http://localhost:1234/v1"),
        ("ollama", "file:///etc/passwd", "",
         "model_url: 'file:///etc/passwd' is not an address; give one such as http://localhost:1234/v1"),
        ("ollama", "http://", "", "model_url: 'http://' is not an address; give one such as http://localhost:1234/v1"),
        ("ollama", "http://localhost:99999", "",
         "model_url: 'http://localhost:99999' is not an address: Port out of range 0-65535"),
        ("ollama", "http://[::1", "", "model_url: 'http://[::1' is not an address: Invalid IPv6 URL"),
        ("ollama", "http://me:secret@localhost", "", "model_url: contains a user or password; use api_key_env instead"),
        ("ollama", "http://localhost?key=1", "",
         "model_url: 'http://localhost?key=1' has a query or fragment; leave it out"),
        ("openai", "https://evil.example", "OPENAI_API_KEY",
         ("api_key_env: OPENAI_API_KEY belongs to https://api.openai.com:443 and is not sent to "
         "https://evil.example:443; use another environment variable for the key of that endpoint")),
        ("ollama", "http://localhost:1", "ANTHROPIC_API_KEY",
         ("api_key_env: ANTHROPIC_API_KEY belongs to https://api.anthropic.com:443 and is not sent to "
         "http://localhost:1; use another environment variable for the key of that endpoint")),
        ("openai", "https://x.example", "NO_SUCH",
         "openai_compatible: there is no key; set NO_SUCH in the environment"),
        ("openai", "http://x.example", "MY_KEY",
         "model_url: http://x.example/v1 would send the key MY_KEY unencrypted; use https"),
        ("openai", "https://x.example", "BAD_KEY", "BAD_KEY: the key has characters that are invalid in a header"),
    ],
)  # fmt: skip
def test_an_endpoint_that_cannot_be_is_refused(
    provider: str, url: str, key: str, message: str
) -> None:
    """The message names the field, the value and what to do, and never a key."""
    with pytest.raises(ConfigurationError) as caught:
        endpoint_of(ask(provider, url, key), KEYS)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("provider", "names"),
    [("openai", "OPENAI_API_KEY"), ("gemini", "GEMINI_API_KEY or GOOGLE_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")],
)  # fmt: skip
@pytest.mark.parametrize(
    "keys", [{}, {"OPENAI_API_KEY": " ", "GOOGLE_API_KEY": "", "ANTHROPIC_API_KEY": "\t"}]
)
def test_a_missing_key_is_named(provider: str, names: str, keys: dict[str, str]) -> None:
    """Without a key, or with an empty one, the message names the variable to set."""
    with pytest.raises(ConfigurationError) as caught:
        endpoint_of(ask(provider), keys)
    assert str(caught.value) == (
        f"{provider}: there is no key; set {names} in the environment, "
        "or give base_url for a server of your own"
    )


def test_a_key_is_not_in_a_repr() -> None:
    """What is printed of an endpoint does not show its key."""
    found: Any = endpoint_of(ask("openai"), KEYS)
    assert "canary" not in repr(found)
