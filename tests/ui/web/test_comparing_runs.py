"""Runs side by side on the page, and a fork of a run, in a real browser."""

from __future__ import annotations

import json
from typing import Any

from .conftest import Server, visiting
from .test_browser import accessible


def test_a_run_is_forked_and_compared(browser: Any, server: Server) -> None:
    """A fork is started from the page of a run; two runs that are selected in the list stand side by side."""
    with visiting(browser, server) as page:
        page.goto(f"{server.base}/runs/limited")
        page.locator("summary", has_text="Fork").click()
        page.fill("form[data-action$=fork] input[name=at]", "short/2")
        page.get_by_role("button", name="Fork and run").click()
        page.wait_for_url(lambda url: "/runs/" in url and "limited" not in url)
        page.wait_for_selector("#head[data-status=exhausted]")
        forked = page.url.split("/runs/")[1].split("?")[0]
        page.goto(server.base)
        for run_id in (forked, "limited", "noted"):
            page.get_by_label(f"Compare {run_id}").check()
        page.get_by_role("button", name="Compare selected runs").click()
        page.wait_for_selector("#run-comparison")
        assert page.locator("table.side").first.locator("thead th").count() == 4
        assert "limited at short/2" in " ".join(page.text_content("table.side").split())
        assert "part at" in page.text_content("#part")
        accessible(page)
        page.set_viewport_size({"width": 390, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.goto(server.base)
    status, text = server.ask(f"/compare/json?run=limited&run={forked}")
    data = json.loads(text)
    assert (status, data["part_at"], data["differs"]) == (200, None, {})
    for query in ("run=limited", "run=a&run=b&run=c&run=d&run=e", "run=limited&run=limited"):
        assert server.ask(f"/compare?{query}")[0] == 400
    assert server.ask("/compare?run=limited&run=missing")[0] == 404
    status, text = server.ask("/runs/limited/fork", {"sets": "topic"})
    # The sentence names the field of the form, not the option of the command.
    assert (status, json.loads(text)["error"]) == (400, "Variables: 'topic' is not NAME=VALUE")
