"""A loop in a workspace, killed anywhere, has the files of the undisturbed run. All points: `make torture`."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from .torture_workspace import CASES

TESTS = Path(__file__).parents[1]
# Calls of git are more than half of all points of a run.
SAMPLED = ("git", "git", "before", "in_txn", "after")
SAMPLED_CASES = 17  # all with one tree, and one with three
EACH = 2  # points of each case; `make torture` tries all


@pytest.mark.parametrize(("kind", "ending"), CASES[:SAMPLED_CASES])
def test_a_killed_loop_has_the_files_of_the_undisturbed_run(
    kind: str, ending: str, tmp_path: Path
) -> None:
    """The same records, trees and files, at most one command again, and none of the user's files changed."""
    chosen = random.Random(f"{kind} {ending}")  # the same points in every run of the suite
    points = [f"{chosen.choice(SAMPLED)}:{chosen.randrange(1000)}" for _ in range(EACH)]
    command = [
        sys.executable,
        "-m",
        "crash.workspace_program",
        str(tmp_path),
        kind,
        ending,
        *points,
    ]
    done = subprocess.run(
        command, cwd=TESTS, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
