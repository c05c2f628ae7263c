"""Waits under kill -9: an event is taken once, and a wait is decided once.

`python -m crash.test_waiting` kills at every point of the journal, `make test` at a sample of them.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from warm_python import warm_python

PROGRAM = Path(__file__).with_name("waiting.py")
SAMPLE = {"before": (4, 9), "in_txn": (6, 13), "after": (5, 8, 11)}


def start(folder: Path, *kill: str) -> subprocess.CompletedProcess[str]:
    """Run the program on the journal of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return warm_python().run([str(PROGRAM), str(folder / "runs.db"), str(folder), *kill])


def bill(folder: Path) -> Counter[str]:
    """Return how often each call acted."""
    return Counter((folder / "bill").read_text(encoding="utf-8").split())


def killed_at(folder: Path, position: str, point: int, expected: str) -> bool:
    """Kill the program at a point and start it again; return False if it ended before the point."""
    killed = start(folder, position, str(point))
    if killed.returncode == 0:
        return False
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = start(folder)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout == expected
    # Only the call in flight may act again.
    assert sorted(bill(folder).values())[-2:-1] == [1]
    assert bill(folder).total() <= 7
    return True


def undisturbed(folder: Path) -> str:
    """Return what the program prints when nobody kills it."""
    done = start(folder)
    assert done.returncode == 0, done.stderr
    assert bill(folder).total() == 6
    assert '["max_iterations", 0, ' in done.stdout
    return done.stdout


@pytest.mark.slow
def test_a_killed_wait_takes_each_event_once(tmp_path: Path) -> None:
    """The result is the same, no row of a wait is left, and nothing is paid again except the call in flight."""
    expected = undisturbed(tmp_path / "undisturbed")
    for position, points in SAMPLE.items():
        for point in points:
            assert killed_at(tmp_path / f"{position}-{point}", position, point, expected)


def main() -> int:
    """Kill at every point, and print how many there were."""
    with tempfile.TemporaryDirectory() as name:
        root, count = Path(name), 0
        expected = undisturbed(root / "undisturbed")
        for position in SAMPLE:
            point = 1
            while killed_at(root / f"{position}-{point}", position, point, expected):
                point, count = point + 1, count + 1
        print(f"{count} points, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
