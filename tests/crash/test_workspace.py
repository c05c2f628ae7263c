"""A loop in a workspace, killed anywhere, has the files of the undisturbed run. All points: `make torture`."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("workspace_program.py")
POSITIONS = {"git": 90, "before": 22, "in_txn": 22, "after": 22}
CASES = [
    ("copy", "failed"),
    ("copy", "satisfied"),
    ("worktree", "exhausted"),
    ("snapshot", "failed"),
]
EACH = 4  # points of each case; `make torture` tries all


@pytest.mark.parametrize(("kind", "ending"), CASES)
def test_a_killed_loop_has_the_files_of_the_undisturbed_run(
    kind: str, ending: str, tmp_path: Path
) -> None:
    """The same records, trees and files, at most one command again, and none of the user's files changed."""
    chosen = random.Random(f"{kind} {ending}")  # the same points in every run of the suite
    points = []
    for _ in range(EACH):
        position = chosen.choice(["git", "git", *POSITIONS])
        points.append(f"{position}:{chosen.randint(1, POSITIONS[position])}")
    command = [sys.executable, str(PROGRAM), str(tmp_path), kind, ending, *points]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
