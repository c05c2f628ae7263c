"""The limits of a run on its page, in a real browser: they are shown, and changed while it runs."""

from __future__ import annotations

from typing import Any

from .conftest import Server, visiting
from .lines import program


def test_limits_are_changed_while_a_run_is_live(browser: Any, server: Server) -> None:
    """A person sets a limit with a reason; the run records it, and the table names the person."""
    folder = server.folder
    # Other tests leave files that let iterations end, and this run must wait in its first one.
    for file in folder.glob("go-*"):
        file.unlink()
    with (
        visiting(browser, server, refused=True) as page,
        program(server, "run", "steps:slowly", "--run-id", "paced") as process,
    ):
        page.wait_for_selector("tr[data-run=paced] .badge.running")
        page.goto(f"{server.base}/runs/paced")
        page.wait_for_selector(".in-flight code")
        page.locator("summary", has_text="Limits").click()
        form = page.locator("form[data-action$=limits]")
        form.locator("input[name=max_iterations]").fill("two")
        form.locator("button").click()
        page.wait_for_selector("form[data-action$=limits] .outcome.error")
        assert "max_iterations: 'two' is not an integer" in form.locator(".outcome").text_content()
        form.locator("input[name=max_iterations]").fill("1")
        form.locator("input[name=reason]").fill("one is enough")
        form.locator("button").click()
        page.get_by_text("takes the new limits within a second").wait_for()
        page.wait_for_selector("table.limits tbody td:nth-child(3):text-is('1')")
        while "one is enough" not in server.ask("/runs/paced/export/jsonl")[1]:
            page.wait_for_timeout(50)
        (folder / "go-1").touch()
        page.wait_for_selector("#head[data-status=exhausted]")
        assert process.wait(30) == 3
        page.goto(f"{server.base}/runs/paced")
        page.locator("summary", has_text="Limits").click()
        page.wait_for_selector("table.limits")
        cells = page.locator("table.limits tbody tr").first.locator("td").all_text_contents()
        assert [cell.strip() for cell in cells[:4]] == ["max iterations", "1", "1", "0"]
        assert cells[4].strip()
        for width in (1280, 390):  # the table and the page fit without scrolling to the side
            page.set_viewport_size({"width": width, "height": 900})
            for selector in (".action.limits .wide", "html"):
                # The chart follows the new width with the next frame.
                page.wait_for_function(
                    "(selector) => { const one = document.querySelector(selector);"
                    " return one.scrollWidth - one.clientWidth <= 1; }", arg=selector
                )  # fmt: skip
        assert page.locator("form[data-action$=limits]").count() == 0
