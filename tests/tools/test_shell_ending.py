"""Commands: at a time limit or a cancel nothing of one is left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from processes import done, gone, noted, pids

from loopwright.errors import StepError, StepTimeout
from loopwright.tools import ShellStep, run_command


@pytest.mark.slow
def test_a_command_at_its_time_limit_is_ended_with_its_children(tmp_path: Path) -> None:
    """SIGTERM, a grace, SIGKILL, for the whole group, and the pipes do not hold us."""
    script = "trap '' TERM; sleep 60 & touch $! $$; echo begun; wait"
    result = done(run_command(script, cwd=tmp_path, timeout=1))
    assert (result.timed_out, result.exit_code, result.stdout) == (True, -9, "begun\n")
    assert len(pids(tmp_path)) == 2
    assert gone(tmp_path)


@pytest.mark.slow
def test_a_command_may_clean_up_when_it_is_ended() -> None:
    """SIGTERM comes first: what a command says then is still heard."""
    script = "trap 'echo cleaned; exit 5' TERM; echo begun; while :; do sleep 0.01; done"
    result = done(run_command(script, timeout=1))
    assert (result.timed_out, result.exit_code, result.stdout) == (True, 5, "begun\ncleaned\n")


@pytest.mark.slow
def test_a_grandchild_cannot_hold_the_pipes(tmp_path: Path) -> None:
    """A command that has ended is ended, though a child of it holds its output open."""
    result = done(run_command("sleep 60 & touch $!; echo done", cwd=tmp_path))
    assert (result.exit_code, result.stdout, result.timed_out) == (0, "done\n", False)
    assert gone(tmp_path)


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    """A child that let go of the pipes is ended with its command too."""
    done(run_command("sleep 60 >/dev/null 2>&1 & touch $!", cwd=tmp_path))
    assert len(pids(tmp_path)) == 1
    assert gone(tmp_path)


def test_a_cancelled_command_is_gone_with_its_children(tmp_path: Path) -> None:
    """Cancelling ends the group, also of a command that does not want to go."""

    async def cancelled() -> None:
        script = "trap '' TERM; sleep 60 & touch $! $$; wait"
        task = asyncio.ensure_future(run_command(script, cwd=tmp_path, stdin=b"x" * 1_000_000))
        await noted(tmp_path, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gone(tmp_path)

    done(cancelled())


def test_cancelling_twice_ends_it_at_once(tmp_path: Path) -> None:
    """A second cancel during the grace kills without one."""

    async def cancelled() -> None:
        script = "trap '' TERM; touch $$; while :; do sleep 0.01; done"
        task = asyncio.ensure_future(run_command(script, cwd=tmp_path))
        await noted(tmp_path, 1)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    done(cancelled())
    assert gone(tmp_path)


@pytest.mark.parametrize("cancels", [1, 2])
@pytest.mark.parametrize("turns", range(6))
def test_cancelling_while_it_starts_leaves_nothing(
    turns: int, cancels: int, tmp_path: Path
) -> None:
    """There is no moment at which a cancelled command is forgotten, however often that is said."""

    async def cancelled() -> None:
        task = asyncio.ensure_future(run_command("touch $$; sleep 60", cwd=tmp_path))
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    done(cancelled())
    assert gone(tmp_path)


@pytest.mark.parametrize("turns", range(4))
def test_cancelling_what_cannot_start_is_a_cancel(turns: int) -> None:
    """A command that is not there is cancelled or refused, and no error is left unseen."""

    async def cancelled() -> None:
        task = asyncio.ensure_future(run_command(["no-such-program"]))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, StepError)):
            await task

    done(cancelled())


def test_the_timeout_is_an_error_of_its_own() -> None:
    """A step past its own time limit raises StepTimeout."""
    with pytest.raises(StepTimeout):
        done(ShellStep(["sleep", "60"], timeout=0.05).run_command(None, None))  # type: ignore[arg-type]
