"""Evaluations under kill -9: no finished case is scored again, and the result is the same.

`python -m crash.test_cases` kills at many points of the journal, `make test` at a few of them.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from warm_python import warm_python

PROGRAM = Path(__file__).with_name("cases_program.py")
KILLS = (("in_txn", 20), ("after", 25), ("before", 12))  # one after the other, in one run
CASES = 300
EFFECTS = 2 * CASES
AT_ONCE = 16


def start(folder: Path, *kill: str) -> subprocess.CompletedProcess[str]:
    """Run the program on the journal of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return warm_python().run([str(PROGRAM), str(folder / "runs.db"), str(folder), *kill])


def killed_and_resumed(folder: Path, kills: list[tuple[str, int]], expected: str) -> None:
    """Kill the program at each point in turn, resume it, and compare with the run that nobody disturbed."""
    for position, point in kills:
        killed = start(folder, position, str(point))
        assert killed.returncode in (0, -signal.SIGKILL), killed.stderr
    resumed = start(folder)
    assert resumed.returncode == 0, resumed.stderr
    (calls, scores), (_, reference) = json.loads(resumed.stdout), json.loads(expected)
    assert scores == reference
    bill = Counter((folder / "bill").read_text(encoding="utf-8").split())
    assert len(bill) == EFFECTS
    # Only what was in flight at a kill acts again.
    assert bill.total() <= EFFECTS + AT_ONCE * len(kills)
    assert CASES <= calls <= CASES + AT_ONCE * len(kills)


def undisturbed(folder: Path) -> str:
    """Return what the program prints when nobody kills it."""
    done = start(folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_killed_evaluation_scores_no_finished_case_again(tmp_path: Path) -> None:
    """After three kills the scores are the same, and at most the calls in flight are repeated."""
    expected = undisturbed(tmp_path / "undisturbed")
    killed_and_resumed(tmp_path / "killed", list(KILLS), expected)


def main() -> int:
    """Kill at random points, and print how many runs were killed."""
    chances = random.Random(27)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        expected = undisturbed(root / "undisturbed")
        for number in range(20):
            kills = [
                (chances.choice(("before", "in_txn", "after")), chances.randint(1, 60))
                for _ in range(6)
            ]
            killed_and_resumed(root / str(number), kills, expected)
    print("20 runs with 6 kills each, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
