"""A loop in a workspace, killed anywhere, has the files of the undisturbed run. All points: `make torture`."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from .workspace_program import ENDINGS, KINDS

PROGRAM = Path(__file__).with_name("workspace_program.py")
CASES = [*((kind, ending) for kind in KINDS for ending in ENDINGS), ("copy", "trees")]
# Calls of git are more than half of all points of a run.
SAMPLED = ("git", "git", "before", "in_txn", "after")
EACH = 4  # points of each case; `make torture` tries all


@pytest.mark.parametrize(("kind", "ending"), CASES)
def test_a_killed_loop_has_the_files_of_the_undisturbed_run(
    kind: str, ending: str, tmp_path: Path
) -> None:
    """The same records, trees and files, at most one command again, and none of the user's files changed."""
    chosen = random.Random(f"{kind} {ending}")  # the same points in every run of the suite
    points = [f"{chosen.choice(SAMPLED)}:{chosen.randrange(1000)}" for _ in range(EACH)]
    command = [sys.executable, str(PROGRAM), str(tmp_path), kind, ending, *points]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
