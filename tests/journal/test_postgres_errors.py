"""The PostgreSQL journal: one sentence for each way in which a server cannot be used."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from loopwright.errors import ConfigurationError, JournalUnavailable, StepError
from loopwright.journal import Entry, RunInfo, open_journal
from loopwright.journal.postgres import connection, database
from loopwright.journal.postgres.connection import STEPS, VERSION
from loopwright.journal.postgres.journal import PostgresJournal
from loopwright.journal.protocol import Posted
from postgres_server import GUEST, PASSWORD, PostgresServer

from .postgres_stores import query
from .recording import info, recorded, rounds


async def refusal(url: str) -> str:
    """Return the sentence with which a journal refuses its first use."""
    async with PostgresJournal(url) as journal:
        with pytest.raises(JournalUnavailable) as caught:
            await journal.open(info())
        first = str(caught.value)
        with pytest.raises(JournalUnavailable) as caught:
            await journal.runs()
        assert str(caught.value) == first
    return first


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgres:x", "journal: 'postgres:x' has no host. Use postgres://HOST/DATABASE."),
        (
            "postgres://u:secret@h/d?sslmod=x",
            "journal: 'postgres://u:***@h/d?sslmod=x': invalid URI query parameter: \"sslmod\". "
            "Use postgres://HOST/DATABASE.",
        ),
        (
            "postgre://h/d",
            "journal: 'postgre://h/d': unknown scheme 'postgre'; did you mean 'postgres'?",
        ),
    ],
)
def test_a_bad_url_is_refused(url: str, message: str) -> None:
    """A URL that cannot be read is refused before a connection is made, without its password."""
    with pytest.raises(ConfigurationError) as caught:
        open_journal(url)
    assert str(caught.value) == message


async def test_a_server_that_is_not_there(postgres_server: PostgresServer) -> None:
    """Without a server the first use fails at once and names the address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        message = await refusal(postgres_server.url_of("x", port=port))
    assert message.startswith(
        f"postgresql://tester@127.0.0.1:{port}/x: the server cannot be reached ("
    )
    assert message.endswith("); check its address and that it runs")


async def test_a_wrong_password(postgres_server: PostgresServer, postgres_url: str) -> None:
    """A wrong or missing password is one sentence, which does not contain it."""
    name = postgres_url.rpartition("/")[2]
    port = postgres_server.port
    if not port:
        pytest.skip("the access rules of a foreign server are its own")
    wrong = f"postgresql://{GUEST}:nonsense@127.0.0.1:{port}/{name}"
    assert await refusal(wrong) == (
        f"postgresql://{GUEST}:***@127.0.0.1:{port}/{name}: the server refused the password "
        f'(password authentication failed for user "{GUEST}"); correct PGPASSWORD or the service file'
    )
    missing = f"postgresql://{GUEST}@127.0.0.1:{port}/{name}"
    assert await refusal(missing) == (
        f"{missing}: the server asks for a password; set PGPASSWORD, or name a service file"
    )


async def test_a_password_from_the_environment(
    postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PGPASSWORD is used; a user that may not create the tables is told who may."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    name = postgres_url.rpartition("/")[2]
    guest = f"postgresql://{GUEST}@127.0.0.1:{postgres_server.port}/{name}"
    assert await refusal(guest) == (
        f"{guest}: permission denied for database {name}; a user that may create the schema "
        "'loopwright' runs once: loopwright journal init"
    )
    async with PostgresJournal(postgres_url) as journal:
        await journal.runs()
    query(postgres_url, f"GRANT USAGE ON SCHEMA loopwright TO {GUEST}")
    query(postgres_url, f"GRANT ALL ON ALL TABLES IN SCHEMA loopwright TO {GUEST}")
    async with PostgresJournal(guest) as journal:
        await recorded(journal, info(), rounds(1))
        assert (await journal.find("run-1")).status == "satisfied"


async def test_a_database_that_is_not_there(postgres_server: PostgresServer) -> None:
    """A missing database is named, with the command that creates it."""
    url = postgres_server.url_of("nowhere")
    assert await refusal(url) == (
        f'{url}: database "nowhere" does not exist; create it with: createdb nowhere'
    )


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


@contextmanager
def old_server(version: str) -> Iterator[int]:
    """Serve the first reply of a PostgreSQL server of a version; yield the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    reply = _message(b"R", struct.pack("!i", 0))
    for name, value in (("server_version", version), ("client_encoding", "UTF8")):
        reply += _message(b"S", f"{name}\0{value}\0".encode())
    reply += _message(b"K", struct.pack("!ii", 1, 2)) + _message(b"Z", b"I")

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                size = struct.unpack("!i", client.recv(4))[0]
                if struct.unpack("!i", client.recv(size - 4)[:4])[0] != 196608:  # asks for TLS
                    client.sendall(b"N")
                    client.recv(struct.unpack("!i", client.recv(4))[0])
                client.sendall(reply)
                client.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


async def test_an_old_server_is_refused() -> None:
    """A server older than PostgreSQL 14 is refused by its first reply."""
    with old_server("13.18") as port:
        url = f"postgresql://u@127.0.0.1:{port}/d?sslmode=disable&gssencmode=disable"
        assert await refusal(url) == (
            f"{url}: this server is PostgreSQL 13; use PostgreSQL 14 or newer"
        )


async def test_a_newer_schema_is_refused(postgres_url: str) -> None:
    """Tables of a newer version of Loopwright are neither read nor written."""
    async with PostgresJournal(postgres_url) as journal:
        await recorded(journal, info(), rounds(1))
    query(postgres_url, "UPDATE loopwright.format SET version=99")
    assert await refusal(postgres_url) == (
        f"{postgres_url}: a newer version of Loopwright wrote it (format 99, this version reads "
        f"{VERSION}); upgrade Loopwright"
    )
    async with PostgresJournal(postgres_url) as journal:
        for _ in range(2):  # also if somebody asks again
            with pytest.raises(JournalUnavailable, match="format 99"):
                await journal.runs()


async def test_many_create_the_tables_at_once(postgres_url: str) -> None:
    """Processes that create or migrate the tables at the same moment wait for each other."""
    journals = [PostgresJournal(postgres_url) for _ in range(6)]
    await asyncio.gather(*(journal.runs() for journal in journals))
    await asyncio.gather(*(journal.close() for journal in journals))
    assert query(postgres_url, "SELECT version FROM loopwright.format") == [(VERSION,)]


async def test_a_large_value_fails_its_run_alone(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value above the limit is refused with the advice to keep a file; other runs continue."""
    monkeypatch.setattr(database, "LARGEST", 1500)
    async with PostgresJournal(postgres_url) as journal:
        with pytest.raises(JournalUnavailable, match="keep it in a file and return its path"):
            await recorded(journal, info("large", input="x" * 2000), [])
        log = await journal.open(info("run-1"))
        log.append(Entry("finished", "a", 1.0, "y" * 2000))
        waiter = log.sync()
        assert waiter is not None
        with pytest.raises(JournalUnavailable, match="too large for a shared journal"):
            await waiter
        await recorded(journal, info("run-2"), rounds(1))
        assert len(await journal.entries("run-2")) == 3


async def test_files_of_runs_are_in_the_database(postgres_url: str) -> None:
    """A file that a run uses is stored once by its digest, and read from any machine."""
    async with PostgresJournal(postgres_url) as journal:
        await journal.runs()
        digest = journal.files.put(b"content")
        assert journal.files.put(b"content") == digest
    async with PostgresJournal(postgres_url) as other:
        assert other.files.get(digest) == b"content"


async def test_prune_deletes_old_files_that_no_run_uses(postgres_url: str) -> None:
    """A file stays while an entry, an input or a memory has its digest, and on the day it was stored."""
    async with PostgresJournal(postgres_url) as journal:
        await journal.runs()
        unused, used, new = (journal.files.put(content) for content in (b"a", b"b", b"c"))
        log = await journal.open(RunInfo("run", "run", input={"file": used}))
        await log.close(log.info)
        query(
            postgres_url,
            "UPDATE loopwright.files SET stored=stored - interval '2 days' WHERE digest<>decode(%s, 'hex')",
            (new,),
        )
        assert await journal.prune_files() == 1
        assert sorted(journal.files.digests()) == sorted([used, new])
        assert await journal.prune_files() == 0
        with pytest.raises(StepError, match="missing"):
            journal.files.get(unused)


async def test_a_journal_of_the_first_format_is_migrated(postgres_url: str) -> None:
    """Tables of the first format keep their rows, and receive those that workers share."""
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("CREATE SCHEMA loopwright")
        db.execute("CREATE TABLE loopwright.format(version integer NOT NULL)")
        for statement in STEPS[0]:
            db.execute(statement)
        db.execute("INSERT INTO loopwright.format VALUES (1)")
        db.execute("INSERT INTO loopwright.files VALUES (decode('aa', 'hex'), 'x')")
        db.execute("INSERT INTO loopwright.inbox VALUES (1, 1, 'p', '1', 'Ann', 0, 'x')")
    async with PostgresJournal(postgres_url) as journal:
        assert await journal.prepare() == VERSION
        with psycopg.connect(postgres_url) as db:
            assert db.execute("SELECT who, role FROM loopwright.inbox").fetchall() == [
                ("Ann", None)
            ]
        assert await journal.problems() == []
        assert journal.files.digests() == ["aa"]


async def test_an_answer_of_an_earlier_version_has_its_name_alone(postgres_url: str) -> None:
    """The role is not part of the seal: without it an answer is read as it was."""
    async with PostgresJournal(postgres_url) as journal:
        await recorded(journal, info(), rounds(1))
        posted = await journal.post("run-1", Posted("refine/1", 3, True, "Ann", 1.0))
        assert posted.who.startswith("Ann (database role ")
        query(postgres_url, "UPDATE loopwright.inbox SET role=NULL")
        assert [answer.who for answer in await journal.inbox("run-1")] == ["Ann"]


async def test_rows_of_workers_without_their_run_are_problems(postgres_url: str) -> None:
    """`check` reports a pin of a run that is not there, and an account that differs from its runs."""
    async with PostgresJournal(postgres_url) as journal:
        await journal.prepare()
        query(postgres_url, "INSERT INTO loopwright_queue.hosts VALUES ('gone', 'here')")
        query(postgres_url, "INSERT INTO loopwright_queue.accounts VALUES ('queue:q', 1, 0, 0)")
        assert await journal.problems() == [
            "gone is pinned to here, but there is no such run",
            "the account queue:q differs from the sum of its runs",
        ]


def test_the_client_gives_up_on_a_silent_server(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not answer is a lost connection, not an endless wait."""
    monkeypatch.setattr(connection, "SILENCE", 0.2)
    db = connection.Server(postgres_url).connect("test")
    with pytest.raises(psycopg.OperationalError):
        db.execute("SELECT pg_sleep(5)")
    assert db.closed
