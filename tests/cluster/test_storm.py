"""A sample of the storm that `make torture` runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loopwright.cluster import Submission, submit_all
from loopwright.journal import open_journal
from postgres_server import PostgresServer

from .process import Process, add
from .storm import Faults, storm
from .waiting import until

pytestmark = pytest.mark.timeout(900)


async def test_200_runs_survive_kills_and_a_restart() -> None:
    """All runs end with their results while workers are killed and the database restarts."""
    server = PostgresServer()
    try:
        faults = Faults(kills=5, restarts=1)
        result = await storm(server, runs=200, seed=20, faults=faults)
    finally:
        server.close()
    assert result.wrong == []
    assert result.kills == 5
    assert result.repeats <= 5 * 20


async def test_a_cap_holds_while_workers_are_killed(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The permits of a killed worker are free again, so that all calls of a capped step are made."""
    monkeypatch.setenv("CAP", "3")
    ledger = tmp_path / "ledger"
    journal = open_journal(postgres_url)
    inputs = [({"number": n, "wait": 0.05}, "") for n in range(40)]
    await submit_all(Submission(add), inputs, journal=journal)
    processes = [Process(postgres_url, "", ledger) for _ in range(2)]

    async def written() -> bool:
        return ledger.exists() and ledger.read_text().count("\n") >= 10

    async def ended() -> bool:
        return len(await journal.runs(limit=50, status="satisfied")) == 40

    try:
        await until(written)
        processes[0].kill()
        await until(ended)
    finally:
        for process in processes:
            process.kill()
        await journal.close()
    assert os.environ["CAP"] == "3"
