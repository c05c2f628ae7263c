"""The journal in PostgreSQL behind PgBouncer, where each transaction may have another session."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cluster.waiting import serving, until
from loopwright import Loop, MaxIterations
from loopwright.cluster import Worker, submit
from loopwright.journal import Journal
from loopwright.journal.postgres.journal import PostgresJournal
from postgres_server import PostgresServer, free_port

from .contract import JournalContract
from .postgres_stores import PostgresStore

PROGRAM = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = any
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 3
unix_socket_dir =
logfile = {folder}/log
pidfile = {folder}/pid
"""


@pytest.fixture(scope="module")
def pooler(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """The port of a pooler in transaction mode, before the server of the tests."""
    if PROGRAM is None:
        what = "NOT TESTED: pgbouncer is not installed; install it with: make postgres"
        installable = os.geteuid() == 0 and shutil.which("apt-get") is not None
        pytest.fail(what) if os.environ.get("CI") and installable else pytest.skip(what)
    folder, port = tmp_path_factory.mktemp("pooler"), free_port()
    (folder / "users").write_text('"tester" ""\n')
    databases = f"* = host=127.0.0.1 port={postgres_server.port} user=tester"
    text = CONFIGURATION.format(server=postgres_server.port, port=port, folder=folder)
    (folder / "ini").write_text(
        text.replace(f"* = host=127.0.0.1 port={postgres_server.port}", databases)
    )
    command = [PROGRAM, str(folder / "ini")]
    if os.geteuid() == 0:  # it refuses to run as root
        for path in (folder, *folder.parents):
            if path == Path("/tmp"):
                break
            path.chmod(0o755)
        shutil.chown(folder, "nobody")
        command[1:1] = ["-u", "nobody"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(postgres_server.url_of("postgres", port=port)).close()
            break
        except psycopg.OperationalError:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
    yield port
    process.terminate()
    process.wait(20)


class PooledStore(PostgresStore):
    """Journals whose connections go through the pooler."""

    def __init__(self, url: str, pooled: str) -> None:
        self._pooled = pooled
        super().__init__(url)

    def _another(self) -> PostgresJournal:
        self._made.append(PostgresJournal(self._pooled))
        return self._made[-1]


class TestPooledJournal(JournalContract):
    """Behind a pooler the journal keeps the contract."""

    @pytest.fixture(autouse=True)
    def database(self, postgres_server: PostgresServer, postgres_url: str, pooler: int) -> None:
        self.url = postgres_url
        self.pooled = postgres_server.url_of(postgres_url.rpartition("/")[2], port=pooler)

    @pytest.fixture
    async def store(self) -> AsyncIterator[PooledStore]:
        made = PooledStore(self.url, self.pooled)
        yield made
        await made.close()

    def fresh(self) -> tuple[Journal, Callable[[], Coroutine[Any, Any, None]]]:
        journal = PostgresJournal(self.pooled)
        return journal, journal.close

    async def test_runs_are_submitted_and_run_through_it(self) -> None:
        """Each statement may have another session; a worker polls in place of notifications."""
        loop = Loop(str.upper, until=MaxIterations(1), name="upper")
        for number in range(8):
            await submit(loop, str(number), journal=self.pooled)

        async def ended() -> bool:
            return len(await journal.runs(status="exhausted")) == 8

        async with (
            PostgresJournal(self.url) as journal,
            serving(Worker(journal=self.pooled, steps=[loop])),
        ):
            await until(ended)

    async def test_the_pooler_is_recognised(self) -> None:
        """`check` tells the operator that a pooler is between."""
        async with PostgresJournal(self.pooled) as journal:
            notes = await journal.notes()
        assert notes[1].startswith("a connection pooler is between: ")
