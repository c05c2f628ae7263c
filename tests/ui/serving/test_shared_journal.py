"""With a journal in PostgreSQL the runs are submitted, and workers execute them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright.cluster import Worker
from loopwright.errors import RunNotFound
from loopwright.ui.consent import trusted_contents
from loopwright.ui.journals import opened
from loopwright.ui.serving.service import Service

from .conftest import ACTS, WHO, confirmed


async def test_workers_execute_what_the_servers_of_two_folders_submit(
    folder: Path, tmp_path: Path, postgres_url: str
) -> None:
    """The same id in two folders is two runs, each is seen by its own server only, and a confirmed one may act."""
    other = tmp_path / "others"
    other.mkdir()
    (other / "acts.yaml").write_text(ACTS, "utf-8")
    async with opened(postgres_url) as store:
        first = Service(folder, store, postgres_url, note=print)
        second = Service(other, store, postgres_url, note=print)
        ids = []
        for service in (first, second):
            confirmation = await confirmed(service, "acts.yaml")
            asked = {
                "workflow": "acts.yaml",
                "id": "one",
                "confirmation": confirmation,
                "max_effects": 9,
            }
            started: Any = await service.run(asked, WHO)
            again: Any = await service.run(asked, WHO)
            assert again["run_id"] == started["run_id"]
            ids.append(started["run_id"])
        assert ids[0] != ids[1]
        status: Any = await first.status({"run": ids[0]}, WHO)
        assert (status["status"], status["waits_for"]) == (
            "queued",
            "queued: no worker serves the queue default",
        )
        with pytest.raises(RunNotFound, match="is not a run of the workflows in"):
            await first.status({"run": ids[1]}, WHO)
        trusted = trusted_contents()
        async with Worker(journal=postgres_url, trust=trusted) as worker:
            serving = asyncio.create_task(worker.serve())
            done: Any = await first.result({"run": ids[0], "wait": 60}, WHO)
            worker.stop()
            await serving
        assert (done["status"], done["output"]) == ("satisfied", "hello")
        keyless: Any = await first.run({"workflow": "plain.yaml", "input": "Ada"}, WHO)
        assert (await first.find(keyless["run_id"])).status == "queued"
