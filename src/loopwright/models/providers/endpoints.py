"""The models of all providers behind one protocol: their addresses, permitted networks, and the key of each.

Rules of addresses and keys:

1. A key belongs to the origin of its provider. Another `base_url` gets the key that `api_key_env` names, or
   none; a provider's key is never sent elsewhere.
2. Keys are passed as a mapping; this module does not read the environment.
3. A key is sent over https, or to this machine.
4. Every server except OpenAI gets Chat Completions, unless its provider has its own API.
5. A host name is resolved once, each of its addresses is checked, and the connection uses a checked
   address, so that a second answer of the name server has no effect.
6. Public addresses are permitted. This machine is permitted if the URL names it (localhost, 127.0.0.1,
   ::1). All others (private, link-local, metadata services, multicast, reserved) need an entry for the host
   or its network in the list of allowed hosts: a document must not reach inside a network.

Rules of `ProviderModel`:

1. The client library is imported in a thread for the first real request, and never before.
2. One `complete` is one request: the retries of the library and the SDK are off.
3. The format of structured output that an endpoint supports is determined once and remembered.
4. Every failure is a `ModelError`, and no text in it contains a key.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from ..._extras import needs
from ...engine.functions import in_thread
from ...errors import ConfigurationError, ModelError, nearest
from ...records.json_schema import check_schema
from ...records.redaction import Redactor
from ..errors import error_from_json
from ..protocol import Reply, Request

if TYPE_CHECKING:
    from .client import Requests

__all__ = [
    "ALIASES",
    "PLACES",
    "PROVIDERS",
    "PROVIDER_NAMES",
    "Allowed",
    "Endpoint",
    "Provider",
    "ProviderModel",
    "endpoint_of",
    "is_loopback_name",
    "is_own_address",
    "is_own_origin",
    "origin_of",
    "owner_of",
    "resolve",
]

Api = Literal["responses", "chat", "anthropic", "gemini", "vertex", "bedrock"]
# The extra that brings the client of an API; all others use `models`.
_EXTRAS = {"anthropic": "anthropic", "gemini": "google", "vertex": "google", "bedrock": "bedrock"}


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of models: its address, its API, and the environment variables of its key.

    Args:
        name: the name in `provider:model`.
        base_url: the address; `{PLACE}` in it is replaced by an environment variable. Default "".
        api: the API of the endpoint; default "chat" (Chat Completions).
        keys: environment variables that may hold the key; default none.
        path: the path added to an address without one; default "/v1".
        places: environment variables with the region or address; default none.
        place: the region without these variables; default "".
        signed: whether the provider's library signs requests without a key; default False.

    Example:

    >>> PROVIDERS["groq"].base_url
    'https://api.groq.com/openai/v1'
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
        """Return the provider's address, "" if it has none.

        Raises:
            ConfigurationError: if the environment variable with its address or region is missing.
        """
        if not self.places:
            return self.base_url
        place = next((places[n].strip() for n in self.places if places.get(n, "").strip()), "")
        if not place and not self.place:
            names = " or ".join(self.places)
            raise ConfigurationError(
                f"{self.name}: the address is unknown; set {names} in the environment, or give model_url"
            )
        return self.base_url.replace("{PLACE}", place or self.place).rstrip("/")


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
        Provider(
            "alibaba",
            "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
            keys=("ALIBABA_API_KEY", "DASHSCOPE_API_KEY"),
        ),
        Provider("cerebras", "https://api.cerebras.ai/v1", keys=("CEREBRAS_API_KEY",)),
        Provider("crusoe", "https://api.inference.crusoecloud.com/v1", keys=("CRUSOE_API_KEY",)),
        Provider("fireworks", "https://api.fireworks.ai/inference/v1", keys=("FIREWORKS_API_KEY",)),
        Provider("meta", "https://api.meta.ai/v1", keys=("META_API_KEY",)),
        Provider("nebius", "https://api.studio.nebius.com/v1", keys=("NEBIUS_API_KEY",)),
        Provider(
            "ovhcloud",
            "https://oai.endpoints.kepler.ai.cloud.ovh.net/v1",
            keys=("OVHCLOUD_API_KEY",),
        ),
        Provider("sambanova", "https://api.sambanova.ai/v1", keys=("SAMBANOVA_API_KEY",)),
        Provider(
            "vercel",
            "https://ai-gateway.vercel.sh/v1",
            keys=("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
        ),
        Provider("zai", "https://api.z.ai/api/paas/v4", keys=("ZAI_API_KEY",)),
        Provider("ollama", "http://localhost:11434/v1"),
        Provider("lm_studio", "http://localhost:1234/v1"),
        Provider("llama_cpp", "http://localhost:8080/v1"),
        Provider("vllm", "http://localhost:8000/v1"),
        Provider("openai_compatible"),
    )
}
ALIASES = {
    "google": "gemini", "lmstudio": "lm_studio", "llama-cpp": "llama_cpp",
    "openai-compatible": "openai_compatible", "moonshotai": "moonshot",
    "google-vertex": "vertex", "google-cloud": "vertex", "aws-bedrock": "bedrock", "azure-openai": "azure",
}  # fmt: skip
PROVIDER_NAMES = (*PROVIDERS, *ALIASES)
# The environment variables with addresses and regions of providers; they are not secret.
PLACES = (*(name for p in PROVIDERS.values() for name in p.places), "GOOGLE_CLOUD_PROJECT")
_OWNERS = {key: provider for provider in PROVIDERS.values() for key in provider.keys}
# Endings of addresses that people copy from examples of curl.
_TAILS = ("/chat/completions", "/completions", "/api/generate", "/api/chat", "/api")


@dataclass(frozen=True)
class Endpoint:
    """One address with its API and its key.

    Args:
        provider: the name of the provider.
        api: the API of the address.
        base_url: the address.
        own: whether it is the provider's own origin, where known prices and profiles apply.
        key: the key; default "": none. It is not shown.
        account: the environment variable of the key; default "".
        notes: remarks for people; default none.
        project: the project of a Google Cloud account; default "".

    Example:

    >>> Endpoint("ollama", "chat", "http://localhost:11434/v1", own=True).origin
    'http://localhost:11434'
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
    def extra(self) -> str:
        """The extra that brings the client of the API."""
        return _EXTRAS.get(self.api, "models")

    @property
    def host(self) -> str:
        """The host of the address."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return _origin(self.base_url)


def endpoint_of(
    request: Request, keys: Mapping[str, str], places: Mapping[str, str] | None = None
) -> Endpoint:
    """Return the address of a request and the key that may be sent there.

    Args:
        request: the request; `provider`, `base_url` and `api_key_env` count.
        keys: keys by the name of their environment variable.
        places: addresses and regions by environment variable, see `PLACES`; default none.

    Returns:
        The endpoint, with remarks about a changed address.

    Raises:
        ConfigurationError: for an unknown provider, an invalid address, or a key that is missing or
            belongs to another origin.

    Example:

    >>> from loopwright.models import Message
    >>> request = Request((Message("user", "hello"),), model="llama3.2", provider="ollama")
    >>> endpoint_of(request, {}).base_url
    'http://localhost:11434/v1'
    """
    name = ALIASES.get(request.provider, request.provider)
    provider = PROVIDERS.get(name)
    if provider is None:
        hint = nearest(name, PROVIDERS) or f"; use one of {', '.join(PROVIDERS)}"
        raise ConfigurationError(f"provider: {request.provider!r} is unknown{hint}")
    places = places or {}
    if not request.base_url and not provider.base_url:
        raise ConfigurationError(f"model_url: {name} has no default address; give model_url")
    notes: list[str] = []
    base_url = request.base_url or provider.address(places)
    if request.base_url or provider.base_url == "{PLACE}":
        base_url = _address(base_url, provider, notes if request.base_url else [])
    own = bool(provider.base_url) and _own_origin(provider, places) == _origin(base_url)
    # Another server gets Chat Completions, which all servers have; the Responses API is OpenAI's.
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


def _address(url: str, provider: Provider, notes: list[str]) -> str:
    """Return the base address of a model_url."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"model_url: {url!r} is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"model_url: {url!r} is not an address; give one such as http://localhost:1234/v1"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("model_url: contains a user or password; use api_key_env instead")
    if parts.query or parts.fragment:
        raise ConfigurationError(f"model_url: {url!r} has a query or fragment; leave it out")
    path = parts.path.rstrip("/")
    shown = path
    for tail in _TAILS:
        if provider.api in ("chat", "responses") and path.endswith(tail):
            path = path.removesuffix(tail)
            break
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    base = f"{parts.scheme}://{host}" + (f":{port}" if port else "") + (path or provider.path)
    # An address without a path is documented, so only another path is a surprise.
    if shown and path != shown:
        notes.append(f"address_changed: model_url {url.strip()} is used as {base}")
    return base


def _key(
    request: Request,
    provider: Provider,
    base_url: str,
    own: bool,
    keys: Mapping[str, str],
    places: Mapping[str, str],
) -> tuple[str, str]:
    """Return the key that may be sent to an address, and its environment variable."""
    named = request.api_key_env
    owner = _OWNERS.get(named)
    # A document must not send the key of one provider to a server of its author.
    if owner is not None and _own_origin(owner, places) != _origin(base_url):
        raise ConfigurationError(
            f"api_key_env: {named} belongs to {_own_origin(owner, places) or owner.name} and is not sent to "
            f"{_origin(base_url)}; use another environment variable for the key of that endpoint"
        )
    names = (named,) if named else provider.keys if own else ()
    variable = next((name for name in names if keys.get(name, "").strip()), "")
    if names and not variable and not (provider.signed and not named):
        raise ConfigurationError(
            f"{provider.name}: there is no key; set {' or '.join(names)} in the environment"
            + ("" if named else ", or give base_url for a server of your own")
        )
    key = keys[variable].strip() if variable else ""
    # A line break copied with the key would end the header.
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigurationError(f"{variable}: the key has characters that are invalid in a header")
    if (
        key
        and base_url.startswith("http:")
        and not is_loopback_name(urlsplit(base_url).hostname or "")
    ):
        raise ConfigurationError(
            f"model_url: {base_url} would send the key {variable} unencrypted; use https"
        )
    return key, variable


def _own_origin(provider: Provider, places: Mapping[str, str]) -> str:
    """Return the origin of a provider's own address, "" if it is unknown."""
    try:
        address = provider.address(places)
    except ConfigurationError:
        return ""
    return _origin(address) if address else ""


def _origin(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{(parts.hostname or '').lower().rstrip('.')}:{port}"


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address, without the default port."""
    try:
        return _origin(url.strip()).removesuffix(
            ":443" if url.strip().startswith("https") else ":80"
        )
    except ValueError:
        return url


def owner_of(key: str) -> Provider | None:
    """Return the provider of the key in an environment variable, None for other variables."""
    return _OWNERS.get(key)


def is_own_address(request: Request) -> bool:
    """Whether a request goes to its provider's own origin, where known prices apply."""
    return is_own_origin(request.provider, request.base_url)


def provider_of(name: str) -> Provider | None:
    """Return the provider of a name, of an alias, or of a model as `provider:model`."""
    name = name.partition(":")[0]
    return PROVIDERS.get(ALIASES.get(name, name))


def is_own_origin(provider: str, base_url: str) -> bool:
    """Whether a URL is that of a provider, where known prices apply; no URL means the provider's."""
    own_provider = provider_of(provider)
    if own_provider is None or not base_url:
        return True
    try:
        return _origin(base_url) == _own_origin(own_provider, {})
    except ValueError:
        return False


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Public addresses that return the credentials of a cloud machine.
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16"), ipaddress.ip_address("192.0.0.192")})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Allowed:
    """Hosts and networks that may be called although they are not public.

    Each entry is a host name, an address, or a network such as `10.0.0.0/8`.

    Raises:
        ConfigurationError: for any other entry.
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
                        f"allowed hosts: {entry!r} is not a host, address or network; give one such "
                        "as ollama.internal, 192.168.1.20 or 10.0.0.0/8"
                    ) from None
                hosts.add(text)
        self.hosts = frozenset(hosts)
        self.networks = tuple(networks)

    def refusal(self, host: str, address: str) -> str:
        """Return the reason why `address` of `host` must not be called, or ""."""
        try:
            ip = _plain(ipaddress.ip_address(address.split("%")[0]))
        except ValueError:
            return f"{address!r} is not an address"
        if host.lower().rstrip(".") in self.hosts or any(ip in net for net in self.networks):
            return ""
        # Another name that resolves to this machine is an attack by the name server (DNS rebinding).
        if ip.is_loopback:
            return "" if is_loopback_name(host) else f"{ip} is this machine under another name"
        if ip in _METADATA or ip.is_link_local:
            return f"{ip} is a link-local or metadata address"
        if ip.is_multicast or ip.is_unspecified or not ip.is_global:
            return f"{ip} is a private or reserved address"
        return ""


def _plain(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 address, else the address."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
    if inner:
        return inner
    # These forms reach an IPv4 address, so the rules of that address apply.
    if address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_loopback_name(host: str) -> bool:
    """Whether the host of a URL names this machine."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


async def resolve(host: str, port: int, allowed: Allowed) -> list[str]:
    """Return the addresses of a host after a check that all of them may be called.

    Raises:
        ModelError: permanent, with reason `address_refused`, if one must not be called.
        OSError: if the name cannot be resolved.
    """
    loop = asyncio.get_running_loop()
    records = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(info[4][0]) for info in records))
    # All addresses are checked, because the connection may use any of them.
    for address in addresses:
        if why := allowed.refusal(host, address):
            raise ModelError(
                f"model_url: {host} is refused: {why}; add it to the allowed hosts if this is intended",
                kind="permanent",
                reason="address_refused",
            )
    return addresses


# Of one response: far more than any reply, and less than the memory of a small machine.
MAX_BYTES = 64 * 1024 * 1024


class ProviderModel:
    """The models of all `PROVIDERS` and of compatible servers.

    It holds connections: use it with `async with`, or call `aclose`.

    Args:
        keys: keys by the name of their environment variable; default none. Loopwright does not read
            the environment here.
        places: addresses and regions of providers, by the name of their environment variable (see
            `PLACES`); default none.
        allowed: hosts, addresses and networks that are not public and may be called; default none.
        secrets: further values to remove from every message; default none.
        certificates: trusted certificates for https; default: the public authorities.
        max_bytes: the limit of one response in bytes; default 64 MiB.

    Raises:
        ConfigurationError: for an entry of `allowed` that is not a host, address or network.

    Example:

    >>> ProviderModel({"OPENAI_API_KEY": "sk-test"})
    ProviderModel(keys=['OPENAI_API_KEY'])
    """

    def __init__(
        self,
        keys: Mapping[str, str] | None = None,
        *,
        places: Mapping[str, str] | None = None,
        allowed: Iterable[str] = (),
        secrets: Iterable[str] = (),
        certificates: ssl.SSLContext | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.keys = dict(keys or {})
        self.places = dict(places or {})
        self.allowed = Allowed(allowed)
        self._secrets = tuple(secrets)
        self.redactor = Redactor([*self.keys.values(), *self._secrets])
        self.max_bytes = max_bytes
        self._loaded: set[str] = set()
        self._trusted = certificates
        self._requests: Requests | None = None

    def __repr__(self) -> str:
        return f"ProviderModel(keys={sorted(self.keys)})"

    async def __aenter__(self) -> ProviderModel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections that this event loop opened."""
        if self._requests is not None:
            await self._requests.aclose()

    def add_key(self, name: str, value: str) -> None:
        """Add a key by the name of its environment variable; it is removed from every message."""
        self.keys[name] = value
        self.redactor = Redactor([*self.keys.values(), *self._secrets])
        if self._requests is not None:
            self._requests.redactor = self.redactor

    def address(self, request: Request) -> str:
        """Return the address of a request, or the origin of its provider; "" if it is unknown."""
        provider = provider_of(request.provider)
        own = "" if provider is None else _own_origin(provider, self.places)
        return request.base_url or own

    def check(self, request: Request) -> tuple[str, ...]:
        """Check the endpoint of a request without a network connection; return remarks for people.

        Raises:
            ConfigurationError: for an invalid endpoint, key or schema.
        """
        if request.schema is not None:
            check_schema(request.schema)
        return endpoint_of(request, self.keys, self.places).notes

    async def complete(
        self, request: Request, *, on_text: Callable[[str], None] | None = None
    ) -> Reply:
        """Answer one request with at most one call to its endpoint; see Model.complete."""
        try:
            endpoint = endpoint_of(request, self.keys, self.places)
            requests = await self._prepared(endpoint, request.model)
            reply = await requests.ask(endpoint, request, on_text)
        except ConfigurationError as error:
            failure = ModelError(str(error), kind="permanent", reason="configuration")
            raise self._cleaned(failure, request) from None
        except ModelError as failure:
            raise self._cleaned(failure, request) from None
        # A server may send the key back, for example in an error quoted by the model.
        cleaned = Reply.from_json(self.redactor.clean(reply.to_json()))
        return replace(cleaned, usage=reply.usage, finish=reply.finish)

    async def _prepared(self, endpoint: Endpoint, model: str) -> Requests:
        """Load the modules that the first request needs in a thread, because it takes seconds.

        Raises:
            ConfigurationError: if the client of the provider is not installed.
        """
        subject = f"{endpoint.provider}:{model}"
        if self._requests is None:
            kind = await in_thread(_library, subject)
            if self._requests is None:  # another call may have set it during the import
                self._requests = kind(self.allowed, self.redactor, self.max_bytes, self._trusted)
        requests = self._requests
        if endpoint.api not in self._loaded:
            with needs(subject, endpoint.extra):
                await in_thread(requests.load, endpoint)
            self._loaded.add(endpoint.api)
        # Loading the certificates is slow, and local servers with plain http do not need them.
        if requests.trusted is None and endpoint.base_url.startswith("https:"):
            requests.trusted = await in_thread(requests.public_certificates)
        return requests

    def _cleaned(self, failure: ModelError, request: Request) -> ModelError:
        """Return an error without secrets in its message, its parts and its traceback."""
        words = {"kind": failure.kind, "reason": failure.reason, "billed": failure.billed}
        cleaned = error_from_json(
            {**self.redactor.clean(failure.to_json()), **words}, path=request.path
        )
        cleaned.usage = failure.usage
        return cleaned


def _library(subject: str) -> type[Requests]:
    """Import the client library; see rule 1."""
    with needs(subject, "models"):
        from .client import Requests
    return Requests
