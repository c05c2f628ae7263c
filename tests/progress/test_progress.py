"""Progress of a run: it shows each iteration and the end, and never changes the run."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest
from rich.console import Console

from loopwright import Evaluation, Loop, MaxIterations, MemoryJournal, Usage, resume, run, run_sync
from loopwright.errors import ConfigurationError
from loopwright.progress import automatic, notebook, plain, rich_rows, tqdm_bar
from loopwright.records import Reason

SCORES = [0.25, 0.5, 0.75]


def rated(limit: int = 3) -> Loop:
    """Return a loop whose iterations have these scores and cost a cent each."""

    def write(value: Any, ctx: Any) -> str:
        ctx.spend(Usage(calls=1, usd=0.01))
        return f"draft {value}"

    def judge(output: str, ctx: Any) -> Evaluation:
        score = SCORES[ctx.iteration - 1]
        return Evaluation(score, passed=False, feedback="shorter\n\x1b[2Jand clearer")

    return Loop(write, judge, until=MaxIterations(limit), name="refine")


def test_plain_writes_a_line_for_each_iteration_and_one_at_the_end() -> None:
    """Lines are printable, with score, verdict, time, cost and feedback."""
    lines: list[str] = []
    result = run_sync(rated(), 1, progress=plain(lines.append))
    assert result.reason is Reason.MAX_ITERATIONS
    assert len(lines) == 4
    assert all(line.endswith("\n") and line[:-1].isprintable() for line in lines)
    assert re.match(r"refine 2: score 0\.50, not yet, \d+ ms, \$0\.0100; shorter", lines[1])
    assert lines[3] == "refine: exhausted (max_iterations): 3 of 3 iterations used\n"


def test_inner_loops_are_indented() -> None:
    """Each outer loop adds two spaces."""
    lines: list[str] = []
    inner = Loop(lambda n: n, name="inner", until=MaxIterations(1))
    run_sync(Loop(inner, name="outer", until=MaxIterations(1)), 1, progress=plain(lines.append))
    assert [len(line) - len(line.lstrip(" ")) for line in lines] == [2, 0, 0]


def test_rich_rows_fit_the_terminal() -> None:
    """A row is one line, however narrow the terminal is, and control characters are visible text."""
    console = Console(file=io.StringIO(), width=40)
    run_sync(rated(), 1, progress=rich_rows(console))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    rows = text.splitlines()
    assert [row[:10] for row in rows[:3]] == ["refine   1", "refine   2", "refine   3"]
    assert all(len(row) <= 40 for row in rows)
    assert "\x1b" not in text


def test_tqdm_counts_against_the_limit_also_after_a_resume() -> None:
    """Recorded iterations are counted when the run is resumed; score and cost are shown."""

    async def both() -> tuple[str, str]:
        journal = MemoryJournal()
        first, second = io.StringIO(), io.StringIO()
        await run(rated(2), 1, journal=journal, run_id="r", progress=tqdm_bar(file=first))
        await resume(
            rated(2), "r", journal=journal, max_iterations=3, progress=tqdm_bar(file=second)
        )
        return first.getvalue(), second.getvalue()

    import asyncio

    first, second = asyncio.run(both())
    assert "2/2" in first and "score 0.50, $0.0200" in first
    assert "3/3" in second and "score 0.75" in second


def test_the_limit_is_known_without_a_journal() -> None:
    """A run that nothing records shows its limit too."""
    out = io.StringIO()
    run_sync(rated(3), 1, progress=tqdm_bar(file=out))
    assert "3/3" in out.getvalue()


def test_a_notebook_display_is_updated_in_place() -> None:
    """One display shows the curve and the iterations so far, and the end."""
    displays: list[list[str]] = []

    def display(html: str) -> Any:
        displays.append([html])
        return displays[-1].append

    run_sync(rated(), 1, progress=notebook(display))
    assert len(displays) == 1
    shown = displays[0]
    assert [html.count("<tr>") for html in shown[2:5]] == [2, 3, 4]
    assert "exhausted (max_iterations)" in shown[-1] and "<svg" in shown[-1]


def test_true_writes_lines_to_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """Where stderr is no terminal and there is no notebook, progress is plain lines."""
    assert not sys.stderr.isatty()
    run_sync(rated(1), 1, progress=True)
    assert capsys.readouterr().err.startswith("refine 1: score 0.25")
    assert isinstance(automatic(), plain)


def test_a_progress_that_fails_is_a_warning() -> None:
    """The run has the same result, and the warning has a code."""

    def write(_: str) -> None:
        raise OSError("no room")

    result = run_sync(rated(), 1, progress=plain(write))
    assert result.iterations == 3
    assert result.warnings[0].startswith("listener_failed: ")


def test_an_option_that_is_no_listener_is_refused() -> None:
    """The error names the option and the module."""
    with pytest.raises(ConfigurationError, match=r"progress.*loopwright\.progress"):
        run_sync(rated(), 1, progress="yes")  # type: ignore[arg-type]
