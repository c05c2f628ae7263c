"""Journals that an earlier version recorded are opened, shown, resumed and rewound by this one."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from programs import PROGRAMS  # noqa: E402
from reading import plain  # noqa: E402

from loopwright import Result, run_sync  # noqa: E402
from loopwright.errors import ReplayMismatch  # noqa: E402
from loopwright.journal import Entry, RunInfo, open_journal  # noqa: E402
from loopwright.ui.cli import main  # noqa: E402
from loopwright.ui.documents import recordings_in  # noqa: E402

JOURNALS = sorted(path.parent.name for path in HERE.glob("*/expected.json"))
EXPECTED = {day: json.loads((HERE / day / "expected.json").read_text()) for day in JOURNALS}
WHOLE = [(day, name) for day in JOURNALS for name in EXPECTED[day]]
CUT = [(day, name) for day, name in WHOLE if "cut" in EXPECTED[day][name]]


@pytest.fixture
def url(day: str, tmp_path: Path) -> str:
    """Return the URL of a copy of the golden journal of a day."""
    shutil.copy(HERE / day / "journal.sqlite", tmp_path / "runs.db")
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


@pytest.mark.parametrize(("day", "name"), WHOLE)
def test_a_finished_run_is_returned(day: str, name: str, url: str) -> None:
    """Asking for a finished run with the same input and code returns it as it was recorded."""
    assert plain(again(name, url, f"{name}-whole")) == EXPECTED[day][name]["whole"]


def with_numbers(value: Any) -> Any:
    """Return a result whose past loops have numbers, which were texts in earlier versions."""
    if isinstance(value, list):
        return list(map(with_numbers, value))
    if not isinstance(value, dict):
        return value
    return {
        key: float(item) if key in ("round", "agreement") else with_numbers(item)
        for key, item in value.items()
    }


@pytest.mark.parametrize(("day", "name"), CUT)
def test_an_interrupted_run_goes_on(day: str, name: str, url: str) -> None:
    """A run killed halfway by the earlier version ends as the one that was not killed."""
    whole, cut = again(name, url, f"{name}-whole"), again(name, url, f"{name}-cut")
    assert with_numbers(plain(cut)) == with_numbers(EXPECTED[day][name]["cut"])
    if name != "remembers":  # its second run has learned from the first
        assert spent(whole) <= spent(cut) <= spent(whole) + 2  # the calls in flight at the kill


@pytest.mark.parametrize(("day", "name"), CUT)
def test_a_finished_run_is_rewound_and_runs_again(day: str, name: str, url: str) -> None:
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
    assert plain(again(name, url, f"{name}-whole")) == EXPECTED[day][name]["whole"]


@pytest.mark.parametrize(("day", "name"), WHOLE)
def test_a_run_is_shown(day: str, name: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`runs` lists it and `show --json` prints the recorded status and output."""
    main(["runs", "--limit", "100", "--journal", url, "--json"])
    assert f"{name}-whole" in capsys.readouterr().out
    main(["show", f"{name}-whole", "--journal", url, "--json"])
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    expected = EXPECTED[day][name]["whole"]
    assert (shown["status"], shown["output"]) == (expected["status"], expected["output"])


@pytest.mark.parametrize("day", JOURNALS)
def test_its_loops_are_replayed(day: str, url: str) -> None:
    """The conditions recorded with the runs reproduce the recorded stops, without the program."""

    async def read() -> list[tuple[RunInfo, list[Entry]]]:
        store = open_journal(url)
        try:
            return [
                (info, await store.entries(info.run_id)) for info in await store.runs(limit=100)
            ]
        finally:
            await store.close()

    reproduced: Counter[str] = Counter()
    for info, entries in asyncio.run(read()):
        loops = (info.source.get("bounds") or {}).get("loops") or ()
        for loop in {loop["name"] for loop in loops}:
            found = recordings_in([(info, entries)], loop)
            ended = [one for one in found.left_out if "has not ended" not in one.why]
            reproduced["no"] += len(
                [one for one in ended if "no recorded iteration" not in one.why]
            )
            reproduced["yes"] += len(found.items)
    assert reproduced["yes"] > 10
    assert reproduced["no"] == 0


FIRST = "2026-11-21"  # before fingerprints had a version
SAME = ("announce", "debate", "controller", "agents", "asks", "remembers")
CHANGED = {
    "native": "this version of Loopwright changed how many items of a list must succeed by default",
    "python": "this version of Loopwright changed that a loop ends when its evaluation passes",
}


@pytest.mark.parametrize("day", [FIRST])
@pytest.mark.parametrize("name", SAME)
def test_a_former_fingerprint_is_accepted(day: str, name: str, url: str) -> None:
    """A run whose document means the same is the recorded one, although its fingerprint is another."""
    rows = sqlite3.connect(url.removeprefix("sqlite:"))
    [status] = rows.execute(
        "SELECT status FROM runs WHERE run_id = ?", (f"{name}-whole",)
    ).fetchone()
    rows.close()
    assert again(name, url, f"{name}-whole").status.value == status


@pytest.mark.parametrize("day", [FIRST])
@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_meaning_is_named(day: str, name: str, url: str) -> None:
    """A run whose document means something else now is refused with what this version changed, without digests."""
    with pytest.raises(ReplayMismatch) as caught:
        again(name, url, f"{name}-whole")
    assert CHANGED[name] in str(caught.value)
    assert caught.value.recorded not in str(caught.value)
