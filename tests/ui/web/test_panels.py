"""The panels of a run's page and its tables of differences, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Server, visiting
from .test_browser import accessible

PLACES = "(all) => all.map((one) => one.getBoundingClientRect().left)"


@pytest.mark.parametrize("width", [400, 1280])
def test_a_button_says_that_its_panel_is_open(browser: Any, server: Server, width: int) -> None:
    """One panel is open at a time and inside the page, buttons keep their places, and Escape closes it."""
    with visiting(browser, server, width=width) as page:
        page.goto(f"{server.base}/runs/limited")
        buttons = page.locator(".action > summary")
        words = [text.strip() for text in buttons.all_text_contents()]
        assert {"Rewind…", "Fork…", "Limits…", "Export"} <= set(words)
        before = buttons.evaluate_all(PLACES)
        for word in words:
            button = page.locator(".action > summary", has_text=word)
            assert button.get_attribute("aria-expanded") == "false"
            button.focus()
            page.keyboard.press("Enter")
            page.wait_for_function(
                "(word) => [...document.querySelectorAll('.action > summary[aria-expanded=true]')]"
                ".map((one) => one.textContent.trim()).join() === word",
                arg=word,
            )
            panel = page.locator(".action[open] > :not(summary)")
            box = panel.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert buttons.evaluate_all(PLACES) == before
        accessible(page)
        page.locator(".action[open] a").first.focus()
        page.keyboard.press("Escape")
        page.wait_for_selector(".action[open], [aria-expanded=true]", state="detached")
        assert page.evaluate("document.activeElement.textContent.trim()") == words[-1]


def test_a_changed_line_stands_in_its_columns(browser: Any, server: Server) -> None:
    """Both sides of a changed line are beside each other, as those of an equal line are."""
    with visiting(browser, server) as page:
        page.goto(f"{server.base}/runs/noted/compare?loop=release_note&a=1&b=2")
        cells = page.locator(".diff tr.changed").first.locator("td")
        boxes = [cells.nth(place).bounding_box() for place in (1, 3)]
        heads = page.locator(".diff thead th")
        for box, place in zip(boxes, (1, 3), strict=True):
            assert abs(box["x"] - heads.nth(place).bounding_box()["x"]) < 1
        assert boxes[0]["y"] == boxes[1]["y"]
        page.goto(server.base)
