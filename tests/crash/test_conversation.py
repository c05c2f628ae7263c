"""A conversation killed in the middle goes on: the same words, the same result, nothing paid twice.

A call in flight when the process died may be billed once more, and its first bill counts as spent.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from warm_python import warm_python

PROGRAM = Path(__file__).with_name("conversation.py")
SAMPLE = {
    "before": (2, 16),
    "in_txn": (11,),
    "after": (4, 20),
    "asked": (3, 9),
    "paid": (5, 7),
}


def start(folder: Path, *kill: str) -> subprocess.CompletedProcess[str]:
    """Run the conversation on the journal of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [str(PROGRAM), str(folder / "runs.db"), str(folder / "bill"), *kill]
    return warm_python().run(words)


def billed(folder: Path) -> Counter[str]:
    """Return how often each call was billed: its path and all that was said in it."""
    return Counter((folder / "bill").read_text(encoding="utf-8").splitlines())


def without_usage(data: Any) -> Any:
    """Return a result without what was spent: a call in flight counts twice."""
    if isinstance(data, dict):
        return {k: without_usage(v) for k, v in data.items() if k not in ("usage", "usage_by")}
    return [without_usage(item) for item in data] if isinstance(data, list) else data


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Counter[str]]:
    """What the conversation prints and is billed when nobody kills it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = start(folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), billed(folder)


def test_the_undisturbed_conversation_is_worth_killing(
    undisturbed: tuple[Any, Counter[str]],
) -> None:
    """Four rounds, votes, a failed call, a winner judged again; the total is what was billed."""
    shown, bill = undisturbed
    assert (shown["status"], shown["iterations"], shown["output"]) == ("satisfied", 4, "four")
    assert shown["loops"]["talk"]["reported_score"] == 0.85
    apart = shown["usage_by"]
    # A call that failed as transient was billed by nobody: it is on the list of calls alone.
    assert shown["usage"]["calls"] == bill.total() - 1
    assert apart["work"]["calls"] + apart["judging"]["calls"] == shown["usage"]["calls"]
    assert apart["work"]["usd"] > 0
    assert apart["judging"]["usd"] > apart["work"]["usd"]


@pytest.mark.slow
@pytest.mark.parametrize("position", SAMPLE)
def test_a_killed_conversation_pays_only_the_call_in_flight(
    tmp_path: Path, undisturbed: tuple[Any, Counter[str]], position: str
) -> None:
    """After kill -9 and a resume: the same result, each call said and billed as in the other run."""
    expected, bill = undisturbed
    for point in SAMPLE[position]:
        folder = tmp_path / f"{position}-{point}"
        killed = start(folder, position, str(point))
        assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
        resumed = start(folder)
        assert resumed.returncode == 0, (point, resumed.stderr)
        shown = json.loads(resumed.stdout)
        assert without_usage(shown) == without_usage(expected), point
        again, missing = billed(folder) - bill, bill - billed(folder)
        assert again.total() <= 1, (point, again)
        assert not missing, (point, missing)
        calls = expected["usage"]["calls"]
        assert calls <= shown["usage"]["calls"] <= calls + 1, point
        if not again and shown["usage"]["calls"] == calls:
            assert shown["usage"] == expected["usage"]
            assert shown["usage_by"] == expected["usage_by"]
    assert start(folder).stdout == resumed.stdout, "a finished run is told again as it was"
    assert billed(folder) == bill + again
