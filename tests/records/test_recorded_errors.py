"""Stored errors name nobody: rule of issue 11, section 5 and findings 3."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopwright import Loop, MaxIterations, run_sync
from loopwright.errors import StepError

SECRETS = (
    "ann@example.org",
    "10.0.0.7",
    "password=hunter2",
    "bob:hunter3@db",
    "sk-4f9a8b7c6d5e4f3a2b1c",
)
SAID = "login of " + " ".join(SECRETS)


def _fails(value: object) -> str:
    raise ValueError(SAID)


def _step_fails(value: object) -> str:
    raise StepError(SAID)


@pytest.mark.parametrize("execute", [_fails, _step_fails])
@pytest.mark.parametrize("on_failure", ["halt", "continue"])
def test_detail_history_and_file_hold_no_address_and_no_key(
    tmp_path: Path, execute: object, on_failure: str
) -> None:
    """`Result.detail`, the history and the journal's file are sanitised alike."""
    loop = Loop(execute, until=MaxIterations(2), name="l", on_failure=on_failure)
    result = run_sync(loop, 1, journal=f"sqlite:{tmp_path}/runs.db", run_id="r")
    file = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    error = result.history[0].error
    assert error is not None and "[EMAIL]" in error.message
    assert "[IP]" in result.detail
    for secret in SECRETS:
        assert secret not in result.detail
        assert secret not in error.message
        assert secret.encode() not in file
    again = run_sync(loop, 1, journal=f"sqlite:{tmp_path}/runs.db", run_id="r")
    assert again.detail == result.detail


def test_a_step_that_is_no_loop_is_sanitised_too(tmp_path: Path) -> None:
    """The run's own detail is clean, whatever kind of step failed."""
    result = run_sync(_fails, 1, journal=f"sqlite:{tmp_path}/runs.db")
    assert not [secret for secret in SECRETS if secret in result.detail]


def test_a_key_without_digits_is_known_by_its_prefix() -> None:
    """A key of letters only does not stay in the detail of a result; a name with the same beginning does."""

    def fail(_: int) -> int:
        raise ValueError("refused sk-proj-abcdefghijklmnopqrstuvwxyz for sk-learn")

    assert run_sync(fail, 1).detail.count("[TOKEN] for sk-learn") == 1
