"""Checks by commands: a command that fails has found something, one that cannot look has not."""

from __future__ import annotations

from typing import Any

import pytest
from checking import error, found, gaps, same

from loopwright import Criterion, Evaluation, Loop, Passed, run_sync
from loopwright.evaluators import check


def test_a_command_passes_with_exit_code_0() -> None:
    """What it printed is the feedback, and the output is its stdin."""
    assert found(check(command=["grep", "-c", "a"]), "a\nb\na") == Evaluation(
        1.0, True, "2", criteria=(Criterion("grep", True),)
    )


def test_a_command_that_fails_is_no_error() -> None:
    """Any other exit code does not pass; the tail of both streams is the feedback."""
    evaluation = found(check(command="echo out; echo err >&2; exit 3", name="lint"), "x")
    assert (evaluation.passed, evaluation.score) == (False, 0.0)
    assert evaluation.feedback == "lint exited with 3\nout\nerr"
    assert evaluation.improvements == ("lint: exited with 3: err",)
    assert gaps(found(check(command="kill -SEGV $$"), "x")) == ["was ended by SIGSEGV"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"command": ["no-such-program"]},
            ("check no-such-program: cannot start 'no-such-program': there is no such program on "
            "PATH. Install it, or use its full path."),
        ),
        (
            {"command": "exit 126", "name": "c"},
            "check c exited with 126, so nothing was checked: its shell could not run it",
        ),
        (
            {"command": "echo gone >&2; exit 127", "name": "c"},
            "check c exited with 127, so nothing was checked: gone",
        ),
        (
            {"command": "sleep 60", "name": "c", "timeout": 0.1},
            "check c: c took longer than its 0.1 s and was ended",
        ),
        (
            {"command": ["true"], "env": {"A": "\0"}},
            "check true: env: A: contains a NUL character. Remove it, or pass the value through stdin.",
        ),
    ],
)  # fmt: skip
def test_a_command_that_cannot_look_is_an_error(options: dict[str, Any], message: str) -> None:
    """Not found, not executable: no output can be checked. Too slow: this one was not."""
    kind = "check_error" if "took longer" in message or "NUL" in message else "evaluator_broken"
    assert error(check(**options)) == (kind, message)


def test_a_loop_goes_on_after_a_check_error_if_it_may() -> None:
    """Under continue the error is a record without a verdict, and not a failed check."""
    tries: list[int] = []

    def answer(value: Any) -> bool:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("disk")
        return True

    result = run_sync(Loop(same, check(answer), until=Passed(), on_failure="continue"), "x")
    first, second = result.history
    assert result.satisfied
    assert (first.evaluation, first.error and first.error.kind) == (None, "check_error")
    assert second.passed
