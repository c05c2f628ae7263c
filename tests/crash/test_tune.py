"""A run whose limits a person changes, killed anywhere, ends at these limits and pays nothing twice."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("tune_program.py")
COMMITS = 20  # of the journal in a tuned run


def test_a_killed_run_keeps_the_limits_of_a_person(tmp_path: Path) -> None:
    """The iterations, limits and calls are those of the undisturbed run; a request is in force fully or not at all."""
    chosen = random.Random(
        "tune"
    )  # the same points in every run of the suite; `make torture` tries all
    points = [f"{name}:{chosen.randint(2, COMMITS)}" for name in ("before", "in_txn", "after")]
    points += ["request-before:1", "request-after:1"]
    command = [sys.executable, str(PROGRAM), str(tmp_path), *points]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
