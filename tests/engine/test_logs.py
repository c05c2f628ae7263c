"""The logger `loopwright`: levels, fields, and no content unless it is asked for."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

from loopwright import Loop, MaxIterations, MemoryJournal, Passed, run_sync

SECRET = "the text of the user"


def played(**options: Any) -> Any:
    """Run a loop that warns, over two iterations."""

    def write(value: Any, ctx: Any) -> str:
        ctx.warn("it is short")
        return SECRET

    def judge(output: str) -> Any:
        return {"score": 0.5, "passed": False, "feedback": SECRET}

    loop = Loop(write, judge, until=Passed() | MaxIterations(2), name="refine")
    return run_sync(loop, SECRET, run_id="r1", **options)


def test_effects_iterations_ends_and_warnings_have_their_levels(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """DEBUG an effect, INFO an iteration and an end, WARNING a warning; each with run_id and path."""
    with caplog.at_level(logging.DEBUG, "loopwright"):
        played(journal=MemoryJournal())
    rows = [(r.levelname, r.path, r.getMessage()) for r in caplog.records]  # type: ignore[attr-defined]
    assert {r.run_id for r in caplog.records} == {"r1"}  # type: ignore[attr-defined]
    assert [path for level, path, _ in rows if level == "DEBUG"] == [
        "refine/1/execute", "refine/1/evaluate", "refine/2/execute", "refine/2/evaluate",
    ]  # fmt: skip
    assert [text for level, _, text in rows if level == "INFO"] == [
        "refine iteration 1: score 0.50, not yet",
        "refine iteration 2: score 0.50, not yet",
        "refine ended: exhausted (max_iterations)",
        "refine ended: exhausted (max_iterations)",
    ]
    assert [text for level, _, text in rows if level == "WARNING"] == [
        "refine/1/execute: it is short"
    ]


def test_content_is_logged_only_if_the_variable_is_set(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs, outputs, feedback and error messages stay out of the log by default."""
    with caplog.at_level(logging.DEBUG, "loopwright"):
        played()
        assert SECRET not in caplog.text
        monkeypatch.setenv("LOOPWRIGHT_LOG_CONTENT", "1")
        played()
        assert "refine/1/execute finished in" in caplog.text and f": {SECRET}" in caplog.text


def test_a_failure_is_logged_by_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    """The message of an exception is content."""

    def fail(value: object) -> object:
        raise ValueError(SECRET)

    with caplog.at_level(logging.DEBUG, "loopwright"):
        run_sync(Loop(fail, name="fails"), 1)
    assert "failed (ValueError)" in caplog.text
    assert SECRET not in caplog.text


def test_nothing_is_printed_without_a_handler() -> None:
    """A program that configures no logging sees no output of the library."""
    program = (
        "from loopwright import run_sync\n"
        "def write(value, ctx):\n    ctx.warn('short')\n    return 1\n"
        "assert run_sync(write, 1).warnings\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=True
    )
    assert (ended.stdout, ended.stderr) == (b"", b"")
