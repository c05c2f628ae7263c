"""Where a model is reached: providers, their origins, and which key may go where.

Rules:

1. A key belongs to its provider's own origin. A `base_url` of one's own gets the key that
   `api_key_env` names, or none; a provider's key by name never goes elsewhere.
2. Keys are handed in as a mapping; nothing here reads the environment.
3. A key travels over https, or to this machine.
4. What is not OpenAI itself is spoken to in Chat Completions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from ..errors import ConfigurationError, nearest
from .addresses import is_loopback_name
from .protocol import Request

__all__ = ["PROVIDERS", "PROVIDER_NAMES", "Endpoint", "Provider", "endpoint_of", "is_own_address"]

Api = Literal["responses", "chat", "anthropic", "gemini"]


@dataclass(frozen=True, slots=True)
class Provider:
    """A kind of endpoint: its own address, what it speaks, and the names its key may have."""

    name: str
    base_url: str = ""
    api: Api = "chat"
    keys: tuple[str, ...] = ()
    path: str = "/v1"


PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider("openai", "https://api.openai.com/v1", "responses", ("OPENAI_API_KEY",)),
        Provider("deepseek", "https://api.deepseek.com", "chat", ("DEEPSEEK_API_KEY",), ""),
        Provider("anthropic", "https://api.anthropic.com", "anthropic", ("ANTHROPIC_API_KEY",), ""),
        Provider(
            "gemini",
            "https://generativelanguage.googleapis.com",
            "gemini",
            ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            "",
        ),
        Provider("ollama", "http://localhost:11434/v1"),
        Provider("lm_studio", "http://localhost:1234/v1"),
        Provider("openai_compatible"),
    )
}
_ALIASES = {"google": "gemini", "lmstudio": "lm_studio", "openai-compatible": "openai_compatible"}
PROVIDER_NAMES = (*PROVIDERS, *_ALIASES)
_OWNERS = {key: provider for provider in PROVIDERS.values() for key in provider.keys}
_TAILS = ("/chat/completions", "/completions", "/api/generate", "/api/chat", "/api")


@dataclass(frozen=True)
class Endpoint:
    """One address that speaks one API, with the key that may go there; `notes` are for people.

    `own` says that it is the provider's own origin: only there its prices and profiles hold.
    """

    provider: str
    api: Api
    base_url: str
    own: bool
    key: str = field(default="", repr=False)
    account: str = ""
    notes: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """The host that it names."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def origin(self) -> str:
        """Scheme, host and port, by which two addresses are the same or not."""
        return _origin(self.base_url)


def endpoint_of(request: Request, keys: Mapping[str, str]) -> Endpoint:
    """Return where a request goes, and the key from `keys` (by name) that may go with it.

    Raises:
        ConfigurationError: for an unknown provider, an address that cannot be, or a key that is
            missing or belongs elsewhere.
    """
    name = _ALIASES.get(request.provider, request.provider)
    provider = PROVIDERS.get(name)
    if provider is None:
        hint = nearest(name, PROVIDERS) or f"; use one of {', '.join(PROVIDERS)}"
        raise ConfigurationError(f"provider: {request.provider!r} is unknown{hint}")
    if not request.base_url and not provider.base_url:
        raise ConfigurationError(f"model_url: {name} has no address of its own; give model_url")
    notes: list[str] = []
    base_url = (
        _address(request.base_url, provider, notes) if request.base_url else provider.base_url
    )
    own = bool(provider.base_url) and _origin(base_url) == _origin(provider.base_url)
    if name == "openai" and not own:
        provider = PROVIDERS["openai_compatible"]
    key, account = _key(request, provider, base_url, own, keys)
    return Endpoint(provider.name, provider.api, base_url, own, key, account, tuple(notes))


def _address(given: str, provider: Provider, notes: list[str]) -> str:
    """Return the base address that a model_url means."""
    try:
        parts = urlsplit(given.strip())
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"model_url: {given!r} is no address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"model_url: {given!r} is no address; give one such as http://localhost:1234/v1"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("model_url: has a user or password in it; name a key instead")
    if parts.query or parts.fragment:
        raise ConfigurationError(f"model_url: {given!r} has a query or fragment; leave it out")
    path = parts.path.rstrip("/")
    shown = path
    for tail in _TAILS:
        if provider.api in ("chat", "responses") and path.endswith(tail):
            path = path.removesuffix(tail)
            break
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    base = f"{parts.scheme}://{host}" + (f":{port}" if port else "") + (path or provider.path)
    if (path or provider.path) != shown:
        notes.append(f"model_url {given.strip()} is used as {base}")
    return base


def _key(
    request: Request, provider: Provider, base_url: str, own: bool, keys: Mapping[str, str]
) -> tuple[str, str]:
    """Return the key that may go to an address, and the name it was found by."""
    named = request.api_key_env
    owner = _OWNERS.get(named)
    if owner is not None and _origin(owner.base_url) != _origin(base_url):
        raise ConfigurationError(
            f"api_key_env: {named} belongs to {_origin(owner.base_url)} and is not sent to "
            f"{_origin(base_url)}; put that endpoint's key under a name of its own"
        )
    names = (named,) if named else provider.keys if own else ()
    found = next((name for name in names if keys.get(name, "").strip()), "")
    if names and not found:
        raise ConfigurationError(
            f"{provider.name}: there is no key; set {' or '.join(names)} in the environment"
        )
    key = keys[found].strip() if found else ""
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigurationError(f"{found}: the key has characters that a header cannot carry")
    if (
        key
        and base_url.startswith("http:")
        and not is_loopback_name(urlsplit(base_url).hostname or "")
    ):
        raise ConfigurationError(
            f"model_url: {base_url} would carry the key {found} unencrypted; use https"
        )
    return key, found


def _origin(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{(parts.hostname or '').lower().rstrip('.')}:{port}"


def is_own_address(request: Request) -> bool:
    """Whether a request goes to its provider's own origin, where known prices hold."""
    name = _ALIASES.get(request.provider, request.provider)
    provider = PROVIDERS.get(name)
    if provider is None or not request.base_url:
        return True
    try:
        return _origin(request.base_url) == _origin(provider.base_url)
    except ValueError:
        return False
