"""Kill the program at a point, resume it, and compare with the run that nobody disturbed."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warm_python import warm_python

PROGRAM = Path(__file__).with_name("program.py")
POSITIONS = ("before", "in_txn", "after", "paid")
IN_FLIGHT = 2  # the widest point of the program: two parallel branches


@dataclass(frozen=True)
class Reference:
    """The undisturbed run: what it prints and what it pays."""

    output: str
    bill: Counter[str]


def start(folder: Path, *kill: str, url: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program on the journal of a folder, or at a URL."""
    journal = url or str(folder / "runs.db")
    words = [str(PROGRAM), journal, str(folder / "bill"), *kill]
    return warm_python().run(words)


def paid(folder: Path) -> Counter[str]:
    """Return how often each effect was charged."""
    bill = folder / "bill"
    return Counter(bill.read_text(encoding="utf-8").split()) if bill.exists() else Counter()


def reference(folder: Path, *, url: str = "") -> Reference:
    """Run the program undisturbed."""
    folder.mkdir(parents=True, exist_ok=True)
    done = start(folder, url=url)
    assert done.returncode == 0, done.stderr
    return Reference(done.stdout, paid(folder))


def _without_usage(shown: str) -> Any:
    """Return a printed result without what was spent: a call in flight may have been billed twice."""
    data = json.loads(shown)
    for loop in [data, *data["loops"].values()]:
        for row in [loop, *loop.get("history", [])]:
            row.pop("usage", None)
            row.pop("usage_by", None)
    return data


def _unsound(shown: str, bill: Counter[str]) -> str:
    """Return what is wrong with the money in a result, compared with the provider's bill."""
    data = json.loads(shown)
    calls = data["usage"]["calls"]
    if not bill.total() <= calls <= bill.total() + IN_FLIGHT:
        return f"{calls} calls counted, {bill.total()} billed"
    inside = sum(row["usage"]["calls"] for row in data["loops"]["outer"]["history"])
    outside = calls - inside
    if not 2 <= outside <= 2 + IN_FLIGHT:  # prepare and report
        return f"{inside} calls in the rounds of {calls}"
    return ""


def crash(
    folder: Path,
    position: str,
    point: int,
    expected: Reference,
    *,
    url: str = "",
    killed_for_good: Callable[[], None] = lambda: None,
) -> bool | str:
    """Kill at a point and resume: False if there is no such point, "" if all is well, else what is not.

    `killed_for_good` lets the killed process count as dead at once, where that takes time.
    """
    folder.mkdir(parents=True)
    killed = start(folder, position, str(point), url=url)
    if killed.returncode == 0:
        return False
    where = f"{position} {point}"
    if killed.returncode != -signal.SIGKILL:
        return f"{where}: died of itself: {killed.stderr[-300:]}"
    killed_for_good()
    resumed = start(folder, url=url)
    if resumed.returncode != 0:
        return f"{where}: the resume failed: {resumed.stderr[-300:]}"
    if _without_usage(resumed.stdout) != _without_usage(expected.output):
        return f"{where}: another result: {resumed.stdout[:200]}"
    again, missing = paid(folder) - expected.bill, expected.bill - paid(folder)
    if again.total() > IN_FLIGHT or missing:
        return f"{where}: paid again: {dict(again)}, missing {dict(missing)}"
    wrong = _unsound(resumed.stdout, paid(folder))
    return f"{where}: {wrong}" if wrong else ""
