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
    """A sweep reads none of the runs that ended, wait for a later time, or wait where no worker serves."""
    async with open_journal(postgres_url) as journal:
        await journal.runs()
    values = {"limit": 1000, "part": 200, "queues": ["default"], "ids": [0]}
    with psycopg.connect(postgres_url, autocommit=True) as db:
        for status, queue, wake_at in (
            ("suspended", "default", "extract(epoch FROM now()) + 3600"), ("queued", "nobody", "0"),
            ("queued", "nobody", "1"), ("satisfied", "default", "0"),
        ):  # fmt: skip
            db.execute(
                "INSERT INTO loopwright.runs(run_id, name, status, reason, detail, input, source, fingerprint, created, "
                "updated, active, epoch, iterations, usage, opened, last, head, seal, cancel, queue, priority, wake_at, "
                f"deliveries) SELECT '{status}-{wake_at}-' || n, 'n', '{status}', '', '', 'null', '{{}}', '', 0, 0, 0, 1, 0, "
                f"'0', 0, 0, '', '', 0, '{queue}', 0, {wake_at}, 0 FROM generate_series(1, 10000) n"
            )
        db.execute(
            "INSERT INTO loopwright_queue.workers(host, pid, since, beat, queues, finished, closed) "
            "VALUES ('here', 1, now(), now() + interval '1 hour', 'default=50', 0, false)"
        )
        db.execute("VACUUM ANALYZE loopwright.runs")
        for mode in ("force_custom_plan", "force_generic_plan"):
            db.execute(f"SET plan_cache_mode = {mode}")
            rows = db.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {_DUE}", values, prepare=True)
            [(plan,)] = rows.fetchall()
            reads = [
                node for node in _nodes(plan[0]["Plan"]) if node.get("Relation Name") == "runs"
            ]
            assert len(reads) == 4
            assert "Seq Scan" not in {node["Node Type"] for node in reads}
            assert sum(node.get("Rows Removed by Filter", 0) for node in reads) == 0
            assert sum(node["Actual Rows"] * node["Actual Loops"] for node in reads) == 0


def _nodes(plan: dict) -> list[dict]:
    return [plan, *(node for part in plan.get("Plans", ()) for node in _nodes(part))]
