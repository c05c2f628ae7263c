"""A notebook in a real Jupyter kernel: displays of results, and progress that is updated in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

LOOP = """
from loopwright import Loop, MaxIterations, ScoreAtLeast, run
loop = Loop(lambda n: n + 1, lambda n: n / 5, lambda last: last.output,
            until=ScoreAtLeast(0.6) | MaxIterations(9), name="count")
"""
FAILING = """
from loopwright import Loop, run
def write(value):
    raise ValueError("no <date>")
failed = await run(Loop(write, name="fails"), 1)
failed
"""


def executed(folder: Path, *sources: str) -> list[list[Any]]:
    """Execute cells in a new kernel and return their outputs."""
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    client = NotebookClient(
        book, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return [cell.outputs for cell in book.cells]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of Jupyter, so that the test touches none of the user's."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    return tmp_path


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Jupyter's own libraries


def test_results_histories_and_loops_are_displayed(folder: Path) -> None:
    """The last line of a cell shows HTML with the curve, and one line where HTML is not supported."""
    _, result, history, loop, failed = executed(
        folder, LOOP, "result = await run(loop, 0)\nresult", "result.history", "loop",
        FAILING,
    )  # fmt: skip
    assert result[0]["data"]["text/plain"] == (
        "<Result of 'count': satisfied, reason condition_met, score 0.60, 3 iterations>"
    )
    assert all("<svg" in cell[0]["data"]["text/html"] for cell in (result, history))
    assert "ScoreAtLeast" in loop[0]["data"]["text/html"]
    html = failed[0]["data"]["text/html"]
    assert "no &lt;date&gt;" in html and "<summary>traceback</summary>" in html
    assert [len(cell) for cell in (result, history, loop, failed)] == [1, 1, 1, 1]


def test_progress_is_one_display_that_is_updated(folder: Path) -> None:
    """`progress=True` shows one display in a cell; after the run it has all iterations and the end."""
    _, shown = executed(folder, LOOP, "_ = await run(loop, 0, progress=True)")
    (output,) = shown
    assert output["output_type"] == "display_data"
    html = output["data"]["text/html"]
    assert html.count("<tr>") == 4
    assert "count: satisfied (condition_met)" in html
