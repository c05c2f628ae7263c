"""The output of agents is hostile: it is bounded, never an error, and never a place for secrets."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loopwright import Status, agent, run, run_sync
from loopwright.coding.agents import Manifest, load_manifest
from loopwright.coding.agents.events import reader_of
from loopwright.coding.agents.program import Lines
from loopwright.journal import open_journal

from .fakes import FORMATS, WITH_END, fake, scripted

KEY = "sk-live-0123456789abcdef"


def program_of(tmp_path: Path, name: str, code: str, **options: Any) -> Any:
    made = scripted(tmp_path, name).model_copy(update={"program": [sys.executable, "-c", code]})
    return agent(made, "x", workspace="here", cwd=tmp_path, output="result", **options)


ODD = (
    "", "null", "[]", "{}", "{", '{"type": null}', '{"type": "result"}', '{"type": "assistant"}', '{"type": "assistant", "message": 3}',
    '{"type": "item.completed", "item": []}', '{"type": "turn.completed", "usage": {"input_tokens": -5, "output_tokens": 1e400}}',
    '{"type": "tool_use", "part": {"state": {"input": [1]}}}', '{"type": "step_finish", "part": {"tokens": {"input": true}}}',
    '{"type": "message", "role": "assistant", "content": {"a": 1}}', "\x1b[31mred\x1b[0m", "\ufffd" * 10, '{"a":' * 3000, "[" * 100_000,
    '{"type": "result", "total_cost_usd": NaN, "usage": 7, "permission_denials": 5}', "Tokens: 1.2.3k sent, 4..5M received.",
    '{"session_id": 4, "type": "system"}', '{"type": "error", "error": {"data": 3}}',
)  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_no_line_is_an_error(name: str) -> None:
    """Lines that are not events, in any order, leave a reader usable, and figures stay valid."""
    made = Manifest(program=["x"], events=name)  # type: ignore[arg-type]
    for start in range(len(ODD)):
        reader = reader_of(made)
        for line in (*ODD[start:], *ODD[:start]):
            reader.feed(line)
        reader.finish()
        assert reader.usage.tokens >= 0 and len(reader.text) <= 1024 * 1024 + 1


def test_lines_are_split_whatever_the_pieces() -> None:
    """The pieces of a stream do not matter, and a line above the limit is left out and counted."""
    data = "eins\nzwei ü\n\n{}\r\nlast".encode()
    for size in range(1, len(data) + 1):
        lines = Lines()
        result = [
            line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])
        ]
        assert [*result, *lines.rest()] == ["eins", "zwei ü", "", "{}", "last"]
    lines = Lines(limit=10)
    assert list(lines.feed(b"x" * 11 + b"\nshort\n" + b"y" * 50)) == ["short"]
    assert list(lines.feed(b"y\nend\n")) == ["end"] and lines.skipped == 2


HUGE = {
    "a line of 100 MB": "import sys\nfor _ in range(100): sys.stdout.write('x' * 1_000_000)\nprint()",
    "100,000 events": 'print(\'{"type": "assistant", "message": {"content": [{"type": "text", "text": "hi"}]}}\\n\' * 100_000)',
    "endless output": "import sys\nwhile True: sys.stdout.write('x' * 1_000_000 + '\\n')",
    "half of a character": "import sys\nsys.stdout.buffer.write('ü'.encode()[:1])",
}
MEASURED = """
import resource, sys
from loopwright import agent, run_sync
from loopwright.coding.agents import Manifest
made = Manifest(program=[sys.executable, "-c", sys.argv[1]], events="claude", end="required", name="mine")
run_sync(agent(made, "x", workspace="here", cwd=sys.argv[2]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if len(sys.argv) > 3 else 0
result = run_sync(agent(made, "x", workspace="here", cwd=sys.argv[2]))
print(result.error.kind, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_hostile_streams_need_little_memory(tmp_path: Path) -> None:
    """A long line, many events and endless output need less than 64 MB above an empty output."""

    def peak(code: str) -> tuple[str, int]:
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, code, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        )
        kind, size = done.stdout.split()
        return kind, int(size)

    _, rest = peak("pass")
    kinds = {}
    for name, code in HUGE.items():
        kinds[name], size = peak(code)
        assert size - rest <= 64, (name, size, rest)
    assert kinds["endless output"] == "output_too_large"
    assert kinds["half of a character"] == "unknown_outcome"


@pytest.mark.parametrize("name", WITH_END)
def test_live_lines_have_no_escapes_and_no_line_ends(tmp_path: Path, name: str) -> None:
    """Tools and messages arrive as lines while the agent works, without terminal escapes."""
    lines: list[str] = []
    script = [
        {"run": "true # \x1b[2J\x07"},
        {"write": {"a.txt": "x"}},
        {"say": "one\ntwo \x1b]0;title\x07 end"},
    ]
    run_sync(fake(tmp_path, name, script), on_text=lines.append)
    text = "".join(lines)
    assert "true" in text and "a.txt" in text and "one two" in text
    assert "\x1b" not in text and "\x07" not in text
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)


@pytest.mark.parametrize("name", FORMATS)
def test_no_key_reaches_journal_stream_or_live_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An agent that prints its key in messages, file names, commands and base64 leaves none of it in any store."""
    monkeypatch.setenv("MY_AGENT_KEY", KEY)
    lines: list[str] = []
    coded = base64.b64encode(f"key={KEY} and more".encode()).decode()
    script = [
        {"run": f"echo {KEY}"}, {"write": {f"{KEY}.txt": "x"}}, {"deny": f"curl {KEY}"}, {"stderr": KEY}, {"raw": f"note {KEY}"},
        {"raw": json.dumps({"x": KEY})}, {"say": f"My key is {KEY}, or {coded}"},
    ]  # fmt: skip
    url = f"sqlite:{tmp_path / 'runs.db'}"
    step = fake(tmp_path, name, script, pass_env=["MY_AGENT_KEY"], output="result", stream="full")
    result = asyncio.run(run(step, journal=url, run_id="r", on_text=lines.append))
    assert result.status is Status.SATISFIED and "[redacted]" in result.output["text"]

    async def entries() -> str:
        async with open_journal(url) as journal:
            return repr(await journal.entries("r"))

    stored = b"".join(
        path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and "runs.db" in str(path)
    )
    for place in (
        stored,
        repr(result).encode(),
        "".join(lines).encode(),
        asyncio.run(entries()).encode(),
    ):
        assert KEY.encode() not in place and coded.encode() not in place


def test_the_raw_stream_is_beside_the_journal(tmp_path: Path) -> None:
    """The end of the raw output is stored once, by its digest; `stream: off` stores none."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    output = run_sync(
        fake(tmp_path, "claude", [{"say": "hello"}], output="result"), journal=url
    ).output
    digest = output["stream"]
    stored = (tmp_path / "runs.db.files" / digest[:2] / digest).read_text()
    assert '"hello"' in stored and '"result"' in stored
    assert (
        run_sync(
            fake(tmp_path, "claude", [{"say": "hello"}], output="result", stream="off")
        ).output["stream"]
        == ""
    )


def test_only_named_variables_reach_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment is built: the keys of the manifest, `env`, and nothing else of ours."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0000000000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-0000000000000")
    code = "import os, json; print(json.dumps({'out': ' '.join(sorted(os.environ))}))"
    made = Manifest.model_validate(
        {
            **load_manifest("claude").model_dump(),
            "program": [sys.executable, "-c", code],
            "tested": [],
            "events": "fields",
            "fields": {"text": "/out"},
            "end": "none",
        }
    )
    names = str(
        run_sync(agent(made, "x", workspace="here", cwd=tmp_path, env={"MODE": "a"})).output
    ).split()
    assert {"ANTHROPIC_API_KEY", "MODE", "PATH", "HOME", "LOOPWRIGHT_RUN"} <= set(names)
    assert "AWS_SECRET_ACCESS_KEY" not in names


def test_a_home_folder_of_the_run_is_not_that_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`home: run` gives the program an empty home folder with the files of its manifest."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code = "import os, json; print(json.dumps({'out': os.environ['HOME'] + ' ' + ' '.join(os.listdir(os.environ['HOME']))}))"
    made = Manifest.model_validate(
        {
            "program": [sys.executable, "-c", code],
            "events": "fields",
            "fields": {"text": "/out"},
            "home": {".x/settings.json": "{}"},
            "name": "mine",
        }
    )
    home, *files = str(
        run_sync(agent(made, "x", workspace="here", cwd=tmp_path, home="run")).output
    ).split()
    assert Path(home).is_relative_to(tmp_path / "cache") and files == [".x"]
