"""Which network addresses a model may be called at: a document must not reach inside a network.

Rules:

1. A name is resolved once, every address it has is checked, and the connection goes to the address
   that was checked: a second answer of the name server changes nothing.
2. Public addresses are fine. This machine is, if the URL says so itself (localhost, 127.0.0.1,
   ::1). Everything else (private, link-local, metadata services, multicast, reserved) only if the
   host or its network is on the list of allowed ones.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

from ..errors import ConfigurationError
from .errors import ModelError

__all__ = ["Allowed", "is_loopback_name", "resolve"]

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
