"""Candidates, chains and held-out cases on the page of a run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Server, environ, serving, visiting
from .test_browser import accessible

# Three candidates an iteration; the second chain starts afresh. Two cases are held out.
LOOP = """
from loopwright import Candidates, Case, Dataset, Loop, OnStall, on_cases, run_sync

def draft(value, ctx):
    if ctx.candidate == 3:
        raise ValueError("no draft")
    return (value or 0) + ctx.candidate - 2 * (ctx.iteration > 1)

data = Dataset([Case(n, id=f"c{n}") for n in range(12)], split={"train": 60, "test": 40})
score = lambda output, ctx: 0.5 + output / 10 + ctx.case.inputs / 100
loop = Loop(draft, on_cases(lambda output: output, data, score), lambda parent: parent.output,
            max_iterations=5, min_score=0.99, candidates=Candidates(3, vary=["plain", "bold"]),
            on_stall=OnStall("fresh", patience=2), name="drafts", on_failure="continue")
run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id="search", seed=1)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The page of a folder with one run of a search."""
    made = tmp_path_factory.mktemp("search")
    (made / "loop.py").write_text(LOOP)
    subprocess.run([sys.executable, "loop.py"], cwd=made, env=environ(made), check=True)
    with serving(made) as page:
        yield page


def test_the_page_shows_candidates_parents_and_held_out_cases(browser: Any, server: Server) -> None:
    """The picture of parents has a lane for each chain and a table; an open iteration lists the losers too."""
    with visiting(browser, server, at="/runs/search") as page:
        head = " ".join(page.text_content("#head .facts").split())
        assert "Held-out dataset" in head
        assert "the beginning" in head
        tree = page.locator("figure.tree")
        assert "Iterations by parent, 2 chains" in tree.text_content()
        assert tree.locator("circle").count() == 5
        tree.locator("summary").click()
        rows = tree.locator("tbody tr").all_inner_texts()
        assert any(row.split("\t")[1:3] == ["2", "the start"] for row in rows), rows
        page.locator("button.open").nth(0).click()
        page.wait_for_selector(".opened h3:text('Candidates')")
        text = page.text_content(".opened")
        assert "bold" in text
        assert "no draft" in text
        assert page.locator(".opened .status", has_text="lost").count() == 1
        accessible(page)
