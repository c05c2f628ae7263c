"""A run with a workspace stays on the host that has its files."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loopwright import Loop, MaxIterations, Workspace, sequence
from loopwright.cluster import InMemoryDeliverer, Submission, Worker, submit, submit_all
from loopwright.cluster.shared_runs import SharedRuns, open_runs
from loopwright.cluster.worker import uses_workspace
from loopwright.journal import MemoryJournal, open_journal

from .waiting import serving, until, until_status


def plus_one(number: int) -> int:
    return number + 1


count = Loop(plus_one, until=MaxIterations(1), name="count")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "notes.txt").write_text("one")
    return place


def in_folder(folder: Path) -> Loop:
    return Loop(plus_one, until=MaxIterations(1), name="count", workspace=Workspace(folder))


def test_a_workspace_inside_a_step_counts(folder: Path) -> None:
    """A step keeps files if any step inside it has a workspace."""
    assert uses_workspace(sequence(count, in_folder(folder)))
    assert not uses_workspace(sequence(count, count))


async def test_a_run_whose_files_are_elsewhere_is_not_started_here(folder: Path) -> None:
    """It goes back with the host as the reason, and is not counted as a suspect."""
    journal, deliverer = MemoryJournal(), InMemoryDeliverer()
    step = in_folder(folder)
    run_id = await submit(step, 1, journal=journal, deliverer=deliverer)
    worker = Worker(journal=journal, steps=[step], deliverer=deliverer)
    async with worker:
        runs = worker.runs
        assert runs is not None
        await runs.pin(run_id, "elsewhere")

        async def returned() -> bool:
            return run_id in await runs.returns([run_id])

        assert await worker._run(run_id) is False
        await until(returned)
        assert "its workspace is on elsewhere" in (await runs.returns([run_id]))[run_id][0]
        row = await journal.find(run_id)
        assert (row.status, row.deliveries) == ("queued", 0)
        assert await runs.pinned() == {"elsewhere": [run_id]}


async def test_a_run_is_pinned_until_it_ends(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host that starts a run keeps it; an ended run is not pinned."""
    monkeypatch.chdir(tmp_path)  # another process of tests may have made the folder of stores here
    journal, deliverer = MemoryJournal(), InMemoryDeliverer()
    step = in_folder(folder)
    run_id = await submit(step, 1, journal=journal, deliverer=deliverer)
    async with serving(Worker(journal=journal, steps=[step], deliverer=deliverer)) as worker:
        await until_status(journal, run_id, "exhausted")
        assert worker.runs is not None
        assert await worker.runs.pinned() == {}


@pytest.fixture
async def shared(postgres_url: str) -> AsyncIterator[tuple[SharedRuns, list[str]]]:
    """The shared state of a PostgreSQL journal with two queued runs."""
    journal = open_journal(postgres_url)
    inputs = [(n, "") for n in range(2)]
    ids = await submit_all(
        Submission(count), inputs, journal=journal, deliverer=InMemoryDeliverer()
    )
    runs = open_runs(journal)
    await runs.enter({"default": 1})
    yield runs, ids
    await runs.close()
    await journal.close()


async def test_the_sweeper_leaves_a_run_on_its_host(shared: tuple[SharedRuns, list[str]]) -> None:
    """A run is due if a worker serves its host; the first host keeps it."""
    runs, (here, elsewhere) = shared
    assert await runs.pin(here, socket.gethostname()) == socket.gethostname()
    assert await runs.pin(here, "another") == socket.gethostname()
    assert await runs.pin(elsewhere, "elsewhere") == "elsewhere"
    assert [row.run_id for row in await runs.due()] == [here]
    assert await runs.pinned() == {socket.gethostname(): [here], "elsewhere": [elsewhere]}
    await runs.unpin(elsewhere)
    assert {row.run_id for row in await runs.due()} == {here, elsewhere}
