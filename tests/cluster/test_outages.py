"""Samples of the outages that `make torture` measures with each engine and for minutes, with less patience."""

from __future__ import annotations

from contextlib import ExitStack

import psycopg
import pytest

from loopwright.cluster.postgres import _DUE
from loopwright.journal import open_journal
from postgres_server import PostgresServer, ServerMissing

from .outages import away, full, outage, small_disk

pytestmark = pytest.mark.timeout(400)
SAMPLE = {"runs": 24, "wait": 0.1, "slots": 6, "patience": 1.0}


@pytest.mark.parametrize("kind", ["away", "full"])
async def test_all_runs_end_after_an_outage(kind: str) -> None:
    """After an outage beyond the patience of two workers all runs end once, and no worker is started again."""
    server = PostgresServer()
    with ExitStack() as stack:
        stack.callback(server.close)
        if kind == "full":
            try:
                url, folder = stack.enter_context(small_disk(server))
            except ServerMissing as missing:
                pytest.skip(f"NOT TESTED: {missing}")
            result = await outage(url, "pgqueuer", lambda: full(folder), seconds=3.0, **SAMPLE)
        else:
            url = server.url_of(server.create_database())
            result = await outage(url, "pgqueuer", lambda: away(server), seconds=3.0, **SAMPLE)
    assert result.wrong == []
    # Only what was in progress in one of the slots.
    assert result.repeats <= 2 * 6


async def test_due_runs_are_found_by_an_index(postgres_url: str) -> None:
    """The query of the sweeper does not read the runs that wait for a later time."""
    async with open_journal(postgres_url) as journal:
        await journal.runs()
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(
            "INSERT INTO loopwright.runs(run_id, name, status, reason, detail, input, source, fingerprint, created, "
            "updated, active, epoch, iterations, usage, opened, last, head, seal, cancel, queue, priority, wake_at, "
            "deliveries) SELECT 'run-' || n, 'n', 'suspended', '', '', 'null', '{}', '', 0, 0, 0, 1, 0, '0', 0, 0, '', '', "
            "0, 'default', 0, extract(epoch FROM now()) + 3600, 0 FROM generate_series(1, 20000) n"
        )
        db.execute("ANALYZE loopwright.runs")
        for mode in ("force_custom_plan", "force_generic_plan"):
            db.execute(f"SET plan_cache_mode = {mode}")
            rows = db.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {_DUE}", (1000,), prepare=True)
            [(plan,)] = rows.fetchall()
            reads = [
                node for node in _nodes(plan[0]["Plan"]) if node.get("Relation Name") == "runs"
            ]
            assert reads
            assert "Seq Scan" not in {node["Node Type"] for node in reads}
            assert sum(node.get("Rows Removed by Filter", 0) for node in reads) == 0


def _nodes(plan: dict) -> list[dict]:
    return [plan, *(node for part in plan.get("Plans", ()) for node in _nodes(part))]
