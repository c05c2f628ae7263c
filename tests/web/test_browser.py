"""The page in a real browser: what people see and do there, and what it must never do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loopwright import Evaluation, Loop, MaxIterations, run_sync

from .conftest import Server, call, copied, environ, serving
from .hostile import OUTPUTS

WCAG = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
LOOKS = [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")]


@contextmanager
def visiting(
    browser: Any,
    server: Server,
    *,
    width: int = 1280,
    scheme: str = "light",
    refused: bool = False,
) -> Iterator[Any]:
    """Open a page as a person would; nothing may appear on its console or be asked elsewhere."""
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 900}, reduced_motion="reduce"
    )
    page = context.new_page()
    wrong: list[str] = []

    def said(message: Any) -> None:
        told = f"console {message.type}: {message.text}"
        known = refused and "the server responded with a status of 40" in told
        if message.type in ("error", "warning") and not known:
            wrong.append(told)

    page.on("console", said)
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", lambda r: None if r.url.startswith(server.base) else wrong.append(r.url))
    page.on("response", lambda r: wrong.append(f"{r.status} {r.url}") if r.status >= 500 else None)
    page.goto(server.url)
    page.wait_for_selector("#runs")
    yield page
    context.close()
    assert wrong == []


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Iterator[Server]:
    """A project of this test's own, and its page."""
    with serving(copied(folder, tmp_path / "own")) as made:
        yield made


def counted(page: Any, selector: str, count: int) -> None:
    """Wait until there are so many of something."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_count(count, timeout=30_000)


def accessible(page: Any) -> None:
    """Fail on any violation of WCAG 2.2 AA that axe finds."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"runOnly": WCAG, "resultTypes": ["violations"]})
    told = [
        (v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found.response["violations"]
    ]
    assert told == []


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_page_can_be_read_by_all(
    browser: Any, server: Server, width: int, scheme: str
) -> None:
    """Each page, with what opens on it, meets WCAG 2.2 AA on a phone and a desk, by day and night."""
    with visiting(browser, server, width=width, scheme=scheme) as page:
        accessible(page)
        for name in ("noted", "asking", *(["nested"] if scheme == "light" else [])):
            page.goto(f"{server.base}/runs/{name}")
            page.wait_for_selector("button.open")
            page.locator("button.open").first.click()
            page.wait_for_selector(".opened .detail")
            for summary in page.locator(
                ".numbers summary, .timeline summary, .action summary"
            ).all():
                summary.click()
            page.wait_for_selector(".timeline table")
            if page.locator(".opened .inner").count():
                page.locator(".opened .inner summary").first.click()
                page.wait_for_selector(".opened .inner table")
            if page.locator("form.compare").count():
                page.locator("form.compare button").first.click()
                page.wait_for_selector(".diff")
            accessible(page)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.goto(f"{server.base}/start")
        accessible(page)
        page.goto(f"{server.base}/runs/noted/compare?loop=release_note&a=1&b=2")
        accessible(page)


def test_no_output_is_more_than_text(browser: Any, tmp_path: Path) -> None:
    """A hundred hostile outputs are shown as they are, in each place that shows them, and do nothing."""
    assert len(OUTPUTS) == 100

    async def write(value: Any, ctx: Any) -> str:
        return OUTPUTS[ctx.iteration - 1]

    async def judge(output: str) -> Evaluation:
        criteria = ({"name": output[:300], "passed": False, "gap": output},)
        return Evaluation(0.5, False, output, criteria=criteria)  # type: ignore[arg-type]

    (tmp_path / ".loopwright").mkdir()
    url = f"sqlite:{tmp_path}/.loopwright/runs.db?synchronous=normal"
    loop = Loop(write, judge, until=MaxIterations(100), name="hostile")
    with ThreadPoolExecutor() as apart:  # the browser's own event loop runs in this thread
        apart.submit(run_sync, loop, OUTPUTS[0], journal=url, run_id="hostile").result()
    named = Loop(
        lambda value: value, name="<img src=y onerror=window.hit=1>", until=MaxIterations(1)
    )
    with ThreadPoolExecutor() as apart:
        apart.submit(run_sync, named, OUTPUTS[1], journal=url, run_id="named").result()
    with serving(tmp_path) as server, visiting(browser, server) as page:
        page.goto(f"{server.base}/runs/hostile")
        page.wait_for_selector("button.open")
        page.evaluate("document.querySelectorAll('button.open').forEach(b => b.click())")
        counted(page, ".opened .detail", 100)
        shown = page.eval_on_selector_all(
            ".opened pre[aria-label^=Output]", "all => all.map(one => one.textContent)"
        )
        assert [text.strip() for text in shown] == [
            text.replace("\x1b", "\x1b").strip() for text in OUTPUTS
        ]
        page.locator(".timeline summary").click()
        page.wait_for_selector(".timeline table")
        for number in range(1, 100, 9):
            page.fill("input[name=a]", str(number))
            page.fill("input[name=b]", str(number + 1))
            page.locator("form.compare button").click()
            page.wait_for_selector(".diff")
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
        assert alone.locator(".round").count() == 100
        alone.close()
        assert asked == [file.as_uri()]


def test_a_run_is_told_at_a_glance(browser: Any, server: Server) -> None:
    """What it is, why it ended, what was used of what was given, curves with the threshold, rows."""
    with visiting(browser, server) as page:
        page.get_by_role("link", name="release_note").click()
        page.wait_for_selector(".uplot")
        assert "8 of 8 iterations" in page.text_content(".sentence")
        facts = page.text_content(".facts")
        for word in ("0.80 wanted", "of 8", "of $0.5000", "of 1m 00s"):
            assert word in facts
        assert page.locator(".chart").count() == 3
        said = page.get_attribute(".chart[data-kind=score] .plot", "aria-label")
        assert said == (
            "Score of 8 iterations: first 0.30, highest 0.74 in iteration 8, last 0.74; 0.80 is wanted"
        )
        page.locator(".chart[data-kind=score] .numbers summary").click()
        assert page.locator(".chart[data-kind=score] .numbers tr").count() == 9
        assert page.text_content("tr.best th") is not None
        assert "8" in page.text_content("tr.best th button")
        assert "audience it names nobody" in " ".join(page.text_content(".gaps").split())


def test_any_two_outputs_are_compared(browser: Any, server: Server) -> None:
    """The outputs of two iterations stand side by side, and what changed in a line is marked."""
    with visiting(browser, server) as page:
        page.goto(f"{server.base}/runs/noted")
        page.fill("input[name=a]", "2")
        page.fill("input[name=b]", "5")
        page.locator("form.compare button").click()
        page.wait_for_selector(".diff")
        assert page.locator(".diff tr.changed del").first.text_content() == "2"
        assert page.locator(".diff tr.changed ins").first.text_content() == "5"
        assert page.locator(".diff tr.new ins").all_text_contents()[-1] == "- point 6"


def test_loops_inside_fold(browser: Any, server: Server) -> None:
    """A loop inside an iteration is folded there, opens to its own rows, and they open too."""
    with visiting(browser, server) as page:
        page.goto(f"{server.base}/runs/nested")
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
    with visiting(browser, server) as page:
        page.goto(f"{server.base}/runs/noted")
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


def test_a_thousand_iterations_scroll(browser: Any, server: Server) -> None:
    """A long run opens with its ends, and the rest comes as it comes into sight."""
    with visiting(browser, server) as page:
        page.goto(f"{server.base}/runs/thousand")
        page.wait_for_selector(".uplot")
        assert page.locator("tr.iteration").count() <= 200
        chunk = page.locator("tbody.chunk").nth(4)
        chunk.scroll_into_view_if_needed()
        page.wait_for_selector("tr.iteration:has(button[data-number='210'])")
        assert page.locator("tr.iteration").count() < 1000


def test_runs_are_filtered_and_paged(browser: Any, server: Server) -> None:
    """The list is filtered by workflow, status, reason and text, and says so when nothing is like that."""
    with visiting(browser, server) as page:
        whole = page.locator("#runs tbody tr").count()
        assert whole == 7
        assert page.locator("#runs .spark").count() >= 5
        page.select_option("select[name=status]", "failed")
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url("**status=failed**")
        assert page.locator("#runs tbody tr").count() == 1
        assert "<b>bold</b>" in page.text_content("#runs .why")
        page.goto(f"{server.base}/?reason=max_iterations&name=short")
        assert page.locator("#runs tbody tr").count() == 1
        page.goto(f"{server.base}/?text=a+thousand")
        assert page.get_attribute("#runs tbody tr", "data-run") == "thousand"
        page.goto(f"{server.base}/?text=nowhere-to-be-found")
        assert "No run is like that" in page.text_content("#runs")


def test_a_run_is_started_followed_and_cancelled(browser: Any, own: Server) -> None:
    """A workflow that was agreed to starts with an input; a run is seen live, and is cancelled."""
    with visiting(browser, own) as page:
        page.get_by_role("link", name="Start a run").click()
        start = page.locator("form.start", has_text="count.yaml")
        start.locator("textarea").fill("two words")
        start.get_by_role("button", name="Start").click()
        page.wait_for_url("**/runs/*")
        page.wait_for_selector("#head[data-status=satisfied]")
        assert page.text_content("pre[aria-label=Input]") == "two words"
        assert page.text_content("#output") == "two words more"
        other = own.ask("/start", {"file": "other.yaml"})
        assert other[0] == 400
        assert "agreed to" in other[1]


def test_a_running_run_is_live_and_ends_by_the_button(browser: Any, own: Server) -> None:
    """Rows come as they are committed, the list follows too, and Cancel ends it."""
    folder = own.folder
    with visiting(browser, own) as page:
        listed = page.context.new_page()
        listed.goto(own.base)
        process = subprocess.Popen(
            [sys.executable, "-m", "loopwright", "run", "steps:slowly", "--run-id", "live"],
            cwd=folder, env=environ(folder), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        listed.wait_for_selector("tr[data-run=live] .badge.running")
        page.goto(f"{own.base}/runs/live")
        page.wait_for_selector(".flying code")
        assert "slowly/1/execute" in page.text_content(".flying")
        for number in (1, 2, 3):
            (folder / f"go-{number}").touch()
            page.wait_for_selector(f"tr.iteration[data-number='{number}']")
        page.wait_for_selector(".uplot")
        assert page.locator("tr.iteration").count() == 3
        page.get_by_role("button", name="Cancel").click()
        page.wait_for_selector("#head[data-status=cancelled]")
        assert process.wait(30) == 130
        listed.wait_for_selector("tr[data-run=live] .badge.cancelled")


def test_an_exhausted_run_goes_on_with_more(browser: Any, own: Server) -> None:
    """Raise a limit and it goes on; go back to an iteration with another input and it is done again."""
    with visiting(browser, own) as page:
        page.goto(f"{own.base}/runs/exhausted")
        page.locator("summary", has_text="Raise a limit").click()
        page.fill("form[data-action$=raise] input[name=iterations]", "4")
        with page.expect_navigation():
            page.get_by_role("button", name="Raise and go on").click()
        counted(page, "tr.iteration", 4)
        page.wait_for_selector("#head[data-status=exhausted]")
        assert "of 4" in page.text_content(".facts")
        page.locator("summary", has_text="Go back").click()
        page.fill("form[data-action$=rewind] input[name=number]", "2")
        page.fill("form[data-action$=rewind] textarea", "another input")
        with page.expect_navigation():
            page.get_by_role("button", name="Go back and go on").click()
        page.wait_for_selector("#head[data-status=exhausted]")
        counted(page, "tr.iteration", 2)  # what came later is set aside, the raised limit too
        page.locator("button.open").nth(1).click()
        page.wait_for_selector(".opened pre[aria-label^=Input]")
        assert page.text_content(".opened pre[aria-label^=Input]") == "another input"


def test_a_question_is_answered(browser: Any, own: Server) -> None:
    """A run that waits for a person shows its question; the answer may edit the feedback."""
    with visiting(browser, own) as page:
        page.goto(f"{own.base}/runs/asking")
        form = page.locator("form.question")
        form.locator("textarea[name=feedback]").fill("Name the date")
        form.get_by_role("button", name="Go on").click()
        counted(page, "tr.iteration", 2)
        page.wait_for_selector("form.question")
        page.locator("form.question").get_by_role("button", name="Accept this output").click()
        page.wait_for_selector("#head[data-status=satisfied]")
        told = call(own.folder, "show", "asking", "--json").stdout
        assert "satisfied" in told


def test_what_is_refused_is_told_in_place(browser: Any, own: Server) -> None:
    """An action that cannot be done says why beside its button, and changes nothing."""
    with visiting(browser, own, refused=True) as page:
        page.goto(f"{own.base}/runs/exhausted")
        page.locator("summary", has_text="Raise a limit").click()
        page.fill("form[data-action$=raise] input[name=iterations]", "1")
        page.get_by_role("button", name="Raise and go on").click()
        outcome = page.locator("form[data-action$=raise] .outcome.error")
        outcome.wait_for()
        assert "is not above the 2 iterations" in (outcome.text_content() or "")
        page.goto(f"{own.base}/runs/none")
        assert "there is no run" in page.text_content("main")
