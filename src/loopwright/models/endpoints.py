"""Where a model is reached: providers, their origins, and which key may go where.

Rules:

1. A key belongs to its provider's own origin. A `base_url` of one's own gets the key that
   `api_key_env` names, or none; a provider's key by name never goes elsewhere.
2. Keys are handed in as a mapping; nothing here reads the environment.
3. A key travels over https, or to this machine.
4. What is not OpenAI itself is spoken to in Chat Completions.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from ..errors import ConfigurationError, nearest
from .errors import ModelError
from .protocol import Request

__all__ = [
    "ALIASES",
    "PLACES",
    "PROVIDERS",
    "PROVIDER_NAMES",
    "Allowed",
    "Endpoint",
    "Provider",
    "endpoint_of",
    "is_loopback_name",
    "is_own_address",
    "origin_of",
    "owner_of",
    "resolve",
]

Api = Literal["responses", "chat", "anthropic", "gemini", "vertex", "bedrock"]


@dataclass(frozen=True, slots=True)
class Provider:
    """A kind of endpoint: its own address, what it speaks, and the names its key may have.

    In `base_url` stands `{NAME}` for what the environment says under one of `places`, or else `place`;
    `signed` says that its library signs requests itself where there is no key.
    """

    name: str
    base_url: str = ""
    api: Api = "chat"
    keys: tuple[str, ...] = ()
    path: str = "/v1"
    places: tuple[str, ...] = ()
    place: str = ""
    signed: bool = False

    def address(self, places: Mapping[str, str]) -> str:
        """Return its own address, "" if it has none.

        Raises:
            ConfigurationError: if the environment does not say where it is.
        """
        if not self.places:
            return self.base_url
        found = next((places[n].strip() for n in self.places if places.get(n, "").strip()), "")
        if not found and not self.place:
            names = " or ".join(self.places)
            raise ConfigurationError(
                f"{self.name}: nothing says where it is; set {names} in the environment, or give model_url"
            )
        return self.base_url.replace("{PLACE}", found or self.place).rstrip("/")


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
        Provider("openrouter", "https://openrouter.ai/api/v1", keys=("OPENROUTER_API_KEY",)),
        Provider("groq", "https://api.groq.com/openai/v1", keys=("GROQ_API_KEY",)),
        Provider("mistral", "https://api.mistral.ai/v1", keys=("MISTRAL_API_KEY",)),
        Provider("xai", "https://api.x.ai/v1", keys=("XAI_API_KEY",)),
        Provider("together", "https://api.together.xyz/v1", keys=("TOGETHER_API_KEY",)),
        Provider(
            "moonshot",
            "https://api.moonshot.ai/v1",
            keys=("MOONSHOTAI_API_KEY", "MOONSHOT_API_KEY"),
        ),
        Provider(
            "azure",
            "{PLACE}",
            keys=("AZURE_OPENAI_API_KEY",),
            path="/openai/v1",
            places=("AZURE_OPENAI_ENDPOINT",),
        ),
        Provider(
            name="bedrock",
            base_url="https://bedrock-runtime.{PLACE}.amazonaws.com",
            api="bedrock",
            keys=("AWS_BEARER_TOKEN_BEDROCK",),
            path="",
            places=("AWS_REGION", "AWS_DEFAULT_REGION"),
            signed=True,
        ),
        Provider(
            name="vertex",
            base_url="https://{PLACE}-aiplatform.googleapis.com",
            api="vertex",
            keys=(),
            path="",
            places=("GOOGLE_CLOUD_LOCATION",),
            place="us-central1",
            signed=True,
        ),
        Provider("ollama", "http://localhost:11434/v1"),
        Provider("lm_studio", "http://localhost:1234/v1"),
        Provider("openai_compatible"),
    )
}
ALIASES = {
    "google": "gemini", "lmstudio": "lm_studio", "openai-compatible": "openai_compatible", "moonshotai": "moonshot",
    "google-vertex": "vertex", "google-cloud": "vertex", "aws-bedrock": "bedrock", "azure-openai": "azure",
}  # fmt: skip
PROVIDER_NAMES = (*PROVIDERS, *ALIASES)
# The names under which the environment says where providers are; they are no secrets.
PLACES = (*(name for p in PROVIDERS.values() for name in p.places), "GOOGLE_CLOUD_PROJECT")
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
    project: str = ""

    @property
    def host(self) -> str:
        """The host that it names."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def origin(self) -> str:
        """Scheme, host and port, by which two addresses are the same or not."""
        return _origin(self.base_url)


def endpoint_of(
    request: Request, keys: Mapping[str, str], places: Mapping[str, str] | None = None
) -> Endpoint:
    """Return where a request goes, and the key from `keys` (by name) that may go with it.

    `places` are what the environment says of where providers are, by name: see `PLACES`.

    Raises:
        ConfigurationError: for an unknown provider, an address that cannot be, or a key that is
            missing or belongs elsewhere.
    """
    name = ALIASES.get(request.provider, request.provider)
    provider = PROVIDERS.get(name)
    if provider is None:
        hint = nearest(name, PROVIDERS) or f"; use one of {', '.join(PROVIDERS)}"
        raise ConfigurationError(f"provider: {request.provider!r} is unknown{hint}")
    places = places or {}
    if not request.base_url and not provider.base_url:
        raise ConfigurationError(f"model_url: {name} has no address of its own; give model_url")
    notes: list[str] = []
    given = request.base_url or provider.address(places)
    base_url = given
    if request.base_url or provider.base_url == "{PLACE}":
        base_url = _address(given, provider, notes if request.base_url else [])
    own = bool(provider.base_url) and _own_origin(provider, places) == _origin(base_url)
    if name == "openai" and not own:
        provider = PROVIDERS["openai_compatible"]
    key, account = _key(request, provider, base_url=base_url, own=own, keys=keys, places=places)
    project = places.get("GOOGLE_CLOUD_PROJECT", "") if provider.api == "vertex" else ""
    return Endpoint(
        provider=provider.name,
        api=provider.api,
        base_url=base_url,
        own=own,
        key=key,
        account=account,
        notes=tuple(notes),
        project=project,
    )


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
    request: Request,
    provider: Provider,
    base_url: str,
    own: bool,
    keys: Mapping[str, str],
    places: Mapping[str, str],
) -> tuple[str, str]:
    """Return the key that may go to an address, and the name it was found by."""
    named = request.api_key_env
    owner = _OWNERS.get(named)
    if owner is not None and _own_origin(owner, places) != _origin(base_url):
        raise ConfigurationError(
            f"api_key_env: {named} belongs to {_own_origin(owner, places) or owner.name} and is not sent to "
            f"{_origin(base_url)}; put that endpoint's key under a name of its own"
        )
    names = (named,) if named else provider.keys if own else ()
    found = next((name for name in names if keys.get(name, "").strip()), "")
    if names and not found and not (provider.signed and not named):
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


def _own_origin(provider: Provider, places: Mapping[str, str]) -> str:
    """Return the origin of a provider's own address, "" if nothing says what it is."""
    try:
        found = provider.address(places)
    except ConfigurationError:
        return ""
    return _origin(found) if found else ""


def _origin(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{(parts.hostname or '').lower().rstrip('.')}:{port}"


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address as people write them, by which a key's place is known."""
    try:
        return _origin(url.strip()).removesuffix(
            ":443" if url.strip().startswith("https") else ":80"
        )
    except ValueError:
        return url


def owner_of(key: str) -> Provider | None:
    """Return the provider that a key of this name belongs to: it goes nowhere else."""
    return _OWNERS.get(key)


def is_own_address(request: Request) -> bool:
    """Whether a request goes to its provider's own origin, where known prices hold."""
    name = ALIASES.get(request.provider, request.provider)
    provider = PROVIDERS.get(name)
    if provider is None or not request.base_url:
        return True
    try:
        return _origin(request.base_url) == _own_origin(provider, {})
    except ValueError:
        return False


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Public addresses that answer with a cloud machine's own credentials.
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16"), ipaddress.ip_address("192.0.0.192")})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Allowed:
    """Hosts and networks that may be called although they are not public.

    Each is a host name, an address, or a network such as `10.0.0.0/8`.

    Raises:
        ConfigurationError: for an entry that is none of these.
    """

    __slots__ = ("hosts", "networks")

    def __init__(self, entries: Iterable[str] = ()) -> None:
        hosts: set[str] = set()
        networks: list[Network] = []
        for entry in entries:
            text = entry.strip().lower().rstrip(".")
            try:
                networks.append(ipaddress.ip_network(text))
            except ValueError:
                if not text or "/" in text or ":" in text or "*" in text:
                    raise ConfigurationError(
                        f"allowed hosts: {entry!r} is no host, address or network; give one such "
                        "as ollama.internal, 192.168.1.20 or 10.0.0.0/8"
                    ) from None
                hosts.add(text)
        self.hosts = frozenset(hosts)
        self.networks = tuple(networks)

    def refusal(self, host: str, address: str) -> str:
        """Return why `address`, which `host` led to, must not be called, or ""."""
        try:
            found = _plain(ipaddress.ip_address(address.split("%")[0]))
        except ValueError:
            return f"{address!r} is not an address"
        if host.lower().rstrip(".") in self.hosts or any(found in net for net in self.networks):
            return ""
        if found.is_loopback:
            return "" if is_loopback_name(host) else f"{found} is this machine under another name"
        if found in _METADATA or found.is_link_local:
            return f"{found} is a link-local or metadata address"
        if found.is_multicast or found.is_unspecified or not found.is_global:
            return f"{found} is a private or reserved address"
        return ""


def _plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
    if inner:
        return inner
    if address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_loopback_name(host: str) -> bool:
    """Whether a URL's host says by itself that it is this machine."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


async def resolve(host: str, port: int, allowed: Allowed) -> list[str]:
    """Return the addresses of a host, all of which may be called.

    Raises:
        ModelError: permanent with reason `address_refused` if one of them may not; OSError is the
            name server's.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    for address in addresses:
        if why := allowed.refusal(host, address):
            raise ModelError(
                f"model_url: {host} is refused: {why}; allow the host explicitly if it is meant",
                kind="permanent",
                reason="address_refused",
            )
    return addresses
