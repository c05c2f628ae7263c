"""The PostgreSQL journal behind a network with faults: slow, one-way and half-open connections."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from loopwright.journal.postgres import connection
from loopwright.journal.postgres.journal import PostgresJournal
from postgres_server import PostgresServer

from .proxy import Proxy
from .recording import info, record, recorded, rounds, rounds_seen, shown


@pytest.mark.parametrize(("delay", "count"), [(0.2, 3), (2.0, 1)])
async def test_a_slow_network_costs_only_time(
    postgres_server: PostgresServer, postgres_url: str, delay: float, count: int
) -> None:
    """With 200 ms and 2 s on each message all is recorded, and the owner keeps its run."""
    async with PostgresJournal(postgres_url) as journal:
        await journal.prepare()
    database = postgres_url.rpartition("/")[2]
    with Proxy(postgres_server.port) as proxy:
        async with PostgresJournal(postgres_server.url_of(database, port=proxy.port)) as slow:
            log = await slow.open(info())
            proxy.delay = delay
            await record(log, rounds(count))
            proxy.delay = 0.0
            await log.close(replace(log.info, status="satisfied"))
    async with PostgresJournal(postgres_url) as journal:
        assert (await journal.find("run-1")).epoch == 1
        assert shown(await journal.entries("run-1")) == shown(rounds_seen(rounds(count)))


@pytest.mark.parametrize("fault", ["from server", "to server", "half open"])
async def test_a_connection_without_answers_is_given_up(
    postgres_server: PostgresServer,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    """A connection that is lost in one direction is replaced, and the commit is there once."""
    monkeypatch.setattr(connection, "SILENCE", 0.5)
    database = postgres_url.rpartition("/")[2]
    with Proxy(postgres_server.port) as proxy:
        url = f"{postgres_server.url_of(database, port=proxy.port)}?connect_timeout=2"
        async with PostgresJournal(url) as journal:
            await recorded(journal, info("run-0"), rounds(1))
            log = await journal.open(info())
            proxy.one_way = fault
            written = asyncio.ensure_future(record(log, rounds(2)))
            done, _ = await asyncio.wait({written}, timeout=1.0)
            assert not done
            proxy.one_way = ""
            await written
            await log.close(replace(log.info, status="satisfied"))
            assert (await journal.find("run-1")).epoch == 1
            assert shown(await journal.entries("run-1")) == shown(rounds_seen(rounds(2)))
