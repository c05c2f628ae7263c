"""The commands `change_limits`, `fork` and `compare`: what they print, and how they refuse."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from loopwright import Loop, MaxIterations, run_sync
from loopwright.ui.cli import main

REPLIES = """
- step: "*/execute"
  replies: [one, two two, three three three]
"""
DOCUMENT = """
schema: loopwright/1
name: words
model: openai:gpt-4o-mini
steps:
  - name: write
    loop:
      execute: {prompt: "Write about {{ given.topic }}: {{ loop.iteration }}"}
      evaluate: [{check: {min_words: 50}}]
      until: [{max_iterations: 3}]
"""


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a suspended run and an ended one in its journal."""
    monkeypatch.chdir(tmp_path)
    Path(".loopwright").mkdir()
    journal = "sqlite:.loopwright/runs.db"

    def rate(value: int) -> dict[str, Any]:
        return {"score": value / 10, "passed": False}

    ended = Loop(lambda n: n + 1, rate, adapt=lambda i: i.output, until=MaxIterations(3), name="l")
    asking = Loop(lambda n: n, rate, until=MaxIterations(3), approve="iteration", name="l")
    run_sync(ended, 1, journal=journal, run_id="ended")
    run_sync(asking, 1, journal=journal, run_id="asking")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Return the exit code of a command, its output and its messages."""
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_tune_shows_and_requests_limits(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Limits in force, a dry run, a request, and the request among the limits in force."""
    code, out, _ = said(capsys, "limits", "asking")
    assert (code, out.splitlines()[1].split()) == (0, ["l", "max_iterations", "3", "1", "2"])
    code, out, _ = said(capsys, "limits", "asking", "--max-iterations", "1", "--dry-run")
    assert "below what is used" in out
    assert "dry run: 1 change" in out
    code, out, _ = said(capsys, "limits", "asking", "--timeout", "7200", "--dry-run")
    assert "timeout none to 2h 00m" in out
    code, out, _ = said(
        capsys, "limits", "asking", "--timeout", "5m", "--max-iterations", "9", "--json"
    )
    data = json.loads(out)
    assert set(data) == {"run_id", "status", "limits", "changes", "requested"}
    assert data["changes"] == [
        {"loop": "l", "key": "max_iterations", "old": 3, "new": 9},
        {"loop": "l", "key": "timeout", "old": None, "new": 300.0},
    ]
    shown = json.loads(said(capsys, "limits", "asking", "--json")[1])["limits"]
    assert [(one["key"], one["limit"]) for one in shown] == [
        ("max_iterations", 9),
        ("timeout", 300.0),
    ]


def test_compare_prints_columns_and_json(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column for each run, and the JSON contract."""
    code, out, _ = said(capsys, "compare", "ended", "asking")
    assert code == 0
    assert "they part at l/1/execute" in out
    data = json.loads(said(capsys, "compare", "ended", "asking", "--json", "--outputs")[1])
    assert set(data) == {"runs", "differs", "part_at", "paired"}
    assert [one["output"] for one in data["runs"]] == [4, 1]
    assert "- 4" in said(capsys, "compare", "ended", "asking", "--outputs")[1]


def test_compare_has_no_rows_for_scores_that_do_not_exist(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loops without an evaluator are compared without empty lines."""
    loop = Loop(lambda n: n + 1, until=MaxIterations(2), name="l")
    for run_id in ("one", "two"):
        run_sync(loop, 1, journal="sqlite:.loopwright/runs.db", run_id=run_id)
    code, out, _ = said(capsys, "compare", "one", "two")
    assert code == 0
    assert not any(line.startswith(("scores", "  iteration")) for line in out.splitlines())


def test_a_document_is_forked_with_another_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fork keeps the iterations before the path, and its prompts have the new value."""
    monkeypatch.chdir(tmp_path)
    Path("words.yaml").write_text(DOCUMENT)
    Path("replies.yaml").write_text(REPLIES)
    said(
        capsys,
        "run",
        "words.yaml",
        "--replies",
        "replies.yaml",
        "--run-id",
        "a",
        "--set",
        "topic=loops",
    )
    code, out, messages = said(
        capsys, "fork", "a", "write/3", "--set", "topic=forks", "--run-id", "b", "--json"
    )
    assert code == 3, messages
    assert json.loads(out)["run_id"] == "b"
    assert "b continues a from words/write/3, 2 calls, 13 tokens inherited" in messages
    data = json.loads(said(capsys, "compare", "a", "b", "--json")[1])
    assert data["differs"] == {"set topic": ["loops", "forks"]}
    assert data["runs"][1]["inherited"]["calls"] == 2
    code, out, _ = said(capsys, "export", "b", "--format", "jsonl")
    prompts = [line for line in out.splitlines() if "Write about forks: 3" in line]
    assert prompts
    assert "Write about loops: 3" not in out


@pytest.mark.parametrize(
    ("option", "unit"),
    [("calls", "calls"), ("total-tokens", "tokens"), ("effects", "effects"), ("usd", "usd")],
)
def test_a_fork_refuses_the_limits_that_run_refuses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    unit: str,
) -> None:
    """0 and a negative limit are errors with the sentence of `run`, and no run is created."""
    monkeypatch.chdir(tmp_path)
    Path("words.yaml").write_text(DOCUMENT)
    Path("replies.yaml").write_text(REPLIES)
    words = ["words.yaml", "--set", "topic=loops", "--replies", "replies.yaml"]
    said(capsys, "run", *words, "--run-id", "a")
    for value in ("0", "-1"):
        limit = f"--max-{option}={value}"
        _, _, of_run = said(capsys, "run", *words, limit)
        code, out, messages = said(capsys, "fork", "a", limit, "--run-id", "b")
        assert (code, out, messages) == (2, "", of_run)
        assert f"budget: {unit}: {value}" in messages
    assert said(capsys, "runs", "--json")[1].count('"run_id"') == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("limits nope", "there is no run 'nope'"),
        (
            "limits ended --max-iterations 9",
            "it is exhausted, so its limits have no effect; to continue it, resume it with a higher limit: "
            "loopwright resume ended --max-iterations N",
        ),
        ("limits asking --max-iterations clea", "did you mean 'clear'"),
        ("limits asking --max-iterations 1.5", "max_iterations: '1.5' is not an integer"),
        ("limits asking --max-usd nan", "max_usd: nan"),
        ("limits asking --max-usd clear", "there is nothing to clear"),
        ("limits asking --timeout soon", "timeout: 'soon' is not a duration"),
        ("limits asking --loop m --max-iterations 4", "asking has no loop 'm'"),
        ("fork nope", "there is no run 'nope'"),
        ("fork ended l/9", "nothing was recorded at 'l/9'; did you mean"),
        ("fork ended --doc missing.yaml", "there is no file 'missing.yaml'"),
        ("fork ended --run-id asking", "--run-id: there is a run asking; use another ID"),
        ("fork ended ''", "PATH: '' is empty"),
        ("fork ended /", "PATH: '/' is empty"),
        ("fork ended --run-id=", "--run-id: '' is empty"),
        ("fork ended --doc=", "--doc: '' is empty"),
        ("limits asking --max-calls 0", "max_calls: 0 is too small"),
        ("limits asking --max-calls=", "max_calls: '' is not an integer"),
        ("limits asking --max-effects -1", "max_effects: -1 is too small"),
        ("limits asking --max-total-tokens nan", "max_total_tokens: 'nan' is not an integer"),
        ("limits asking --timeout 0", "timeout: 0"),
        ("limits asking --timeout=", "timeout: '' is not a duration"),
        ("limits asking --deadline=", "deadline: ''"),
        ("limits asking --loop= --max-iterations 4", "--loop: '' is empty"),
        ("limits asking --at-once clear", "it can be changed for: none"),
        ("compare ended", "give 2 to 16 different runs"),
        ("compare ended asking --loop x", "ended has no loop 'x'"),
    ],
)
def test_wrong_commands(
    recorded: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    """One sentence, exit code 2, and the journal is unchanged."""
    code, out, messages = said(capsys, *shlex.split(words))
    assert (code, out) == (2, "")
    assert message in messages
    assert len(messages.strip().splitlines()) == 1
    assert said(capsys, "runs", "--json")[1].count('"run_id"') == 2
