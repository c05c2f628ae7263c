"""Following a run: whoever listens, however often the line drops, misses nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Server, copied, environ, serving

ROUNDS = 60


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Iterator[Server]:
    """A project of this test's own, and its page."""
    with serving(copied(folder, tmp_path / "own")) as made:
        yield made


def news(stream: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Iterate over the events of a stream: their ids and what they say."""
    number = 0
    for raw in stream:
        name, _, value = raw.decode().rstrip("\n").partition(": ")
        if name == "id":
            number = int(value)
        elif name == "data":
            yield number, json.loads(value)


def follow(server: Server, drops: int, seen: list[int]) -> None:
    """Follow the run from its beginning; with `drops`, hang up after so many events, again and again.

    Like a browser it comes back with the id of the last event that it took in.
    """
    last, ended = 0, False
    while not ended:
        with server.events("/runs/many/events?after=0", last or None) as stream:
            for count, (number, told) in enumerate(news(stream), start=1):
                last = number
                seen.extend(row[0] for row in told.get("loops", {}).get("many", {}).get("rows", []))
                ended = told["status"] in ("exhausted", "failed") and "loops" in told
                if ended or (drops and count >= drops):
                    break
        ended = ended or len(seen) >= ROUNDS


def test_nobody_misses_an_iteration(own: Server) -> None:
    """A run in progress is followed by three pages and a terminal, one over a line that keeps
    dropping."""
    program = [sys.executable, "-m", "loopwright"]
    process = subprocess.Popen(
        [*program, "run", "steps:many", "--run-id", "many", "--input", "x"], cwd=own.folder,
        env=environ(own.folder), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert "is run many" in process.stdout.readline() + (
        process.stderr.readline() if process.stderr else ""
    )
    watched = subprocess.Popen(
        [*program, "watch", "many"], cwd=own.folder, env=environ(own.folder),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    followers: list[list[int]] = [[], [], []]
    threads = [
        threading.Thread(target=follow, args=(own, drops, seen), daemon=True)
        for drops, seen in zip((0, 0, 1), followers, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    process.communicate(timeout=60)
    told, _ = watched.communicate(timeout=60)
    assert followers == [list(range(1, ROUNDS + 1))] * 3
    rows = [line.split()[1].rstrip(":") for line in told.splitlines() if line.startswith("many ")]
    assert [int(word) for word in rows if word.isdigit()] == list(range(1, ROUNDS + 1))


def test_a_stream_goes_on_after_the_last_event(server: Server) -> None:
    """The id of the last event says what is known; what is sent is what came after it."""
    with server.events("/runs/noted/events?after=0") as stream:
        number, told = next(news(stream))
    assert [row[0] for row in told["loops"]["release_note"]["rows"]] == list(range(1, 9))
    with server.events("/runs/noted/events?after=0", number) as stream:
        again, told = next(news(stream))
    assert again == number
    assert "loops" not in told


def test_a_run_that_is_not_there_has_no_stream(server: Server) -> None:
    """A stream of nothing is an answer, not a wait."""
    assert server.ask("/runs/none/events")[0] == 404
    assert server.ask("/runs/none/iteration?loop=a&number=1")[0] == 404


def test_a_run_is_exported_whole(server: Server) -> None:
    """A report, rows and JSON are sent as attachments; the report needs nothing else."""
    status, report = server.ask("/runs/noted/export/html")
    assert status == 200
    assert "default-src 'none'" in report
    assert "src=" not in report
    assert "<script" not in report
    assert report.count('class="round') == 8
    assert len(server.ask("/runs/noted/export/csv")[1].splitlines()) >= 9
    assert json.loads(server.ask("/runs/noted/export/json")[1])["run_id"] == "noted"
