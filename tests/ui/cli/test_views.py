"""Views: what people see on a terminal while a run goes on, and after."""

from __future__ import annotations

import io
import re
import sys

import pytest

from loopwright import Budget, Usage
from loopwright.journal import Entry
from loopwright.ui.cli import main
from loopwright.ui.cli.live import LiveView
from loopwright.ui.cli.output import Output

from .conftest import Project

MORE = """
from loopwright import Criterion, Evaluation, Loop, MaxIterations
from steps import broken

async def write(value):
    return "\\n".join(f"line {n}" for n in range(68))

async def grade(output):
    return Evaluation(0.5, False, "not short", improvements=("cut it",),
                      criteria=(Criterion("greets", True),
                                Criterion("is short", False, "68 lines")))

graded = Loop(write, grade, until=MaxIterations(1), name="graded")
tries = Loop(broken, until=MaxIterations(2), on_failure="continue", name="tries")
"""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        """What stands there in the end: without erased lines, styles and movements."""
        left = re.sub(r"[^\n]*\x1b\[2K", "", self.getvalue())
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", left)


def watched(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    """Call the command line on a terminal of 80 columns; return its code and what was shown."""
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", terminal)
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLUMNS", "80")
        patch.delenv("NO_COLOR", raising=False)
        code = main(arguments)
    return code, terminal.shown


@pytest.fixture
def more(project: Project) -> Project:
    """A folder with a loop whose output is long and whose judge has much to say."""
    (project.folder / "more.py").write_text(MORE)
    sys.modules.pop("more", None)
    return project


@pytest.mark.usefixtures("project")
def test_a_live_run_shows_rows_then_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row per iteration in columns, the end in one sentence."""
    code, shown = watched(monkeypatch, "run", "steps:refine", "--input", "x", "--run-id", "one")
    assert code == 0
    lines = [line.rstrip() for line in shown.splitlines()]
    assert lines[0] == "refine: run one in sqlite:.loopwright/runs.db"
    rows = [line for line in lines if re.match(r"refine \d ", line)]
    assert [row.split()[3:6] for row in rows] == [
        ["0.25", "✗", "not"], ["0.50", "✗", "not"], ["0.90", "✓", "passed"],
    ]  # fmt: skip
    assert all("$0.0100" in row for row in rows)
    assert "[INFO]" not in shown
    assert any(line.startswith("Satisfied: score 0.9 is at least 0.9 (3 iter") for line in lines)
    assert lines[-1] == "details: loopwright show one"


@pytest.mark.parametrize(
    ("cap", "flying", "line"),
    [
        (None, [], "⠋ | 20.0 s total | 2 calls"),
        (None, ["a/1/execute"], "⠋ a/1/execute 10.0 s | 20.0 s total | 2 calls"),
        (Budget(calls=5), ["a", "b"], "⠋ b 10.0 s and 1 more | 20.0 s total | 2 of 5 calls"),
        (Budget(tokens=100), ["a"], "⠋ a 10.0 s | 20.0 s total | 30 of 100 tokens"),
        (Budget(usd=0.5), ["a"], "⠋ a 10.0 s | 20.0 s total | $0.0000 of $0.5000"),
        (None, ["x" * 70 + "/end"], f"⠋ …{'x' * 35}/end 10.0 s | 20.0 s total | 2 calls"),
    ],
)  # fmt: skip
def test_the_line_below_says_what_is_in_flight(
    monkeypatch: pytest.MonkeyPatch, cap: Budget | None, flying: list[str], line: str
) -> None:
    """The latest effect and since when, how many more, the time in all, and spending of the cap."""
    monkeypatch.setenv("COLUMNS", "80")
    view = LiveView(Output(), cap=cap)
    view.progress.spent = Usage(2, 10, 20)
    for path in flying:
        view.progress.apply(Entry("started", path, 10.0))
    assert view.effects_line(20.0) == line


def test_a_long_output_is_cut_on_a_screen(more: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty lines at the end of a run, less in `show`; how many more there are, and the command that prints all."""
    _, shown = watched(monkeypatch, "run", "more:graded", "--run-id", "one")
    assert "  line 59\n  … 8 more lines; show --output prints all\n" in shown
    assert "line 60" not in shown
    shown = more.call("show", "one").out
    assert len(shown.splitlines()) <= 40
    left = int(shown.partition("  … ")[2].partition(" more lines: loopwright show one --output")[0])
    assert f"line {67 - left}\n" in shown and f"line {68 - left}\n" not in shown
    assert "line 67\n" in more.call("show", "one", "--output").out


def test_the_final_output_is_wrapped_on_a_terminal(
    more: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paragraph wider than the terminal is shown whole, broken between words."""
    words = " ".join(f"word{n}" for n in range(40))
    _, shown = watched(monkeypatch, "run", "steps:echo", "--input", words)
    end = shown.partition("output:")[2].partition("journal: ")[0]
    assert end.split() == words.split()
    assert all(len(line) <= 80 for line in end.splitlines())


def test_an_iteration_is_shown_with_its_criteria(more: Project) -> None:
    """What holds, what is missing, what would make it better."""
    more.call("run", "more:graded", "--run-id", "one")
    out = more.call("show", "one", "--iteration", "1").out
    assert "feedback:\nnot short\n  ✓ greets\n  ✗ is short: 68 lines\n  to do: cut it\n" in out
    assert out.count("not short") == 1


def test_failures_are_told_as_such(more: Project) -> None:
    """A failed round has its error, and so has its step in the trace."""
    assert more.call("run", "more:tries", "--run-id", "one").code == 1
    assert "error:\nValueError: no such thing\n" in more.call("show", "one", "--iteration", "1").out
    out = more.call("show", "one", "--trace").out
    assert "step execute" in out and "ValueError: no such thing  failed" in out


@pytest.mark.parametrize(
    ("room", "lines"),
    [
        (89, ["⠋ a/1/attempt-1 10.0 s (gpt-x) | 20.0 s of 1m 00s | $0.1000 of $0.5000, 2 of 9 calls"]),
        (50, ["⠋ a/1/attempt-1 10.0 s (gpt-x)", "  20.0 s of 1m 00s | $0.1000 of $0.5000, 2 of 9 c…"]),
    ],
)  # fmt: skip
def test_what_is_waited_for_and_used_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, room: int, lines: list[str]
) -> None:
    """The model, the time and each cap are told; on two lines where one is too short."""
    monkeypatch.setenv("COLUMNS", "80")
    view = LiveView(Output(), cap=Budget(calls=9, usd=0.5), seconds=60)
    view.progress.spent = Usage(2, 10, 20, 0.1)
    view.progress.apply(Entry("started", "a/1/attempt-1", 10.0, {"model": "openai:gpt-x"}))
    assert view.lines(20.0, room) == lines


def test_the_end_of_what_a_model_is_saying_is_shown_until_it_is_done() -> None:
    """Text as it comes, on one line, with visible what a terminal would obey; gone with its call."""
    view = LiveView(Output())
    view.progress.apply(Entry("started", "a/attempt-1", 0.0, {"model": "m"}))
    assert view.reply(40) == ""
    for piece in ("first\n", "second ", "\x1b[31mthird"):
        view.show_text("a/attempt-1", piece)
    assert view.reply(40) == "  first second \\x1b[31mthird"
    assert view.reply(12) == "  …[31mthird"
    view.progress.apply(Entry("finished", "a/attempt-1", 1.0))
    assert view.reply(40) == ""
