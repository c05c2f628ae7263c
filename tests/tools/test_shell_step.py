"""The step that runs a command: its input and output, its failures and its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from processes import caught, done, gone

from loopwright import (
    Iteration,
    Loop,
    MemoryJournal,
    Reason,
    Status,
    Timeout,
    run,
    run_sync,
)
from loopwright.errors import ConfigurationError
from loopwright.tools import CommandResult, ShellStep, shell


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
                "shell: its output is not JSON at line 1 column 2: '{]'. Print one JSON value and "
                "nothing else on stdout, or use output: text."
            ),
        ),
        (
            shell(["printf", "9" * 5000], output="json", name="n"),
            "malformed",
            (
                "n: its output is not JSON at a number that is too long or a value that is too deep: "
                f"{'[… 4800 characters omitted …]' + chr(10) + '9' * 200!r}. Print one JSON value "
                "and nothing else on stdout, or use output: text."
            ),
        ),
        (
            shell(["yes"], limit=10),
            "output_too_large",
            "yes: its output passed 10 bytes and it was ended. Write the output to a file and print less.",
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
                "cat: the value '-rf' would be read as an option. "
                "Put '--' before it in the command, or pass it by env or stdin."
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
    assert result.warnings == (
        "invalid_utf8: odd: its output is not all UTF-8. The invalid bytes were replaced by U+FFFD.",
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: shell([]),
            "shell: [] is not a command. Use a list of words, or a script as text.",
        ),
        (
            lambda: shell("  "),
            "shell: '  ' is not a command. Use a list of words, or a script as text.",
        ),
        (
            lambda: shell(["a", 1]),  # type: ignore[list-item]
            "shell: ['a', 1] is not a command. Use a list of words, or a script as text.",
        ),
        (
            lambda: shell(["a"], output="jsno"),  # type: ignore[arg-type]
            "a: output: 'jsno' is not one of text, json, result; did you mean 'json'?",
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


def test_equal_runs_give_equal_outputs() -> None:
    """The time it took is no part of a result's JSON, or no two rounds would be the same."""
    assert CommandResult(0, seconds=1.0).to_json() == CommandResult(0, seconds=2.0).to_json()


@pytest.mark.slow
def test_a_command_out_of_time_is_heard_to_the_end() -> None:
    """The error of a time limit repeats what the command last said."""
    assert caught(shell("echo begun; sleep 60", timeout=1)).message == (
        "shell took longer than its 1 s and was ended; its last output: begun"
    )


def test_a_round_with_a_failing_command_is_a_record() -> None:
    """A command that fails under continue is a record with its error, and the loop goes on."""
    result = run_sync(Loop(shell("exit 1"), on_failure="continue"))
    assert result.reason == Reason.REPEATED_FAILURE
    assert all(isinstance(item, Iteration) and item.error for item in result.history)


def test_a_relative_folder_is_below_the_folder_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that ends the command's children runs elsewhere, which does not change the folder."""
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run_sync(shell("pwd", cwd="sub"), "").output == str(tmp_path / "sub")
