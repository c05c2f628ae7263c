"""The page in a real browser: what people see and do there, and what it must never do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from loopwright import Evaluation, Loop, MaxIterations, run_sync

from .conftest import Server, counted, visiting
from .hostile import OUTPUTS

WCAG = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
AXE = {"runOnly": WCAG, "resultTypes": ["violations"]}
OPEN = """document.querySelectorAll(".numbers, .trace, .action").forEach((one) => {
  one.removeAttribute("name");  // all panels at once, which a person cannot do
  if (!one.open) one.querySelector("summary").click();
})"""


def accessible(page: Any) -> None:
    """Fail on any violation of WCAG 2.2 AA that axe finds, by day and by night."""
    from axe_playwright_python.sync_playwright import Axe

    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        if not page.evaluate("'axe' in window"):
            page.evaluate(Axe().axe_script)
        found = page.evaluate("options => axe.run(options)", AXE)
        told = [(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found["violations"]]
        assert (scheme, told) == (scheme, [])


@pytest.mark.parametrize("width", [390, 1280, 1920])
@pytest.mark.parametrize("name", ["noted", "asking", "nested"])
def test_every_run_can_be_read_by_all(browser: Any, server: Server, width: int, name: str) -> None:
    """The page of a run, with what opens on it, meets WCAG 2.2 AA on a phone and a desk."""
    with visiting(browser, server, width=width, at=f"/runs/{name}") as page:
        page.locator("button.open").first.click()
        page.wait_for_selector(".opened .detail")
        page.evaluate(OPEN)
        page.wait_for_selector(".trace .node")
        if name == "nested":
            page.locator(".opened .inner summary").first.click()
            page.wait_for_selector(".opened .inner table")
        if page.locator("form.compare").count():
            page.locator("form.compare button").first.click()
            page.wait_for_selector(".diff")
        accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [390, 1280])
def test_every_other_page_can_be_read_by_all(browser: Any, server: Server, width: int) -> None:
    """The list, the start of a run and a comparison meet WCAG 2.2 AA on a phone and a desk."""
    with visiting(browser, server, width=width) as page:
        for path in ("/", "/start", "/runs/noted/compare?loop=release_note&a=1&b=2"):
            page.goto(server.base + path)
            accessible(page)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_no_output_is_more_than_text(
    browser: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred hostile outputs are shown as they are, in each place that shows them, and do nothing."""
    assert len(OUTPUTS) == 100

    async def write(value: Any, ctx: Any) -> str:
        return OUTPUTS[ctx.iteration - 1]

    async def judge(output: str) -> Evaluation:
        criteria = ({"name": output[:300], "passed": False, "gap": output},)
        return Evaluation(0.5, False, output, criteria=criteria)  # type: ignore[arg-type]

    # The user of the page made its folder.
    monkeypatch.setenv("XDG_STATE_HOME", str(server.folder / "state"))
    url = f"sqlite:{server.folder}/.loopwright/runs.db?synchronous=normal"
    loop = Loop(write, judge, until=MaxIterations(100), name="hostile")
    with ThreadPoolExecutor() as apart:  # the browser's own event loop runs in this thread
        apart.submit(run_sync, loop, OUTPUTS[0], journal=url, run_id="hostile").result()
    named = Loop(
        lambda value: value, name="<img src=y onerror=window.hit=1>", until=MaxIterations(1)
    )
    with ThreadPoolExecutor() as apart:
        apart.submit(run_sync, named, OUTPUTS[1], journal=url, run_id="named").result()
    with visiting(browser, server, at="/runs/hostile") as page:
        shown: list[str] = []
        for turned in ("", "Next"):
            if turned:
                page.get_by_role("button", name=turned, exact=True).click()
                page.wait_for_selector("button.open[data-number='51']")
            page.evaluate("document.querySelectorAll('button.open').forEach(b => b.click())")
            counted(page, ".opened .detail", 50)
            shown += page.eval_on_selector_all(
                ".opened pre[aria-label^=Output]", "all => all.map(one => one.textContent)"
            )
        assert [text.strip() for text in shown] == [
            text.replace("\x1b", "\x1b").strip() for text in OUTPUTS
        ]
        page.locator(".trace > summary").click()
        page.locator(".trace .lazy > summary").first.click()
        page.locator(".trace .lazy .lazy > summary").nth(18).click()
        page.wait_for_selector(".trace .of-check")
        for number in range(1, 100, 9):
            page.fill("input[name=a]", str(number))
            page.fill("input[name=b]", str(number + 1))
            page.locator("form.compare button").click()
            page.wait_for_selector(f".diff:has-text('Iteration {number} ')")
        for path in ("/", "/runs/named", "/?text=%3Cscript%3Ewindow.hit%3D1%3C%2Fscript%3E"):
            page.goto(server.base + path)
            page.wait_for_selector("#runs, #run")
            assert page.evaluate("window.hit") is None
        status, report = server.ask("/runs/hostile/export/html")
        assert status == 200
        file = tmp_path / "report.html"
        file.write_text(report, "utf-8")
        alone = browser.new_page()
        asked: list[str] = []
        alone.on("request", lambda request: asked.append(request.url))
        alone.goto(file.as_uri())
        assert alone.evaluate("window.hit") is None
        assert alone.locator(".iteration-detail").count() == 100
        alone.close()
        assert asked == [file.as_uri()]


def test_a_run_is_told_at_a_glance(browser: Any, server: Server) -> None:
    """What it is, why it ended, what was used of what was given, curves with the threshold, rows."""
    with visiting(browser, server) as page:
        page.get_by_role("link", name="release_note").click()
        page.wait_for_selector(".uplot")
        assert "8 of 8 iterations" in page.text_content(".sentence")
        facts = page.text_content(".facts")
        for word in ("of 0.80 required", "of 8", "of $0.5000", "of 1m 00s"):
            assert word in facts
        assert page.locator(".chart").count() == 1
        said = page.get_attribute(".chart .plot", "aria-label")
        assert said == (
            "Score of 8 iterations: first 0.30, highest 0.74 in iteration 8, last 0.74; 0.80 is required"
        )
        page.locator(".numbers summary").click()
        # That it opened is told afterwards.
        counted(page, ".numbers tr", 9)
        page.check(".chart input[name=cost]")
        counted(page, ".numbers th", 3)
        assert "$0.03" in page.text_content(".numbers tbody tr:last-child")
        assert page.text_content("tr.best th") is not None
        assert "8" in page.text_content("tr.best th button")
        assert "audience it names nobody" in " ".join(page.text_content(".gaps").split())


def test_any_two_outputs_are_compared(browser: Any, server: Server) -> None:
    """The outputs of two iterations stand side by side, and what changed in a line is marked."""
    with visiting(browser, server, at="/runs/noted") as page:
        page.fill("input[name=a]", "2")
        page.fill("input[name=b]", "5")
        page.locator("form.compare button").click()
        page.wait_for_selector(".diff")
        assert page.locator(".diff tr.changed del").first.text_content() == "2"
        assert page.locator(".diff tr.changed ins").first.text_content() == "5"
        assert page.locator(".diff tr.new ins").all_text_contents()[-1] == "- point 6"


def test_loops_inside_fold(browser: Any, server: Server) -> None:
    """A loop inside an iteration is folded there, opens to its own rows, and they open too."""
    with visiting(browser, server, at="/runs/nested") as page:
        page.locator("button.open").first.click()
        page.locator(".opened .inner summary").first.click()
        rows = page.locator(".opened .inner tr.iteration")
        rows.first.wait_for()
        assert rows.count() == 2
        rows.first.locator("button.open").click()
        page.wait_for_selector(".inner .opened .detail")
        page.reload()
        page.wait_for_selector(".opened .detail")


def test_the_keyboard_is_enough(browser: Any, server: Server) -> None:
    """From the top to an opened iteration by the keyboard alone, and past the top by its first link."""
    with visiting(browser, server, at="/runs/noted") as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('button.open')"):
                break
        page.keyboard.press("Enter")
        page.wait_for_selector(".opened .detail")
        assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"


def test_a_thousand_iterations_have_pages(browser: Any, server: Server) -> None:
    """A long run shows 50 rows by index; an iteration is reached by its number, its address and a key."""
    with visiting(browser, server, at="/runs/thousand") as page:
        page.wait_for_selector(".uplot")
        counted(page, "tr.iteration", 50)
        page.get_by_role("button", name="Next", exact=True).click()
        page.wait_for_selector("button.open[data-number='51']")
        assert page.evaluate("document.activeElement.textContent") == "Next"
        page.keyboard.press("g")
        page.keyboard.type("777")
        page.keyboard.press("Enter")
        page.wait_for_selector("tr.here + .opened pre[aria-label='Output of iteration 777']")
        assert page.evaluate("location.hash") == "#thousand/777"
        page.keyboard.press("b")
        page.wait_for_selector("tr.here button[data-number='8']")
        page.goto("about:blank")
        page.goto(f"{server.base}/runs/thousand#thousand/777/evaluate")
        page.wait_for_selector(".node.here[data-path='thousand/777/evaluate']")
        assert "Say first who must act" in page.text_content(".node.here")
        place = page.locator(".node.here").bounding_box()
        assert 0 < place["y"] < 900
        page.goto(f"{server.base}/runs/nested")
        page.evaluate("location.hash = '#chapter/2/execute/paragraph/1'")
        page.wait_for_selector(".inner tr.here button[data-number='1']")


def test_runs_are_filtered_and_paged(browser: Any, server: Server) -> None:
    """The list is filtered by workflow, status, reason and text, and says so when nothing is like that."""
    with visiting(browser, server) as page:
        whole = page.locator("#runs tbody tr").count()
        assert whole >= 8
        assert page.locator("#runs .spark").count() >= 5
        page.select_option("select[name=status]", "failed")
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url("**status=failed**")
        assert page.locator("#runs tbody tr").count() == 1
        assert "<b>bold</b>" in page.text_content("#runs .why")
        page.goto(f"{server.base}/?reason=max_iterations&name=short")
        assert page.locator("#runs tbody tr").count() == 2
        page.goto(f"{server.base}/?search=A+thousand&name=thousand")
        assert page.get_attribute("#runs tbody tr", "data-run") == "thousand"
        page.goto(f"{server.base}/?search=nowhere-to-be-found")
        assert "No run matches the filter" in page.text_content("#runs")


def test_a_list_without_runs_stays_as_it_is(browser: Any, server: Server) -> None:
    """What is told to a list in which no run is makes the page load again only once there is one."""
    with visiting(browser, server) as page:
        page.goto(f"{server.base}/?search=nowhere-to-be-found")
        page.wait_for_selector("#link.live")
        page.evaluate("window.kept = true")
        for _ in range(20):
            assert page.evaluate("fetch('/start').then(answer => answer.status)") == 200
            assert page.evaluate("window.kept") is True
