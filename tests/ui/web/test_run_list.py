"""The list of runs in a browser: filters and orders in its address, tags, times, and columns that have a value."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from loopwright.journal.views import ORDERS

from .conftest import Server, call, visiting
from .test_browser import accessible


@pytest.fixture(scope="module")
def tagged(server: Server) -> Server:
    """A page on which one run has two tags."""
    assert call(server.folder, "tag", "counted", "team=the ops", "pr=7").returncode == 0
    return server


def words(page: Any) -> dict[str, str]:
    """Return the query of the address."""
    return dict(parse_qsl(urlsplit(page.url).query))


def test_the_address_is_the_filter_and_the_order(browser: Any, tagged: Server) -> None:
    """Heads are links that reverse, the form leaves out what is empty, and both keep what the other has chosen."""
    with visiting(browser, tagged) as page:
        rows = page.locator("#runs tbody tr")
        whole = rows.count()
        head = page.locator("#runs thead th[aria-sort]")
        assert (head.inner_text(), head.get_attribute("aria-sort")) == ("Started", "descending")
        for way in ("descending", "ascending"):
            page.get_by_role("link", name="Best", exact=True).click()
            page.wait_for_url("**sort=*")
            assert head.get_attribute("aria-sort") == way
            told = [
                float(one) for one in page.locator("td[data-column=score]").all_inner_texts() if one
            ]
            assert told == sorted(told, reverse=way == "descending") and len(told) > 3
        assert words(page) == {"sort": "-score"}
        page.fill("input[name=since]", "1d")
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url("**since=1d*")
        assert words(page) == {"sort": "-score", "since": "1d"} and rows.count() == whole
        assert f"{whole} match" in page.text_content("#total")
        page.get_by_role("link", name="team=the ops").click()
        page.wait_for_url("**tag=*")
        assert words(page) == {"tag": "team=the ops"}
        assert page.get_attribute("#runs tbody tr", "data-run") == "counted" and rows.count() == 1
        page.fill("input[name=tag] >> nth=1", "pr=8")
        page.get_by_role("button", name="Filter").click()
        assert "No run matches the filter" in page.text_content("#runs")
        page.get_by_role("link", name="Clear").click()
        assert rows.count() == whole and words(page) == {}


def test_rows_are_easy_to_read(browser: Any, tagged: Server) -> None:
    """A pill on one line beside its own column for the box; relative times; no column without a value."""
    with visiting(browser, tagged) as page:
        assert page.locator("#runs .badge").first.bounding_box()["height"] < 30
        assert page.locator("#runs tbody tr").first.locator("td").first.inner_text() == ""
        time = page.locator("#runs time").first
        assert time.inner_text().endswith((" ago", "just now"))
        assert time.get_attribute("title")[:2] == "20"
        assert page.locator("th[data-column=cost]").is_visible()
        page.goto(f"{tagged.base}/?tag=pr")
        assert not page.locator("th[data-column=cost]").is_visible()
        assert page.locator("th[data-column=iterations]").is_visible()


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_a_filtered_list_can_be_read_by_all(browser: Any, tagged: Server, width: int) -> None:
    """With tags, an order and a filter it meets WCAG 2.2 AA, and nothing is wider than the window."""
    with visiting(browser, tagged, width=width) as page:
        page.goto(f"{tagged.base}/?sort=cost&tag=team&status=satisfied,exhausted")
        accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_rows_of_a_sorted_list_keep_their_place(browser: Any, tagged: Server) -> None:
    """What changes is shown in its row; the order is that of the page until it is loaded again."""
    with visiting(browser, tagged) as page:
        page.goto(f"{tagged.base}/?sort=name")
        page.wait_for_selector("#link.live")
        ids = "[...document.querySelectorAll('#runs tbody tr')].map(row => row.dataset.run)"
        before, total = page.evaluate(ids), page.inner_text("#total")
        assert call(tagged.folder, "run", "count.yaml", "--run-id", "later").returncode == 0
        page.wait_for_function(
            "was => document.querySelector('#total').innerText !== was", arg=total
        )
        assert page.evaluate(ids) == before
        page.reload()
        assert sorted(page.evaluate(ids)) == sorted([*before, "later"])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("sort=scores", "sort: 'scores' is not an order; did you mean 'score'"),
        ("status=fine", "status: 'fine' is not a status"),
        ("since=long", "since: 'long' is not a time."),
        ("tag=a%20b", "tag: 'a b' is not a name"),
        ("offset=x", "offset: this is not an integer"),
    ],
)
def test_a_wrong_address_is_one_sentence(server: Server, query: str, message: str) -> None:
    """As on the command line, without dashes."""
    status, text = server.ask(f"/?{query}")
    assert status == 400
    assert message in text.replace("&#39;", "'")


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_has_a_page(server: Server, order: str) -> None:
    """Both ways, also beyond the end."""
    for query in (f"sort={order}", f"sort=-{order}", f"sort={order}&offset=100"):
        assert server.ask(f"/?{query}")[0] == 200
