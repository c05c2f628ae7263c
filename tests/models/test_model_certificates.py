"""Endpoints at https: who they are is checked against the name in the URL."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_server import FaultyServer, says
from model_worlds import KEY, KEYS, ask, question

from loopwright.models import ModelError, ProviderModel, Reply

pytestmark = [
    pytest.mark.usefixtures("loopback"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Self-signed certificates for localhost and for another name."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("localhost", "other.example"):
        subprocess.run(
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
                "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem"),
            ],
            check=True, capture_output=True,
        )  # fmt: skip
    return folder


def server_of(folder: Path, name: str) -> FaultyServer:
    server = FaultyServer(says("fine"))
    server.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.tls.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return server


@pytest.mark.parametrize(
    ("serves", "trusts", "kind"),
    [
        ("localhost", "localhost", ""),
        ("localhost", None, "permanent"),
        ("localhost", "other.example", "permanent"),
        ("other.example", "other.example", "permanent"),
    ],
)
async def test_an_endpoint_must_be_who_its_url_says(
    certificates: Path, serves: str, trusts: str | None, kind: str
) -> None:
    """The connection goes to a checked address, and the certificate must be for the URL's host."""
    trusted = (
        ssl.create_default_context(cafile=str(certificates / f"{trusts}.pem")) if trusts else None
    )
    async with (
        server_of(certificates, serves) as server,
        ProviderModel(KEYS, certificates=trusted) as model,
    ):
        found = await ask(model, question(f"https://localhost:{server.port}"))
        seen = [request.headers.get("authorization") for request in server.requests]
    if kind:
        assert isinstance(found, ModelError)
        assert (found.kind, found.reason, found.billed, seen) == (kind, "certificate", "no", [])
    else:
        assert isinstance(found, Reply)
        assert seen == [f"Bearer {KEY}"]
