"""The examples of agents run without a key, in YAML and in Python, to the same end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
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


def test_the_coding_agent_repairs_a_copy(tmp_path: Path) -> None:
    """Two rounds: five of six tests, then all; the project itself stays as it was."""
    before = (CODING / "project" / "basket.py").read_text()
    found = _document(CODING, tmp_path)
    history = found["loops"]["repair"]["history"]
    assert (found["status"], [round(item["score"] * 6) for item in history]) == (
        "satisfied",
        [5, 6],
    )
    assert "assert 949 == 950" in history[0]["feedback"]
    assert (CODING / "project" / "basket.py").read_text() == before
    told = _python(CODING / "coding_agent.py", cwd=tmp_path)
    assert told.endswith(found["output"])
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=10)
    (tmp_path / "basket.py").write_text(before)
    subprocess.run(
        ["git", "apply"], input=found["output"], text=True, cwd=tmp_path, check=True, timeout=10
    )
    fixed = tmp_path / ".loopwright" / "coding_agent" / "basket.py"
    assert (tmp_path / "basket.py").read_text() == fixed.read_text()


def test_the_coding_agent_takes_no_settings_of_the_folder_it_is_in(tmp_path: Path) -> None:
    """In a clone it runs below this project, whose settings of pytest are not those of its copy."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nfilterwarnings = ["error"]\nno_such_setting = "x"\n'
    )
    assert _document(CODING, tmp_path)["status"] == "satisfied"


def test_the_coding_agent_has_no_score_where_no_test_ran(tmp_path: Path) -> None:
    """A test command that cannot run is an error of the evaluator, not a score of 0."""
    script = (
        f"import sys; sys.path.insert(0, {str(CODING)!r})\n"
        "import workspace\nworkspace.prepare()\n(workspace.COPY / 'test_basket.py').unlink()\n"
        "try:\n    print(workspace.tested())\nexcept RuntimeError as error:\n    print(error)\n"
    )
    (tmp_path / "script.py").write_text(script)
    assert _python("script.py", cwd=tmp_path).startswith("no test ran: no tests ran")


def test_the_tools_of_the_coding_agent_stay_in_its_copy(tmp_path: Path) -> None:
    """A path that leads out, by dots or absolute, is refused; so is a change of the tests."""
    text = """\
import workspace
workspace.prepare()
for call in (
    lambda: workspace.read_file("../../secret"),
    lambda: workspace.read_file("/etc/passwd"),
    lambda: workspace.write_file("/tmp/x", ""),
    lambda: workspace.write_file("test_basket.py", ""),
):
    try:
        print("done", call())
    except ValueError as error:
        print(error)
"""
    (tmp_path / "secret").write_text("secret")
    script = f"import sys; sys.path.insert(0, {str(CODING)!r})\n{text}"
    told = _python("-c", script, cwd=tmp_path).splitlines()
    assert [line.partition(" is ")[2][:7] for line in told] == [
        "outside",
        "outside",
        "outside",
        "a test;",
    ]


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
