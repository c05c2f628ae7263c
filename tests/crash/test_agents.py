"""Agents under kill -9: the same result, and no booking twice. All points: `make torture`."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from warm_python import warm_python

PROGRAM = Path(__file__).with_name("agents.py")
POSITIONS = ("after", "booked", "in_txn", "before")
SAMPLE = {"before": (4, 23), "in_txn": (11, 30), "after": (7, 19), "booked": (1, 2)}


def start(folder: Path, *kill: str) -> subprocess.CompletedProcess[str]:
    """Run the program on the journal of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [str(PROGRAM), str(folder / "runs.db"), str(folder), *kill]
    return warm_python().run(words)


def noted(folder: Path, file: str) -> Counter[str]:
    """Return how often each flight was booked, or each question answered."""
    path = folder / file
    return Counter(path.read_text(encoding="utf-8").split()) if path.exists() else Counter()


def crash(folder: Path, position: str, point: int, expected: str) -> bool | str:
    """Kill at a point and resume: False if there is no such point, "" if all is well, else what is not."""
    killed = start(folder, position, str(point))
    if killed.returncode == 0:
        return False
    where = f"{position} {point}"
    if killed.returncode != -signal.SIGKILL:
        return f"{where}: died of itself: {killed.stderr[-500:]}"
    resumed = start(folder)
    if resumed.returncode != 0:
        return f"{where}: the resume failed: {resumed.stderr[-500:]}"
    if resumed.stdout != expected:
        return f"{where}: another result: {resumed.stdout[:400]}"
    if noted(folder, "bill") != Counter(("R90", "R91")):
        return f"{where}: booked {dict(noted(folder, 'bill'))}"
    if max(noted(folder, "answers").values()) > 1:
        return f"{where}: asked again: {dict(noted(folder, 'answers'))}"
    return ""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program prints when nobody kills it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = start(folder)
    assert done.returncode == 0, done.stderr
    assert noted(folder, "bill") == Counter(("R90", "R91"))
    assert noted(folder, "answers").total() == 2
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("position", POSITIONS)
def test_a_killed_agent_resumes_to_the_same_result(
    tmp_path: Path, position: str, undisturbed: str
) -> None:
    """Phases, capabilities, tools, the approval and the conversation go on; nothing acts twice."""
    for point in SAMPLE[position]:
        found = crash(tmp_path / f"{position}-{point}", position, point, undisturbed)
        assert found == ""
