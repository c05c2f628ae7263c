"""Rows: one iteration is one line, on any width, and a run's end is one sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import (
    Evaluation,
    Failure,
    History,
    Iteration,
    Reason,
    Result,
    Status,
    Stop,
    Usage,
)
from loopwright.journal import Entry
from loopwright.records import Tampering
from loopwright.ui import formatting as texts
from loopwright.ui.cli.live import ColumnWidths, ending_line, ending_text, row_line, row_text
from loopwright.ui.formatting import ASCII, UNICODE, Signs
from loopwright.ui.rows import Ending, Progress, Row, answers_of, depth_of

GOOD = Iteration(2, output="x", evaluation=Evaluation(0.85, True, "Too\nlong"),
                 usage=Usage(1, 2, 3, 0.0012), seconds=1.2)  # fmt: skip
TAMPERING = Tampering("touched", ("tests/t.c",), "tests/t.c was changed and put back")
TOUCHED = Evaluation(0.5, False, "told", tampered=TAMPERING)
FILES = {"commit": "c", "tree": "t", "files": 1, "added": 2, "removed": 0}
BAD = Iteration(3, error=Failure("execute", "error", "no such thing"), seconds=0.004)


def plain(parts: list[object]) -> str:
    """Return a styled line as text."""
    return "".join(part if isinstance(part, str) else part[0] for part in parts)  # type: ignore[index]


@given(
    st.integers(60, 240),
    st.text(max_size=80),
    st.text(min_size=1, max_size=60).map(lambda name: name.replace("/", "")),
    st.integers(1, 1000),
    st.sampled_from([UNICODE, ASCII]),
)
def test_a_row_is_one_line_within_the_terminal(
    width: int, feedback: str, name: str, number: int, signs: Signs
) -> None:
    """Whatever a loop is called and told, its row has one line and at most the terminal's width."""
    item = Iteration(number, evaluation=Evaluation(0.849, False, feedback), seconds=3725)
    line = plain(row_line(Row(f"outer/1/{name}", item), ColumnWidths.within(width), signs))
    assert "\n" not in line
    assert texts.width(line) <= width


def test_a_row_on_a_terminal_reads_from_left_to_right() -> None:
    """Label, bar and score, verdict, feedback, cost and time."""
    line = plain(row_line(Row("refine", GOOD), ColumnWidths.within(100), UNICODE))
    assert line.startswith("refine 2 ")
    assert "████████░░ 0.85   ✓ passed     Too long" in line
    assert line.endswith(" $0.0012    1.2 s")


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (Row("refine", GOOD), "refine 2: score 0.85, passed, $0.0012, 1.2 s: Too long"),
        (Row("outer/1/inner", BAD), "  inner 3: failed, 4 ms: no such thing"),
        (Row("refine", Iteration(1, output="told")), "refine 1: 0 ms: told"),
        (
            Row("refine", Iteration(1, evaluation=Evaluation(0.5))),
            "refine 1: score 0.50, 0 ms",
        ),
        (
            Row("refine", Iteration(1, evaluation=Evaluation(0.5), explored=True)),
            "refine 1: score 0.50, 0 ms: explored",
        ),
        (
            Row("until", Iteration(1, evaluation=TOUCHED, files=FILES)),
            "until 1: score 0.50, not yet, 0 ms: files 1 +2 -0, protected: tests/t.c told",
        ),
    ],
)
def test_a_row_on_a_pipe_is_a_sentence(row: Row, line: str) -> None:
    """Indented by its nesting, its facts, then what the next round is told."""
    assert row_text(row, UNICODE) == line


@pytest.mark.parametrize(
    ("result", "status", "sentence"),
    [
        (
            Result(Status.SATISFIED, Reason.CONDITION_MET, "score 0.85 is at least 0.8", "x",
                   History([GOOD]), Usage(1, 2, 3, 0.0012), seconds=1.2),
            "",
            "Satisfied: score 0.85 is at least 0.8 (1 iteration, 1.2 s, 1 call, 5 tokens, $0.0012)",
        ),
        (
            Result(Status.EXHAUSTED, Reason.MAX_ITERATIONS, "a limit", "x",
                   History([GOOD]), seconds=1.2),
            "",
            "Exhausted: a limit (1 iteration, 1.2 s, best: iteration 2 with 0.85)",
        ),
        (
            Result(Status.FAILED, Reason.ERROR, "execute: no\nsuch thing", seconds=0.5),
            "",
            "Failed: execute: no such thing (500 ms)",
        ),
        (
            Result(Status.CANCELLED, Reason.CANCELLED, "stopped by SIGINT", seconds=2),
            "interrupted",
            "Interrupted: stopped by SIGINT (2.0 s)",
        ),
    ],
)  # fmt: skip
def test_why_a_run_ended_is_one_sentence(result: Result, status: str, sentence: str) -> None:
    """The status, the reason's detail with its figures, and what the run took."""
    assert ending_text(result, status) == sentence


def test_nesting_shows_as_depth() -> None:
    """A path holds the number of each round around it, so numbers in it count the loops."""
    assert [depth_of(p) for p in ("a", "wf/a", "a/2/execute/b", "a/2/b/10/c")] == [0, 0, 1, 2]


def test_only_votes_that_name_a_condition_are_conditions() -> None:
    """Other votes, and rounds without an evaluation, say nothing about conditions."""
    votes = (
        {"condition": "A", "answer": True},
        {"condition": "B", "answer": "no"},
        {"score": 1},
        3,
    )
    assert list(answers_of(Evaluation(votes=votes))) == [("A", "YES"), ("B", "NO")]
    assert list(answers_of(None)) == []


def test_progress_knows_what_is_in_flight_and_what_was_spent() -> None:
    """An effect is in flight from its start to its end or cut; its usage counts once it ended."""
    progress = Progress()
    progress.apply(Entry("started", "a/1/execute", 1.0, reserved=Usage(5)))
    progress.apply(Entry("started", "a/1/execute/inner", 2.0))
    assert progress.in_flight == {"a/1/execute": 1.0, "a/1/execute/inner": 2.0}
    progress.apply(Entry("cut", "a/1/execute/inner", 2.0, usage=Usage(1), seconds=4.0))
    progress.apply(Entry("finished", "a/1/execute", 1.0, usage=Usage(2), seconds=6.0))
    assert (progress.in_flight, progress.spent, progress.active) == ({}, Usage(3), 7.0)


def test_progress_recalled_counts_a_call_in_doubt_as_spent() -> None:
    """What an earlier process left in flight is in flight no more, but may have been billed."""
    progress = Progress()
    shown = progress.recall([
        Entry("started", "a/1/execute", 0.0),
        Entry("finished", "a/1/execute", 0.0, usage=Usage(1), seconds=1.0),
        Entry("iteration", "a", 1.0, value=GOOD),
        Entry("started", "a/2/execute", 1.0, reserved=Usage(4)),
    ])  # fmt: skip
    assert shown == [Row("a", GOOD)]
    assert (progress.in_flight, progress.spent, progress.active) == ({}, Usage(5, estimated=4), 1.0)


def test_the_end_of_an_inner_loop_is_told_and_that_of_the_run_left_to_the_run() -> None:
    """A loop inside the run has its own line; the root loop's end is the run's."""
    value = {"name": "b", "stop": Stop(Reason.MAX_ITERATIONS, "2 of 2").to_json(), "output": None}
    ending = Progress().apply(Entry("ended", "a/1/b", 3.0, value=value))[0]
    assert isinstance(ending, Ending)
    assert ending_line(ending, UNICODE) == "  b exhausted: 2 of 2"
    assert Progress().apply(Entry("ended", "a", 3.0, value=value)) == []


def test_the_end_of_an_inner_loop_names_the_loop_once() -> None:
    """The detail of a failed condition begins with the name of its loop, which the line has already."""
    ending = Ending("a/1/b", Stop(Reason.ERROR, "b: MyCondition: no such key"))
    assert ending_line(ending, UNICODE) == "  b failed: MyCondition: no such key"


def test_the_end_of_a_loop_is_one_short_line() -> None:
    """The end of the run repeats the detail, which may have the output of a check, and has all of it."""
    ending = Ending("a", Stop(Reason.ERROR, "printed " * 100))
    assert len(ending_line(ending, UNICODE)) < 140
