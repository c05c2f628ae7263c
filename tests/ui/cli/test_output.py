"""Output: results on stdout and the rest on stderr, whoever listens and whatever they can show."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.ui.cli.output import Output
from loopwright.ui.formatting import ASCII, UNICODE

from .conftest import Project


def stream(encoding: str) -> io.TextIOWrapper:
    """Return a stream of an encoding."""
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


@pytest.mark.parametrize(
    ("encoding", "signs", "shown"),
    [("utf-8", UNICODE, "ü → 日".encode()), ("ascii", ASCII, rb"\xfc \u2192 \u65e5"),
     ("latin-1", ASCII, b"\xfc \\u2192 \\u65e5")],
)  # fmt: skip
def test_signs_and_texts_fit_the_encoding(
    monkeypatch: pytest.MonkeyPatch, encoding: str, signs: object, shown: bytes
) -> None:
    """Where blocks and arrows cannot be written plain signs are, and no character loses a line."""
    out = stream(encoding)
    monkeypatch.setattr(sys, "stdout", out)
    with Output() as output:
        assert output.signs is signs
        output.write("ü → 日")
        output.write_json({"a": "é日"})
    written = out.buffer.getvalue()  # type: ignore[attr-defined]
    lines = written.splitlines()
    assert lines[0] == shown
    assert lines[1] == ('{"a": "é日"}'.encode() if signs is UNICODE else b'{"a": "\\u00e9\\u65e5"}')


def test_json_keeps_stdout_for_the_one_object(project: Project) -> None:
    """What a step prints, and what its child processes print, goes to stderr."""
    answer = project.run("run", "steps:printing", "--input", "x", "--json")
    assert answer.json["output"] == {"given": "x"}
    assert "from the step" in answer.err
    assert "from its child" in answer.err
    assert answer.out.count("\n") == 1


def test_a_reader_that_goes_away_is_quiet(project: Project) -> None:
    """A run whose output nobody reads any more goes on to its end and its exit code."""
    process = project.start("run", "steps:short", "--input", "x")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 3
    assert project.effects() == ["draft 1", "draft 2"]


def test_a_full_disk_behind_stdout_is_told(project: Project) -> None:
    """A result that could not be written is no success."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "loopwright", "runs", "--json"],
            cwd=project.folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "loopwright: output: No space left on device\n"


def test_a_pipe_gets_no_escape_sequences(project: Project) -> None:
    """Whatever colours are forced on other programs, plain lines stay plain."""
    answer = project.run("run", "steps:short", FORCE_COLOR="1", CLICOLOR_FORCE="1")
    assert "\x1b" not in answer.out
