"""The examples of agents run without a key, in YAML and in Python, to the same end."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loopwright.journal import open_journal
from warm_python import warm_python

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
CODING = EXAMPLES / "coding_agent"
FOLDER = EXAMPLES / "folder_questions"
SERVER = ROOT / "tests" / "npm" / "node_modules" / ".bin" / "mcp-server-filesystem"


def _python(*words: object, cwd: Path) -> str:
    done = warm_python().run([*map(str, words)], cwd=cwd, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _document(folder: Path, cwd: Path) -> dict[str, Any]:
    file, replies = folder / f"{folder.name}.yaml", folder / "replies.yaml"
    told = _python(
        "-m", "loopwright", "run", file, "--yes", "--replies", replies, "--json", cwd=cwd
    )
    return json.loads(told)


def test_the_coding_agent_repairs_a_repository(tmp_path: Path) -> None:
    """One session: a part of the repair, a changed test that is put back, then the rest; main stays as it was."""
    example = tmp_path / "example"
    shutil.copytree(CODING, example, ignore=shutil.ignore_patterns("__pycache__", ".loopwright"))
    told = _python(
        "-m", "loopwright", "run", "example/coding_agent.yaml", "--yes", "--json", cwd=tmp_path
    )
    result = json.loads(told)
    history = result["loops"]["repair"]["history"]
    assert (result["status"], [round(item["score"] * 6) for item in history]) == (
        "satisfied",
        [4, 4, 6],
    )
    assert history[1]["evaluation"]["tampered"]["paths"] == ["test_basket.py"]
    assert result["loops"]["repair"]["held_out"]["tests"]["score"] == 1
    sessions = [call["session"] for call in asyncio.run(_agent_calls(tmp_path, result["run_id"]))]
    assert (len(sessions), len(set(sessions))) == (3, 1)
    repository, branch = (
        example / ".loopwright" / "coding_agent",
        result["loops"]["repair"]["workspace"]["branch"],
    )
    before = (CODING / "project" / "basket.py").read_text()
    assert (repository / "basket.py").read_text() == before
    subprocess.run(["git", "checkout", "-q", branch], cwd=repository, check=True, timeout=10)
    assert "6 passed" in _python("-m", "pytest", "-q", cwd=repository)


def test_the_coding_agent_names_an_unknown_agent(tmp_path: Path) -> None:
    """A wrong name ends with a message that has the nearest name, before anything runs."""
    example = tmp_path / "example"
    shutil.copytree(CODING, example, ignore=shutil.ignore_patterns("__pycache__", ".loopwright"))
    done = subprocess.run(
        [sys.executable, example / "coding_agent.py", "--agent", "cloude"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, "did you mean 'claude'" in done.stderr) == (2, True)


async def _agent_calls(folder: Path, run_id: str) -> list[Any]:
    """Return the recorded calls of the coding agent of a run."""
    journal = open_journal(f"sqlite:{folder / '.loopwright' / 'runs.db'}")
    entries = await journal.entries(run_id)
    await journal.close()
    return [e.value for e in entries if e.kind == "finished" and "/execute/call-" in e.path]


async def _calls(folder: Path, run_id: str) -> list[Any]:
    """Return how the calls of tools in a run ended."""
    journal = open_journal(f"sqlite:{folder / '.loopwright' / 'runs.db'}")
    entries = await journal.entries(run_id)
    await journal.close()
    return [e.value for e in entries if e.kind == "finished" and "/call-" in e.path]


@pytest.fixture
def server() -> None:
    """Say loudly that the server is missing; where there is a CI that is a failure."""
    if not SERVER.exists():
        what = "the npm servers are missing: run `make npm` (needs node 20 and npm)"
        if os.environ.get("CI"):
            pytest.fail(what)
        pytest.skip(what)


@pytest.mark.usefixtures("server")
def test_the_folder_answers_with_quotations_that_are_in_its_files(tmp_path: Path) -> None:
    """It plans, reads through the server, and answers; a misquotation costs a round."""
    found = _document(FOLDER, tmp_path)
    report = found["agents"]["answer"]
    assert report["phase_iterations"] == {"planning": 1, "execution": 3, "refinement": 2}
    assert (found["status"], report["ended_by"]) == ("satisfied", "condition_met")
    calls = asyncio.run(_calls(tmp_path, found["run_id"]))
    assert len(calls) == 4
    assert "remote.md" in calls[0]["output"]
    assert all("error" not in call for call in calls)
    scores = [item["score"] for item in found["loops"]["refinement"]["history"]]
    assert scores == [pytest.approx(2 / 3), 1.0]
    assert (
        "the trip is booked' is not in remote.md"
        in found["loops"]["refinement"]["history"][0]["feedback"]
    )
    told = _python(FOLDER / "folder_questions.py", cwd=tmp_path)
    assert told.endswith(f"planning 1, execution 3, refinement 2\n\n{found['output']}\n")
