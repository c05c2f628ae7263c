"""The PostgreSQL journal on a server whose disk is full."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loopwright.journal.postgres.journal import PostgresJournal
from postgres_server import PostgresServer

from .postgres_stores import query
from .recording import info, record, rounds, rounds_seen, shown

# Runs everywhere: the server itself refuses rows with the error of a full disk.
_FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON loopwright.entries EXECUTE FUNCTION full_disk();
"""


async def test_a_full_disk_stalls_runs_until_there_is_space(postgres_url: str) -> None:
    """The run waits within its patience, does not fail, and continues without a gap."""
    async with PostgresJournal(postgres_url) as journal:
        log = await journal.open(info())
        await record(log, rounds(1))
        query(postgres_url, _FULL)
        waiting = asyncio.ensure_future(record(log, rounds(1, start=2)))
        done, _ = await asyncio.wait({waiting}, timeout=0.5)
        assert not done
        query(postgres_url, "DROP TRIGGER full_disk ON loopwright.entries")
        await waiting
        await log.close(replace(log.info, status="satisfied"))
        assert shown(await journal.entries("run-1")) == shown(rounds_seen(rounds(2)))


@pytest.fixture
def small_disk(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[Path]:
    """A file system of 24 MB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    # The folders above belong to this user only, and the server may run as another one.
    for above in (tmp_path, *tmp_path.parents):
        if above == Path(tempfile.gettempdir()):
            break
        above.chmod(0o755)
    if os.geteuid() != 0 or subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("NOT TESTED: this user may not mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_disk_that_is_really_full_stalls_runs_too(
    postgres_server: PostgresServer, small_disk: Path
) -> None:
    """The database is on a disk of 24 MB that another file fills; the run continues once it is deleted."""
    if not (account := postgres_server.account):
        pytest.skip("NOT TESTED: the server runs as this user, who may not mount a file system")
    os.chown(small_disk, *account)
    query(postgres_server.url, f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    query(postgres_server.url, "CREATE DATABASE on_small TABLESPACE small")
    url = postgres_server.url_of("on_small")
    try:
        async with PostgresJournal(url) as journal:
            log = await journal.open(info())
            await record(log, rounds(1))
            filler = small_disk / "filler"
            _fill(filler)
            waiting = asyncio.ensure_future(record(log, rounds(99, start=2)))
            done, _ = await asyncio.wait({waiting}, timeout=3.0)
            assert not done
            filler.unlink()
            await waiting
            await log.close(replace(log.info, status="satisfied"))
            assert shown(await journal.entries("run-1")) == shown(rounds_seen(rounds(100)))
    finally:
        query(postgres_server.url, "DROP DATABASE on_small WITH (FORCE)")
        query(postgres_server.url, "DROP TABLESPACE small")


def _fill(file: Path) -> None:
    """Write until nothing more fits: the server uses the same disk, so its free space is not known before."""
    with file.open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 65_536)
        except OSError as full:
            if full.errno != errno.ENOSPC:
                raise
