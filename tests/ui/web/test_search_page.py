"""Candidates, chains, held-out cases, fronts and confirmations on the page of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Server, call, environ, serving, visiting
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
# Two objectives of a noisy measurement, of which the second follows the settings; then a duel and a combination.
SEVERAL = """
import random
from loopwright import Candidates, Combine, Confirm, Duel, Evaluation, Loop, run_sync

noise = random.Random(4)

def settings(value, ctx):
    return (value or 0) + (ctx.iteration % 3 == 1)

def train(output, ctx):
    loss = 2.0 - 0.25 * output + noise.gauss(0, 0.08)
    return Evaluation(metrics={"seconds": 3.0 + output, "<b>loss": loss})

def title(value, ctx):
    return f"title {ctx.candidate}"

def judge(pair):
    return {"winner": "second" if pair["second"] == "title 2" else "first", "feedback": "2 is <b>exact"}

def run(loop):
    run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id=loop.name, seed=1)

run(Loop(settings, train, lambda parent: parent.output, max_iterations=4,
         metrics={"seconds": "minimise", "<b>loss": "minimise"}, objective=["<b>loss", "seconds"],
         confirm=Confirm(stages=[3, 6], baseline=5), name="tune"))
run(Loop(title, lambda output: 0.5, max_iterations=1, candidates=Candidates(3, pick=Duel(judge)), name="duel"))
both = Combine(lambda parts: " and ".join(part["output"] for part in parts[:2]))
run(Loop(title, lambda output: len(output) / 20, max_iterations=1, candidates=Candidates(2, pick=both), name="both"))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The page of a folder with runs of searches."""
    made = tmp_path_factory.mktemp("search")
    (made / "loop.py").write_text(LOOP + SEVERAL)
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


def opened(server: Server, run: str, number: int) -> str:
    status, text = server.ask(f"/runs/{run}/iteration?loop={run}&number={number}")
    assert status == 200, text
    return " ".join(text.split())


def test_an_open_iteration_has_both_answers_of_a_duel_and_the_combination(server: Server) -> None:
    """Page, terminal and JSON name the order, the candidate and the reason; the difference is to the chosen one."""
    text = opened(server, "duel", 1)
    assert "Both answers name candidate 2." in text
    assert "1 before 2: candidate 2, 2 is &lt;b&gt;exact" in text
    shown = call(server.folder, "show", "duel", "--iteration", "1", "--json").stdout
    assert json.loads(shown)["duel"] == [
        {"first": 1, "second": 2, "winner": "second", "candidate": 2, "why": "2 is <b>exact"},
        {"first": 2, "second": 1, "winner": "first", "candidate": 2, "why": "2 is <b>exact"},
    ]
    shown = call(server.folder, "show", "duel", "--iteration", "1").stdout
    assert "duel: 2 before 1: candidate 2, 2 is <b>exact" in shown
    assert "check 2 before 1" in shown
    text = opened(server, "both", 1)
    assert "combination of the others" in text
    assert "-0.6" in text
    assert "Duel" not in text


def test_measurements_and_fronts_are_points_with_a_table(browser: Any, server: Server) -> None:
    """Each metric has a curve in its own unit; a confirmation and the front have a point for each row of their tables."""
    with visiting(browser, server, width=390, at="/runs/tune") as page:
        front = page.locator(".loop > figure.plot")
        rows = front.locator("tbody tr").count()
        assert "<b>loss and seconds together" in front.locator("figcaption").text_content()
        assert front.locator("circle").count() == rows == 4
        names = page.locator(".chart .key").all_text_contents()
        assert names[:2] == ["<b>loss", "seconds"]
        page.check("input[name=metric-1]")
        page.click("details.numbers summary")
        page.wait_for_selector(".numbers tr")  # the browser tells of an opened part later
        table = page.locator(".numbers tr").all_inner_texts()
        assert [row.split("\t")[2] for row in table] == ["seconds", "4", "4", "4", "5"]
        page.locator("button.open").nth(3).click()
        page.wait_for_selector(".detail figure.plot")
        points = page.locator(".detail figure.plot")
        assert points.locator("circle").count() == 6
        points.locator("summary").click()
        assert points.locator("tbody tr").count() == 4
        assert "onfirmed, p" in points.locator("figcaption").text_content()
        # Only the first objective is tested.
        assert page.text_content(".detail").count("3 + 3 measurements") == 2
        accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
