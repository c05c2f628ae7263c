"""The page on a journal in PostgreSQL, without a browser."""

from __future__ import annotations

import json
from pathlib import Path

from warm_python import warm_python

from .conftest import DOCUMENT, STEPS, environ, serving


def test_the_page_follows_a_run_of_another_process(tmp_path: Path, postgres_url: str) -> None:
    """The list, a run and its events are read from the shared journal, live."""
    (tmp_path / "steps.py").write_text(STEPS, "utf-8")
    (tmp_path / "count.yaml").write_text(DOCUMENT, "utf-8")
    words = ["run", "count.yaml", "--yes", "--journal", postgres_url, "--run-id"]

    def run(run_id: str) -> None:
        done = warm_python().run(
            ["-m", "loopwright", *words, run_id], cwd=tmp_path, env=environ(tmp_path)
        )
        assert done.returncode == 0, done.stderr

    run("first")
    with serving(tmp_path, LOOPWRIGHT_JOURNAL=postgres_url) as server:
        assert "first" in server.ask("/")[1]
        status, page = server.ask("/runs/first")
        assert (status, "count_words" in page) == (200, True)
        with server.events("/events") as events:
            run("second")
            for line in events:
                if line.startswith(b"data:") and b"second" in line:
                    assert "second" in json.loads(line[5:])["order"]
                    break
        fields = {"loop": "count_words/refine", "number": "1"}
        status, asked = server.ask("/runs/first/rewind", fields)
        confirmed = json.loads(asked)["confirmed"]
        again = server.ask("/runs/first/rewind", {**fields, "confirmed": confirmed})
        assert again[0] == 200, again
