"""Encrypted connections: options of the URL hold for every connection, and a server that is not trusted is refused."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from loopwright.cluster import Worker, submit
from loopwright.errors import JournalUnavailable
from loopwright.journal import open_journal
from postgres_server import PostgresServer


def _certificate(folder: Path, name: str, host: str) -> tuple[Path, Path]:
    """Create a certificate that is its own authority, and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", f"subjectAltName=IP:{host}"]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@pytest.fixture
def encrypted(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Path]:
    """Let the server encrypt, and return its certificate."""
    certificate, key = _certificate(tmp_path, "server", "127.0.0.1")
    with postgres_server.connect() as db:
        [(folder,)] = db.execute("SHOW data_directory").fetchall()
        for name, file in (("server.crt", certificate), ("server.key", key)):
            placed = Path(str(folder)) / name
            placed.write_bytes(file.read_bytes())
            placed.chmod(0o600)
            if postgres_server.account is not None:
                os.chown(placed, *postgres_server.account)
        db.execute("ALTER SYSTEM SET ssl = on")
        db.execute("SELECT pg_reload_conf()")
    yield certificate
    with postgres_server.connect() as db:
        db.execute("ALTER SYSTEM RESET ssl")
        db.execute("SELECT pg_reload_conf()")


async def test_every_connection_checks_the_server(encrypted: Path, postgres_url: str) -> None:
    """Journal, worker and engine connect with the options of the URL."""
    url = f"{postgres_url}?sslmode=verify-full&sslrootcert={encrypted}"
    await submit(str.upper, "a", journal=url)
    async with open_journal(url) as journal, Worker(journal=journal):
        await journal.runs()
        with psycopg.connect(postgres_url) as db:
            sessions = db.execute(
                "SELECT application_name, ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                "WHERE application_name LIKE 'loopwright %' AND datname = current_database()"
            ).fetchall()
    assert {name for name, _ in sessions} >= {
        "loopwright reader",
        "loopwright worker",
        "loopwright queue",
    }
    assert all(ssl for _, ssl in sessions)


async def test_a_server_that_is_not_trusted_is_refused(
    encrypted: Path, postgres_url: str, tmp_path: Path
) -> None:
    """Another authority, and a name that the certificate does not have, end at once with one sentence."""
    other, _ = _certificate(tmp_path, "other", "127.0.0.1")
    for url in (
        f"{postgres_url}?sslmode=verify-full&sslrootcert={other}",
        f"{postgres_url.replace('127.0.0.1', 'localhost')}?sslmode=verify-full&sslrootcert={encrypted}",
    ):
        async with open_journal(url) as journal:
            with pytest.raises(
                JournalUnavailable, match="check sslmode and sslrootcert"
            ) as refused:
                await journal.runs()
        assert "certificate" in str(refused.value)
        assert len(str(refused.value).splitlines()) == 1


async def test_a_server_without_encryption_is_refused(postgres_url: str) -> None:
    """A URL that asks for encryption is not served without."""
    async with open_journal(f"{postgres_url}?sslmode=require") as journal:
        with pytest.raises(JournalUnavailable, match="does not support SSL.*check sslmode"):
            await journal.runs()
