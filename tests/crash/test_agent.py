"""An agent with tools, killed anywhere, goes on: the same result, and nothing is done twice.

Only a tool that is idempotent may act again. All points: `python -m crash.test_agent [POSITION…]` in the folder `tests`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from warm_python import warm_python

PROGRAM = Path(__file__).with_name("agent.py")
POSITIONS = ("before", "in_txn", "after", "called", "done")
SAMPLE = {"before": (9, 14), "in_txn": (16,), "after": (7, 12), "called": (2,), "done": (2, 3)}
IDEMPOTENT = "look"


def start(folder: Path, *kill: str) -> subprocess.CompletedProcess[str]:
    """Run the agent on the journal of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [str(PROGRAM), str(folder / "runs.db"), str(folder / "bill"), *kill]
    return warm_python().run(words, timeout=120)


def acts(folder: Path) -> Counter[str]:
    """Return what was done to the world, and how often."""
    lines: list[str] = []
    for name in ("bill", "bill.served"):
        file = folder / name
        lines += file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return Counter(line for line in lines if line != "start")


def without_usage(data: Any) -> Any:
    """Return a result without what was spent: a call of a model in flight counts twice."""
    if isinstance(data, dict):
        dropped = ("usage", "usage_by", "tokens")
        return {k: without_usage(v) for k, v in data.items() if k not in dropped}
    return [without_usage(item) for item in data] if isinstance(data, list) else data


def killed_at(folder: Path, position: str, point: int, expected: Any, whole: Counter[str]) -> Any:
    """Kill at a point and resume: False if there is no such point, "" if all is well, else what is not."""
    killed = start(folder, position, str(point))
    if killed.returncode == 0:
        return False
    where = f"{position} {point}"
    if killed.returncode != -signal.SIGKILL:
        return f"{where}: died of itself: {killed.stderr[-300:]}"
    resumed = start(folder)
    if resumed.returncode != 0:
        return f"{where}: the resume failed: {resumed.stderr[-300:]}"
    if without_usage(json.loads(resumed.stdout)) != without_usage(expected):
        return f"{where}: another result: {resumed.stdout[:300]}"
    again, missing = acts(folder) - whole, whole - acts(folder)
    twice = [line for line in again if not line.startswith(IDEMPOTENT)]
    return f"{where}: again {dict(again)}, missing {dict(missing)}" if twice or missing else ""


def undisturbed(folder: Path) -> tuple[Any, Counter[str]]:
    """Return what the agent prints and does when nobody kills it."""
    done = start(folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), acts(folder)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Counter[str]]:
    """What the agent prints and does when nobody kills it."""
    expected, whole = undisturbed(tmp_path_factory.mktemp("undisturbed") / "run")
    assert expected["output"] == "the answer"
    assert whole == Counter(["look 1", "send 2", 'call echo {"text": "three"}', "pay 4", "look 5"])
    return expected, whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("position", "point"), [(name, point) for name, points in SAMPLE.items() for point in points]
)
def test_a_killed_agent_does_nothing_twice(
    tmp_path: Path, position: str, point: int, reference: tuple[Any, Counter[str]]
) -> None:
    """After kill -9 in commits, before and after a tool acted: the same result, each act once."""
    found = killed_at(tmp_path / "killed", position, point, *reference)
    assert found == "", found


def main() -> int:
    """Kill at every point of every position; print what is not as it should be."""
    failures, total = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        expected, whole = undisturbed(root / "undisturbed")
        for position in sys.argv[1:] or POSITIONS:
            point = 1
            while (
                found := killed_at(root / f"{position}-{point}", position, point, expected, whole)
            ) is not False:
                if found:
                    failures.append(found)
                    print(found, flush=True)
                point += 1
            total += point - 1
            print(f"{position}: {point - 1} points", flush=True)
    print(f"{total - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
