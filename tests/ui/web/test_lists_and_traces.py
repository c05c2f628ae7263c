"""A list with failures and an agent with tools on the page, deep links into them, and a server that is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from ui.cli.test_one_screen import LIST, REPLIES, STEPS, TRIP

from .conftest import Server, call, serving, visiting
from .test_browser import accessible

ITEMS = 120
LONG = """
schema: loopwright/1
name: long
steps:
  - {name: a_step_with_quite_a_long_name_that_a_person_gave_to_it_here, set: "{{ input[0] }}"}
  - name: each
    each: {items: "{{ input }}", execute: {set: "{{ loop.current }}"}}
"""
ADDRESS = f"https://example.org/{'a/very/long/address/' * 4}index.html"
RUNS = {
    "long": ["long.yaml", "--input", json.dumps([ADDRESS, ADDRESS.replace("/", " ")])],
    "listed": ["list.yaml", "--input-file", "items.json"],
    "trip": ["trip.yaml", "--input", "Oslo", "--replies", "replies.yaml"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The page of a folder with a list of which four items fail, and a run of a model with tools."""
    folder = tmp_path_factory.mktemp("lists")
    for name, text in {
        "own.py": STEPS, "list.yaml": LIST, "long.yaml": LONG, "trip.yaml": TRIP, "replies.yaml": REPLIES,
        "items.json": json.dumps(list(range(1, ITEMS + 1))),
    }.items():  # fmt: skip
        (folder / name).write_text(text)
    for run_id, words in RUNS.items():
        call(folder, "run", *words, "--yes", "--run-id", run_id)
    with serving(folder) as made:
        yield made


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_a_list_shows_its_failures_first(browser: Any, server: Server, width: int) -> None:
    """Counts and reasons, then 50 rows with the failed ones first, by status and by page; an item has an address."""
    with visiting(browser, server, width=width, at="/runs/listed") as page:
        assert page.text_content("#result .counts").split() == ["4", "failed", "116", "done"]
        assert page.locator("#result .failures li").first.text_content().startswith("5 ValueError")
        numbers = "all => all.map(one => Number(one.dataset.number))"
        rows = page.locator("tr.iteration")
        assert rows.evaluate_all(numbers) == [
            5,
            42,
            79,
            116,
            *range(1, 5),
            *range(6, 42),
            *range(43, 49),
        ]
        heads = [one for one in page.locator("thead th").all() if one.is_visible()]
        assert [one.text_content() for one in heads] == ["Item", "Verdict", "Feedback", "Time"]
        accessible(page)
        page.get_by_role("button", name="4 failed").click()
        expect(rows).to_have_count(4)
        page.goto("about:blank")
        page.goto(f"{server.base}/runs/listed#listed/120".replace("#listed", "#read/records"))
        page.wait_for_selector("tr.here button[data-number='120'][aria-expanded=true]")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_long_names_and_items_fit_a_phone(browser: Any, server: Server) -> None:
    """Steps and items with their times stay inside the screen and inside their tables."""
    with visiting(browser, server, width=390, at="/runs/long") as page:
        places = "all => all.map(one => one.getBoundingClientRect().right)"
        cells = page.eval_on_selector_all(".wide td[data-label=Time]", places)
        assert len(cells) == 4 and all(0 < right <= 390 for right in cells)
        wide = "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
        assert page.eval_on_selector_all("html, .wide", wide) == 0
        accessible(page)


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_the_trace_of_an_agent_names_its_tools(browser: Any, server: Server, width: int) -> None:
    """The calls of a model and its tools in words, a failed one marked; texts as what they are, with a copy button."""
    with visiting(browser, server, width=width, at="/runs/trip") as page:
        page.evaluate("location.hash = '#trip/packing/1/execute'")
        page.wait_for_selector(".node.here[data-path='trip/packing/1/execute']")
        tools = page.locator(".node.of-tool-call")
        assert [text.split()[:3] for text in tools.locator(".kind, b").all_text_contents()] == [
            ["tool", "call"], ["temperature"], ["tool", "call"], ["temperature"],
            ["tool", "call"], ["wind"], ["tool", "call"], ["clock"],
        ]  # fmt: skip
        failed = page.locator(".node.of-tool-call.failed")
        assert failed.count() == 3
        failed = failed.first
        assert "KeyError: 'Paris'" in failed.text_content()
        bad = "getComputedStyle(document.documentElement).getPropertyValue('--bad')"
        red = page.evaluate(f"CSS.supports('color', {bad}) && {bad}.trim()")
        colour = failed.locator("summary .what").evaluate("one => getComputedStyle(one).color")
        assert colour == "rgb({}, {}, {})".format(*(int(red[i : i + 2], 16) for i in (1, 3, 5)))
        failed.locator("summary").click()
        assert "traceback" in failed.text_content().lower()
        assert page.locator(".node.of-judge").count() == 1
        accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_keys_are_listed_and_can_be_switched_off(browser: Any, server: Server) -> None:
    """`?` opens the list; a key without its own control acts only while keys are on."""
    with visiting(browser, server, at="/runs/listed") as page:
        page.keyboard.press("Tab")
        skips = page.eval_on_selector_all("a.skip", "all => all.map(one => one.textContent)")
        assert skips == [
            "Skip to content", "Skip to the result", "Skip to the iterations", "Skip to the trace",
        ]  # fmt: skip
        page.keyboard.press("f")
        page.wait_for_selector("tr.here button[data-number='5']")
        page.keyboard.press("?")
        page.wait_for_selector("#keys[open]")
        accessible(page)
        page.uncheck("#keys-on")
        page.keyboard.press("Escape")
        page.keyboard.press("t")
        assert page.locator("#trace[open]").count() == 0


def test_a_server_that_is_gone_loses_nothing(browser: Any, server: Server) -> None:
    """A notice says so; the page loads again once the server answers, with what was typed in its form."""
    page = browser.new_page()
    page.goto(f"{server.base}/runs/listed?token={server.token}")
    page.locator(".action > summary", has_text="Rewind…").click()
    field = page.locator("form[data-action$='/rewind'] textarea")
    field.fill("another input")
    try:
        browser.set_offline(True)
        page.get_by_role("button", name="Next", exact=True).click()
        expect(page.locator("#gone")).to_contain_text(
            "The server does not answer. What you typed is kept."
        )
        assert "Failed to fetch" not in page.text_content("main")
        accessible(page)
        page.evaluate("document.body.dataset.before = 'yes'")
    finally:
        browser.set_offline(False)
    page.wait_for_selector("body:not([data-before])")
    expect(field).to_have_value("another input")
    expect(field).to_be_visible()
    page.close()
