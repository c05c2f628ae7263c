"""Commands: what one does is a result, and what it prints is taken whole or cut with a note."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import done

from loopwright.errors import StepError
from loopwright.tools import run_command
from loopwright.tools.process import tail


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (
            ["no-such-program"],
            {},
            (
                "cannot start 'no-such-program': there is no such program on PATH. "
                "Install it, or use its full path."
            ),
        ),
        (
            ["./plain"],
            {},
            (
                "cannot start './plain': the file is not executable. "
                "Change its mode, or run it with its interpreter."
            ),
        ),
        (
            ["true"],
            {"cwd": "/no/such"},
            "cannot start 'true': the directory '/no/such' does not exist. Create it, or correct cwd.",
        ),
        (
            ["true", *["x" * 100_000] * 60],
            {},
            (
                "cannot start 'true': its arguments and environment are too long together. "
                "Pass long values through stdin."
            ),
        ),
        (["./empty"], {}, "cannot start './empty': Exec format error"),
    ],
)
def test_what_cannot_be_started_is_an_error(
    command: list[str], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Only a command that cannot be started is an error, and it says why."""
    (tmp_path / "plain").write_text("echo")
    (tmp_path / "empty").write_bytes(b"\0")
    (tmp_path / "empty").chmod(0o700)
    with pytest.raises(StepError) as raised:
        done(run_command(command, **{"cwd": tmp_path, **options}))
    assert (str(raised.value), raised.value.kind) == (message, "cannot_start")


@pytest.mark.parametrize(
    ("script", "code", "ending"),
    [
        ("exit 7", 7, "exited with 7"),
        ("kill -SEGV $$", -11, "was ended by SIGSEGV"),
        ("kill -40 $$", -40, "was ended by signal 40"),
    ],
)
def test_a_crash_is_a_result(script: str, code: int, ending: str) -> None:
    """An exit code and a signal are values with words for them."""
    result = done(run_command(script))
    assert (result.exit_code, result.ending) == (code, ending)


def test_bytes_that_are_no_text_are_marked() -> None:
    """What is not UTF-8 becomes U+FFFD, and the result says so."""
    result = done(run_command(r"printf 'a\377b\303'; printf fine >&2"))
    assert (result.stdout, result.stderr, result.decoded_with_loss) == ("a�b�", "fine", True)


def test_characters_are_whole_at_every_seam() -> None:
    """A character that is read in two pieces is one character."""
    text = "aé🙂" * 400_000
    result = done(run_command(["cat"], stdin=text))
    assert (result.stdout == text, result.decoded_with_loss) == (True, False)


def test_endless_output_is_cut_and_ended() -> None:
    """Output beyond the limit ends the command, and the result keeps its beginning."""
    result = done(run_command("yes é & yes é >&2", limit=100_001))
    assert result.truncated
    assert not result.decoded_with_loss
    assert 0 < len((result.stdout + result.stderr).encode()) <= 100_001


def test_a_command_need_not_read_its_input() -> None:
    """A command that ignores a large input ends as it likes."""
    assert done(run_command(["true"], stdin=b"x" * 5_000_000)).exit_code == 0
    assert done(run_command("exec <&-; echo on", stdin=b"x" * 5_000_000)).stdout == "on\n"


def test_without_input_there_is_nothing_to_read() -> None:
    """A command that reads without having been given anything finds the end at once."""
    assert done(run_command(["cat"])).stdout == ""


def test_input_that_nobody_reads_holds_nothing_open() -> None:
    """A process that left the group may keep our pipe, but not us."""
    script = "exec 3<&0; setsid sleep 1 <&3 >/dev/null 2>&1 & echo on"

    async def unread() -> tuple[str, int, int]:
        before = len(list(Path("/proc/self/fd").iterdir()))
        result = await run_command(script, stdin=b"x" * 1_000_000)
        await asyncio.sleep(0)
        return result.stdout, before, len(list(Path("/proc/self/fd").iterdir()))

    said, before, after = done(unread())
    assert (said, after) == ("on\n", before)


def test_commands_leave_no_files_open() -> None:
    """Each command gives back what it opened."""

    async def several() -> tuple[int, int]:
        await run_command(["true"], stdin="x")
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            await run_command("cat; exit 3", stdin="x")
            with pytest.raises(StepError):
                await run_command(["no-such-program"])
        return before, len(list(Path("/proc/self/fd").iterdir()))

    before, after = done(several())
    assert before == after


@pytest.mark.slow
def test_fifty_megabytes_cost_little_more_than_twice() -> None:
    """Output of 50 MB takes less than 130 MB, and never 200."""
    program = (
        "import asyncio, resource\n"
        "from loopwright.tools import run_command\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "async def main():\n"
        "    await run_command(['true'])\n"
        "    before = used()\n"
        "    text = 'head -c 50000000 /dev/zero | tr \"\\\\0\" x'\n"
        "    found = await run_command(text)\n"
        "    assert len(found.stdout) == 50_000_000\n"
        "    print(used() - before)\n"
        "asyncio.run(main())\n"
    )
    result = done(run_command([sys.executable, "-c", program]))
    assert result.exit_code == 0, result.stderr
    assert int(result.stdout) * (1024 if sys.platform == "linux" else 1) < 130_000_000


def test_the_tail_of_a_text_says_what_it_left_out() -> None:
    """A text that is cut is marked, one that is not is whole."""
    assert tail(" abc\n", 3) == "abc"
    assert tail("0123456789", 4) == "[… 6 characters omitted …]\n6789"
