"""A command reports what it costs: issue 11, section 4."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loopwright import Budget, Loop, MaxIterations, Usage, run_sync
from loopwright.errors import ConfigurationError
from loopwright.records import Reason
from loopwright.tools import shell

REPORT = {"calls": 2, "input_tokens": 30, "output_tokens": 4, "usd": 0.25}


def _writes(text: str) -> str:
    return f"cat > \"$LOOPWRIGHT_USAGE\" <<'END'\n{text}\nEND\necho done"


def _ran(command: Any, **options: Any) -> Any:
    return run_sync(shell(command, name="s", **options), "in")


def test_a_command_reports_its_cost_in_the_file_that_is_named() -> None:
    """`$LOOPWRIGHT_USAGE` names a file of its own for each call; what it holds is spent."""
    result = _ran(_writes(json.dumps(REPORT)))
    assert (result.output, result.usage) == ("done", Usage(2, 30, 4, 0.25))


def test_a_report_counts_one_call_at_least() -> None:
    """Dollars alone are a call too."""
    assert _ran(_writes('{"usd": 0.5}')).usage == Usage(1, usd=0.5)


def test_a_report_of_a_command_that_fails_counts() -> None:
    """What a failed command spent is spent."""
    result = _ran(_writes('{"usd": 0.5}') + "\nexit 3")
    assert (result.reason, result.usage.usd) == (Reason.ERROR, 0.5)


@pytest.mark.parametrize(
    "text",
    ["no json", "[1]", '{"usd": -1}', '{"usd": "much"}', '{"calls": 1.5}', "{}", "[" * 9000, " " * 70_000,
     '{"usd": 1e999}'],
)  # fmt: skip
def test_a_report_that_cannot_be_read_is_a_warning(text: str) -> None:
    """It never fails the step, and nothing is guessed."""
    result = _ran(_writes(text))
    assert (result.status.value, result.usage) == ("satisfied", Usage())
    assert any("unreported_usage" in warning for warning in result.warnings)


def test_only_a_plain_file_is_read() -> None:
    """A pipe or a link in its place is refused without waiting."""
    for command in ('mkfifo "$LOOPWRIGHT_USAGE"', 'ln -s /etc/hostname "$LOOPWRIGHT_USAGE"'):
        result = _ran(command)
        assert result.usage == Usage()
        assert any("unreported_usage" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ("result.usage", Usage(1, 3, 4)),
        (
            {"usd": "total_cost_usd", "output_tokens": "result.usage.output_tokens"},
            Usage(1, 0, 4, 0.1),
        ),
        ({"usd": "turns.0.usd"}, Usage(1, usd=0.7)),
    ],
)
def test_usage_is_a_path_into_the_json_output(usage: Any, expected: Usage) -> None:
    """`usage:` takes a path to an object of figures, or a path for each figure."""
    said = {
        "total_cost_usd": 0.1,
        "result": {"usage": {"input_tokens": 3, "output_tokens": 4}},
        "turns": [{"usd": 0.7}],
    }
    assert _ran(["echo", json.dumps(said)], usage=usage).usage == expected


@pytest.mark.parametrize(("usage", "said"), [("a.b", "{}"), ("a", "text"), ("file", "{}")])
def test_a_declared_report_that_is_missing_is_a_warning(usage: str, said: str) -> None:
    """`unreported_usage` says that the cost is not counted."""
    result = _ran(["echo", said], usage=usage)
    assert any("unreported_usage" in warning for warning in result.warnings)


@pytest.mark.parametrize("usage", ["", "a..b", 3, {}, {"dollars": "x"}, {"usd": 3}])
def test_a_usage_that_names_no_place_is_refused(usage: Any) -> None:
    """With what is expected."""
    with pytest.raises(ConfigurationError, match="usage"):
        shell(["true"], usage=usage)


def test_dollars_over_a_command_that_reports_bind() -> None:
    """A loop over a command ends when its dollars are spent."""
    command = shell(_writes('{"usd": 0.4}'), usage="file")
    loop = Loop(command, until=MaxIterations(9) | Budget(usd=1.0), name="l")
    result = run_sync(loop, "x")
    assert (result.reason, result.iterations) == (Reason.BUDGET, 3)


def test_a_command_that_names_the_report_can_use_up_a_budget() -> None:
    """A command with `$LOOPWRIGHT_USAGE` in its text reports: no warning says that its budget cannot bind."""
    loop = Loop(shell(_writes('{"usd": 0.1}')), until=Budget(usd=0.25) | MaxIterations(9))
    result = run_sync(loop, "in")
    assert result.reason is Reason.BUDGET
    assert not any("budget_cannot_bind" in said for said in result.warnings)
