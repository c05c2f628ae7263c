"""Which addresses may be called."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import ConfigurationError
from loopwright.models import ModelError
from loopwright.models.providers.endpoints import Allowed, is_loopback_name, resolve

REFUSED = [
    ("metadata.example", "169.254.169.254"), ("metadata.example", "fd00:ec2::254"),
    ("metadata.example", "100.100.100.200"), ("metadata.example", "168.63.129.16"),
    ("metadata.example", "192.0.0.192"), ("x.example", "169.254.0.1"), ("x.example", "fe80::1"),
    ("x.example", "fe80::1%eth0"), ("x.example", "10.0.0.1"), ("x.example", "10.255.255.255"),
    ("x.example", "172.16.0.1"), ("x.example", "172.31.255.255"), ("x.example", "192.168.0.1"),
    ("x.example", "127.0.0.1"), ("x.example", "127.8.8.8"), ("x.example", "::1"),
    ("x.example", "0.0.0.0"), ("x.example", "::"), ("x.example", "255.255.255.255"),
    ("x.example", "224.0.0.1"), ("x.example", "ff02::1"), ("x.example", "240.0.0.1"),
    ("x.example", "100.64.0.1"), ("x.example", "192.0.2.1"), ("x.example", "198.18.0.1"),
    ("x.example", "::ffff:127.0.0.1"), ("x.example", "::ffff:169.254.169.254"),
    ("x.example", "::ffff:10.0.0.1"), ("x.example", "64:ff9b::a9fe:a9fe"),
    ("x.example", "2002:a9fe:a9fe::1"), ("x.example", "2002:7f00:1::"), ("x.example", "::7f00:1"),
    ("x.example", "fc00::1"), ("x.example", "fd12:3456::1"), ("x.example", "2001:db8::1"),
    ("2130706433", "127.0.0.1"), ("0x7f000001", "127.0.0.1"), ("0177.0.0.1", "127.0.0.1"),
    ("localhost.evil.example", "127.0.0.1"), ("127.0.0.1.nip.example", "127.0.0.1"),
    ("localhost", "10.0.0.1"), ("localhost", "169.254.169.254"), ("x.example", "not an address"),
]  # fmt: skip
ACCEPTED = [
    ("api.openai.com", "104.18.6.192"), ("api.openai.com", "2606:4700::6812:6c0"),
    ("8.8.8.8", "8.8.8.8"), ("localhost", "127.0.0.1"), ("localhost", "::1"),
    ("LOCALHOST.", "127.0.0.1"), ("model.localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"),
    ("127.9.9.9", "127.9.9.9"), ("::1", "::1"),
]  # fmt: skip


@pytest.mark.parametrize(("host", "address"), REFUSED)
def test_an_address_inside_is_refused(host: str, address: str) -> None:
    """Private, link-local, metadata and reserved addresses are refused however they are written."""
    assert Allowed().refusal(host, address) != ""


@pytest.mark.parametrize(("host", "address"), ACCEPTED)
def test_a_public_address_and_this_machine_by_name_are_accepted(host: str, address: str) -> None:
    """Public addresses may be called, and this machine if the URL says that it is."""
    assert Allowed().refusal(host, address) == ""


@pytest.mark.parametrize(
    ("entry", "host", "address", "accepted"),
    [
        ("ollama.internal", "ollama.internal", "10.1.2.3", True),
        ("OLLAMA.internal.", "ollama.INTERNAL", "10.1.2.3", True),
        ("ollama.internal", "other.internal", "10.1.2.3", False),
        ("192.168.1.20", "192.168.1.20", "192.168.1.20", True),
        ("192.168.1.20", "x.example", "192.168.1.21", False),
        ("10.0.0.0/8", "x.example", "10.200.0.1", True),
        ("10.0.0.0/8", "x.example", "::ffff:10.200.0.1", True),
        ("10.0.0.0/8", "x.example", "11.0.0.1", True),
        ("10.0.0.0/8", "x.example", "192.168.0.1", False),
        ("fd00::/8", "x.example", "fd00::5", True),
    ],
)
def test_what_is_allowed_by_name_may_be_called(
    entry: str, host: str, address: str, accepted: bool
) -> None:
    """A host, an address or a network on the list may be called; its neighbours may not."""
    assert (Allowed([entry]).refusal(host, address) == "") is accepted


@pytest.mark.parametrize("entry", ["", "*", "*.example", "10.0.0.0/99", "http://x", "a:b"])
def test_an_entry_that_names_nothing_is_refused(entry: str) -> None:
    """The list takes hosts, addresses and networks; anything else is refused with an example."""
    with pytest.raises(
        ConfigurationError, match="is not a host, address or network; give one such as"
    ):
        Allowed([entry])


@given(st.ip_addresses())
def test_only_global_addresses_pass_without_a_name(address: object) -> None:
    """For a host that is not this machine, what is accepted is a global address."""
    if Allowed().refusal("x.example", str(address)) == "":
        assert getattr(address, "is_global")  # noqa: B009
        assert not getattr(address, "is_loopback")  # noqa: B009


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "0", "127.0.0.1."])
def test_other_ways_to_write_this_machine_do_not_pass(host: str) -> None:
    """Only the plain names of this machine count; a resolver that knows others changes nothing."""
    if is_loopback_name(host):
        assert host == "127.0.0.1."
        return
    with pytest.raises((ModelError, OSError)):
        asyncio.run(resolve(host, 80, Allowed()))


def test_this_machine_is_resolved() -> None:
    """localhost leads to addresses of this machine only."""
    found = asyncio.run(resolve("localhost", 80, Allowed()))
    assert found
    assert set(found) <= {"127.0.0.1", "::1"}
