"""Commands: values stay data, what a command does is a result, and nothing is left behind."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import Iteration, Loop, MemoryJournal, Reason, Status, Timeout, run, run_sync
from loopwright.errors import ConfigurationError, StepError, StepTimeout
from loopwright.tools import CommandResult, ShellStep, run_command, shell
from loopwright.tools.process import PASSED_ON, STRING_BYTES, tail

PAYLOADS = (
    "$(touch hacked)",
    "`touch hacked`",
    "; touch hacked",
    "&& touch hacked",
    "| touch hacked",
    "> hacked",
    "\n touch hacked\n",
    "'; touch hacked; '",
    '"; touch hacked; "',
    "${IFS}touch${IFS}hacked",
    "$((1+1))",
    "*",
    "~",
    "-n",
    "--help",
    "\\",
    "%s%n",
    "a b  c",
    "",
    "é漢🙂",
)


def done(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end."""
    return asyncio.run(work)


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie that nobody reaps."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(folder: Path) -> bool:
    """Whether all processes noted in a folder are gone; one that was killed may need a moment."""
    for _ in range(2000):
        if not any(alive(pid) for pid in pids(folder)):
            return True
        time.sleep(0.001)
    return False


def pids(folder: Path) -> list[int]:
    """Return the numbers that scripts noted in a folder."""
    return [int(file.name) for file in folder.iterdir() if file.name.isdigit()]


async def noted(folder: Path, count: int) -> None:
    """Wait until scripts have noted so many processes."""
    while len(pids(folder)) < count:
        await asyncio.sleep(0.005)


def caught(step: Any, value: Any = None) -> Any:
    """Return the failure that a loop records when a step fails."""
    return run_sync(Loop(step), value).history[0].error


def test_a_list_is_a_program_with_its_arguments() -> None:
    """A list is run as it is, without a shell."""
    result = done(run_command(["printf", "%s-%s", "a b", "$HOME"]))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "a b-$HOME", "")


def test_a_text_is_a_script_that_stops_at_its_first_error() -> None:
    """A text is a script for /bin/sh -e, with its arguments as $1 and on."""
    result = done(run_command('echo "$2"; false; echo never', args=["a", "b"]))
    assert (result.exit_code, result.stdout) == (1, "b\n")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_value_becomes_program_text(payload: str, tmp_path: Path) -> None:
    """A value arrives unchanged by arguments, environment and stdin, and is never run."""
    script = 'printf "%s|%s|" "$1" "$VALUE"; cat'
    work = run_command(script, args=[payload], env={"VALUE": payload}, stdin=payload, cwd=tmp_path)
    assert done(work).stdout == f"{payload}|{payload}|{payload}"
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=15)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50))
def test_any_text_goes_through_unchanged(text: str) -> None:
    """Whatever the text, a command is handed exactly it."""
    result = done(run_command('printf "%s" "$1"; cat', args=[text], stdin=text))
    assert result.stdout == text + text


def test_no_key_of_ours_reaches_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment holds what is allow-listed and what was given, and nothing else."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("LC_TIME", "C")
    found = done(run_command(["env"], env={"GIVEN": "yes"})).stdout
    names = {line.partition("=")[0] for line in found.splitlines()}
    assert "canary" not in found
    assert {"PATH", "GIVEN", "LC_TIME"} <= names
    assert {n for n in names if not n.startswith("LC_")} <= PASSED_ON | {"GIVEN", "PWD", "_"}


def test_what_is_installed_beside_the_interpreter_is_found_first() -> None:
    """PATH begins with the folder of this interpreter, unless a step says otherwise."""
    found = done(run_command('printf "%s" "$PATH"')).stdout.split(":")
    assert (Path(found[0]), len(found) > 1) == (Path(sys.executable).parent, True)
    assert done(run_command('printf "%s" "$PATH"', env={"PATH": "/bin"})).stdout == "/bin"


LONG = "x" * STRING_BYTES
TOO_LONG = "is longer than 128 KiB; give it by stdin instead"
SURROGATE = "has a lone surrogate at character 1, which no encoding holds; replace it with U+FFFD"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"args": ["a\0b"]},
            "argument: has a NUL character, which would end it; remove it, or use stdin",
        ),
        ({"args": ["a\ud800"]}, f"argument: {SURROGATE}"),
        ({"args": [LONG]}, f"argument: {TOO_LONG}"),
        ({"env": {"V": LONG}}, f"env: V: {TOO_LONG}"),
        (
            {"env": {"A=B": "c"}},
            "env: 'A=B' is not a name of a variable; use letters, digits and _",
        ),
        ({"stdin": "a\ud800"}, f"stdin: {SURROGATE}"),
    ],
)
def test_what_no_process_can_be_handed_is_refused(options: dict[str, Any], message: str) -> None:
    """NUL, lone surrogates and strings above 128 KiB are errors that say what to do."""
    with pytest.raises(StepError) as raised:
        done(run_command(["true"], **options))
    assert (str(raised.value), raised.value.kind) == (message, "bad_argument")
    assert not raised.value.retryable


@pytest.mark.parametrize("length", [STRING_BYTES - 1, STRING_BYTES])
def test_the_longest_argument_is_the_one_the_system_takes(length: int) -> None:
    """What is let through can be started, and what is one longer is refused by us."""
    argument = "x" * length
    if length < STRING_BYTES:
        assert done(run_command(["printf", "%s", argument])).stdout == argument
    else:
        with pytest.raises(StepError):
            done(run_command(["printf", "%s", argument]))


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (
            ["no-such-program"],
            {},
            (
                "cannot start 'no-such-program': there is no such program on PATH; "
                "install it, or give its whole path"
            ),
        ),
        (
            ["./plain"],
            {},
            (
                "cannot start './plain': it may not be executed; "
                "give it the permission, or run it by its interpreter"
            ),
        ),
        (
            ["true"],
            {"cwd": "/no/such"},
            "cannot start 'true': there is no directory '/no/such'; make it first, or correct cwd",
        ),
        (
            ["true", *["x" * 100_000] * 60],
            {},
            (
                "cannot start 'true': its arguments and environment are too long together; "
                "give long values by stdin"
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


# The step.


def test_a_step_is_given_its_input_by_stdin() -> None:
    """Text goes in as it is, everything else as JSON, nothing as nothing."""
    assert run_sync(shell(["cat"]), "a\n\n").output == "a\n"
    assert run_sync(shell(["cat"]), {"a": [1, "é"]}).output == '{"a": [1, "é"]}'
    assert run_sync(shell(["cat"])).output == ""
    assert run_sync(shell(["cat"], stdin="other"), "a").output == "other"
    assert run_sync(shell(["cat"], stdin=""), "a").output == ""


def test_values_may_be_made_from_the_input() -> None:
    """env, args and stdin take functions of (value, context), plain or async."""

    async def later(value: Any, ctx: Any) -> Any:
        return {"path": ctx.path, "value": value}

    step = shell(
        'printf "%s %s " "$1" "$NUMBER"; cat',
        args=[lambda value, ctx: value["name"]],
        env={"NUMBER": lambda value, ctx: 7},
        stdin=later,
        name="said",
    )
    assert run_sync(step, {"name": "a"}).output == ('a 7 {"path": "said", "value": {"name": "a"}}')


@pytest.mark.parametrize(
    ("output", "script", "expected"),
    [
        ("text", "printf 'a\\n\\n'", "a\n"),
        ("json", "printf '{\"a\": [1, null]}\\n'", {"a": [1, None]}),
        (
            "result",
            "echo out; echo err >&2; exit 3",
            {
                "exit_code": 3,
                "stdout": "out\n",
                "stderr": "err\n",
                "truncated": False,
                "decoded_with_loss": False,
            },
        ),
    ],
)
def test_the_output_is_what_was_asked_for(output: Any, script: str, expected: Any) -> None:
    """text is stdout without its last newline, json its value, result everything."""
    assert run_sync(shell(script, output=output)).output == expected


@pytest.mark.parametrize(
    ("step", "kind", "message"),
    [
        (shell("echo why >&2; exit 2"), "exit_status", "shell exited with 2: why"),
        (shell("echo said; exit 2"), "exit_status", "shell exited with 2: said"),
        (shell(["false"]), "exit_status", "false exited with 1"),
        (shell("kill -9 $$", name="x"), "exit_status", "x was ended by SIGKILL"),
        (
            shell("echo '{]'", output="json"),
            "malformed",
            (
                "shell: its output is not JSON at line 1 column 2: '{]'; print one JSON value and "
                "nothing else on stdout, or ask for output: text"
            ),
        ),
        (
            shell(["printf", "9" * 5000], output="json", name="n"),
            "malformed",
            (
                "n: its output is not JSON at a number too long or a value too deep: "
                f"{'[… 4800 characters omitted …]' + chr(10) + '9' * 200!r}; print one JSON value "
                "and nothing else on stdout, or ask for output: text"
            ),
        ),
        (
            shell(["yes"], limit=10),
            "output_too_large",
            "yes: its output passed 10 bytes and it was ended; write it to a file and print less",
        ),
        (
            shell("sleep 60", timeout=0.1),
            "timeout",
            "shell took longer than its 0.1 s and was ended",
        ),
        (
            shell(["cat"], args=[lambda value, ctx: "-rf"]),
            "option_like",
            (
                "cat: the value '-rf' would be taken for an option; "
                "put '--' before it in the command, or give it by env or stdin"
            ),
        ),
    ],
)
def test_a_step_that_fails_says_why(step: ShellStep, kind: str, message: str) -> None:
    """The error names the step, the code and the tail of what was said."""
    found = caught(step)
    assert (found.kind, found.message, found.stage) == (kind, message, "execute")


def test_allowed_exit_codes_are_no_failure() -> None:
    """allow_exit says which codes are fine, and only those."""
    step = shell("echo none; exit 1", allow_exit=(0, 1))
    assert run_sync(step).output == "none"
    assert caught(shell("exit 0", allow_exit=(1,))).message == "shell exited with 0"


def test_a_dash_is_fine_where_nobody_takes_it_for_an_option() -> None:
    """After --, in a script, and in what the author wrote, a dash is a dash."""
    value = lambda value, ctx: "-n"
    assert run_sync(shell(["echo", "--"], args=[value])).output == "-- -n"
    assert run_sync(shell('printf "%s" "$1"', args=[value])).output == "-n"
    assert run_sync(shell(["printf", "%s"], args=["-n"])).output == "-n"


def test_lost_bytes_are_a_warning_of_the_run() -> None:
    """Who takes text learns that some of it was not."""
    result = run_sync(shell(r"printf '\377'", name="odd"))
    assert result.output == "�"
    assert result.warnings == ("odd: its output is not all UTF-8; what is not became U+FFFD",)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: shell([]),
            "shell: () is not a command; give a list of words, or a script as text",
        ),
        (
            lambda: shell("  "),
            "shell: '  ' is not a command; give a list of words, or a script as text",
        ),
        (
            lambda: shell(["a", 1]),  # type: ignore[list-item]
            "shell: ('a', 1) is not a command; give a list of words, or a script as text",
        ),
        (
            lambda: shell(["a"], output="jsno"),  # type: ignore[arg-type]
            "a: output: 'jsno' is none of text, json, result; did you mean 'json'?",
        ),
        (
            lambda: shell(["a"], timeout=0),
            "a: timeout: 0 is out of range; give a number above 0",
        ),
    ],
)
def test_a_command_that_could_mean_nothing_is_refused(make: Any, message: str) -> None:
    """Mistakes are found when the step is made."""
    with pytest.raises(ConfigurationError) as raised:
        make()
    assert str(raised.value) == message


def test_a_loop_deadline_ends_the_command_in_flight(tmp_path: Path) -> None:
    """The loop ends as timed out, and the command with all its children is gone."""
    script = "trap '' TERM; sleep 60 & touch $! $$; wait"
    loop = Loop(shell(script, cwd=tmp_path), guards=Timeout(0.4))
    result = run_sync(loop)
    assert (result.status, result.reason) == (Status.EXHAUSTED, Reason.TIMEOUT)
    assert result.history[0].interrupted
    assert gone(tmp_path)


class Crash(BaseException):
    """Stands for the death of the process."""


@pytest.mark.parametrize(("idempotent", "status"), [(False, "suspended"), (True, "satisfied")])
def test_a_command_in_flight_at_a_crash_is_asked_about(idempotent: bool, status: str) -> None:
    """A resumed run does not run a command twice unless that was allowed."""
    died: list[int] = []

    def value(_: Any, ctx: Any) -> str:
        if not died:
            died.append(1)
            raise Crash
        return "again"

    async def crashed() -> Any:
        journal = MemoryJournal()
        step = shell(["cat"], stdin=value, idempotent=idempotent)
        with pytest.raises(Crash):
            await run(step, "a", journal=journal, run_id="r")
        journal.crash()
        return await run(step, journal=journal, run_id="r")

    assert done(crashed()).status == status


def test_a_fingerprint_follows_the_meaning() -> None:
    """Another command, value or output is another step; another machine's folder is not."""
    first = shell(["a"], env={"X": "1"})
    others = (
        shell(["b"], env={"X": "1"}),
        shell(["a"], env={"X": "2"}),
        shell(["a"], env={"Y": "1"}),
        shell(["a"], env={"X": lambda v, c: v}),
        shell(["a"], env={"X": "1"}, output="json"),
        shell(["a"], env={"X": "1"}, cwd="sub"),
        shell(["a"], env={"X": "1"}, args=["1"]),
    )
    assert repr(first) == "shell(a)"
    assert len({first.fingerprint, *(step.fingerprint for step in others)}) == 8
    assert shell(["a"], env={"X": "1"}, cwd="/else").fingerprint == first.fingerprint


def test_a_value_with_a_fingerprint_is_known_by_it() -> None:
    """A callable object, such as a template, says itself what it is."""

    class Template:
        def __init__(self, text: str) -> None:
            self.fingerprint = text

        def __call__(self, value: Any, ctx: Any) -> str:
            return self.fingerprint

    one, two = (shell(["a"], stdin=Template(text)).fingerprint for text in ("one", "two"))
    assert one != two


def test_the_tail_of_a_text_says_what_it_left_out() -> None:
    """A text that is cut is marked, one that is not is whole."""
    assert tail(" abc\n", 3) == "abc"
    assert tail("0123456789", 4) == "[… 6 characters omitted …]\n6789"


def test_equal_runs_give_equal_outputs() -> None:
    """The time it took is no part of a result's JSON, or no two rounds would be the same."""
    assert CommandResult(0, seconds=1.0).to_json() == CommandResult(0, seconds=2.0).to_json()


def test_the_timeout_is_an_error_of_its_own() -> None:
    """A step past its own time limit raises StepTimeout."""
    with pytest.raises(StepTimeout):
        done(ShellStep(["sleep", "60"], timeout=0.05).look(None, None))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_command_out_of_time_is_heard_to_the_end() -> None:
    """The error of a time limit repeats what the command last said."""
    assert caught(shell("echo begun; sleep 60", timeout=1)).message == (
        "shell took longer than its 1 s and was ended; it last said: begun"
    )


def test_a_round_with_a_failing_command_is_a_record() -> None:
    """A command that fails under continue is a record with its error, and the loop goes on."""
    result = run_sync(Loop(shell("exit 1"), on_failure="continue"))
    assert result.reason == Reason.REPEATED_FAILURE
    assert all(isinstance(item, Iteration) and item.error for item in result.history)
