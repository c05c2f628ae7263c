"""The page about agents: what it shows runs as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright import run_sync
from loopwright.documents import load
from loopwright.models import Models, ScriptedModel

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
BLOCKS = re.findall(r"^```(python|yaml)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
PYTHON = [text for kind, text in BLOCKS if kind == "python"]
YAML = [text for kind, text in BLOCKS if kind == "yaml" and text.startswith("schema")]
PRINTED = [
    "looked up prices; looked up volumes; looked up margins; looked up costs\n"
    "{'planning': 1, 'execution': 4, 'refinement': 1} ended by completed\n",
    "the capability Enough asked to terminate in execution\n",
    "42 after 2 calls\n",
    "completed 6 x 7? -> 42 1\n",
]
REPLIES = [
    {"step": "*planning*", "replies": ["Who reigned."]},
    {
        "step": "*execution*",
        "replies": ["Agrippa built the first.", "Hadrian built the present one."],
    },
    {"step": "*think*", "replies": ["hm", "TASK_COMPLETE: 42"]},
]


@pytest.mark.parametrize(("text", "printed"), [*zip(PYTHON, PRINTED, strict=True)])
def test_python_on_the_page_runs(text: str, printed: str, tmp_path: Path) -> None:
    """Each block is a program of its own, and prints what it is meant to."""
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


@pytest.mark.parametrize(
    ("text", "output"), [*zip(YAML, ["Hadrian built the present one.", "42"], strict=True)]
)
def test_documents_on_the_page_run(text: str, output: str, tmp_path: Path) -> None:
    """Each document loads, and gives its answer on scripted replies."""
    file = tmp_path / "document.yaml"
    file.write_text(text)
    models = Models(ScriptedModel(REPLIES))
    result = run_sync(load(file).step, "Who built it?", resources={"models": models})
    assert (result.satisfied, result.output) == (True, output)
