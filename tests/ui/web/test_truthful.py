"""The page says what happened: counts, items, steps, failures, questions, limits."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from .conftest import CHROMIUM, Server, call, environ, serving, visiting

STEPS = """
import asyncio
from pathlib import Path
from loopwright import Evaluation

def broken(value):
    raise ValueError("the record has no b")

def shout(value):
    return str(value).upper()

async def draft(value, ctx):
    return f"draft {ctx.iteration} of {value}"

async def judge(value, ctx):
    return Evaluation([0.8, 0.3, 0.5][(ctx.iteration - 1) % 3], False, "needs more")

async def waits(value):
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "gone"

def item(value):
    if value == "bad":
        raise ValueError("cannot read bad")
    return str(value).upper()
"""
HEAD = "schema: loopwright/1\nname: NAME\n"
DOCUMENTS = {
    "failing": "steps: [{name: prepare, python: 'steps:shout'}, {name: second, python: 'steps:broken'}, "
    "{name: third, python: 'steps:shout'}]\n",
    "plain": "steps: [{name: first, python: 'steps:shout'}, {name: second, shell: [wc, -c]}]\n",
    "listed": "steps:\n- name: words\n  each:\n    items: '{{ input }}'\n    execute: {python: 'steps:item'}\n"
    "    on_failure: continue\n",
    "cut": "steps:\n- name: words\n  each:\n    items: '{{ input }}'\n    execute: {python: 'steps:item'}\n",
    "nested": "steps:\n- name: outer\n  loop:\n    execute:\n      loop:\n"
    "        execute: {python: 'steps:draft'}\n        evaluate: {python: 'steps:judge'}\n"
    "        until: [{score_at_least: 0.95}, {max_iterations: 3}]\n"
    "    evaluate: {python: 'steps:judge'}\n    until: [{max_iterations: 2}]\n"
    "    guards: [{timeout: 120}]\n",
    "asking": "steps:\n- name: refine\n  loop:\n    execute: {python: 'steps:draft'}\n"
    "    evaluate: {python: 'steps:judge'}\n    until: [{score_at_least: 0.95}, {max_iterations: 3}]\n"
    "    approve: iteration\n",
    "phased": "model: openai:gpt-4o\nsteps:\n- name: agent\n  phased:\n    role: qa_specialist\n"
    "    planning: {prompt: 'Plan {{ task }}'}\n    execution: {prompt: 'Do {{ task }}'}\n"
    "    refinement: {prompt: 'Answer {{ task }}'}\n",
    "items asked": "steps:\n- name: words\n  each:\n    items: [alpha, beta]\n    at_once: 2\n    execute:\n"
    "      loop: {execute: {python: 'steps:shout'}, until: [{max_iterations: 2}], approve: iteration}\n",
    "limited": "steps:\n- name: refine\n  loop:\n    execute: {python: 'steps:shout'}\n"
    "    until: [{max_iterations: 1000}]\n",
}
INPUTS = {"listed": '["alpha", "bad", "<b>gamma</b>"]', "cut": '["alpha", "bad", "gamma", "delta"]'}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The page of a folder with a run of each kind."""
    folder: Path = tmp_path_factory.mktemp("told")
    (folder / "steps.py").write_text(STEPS)
    (folder / "replies.yaml").write_text('- {replies: ["an answer"]}\n')
    for name, steps in DOCUMENTS.items():
        (folder / f"{name}.yaml").write_text(HEAD.replace("NAME", name) + steps)
        given = INPUTS.get(name, "a letter")
        more = ["--replies", "replies.yaml"] if name == "phased" else []
        call(
            folder,
            "run",
            f"{name}.yaml",
            "--yes",
            "--run-id",
            name.replace(" ", "-"),
            "--input",
            given,
            *more,
        )
    call(folder, "approve", "asking", "--yes")
    call(folder, "resume", "asking", "--yes")
    with serving(folder) as server:
        yield server


def page(server: Server, path: str) -> str:
    """Return the text of a page."""
    status, text = server.ask(path)
    assert status == 200
    return unescape(text)


def fact(text: str, label: str) -> str:
    """Return what a tile shows."""
    found = re.search(rf'<span class="label">{label}</span>(.*?)</li>', text, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", found[1]).split()) if found else ""


def test_a_failed_run_shows_its_traceback_folded(told: Server) -> None:
    """The page and the report hold the traceback of the user's function."""
    text = page(told, "/runs/failing")
    assert '<details class="text traceback">' in text
    assert 'raise ValueError("the record has no b")' in text
    assert "in broken" in page(told, "/runs/failing/export/html")


def test_a_failed_iteration_shows_its_traceback(told: Server) -> None:
    """An opened iteration does."""
    text = page(told, "/runs/listed/iteration?loop=listed/words&number=2")
    assert "Traceback: ValueError" in text
    assert 'raise ValueError("cannot read bad")' in text


def test_a_workflow_without_loops_lists_its_steps(told: Server) -> None:
    """Each with its status, its time and its output; one that did not run says so."""
    text = page(told, "/runs/plain")
    rows = re.findall(r'<tr data-step="(\w+)">(.*?)</tr>', text, re.DOTALL)
    assert [name for name, _ in rows] == ["first", "second"]
    assert "A LETTER" in rows[0][1]
    assert all("satisfied" in row and re.search(r"\d+ ms|\d s", row) for _, row in rows)
    assert "No iteration is recorded yet" not in text
    failing = dict(
        re.findall(r'<tr data-step="(\w+)">(.*?)</tr>', page(told, "/runs/failing"), re.DOTALL)
    )
    assert "failed" in failing["second"]
    assert "not run" in failing["third"]


def test_every_row_of_a_list_names_its_item(told: Server) -> None:
    """The rows of a list are items, by name, the failed ones first; what an item holds is text."""
    status, raw = told.ask("/runs/listed")
    assert status == 200
    assert re.findall(r'<span class="item">(.*?)</span>', raw) == [
        "bad", "alpha", "&lt;b&gt;gamma&lt;/b&gt;",
    ]  # fmt: skip
    assert '<th scope="col">Item</th>' in raw
    assert "3 items" in raw
    cut = " ".join(re.sub(r"<[^>]+>", " ", page(told, "/runs/cut")).split())
    assert "4 items 1 failed 1 done 2 not run" in cut
    # A person who rewound it is not told of a process.
    assert call(told.folder, "rewind", "cut", "words/2", "--yes").returncode == 0
    text = page(told, "/runs/cut")
    assert (
        "The run was rewound. A resume continues it from there." in text and "process" not in text
    )


def test_a_loop_in_a_list_names_its_item(told: Server) -> None:
    """While the list has not ended, the loops in it stand side by side, each with its item."""
    text = page(told, "/runs/items-asked")
    found = re.findall(r"<h2>(.+?) <span", text)
    assert found == ["execute (alpha)", "execute (beta)"]


def test_one_count_of_iterations(told: Server) -> None:
    """The tile, the list, `runs` and `run` count the same; no other loop's limit stands beside it."""
    text = page(told, "/runs/nested")
    assert fact(text, "Iterations") == "8"
    runs = page(told, "/")
    row = re.search(r'<tr data-run="nested".*?</tr>', runs, re.DOTALL)
    assert row and 'data-column="iterations">8<' in row[0]
    listed = call(told.folder, "runs").stdout
    assert re.search(r"nested .* 8 iterations", listed)
    assert fact(page(told, "/runs/asking"), "Iterations") == "2 of 3"
    row = re.search(r'<tr data-run="plain".*?</tr>', runs, re.DOTALL)
    assert row and 'data-column="iterations"><' in row[0], (
        "it has no loop, so no number stands there"
    )


def test_the_limits_of_a_loop_are_not_those_of_the_run(told: Server) -> None:
    """The time of the run stands alone; the loop's own limit stands with the loop."""
    text = page(told, "/runs/nested")
    assert "of" not in fact(text, "Time")
    assert "of at most 2, within 2m 00s" in text


def test_the_phases_of_an_agent_appear_in_order(told: Server) -> None:
    """Planning, then execution, then refinement: on the page and in the report."""
    for path in ("/runs/phased", "/runs/phased/export/html"):
        found = re.findall(r"<h2>(planning|execution|refinement) ", page(told, path))
        assert found == ["planning", "execution", "refinement"]


def test_a_suspended_run_shows_the_output_it_asks_about(told: Server) -> None:
    """Not the best one."""
    text = page(told, "/runs/asking")
    assert "Output to review" in text
    output = re.search(r'<pre tabindex="0" id="output"[^>]*>(.*?)</pre>', text)
    assert output and output[1] == "draft 2 of a letter"


def test_a_run_without_model_calls_shows_no_cost(told: Server) -> None:
    """A cost of $0.0000 would suggest that something was priced."""
    assert fact(page(told, "/runs/limited"), "Cost") == ""
    assert fact(page(told, "/runs/phased"), "Cost") != ""


def test_raising_a_limit_proposes_what_is_valid(told: Server) -> None:
    """Never above the ceiling; where a loop is at it there is nothing to raise."""
    text = page(told, "/runs/nested")
    field = re.search(r'name="iterations" min="(\d+)" max="(\d+)" value="(\d+)"', text)
    assert field and [int(n) for n in field.groups()] == [1, 1000, 5]
    assert 'name="iterations"' not in page(told, "/runs/limited")


def test_names_keep_their_case(told: Server) -> None:
    """The sentence on how a run ended begins as its author wrote the name."""
    assert "<span>plain completed</span>" in page(told, "/runs/plain")


def test_the_report_has_axes(told: Server) -> None:
    """A curve of the report says what its ends stand for."""
    text = page(told, "/runs/nested/export/html")
    assert ">0.00</text>" in text
    assert ">1.00</text>" in text
    assert ">iteration</text>" in text


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_the_number_of_runs_on_record_is_live(browser: Any, told: Server) -> None:
    """A run that begins is counted at once."""
    from playwright.sync_api import expect

    with visiting(browser, told) as window:
        before = int(window.text_content("#total").split()[0])
        expect(window.locator("#link")).to_have_text("live", timeout=60_000)
        call(told.folder, "run", "plain.yaml", "--yes", "--run-id", "later", "--input", "x")
        expect(window.locator("#total")).to_have_text(f"{before + 1} recorded", timeout=60_000)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_steps_appear_while_a_run_is_live(browser: Any, told: Server) -> None:
    """A step that ended is told before the run has, with the one that is running."""
    from playwright.sync_api import expect

    steps = "steps: [{name: first, python: 'steps:shout'}, {name: second, python: 'steps:waits'}]\n"
    (told.folder / "live.yaml").write_text(HEAD.replace("NAME", "live") + steps)
    words = [sys.executable, "-m", "loopwright", "run", "live.yaml", "--yes", "--run-id", "live"]
    with subprocess.Popen(
        [*words, "--input", "x"], cwd=told.folder, env=environ(told.folder),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            with visiting(browser, told) as window:
                window.click('tr[data-run="live"] a')
                expect(window.locator('tr[data-step="first"]')).to_contain_text("X", timeout=60_000)
                (told.folder / "go").touch()
                second = window.locator('tr[data-step="second"]')
                expect(second).to_contain_text("gone", timeout=60_000)
                expect(second).to_contain_text("satisfied", timeout=60_000)
        finally:
            (told.folder / "go").touch()
            process.wait(60)
