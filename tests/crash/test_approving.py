"""Approvals under kill -9: an answer that was given stays given, and no payment is made twice."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from warm_python import warm_python

PROGRAM = Path(__file__).with_name("approving.py")
SAMPLE = {"before": (5, 12), "in_txn": (8, 21), "after": (3, 10, 17), "paid": (1, 3)}


def start(folder: Path, *kill: str) -> subprocess.CompletedProcess[str]:
    """Run the program on the journal of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [str(PROGRAM), str(folder / "runs.db"), str(folder), *kill]
    return warm_python().run(words)


def noted(folder: Path, file: str) -> Counter[str]:
    """Return how often each payment was made, or each question answered."""
    path = folder / file
    return Counter(path.read_text(encoding="utf-8").split()) if path.exists() else Counter()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program prints when nobody kills it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = start(folder)
    assert done.returncode == 0, done.stderr
    assert noted(folder, "bill").total() == 3
    assert noted(folder, "answers").total() == 9
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("position", SAMPLE)
def test_answers_survive_the_process(tmp_path: Path, position: str, undisturbed: str) -> None:
    """The result is the same; nothing is paid twice; whoever got an answer through is not asked again."""
    for point in SAMPLE[position]:
        folder = tmp_path / f"{position}-{point}"
        killed = start(folder, position, str(point))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        resumed = start(folder)
        assert resumed.returncode == 0, resumed.stderr
        assert resumed.stdout == undisturbed
        assert noted(folder, "bill").total() == 3
        assert max(noted(folder, "answers").values()) == 1
