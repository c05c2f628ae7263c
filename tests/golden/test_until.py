"""Loops with sentences that an earlier version recorded, when a sentence was an evaluator: they resume."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from programs import UNTIL  # noqa: E402
from reading import plain  # noqa: E402

from loopwright import Result, run_sync  # noqa: E402
from loopwright.errors import ReplayMismatch  # noqa: E402
from loopwright.journal import open_journal  # noqa: E402

EXPECTED = json.loads((HERE / "until_expected.json").read_text())


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a copy of the recorded journal."""
    shutil.copy(HERE / "until.sqlite", tmp_path / "runs.db")
    return f"sqlite:{tmp_path / 'runs.db'}"


def again(name: str, url: str, run_id: str) -> Result:
    """Run a program under the id of a run on record."""
    program = UNTIL[name]()
    return run_sync(
        program.step, program.value, journal=url, run_id=run_id, resources=program.resources
    )


def recorded(url: str, run_id: str) -> tuple[list[Any], int]:
    """Return the iterations on record before the resume, and the calls that were finished."""

    async def read() -> tuple[list[Any], int]:
        store = open_journal(url)
        try:
            entries = await store.entries(run_id)
        finally:
            await store.close()
        rows = [entry.value.to_json() for entry in entries if entry.kind == "iteration"]
        return rows, sum(entry.usage.calls for entry in entries if entry.kind == "finished")

    return asyncio.run(read())


@pytest.mark.parametrize("name", UNTIL)
def test_a_finished_run_is_returned(name: str, url: str) -> None:
    """The former fingerprint is that of the same document, so its result is returned as it was recorded."""
    program = UNTIL[name]()
    assert program.step.former is not None
    assert program.step.former() != program.step.fingerprint
    assert plain(again(name, url, f"{name}-whole")) == EXPECTED[name]["whole"]


@pytest.mark.parametrize("name", UNTIL)
def test_an_interrupted_run_goes_on(name: str, url: str) -> None:
    """Its records stay; at most the judges of the iteration that was not finished are asked again."""
    before, calls = recorded(url, f"{name}-cut")
    result = again(name, url, f"{name}-cut")
    rows = next(iter(result.loops.values())).history
    after = [item.to_json() for item in rows]
    assert [row["evaluation"] for row in after[: len(before)] if "evaluation" in row] == [
        row["evaluation"] for row in before if "evaluation" in row
    ]
    fresh = sum(item.usage.calls for item in rows[len(before) :])
    assert result.usage.calls <= calls + fresh + 2
    assert result.status.value in ("satisfied", "exhausted")


def test_a_changed_document_is_still_refused(url: str, tmp_path: Path) -> None:
    """Only the former meaning of the same document is accepted."""
    from loopwright.documents import Settings, load

    folder = HERE / "documents"
    text = (folder / "either.yaml").read_text().replace("a number", "an animal")
    (tmp_path / "either.yaml").write_text(text)
    settings = Settings(model="scripted:replies", replies=str(folder / "either_replies.yaml"))
    found = load(tmp_path / "either.yaml", settings)
    with pytest.raises(ReplayMismatch, match="changed since the run was recorded"):
        run_sync(found.step, "a house", journal=url, run_id="either-cut", resources=found.resources)
