"""The example of insight prints figures that follow from its recorded runs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from examples.programs import EXAMPLES, answer, loopwright, python
from loopwright.journal import RunInfo, open_journal

README = (EXAMPLES / "README.md").read_text(encoding="utf-8")
PROGRAM = EXAMPLES / "learn_from_runs" / "learn_from_runs.py"
URL = "sqlite:.loopwright/learn_from_runs/runs.db"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the example ran once; `printed` holds its output."""
    folder = tmp_path_factory.mktemp("learn")
    (folder / "printed").write_text(python(PROGRAM, cwd=folder), "utf-8")
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[RunInfo]:
    """The rows of all its runs."""

    async def read() -> list[RunInfo]:
        journal = open_journal(f"sqlite:{folder / '.loopwright/learn_from_runs/runs.db'}")
        found = await journal.runs(limit=1_000)
        await journal.close()
        return found

    return asyncio.run(read())


def test_it_prints_what_the_readme_shows(folder: Path) -> None:
    """The seeds decide every figure, so the page of examples shows the exact output."""
    shown = re.search(r"learn_from_runs\.py\n(job_matching: .*?)```", README, re.DOTALL)
    assert shown is not None
    assert (folder / "printed").read_text("utf-8") == shown[1]


def test_its_figures_are_those_of_the_recorded_runs(folder: Path, rows: list[RunInfo]) -> None:
    """Searches and calls are the sums over the rows of the journal, and new inputs are as many as old ones."""
    groups = ("job_matching-before", "job_matching-old", "job_matching-new",
              "writing-before", "writing-old", "writing-new")  # fmt: skip
    costs = []
    for group in groups:
        members = [row for row in rows if row.run_id.startswith(group)]
        assert len(members) == 60
        assert len({str(row.input) for row in members}) == 60
        calls = sum(row.usage.calls for row in members)
        costs.append(calls or sum(row.iterations for row in members))
    printed = re.findall(r" (\d+) (?:searches|calls)  ", (folder / "printed").read_text("utf-8"))
    assert [int(cost) for cost in printed] == costs


def test_the_suggestion_saves_calls_and_keeps_the_quality(folder: Path) -> None:
    """On inputs that took no part in the suggestion, each lower limit saves and loses at most 0.01."""
    text = (folder / "printed").read_text("utf-8")
    results = re.findall(r"saved: (\d+)% of \w+, change of quality: ([+-][\d.]+)", text)
    assert len(results) == 2
    assert all(int(saved) > 0 and float(change) >= -0.01 for saved, change in results)


def test_replay_reads_its_journal(folder: Path) -> None:
    """The command line reproduces every stop of both documents, also of the changed copies."""
    for name in ("job_matching", "writing"):
        report = loopwright(
            "measure", "limits", f"name:{name}", "--mix", "--journal", URL, cwd=folder
        )
        assert (report["reproduced"]["ok"], report["reproduced"]["of"]) == (180, 180)


def test_a_second_start_runs_nothing_again(folder: Path, rows: list[RunInfo]) -> None:
    """The runs are on record, so the output is the same and their number of iterations too."""
    assert python(PROGRAM, cwd=folder) == (folder / "printed").read_text("utf-8")
    code = (
        "import asyncio, json; from loopwright.journal import open_journal\n"
        f"store = open_journal({URL!r})\n"
        "rows = asyncio.run(store.runs(limit=1000))\n"
        "print(json.dumps([row.iterations for row in rows]))"
    )
    assert sum(answer(code, cwd=folder, path=EXAMPLES)) == sum(row.iterations for row in rows)
