"""Journals that an earlier version recorded are opened, shown, resumed and rewound by this one."""

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

from programs import PROGRAMS  # noqa: E402
from reading import plain  # noqa: E402

from loopwright import Result, run_sync  # noqa: E402
from loopwright.journal import open_journal  # noqa: E402
from loopwright.ui.cli import main  # noqa: E402

EXPECTED = json.loads((HERE / "expected.json").read_text())


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a copy of the golden journal."""
    shutil.copy(HERE / "journal.sqlite", tmp_path / "runs.db")
    return f"sqlite:{tmp_path / 'runs.db'}"


def again(name: str, url: str, run_id: str) -> Result:
    """Run a program under the id of a run on record."""
    program = PROGRAMS[name]()
    return run_sync(
        program.step, program.value, journal=url, run_id=run_id, resources=program.resources
    )


def spent(result: Result) -> int:
    """Return the calls of a result."""
    return result.usage.calls


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_finished_run_is_returned(name: str, url: str) -> None:
    """Asking for a finished run with the same input and code returns it as it was recorded."""
    assert plain(again(name, url, f"{name}-whole")) == EXPECTED[name]["whole"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_interrupted_run_goes_on(name: str, url: str) -> None:
    """A run killed halfway by the earlier version ends as the one that was not killed."""
    whole, cut = again(name, url, f"{name}-whole"), again(name, url, f"{name}-cut")
    assert plain(cut) == EXPECTED[name]["cut"]
    if name != "remembers":  # its second run has learned from the first
        assert spent(whole) <= spent(cut) <= spent(whole) + 2  # the calls in flight at the kill


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_finished_run_is_rewound_and_runs_again(name: str, url: str) -> None:
    """Rewinding a run of the earlier version to its first entry discards nothing but what follows it."""

    async def rewind() -> None:
        store = open_journal(url)
        try:
            entries = await store.entries(f"{name}-whole")
            path = next(entry.path for entry in reversed(entries) if entry.kind == "finished")
            await store.rewind(f"{name}-whole", path)
        finally:
            await store.close()

    asyncio.run(rewind())
    assert plain(again(name, url, f"{name}-whole")) == EXPECTED[name]["whole"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_is_shown(name: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`runs` lists it and `show --json` prints the recorded status and output."""
    main(["runs", "--journal", url, "--json"])
    assert f"{name}-whole" in capsys.readouterr().out
    main(["show", f"{name}-whole", "--journal", url, "--json"])
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    expected = EXPECTED[name]["whole"]
    assert (shown["status"], shown["output"]) == (expected["status"], expected["output"])
