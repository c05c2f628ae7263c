"""The page of workers and queues, over a journal in PostgreSQL and over a file."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from cluster.waiting import serving, until
from loopwright import Loop, MaxIterations, Usage
from loopwright.cluster import Worker, submit
from loopwright.cluster.shared_runs import open_runs
from loopwright.journal import open_journal

count = Loop(lambda n: n + 1, until=MaxIterations(2), name="count")


@contextmanager
def page_of(url: str, folder: Path) -> Iterator[tuple[str, str]]:
    """The page of a journal: its address and its token."""
    command = [sys.executable, "-m", "loopwright", "ui", "--no-open", "--journal", url]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            base, _, token = process.stdout.readline().strip().partition("/?token=")
            yield base, token
        finally:
            process.kill()


def read(base: str, token: str, path: str) -> str:
    request = urllib.request.Request(f"{base}{path}", headers={"authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return str(reply.read().decode())


async def test_the_page_shows_queues_workers_and_returned_runs(
    postgres_url: str, tmp_path: Path
) -> None:
    """Queues, workers, the reason why a run went back, where a workspace is, and what a queue spent."""
    journal = open_journal(postgres_url)
    run_id = await submit(count, 1, journal=journal, queue="slow")
    runs = open_runs(journal)
    await runs.prepare()
    await runs.put_back(run_id, delay=60.0, reason="this worker has <no> such step")
    await runs.pin(run_id, "another-machine")
    await runs.spend([("queue:slow", run_id, Usage(calls=2, usd=0.5))])
    async with serving(Worker(journal=journal, queues={"fast": 7})):
        with page_of(postgres_url, tmp_path) as (base, token):

            async def active() -> bool:  # also before its first run
                return "active for" in await asyncio.to_thread(read, base, token, "/workers/tables")

            await until(active)
            shown = read(base, token, "/workers")
            assert "fast=7" in shown
            link = '<a href="/?queue=slow">slow</a>'
            assert f'<th scope="row">{link} <strong>no worker serves it</strong></th>' in shown
            worker = urlencode({"worker": f"{socket.gethostname()}:{os.getpid()}"})
            assert f'<a href="/?{worker}">' in shown
            # The links open the list of runs with a filter, which its form and its events keep.
            of_queue = read(base, token, "/?queue=slow")
            assert f'data-run="{run_id}"' in of_queue
            assert 'name="queue" value="slow"' in of_queue
            assert 'data-events="/events?queue=slow' in of_queue
            assert '<td class="why">in the queue slow</td>' in of_queue
            assert run_id not in read(base, token, f"/?queue=fast&{worker}")
            assert "this worker has &lt;no&gt; such step" in shown
            assert "another-machine</th><td><strong>waits for a worker there</strong>" in shown
            assert "2 calls, $0.5000" in shown
            assert "no worker serves it" in read(base, token, "/workers/tables")
            assert f" s ago by {socket.gethostname()}:{os.getpid()}</p>" in shown
            await runs.pause_queue("slow", on=True)
            assert "slow</a> <strong>paused</strong>" in read(base, token, "/workers/tables")
            # A run that waits for a worker can be cancelled.
            assert f"/runs/{run_id}/cancel" in read(base, token, f"/runs/{run_id}")
    await runs.close()
    await journal.close()


def test_a_journal_of_one_machine_says_so(tmp_path: Path) -> None:
    """Over a file the page explains which journal workers share."""
    with page_of(f"sqlite:{tmp_path / 'runs.db'}", tmp_path) as (base, token):
        assert "postgres://HOST/DATABASE" in read(base, token, "/workers")
