"""A loop that keeps or reverts, killed anywhere, has the accepted chain of the undisturbed run."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COMMITS = 28  # of the journal in a run of four iterations
EACH = 2  # points of each position; `make torture` tries all, and a long run with six kills


@pytest.mark.parametrize("position", ["before", "in_txn", "after"])
def test_a_killed_loop_accepts_the_same_changes(position: str, tmp_path: Path) -> None:
    """The same decisions, values, commits and files, and at most the change in flight again."""
    chosen = random.Random(position)  # the same points in every run of the suite
    points = [f"{position}:{chosen.randint(1, COMMITS)}" for _ in range(EACH)]
    _kill(tmp_path, *dict.fromkeys(points))


def test_a_killed_confirmation_measures_only_what_was_in_flight_again(tmp_path: Path) -> None:
    """The same values, decisions and curves; killed while the input, a base or an iteration is measured."""
    _kill(tmp_path, "confirm", "after:6", "in_txn:19", "before:25", "after:39")


def _kill(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "crash.keep_program", str(folder), "4", *words]
    done = subprocess.run(
        command, cwd=TESTS, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
