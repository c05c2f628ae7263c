"""Commands: values stay data, whatever they hold, and no key of ours is handed on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import done

from loopwright.errors import StepError
from loopwright.tools import run_command
from loopwright.tools.process import PASSED_ON, STRING_BYTES

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
    ours = {"LOOPWRIGHT_COMMAND"}  # by which the processes of a command are found
    assert {n for n in names if not n.startswith("LC_")} <= PASSED_ON | ours | {"GIVEN", "PWD", "_"}


def test_what_is_installed_beside_the_interpreter_is_found_first() -> None:
    """PATH begins with the folder of this interpreter, unless a step says otherwise."""
    found = done(run_command('printf "%s" "$PATH"')).stdout.split(":")
    assert (Path(found[0]), len(found) > 1) == (Path(sys.executable).parent, True)
    assert done(run_command('printf "%s" "$PATH"', env={"PATH": "/bin"})).stdout == "/bin"


LONG = "x" * STRING_BYTES
TOO_LONG = "is longer than 128 KiB. Pass the value through stdin."
SURROGATE = "has a lone surrogate at character 1, which cannot be encoded. Replace it with U+FFFD."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"args": ["a\0b"]},
            "argument: contains a NUL character. Remove it, or pass the value through stdin.",
        ),
        ({"args": ["a\ud800"]}, f"argument: {SURROGATE}"),
        ({"args": [LONG]}, f"argument: {TOO_LONG}"),
        ({"env": {"V": LONG}}, f"env: V: {TOO_LONG}"),
        (
            {"env": {"A=B": "c"}},
            "env: 'A=B' is not a variable name. Use letters, digits and _.",
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
