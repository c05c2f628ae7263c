"""The pages of compared limits and of measured judges, in a real browser."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from .conftest import Server, call, serving
from .test_browser import accessible

DOCUMENT = """\
schema: loopwright/1
name: titles
model: openai:any
steps:
  - name: improve
    loop:
      execute: {set: "a title {{ loop.iteration }}"}
      evaluate: {judge: It is exact.}
      until: [{score_at_least: 0.9}, {max_iterations: 4}]
"""
PROGRAM = """\
from loopwright import pair_judge
duel = pair_judge("Which title is more exact?", model="openai:any")
"""
QUERY = (
    "runs=name:titles&until=[{score_at_least:+0.6},+{max_iterations:+4}]%0A[{max_iterations:+2}]"
)


def verdict(score: int) -> dict[str, Any]:
    return {"json": {"verdict": "no", "score": score, "reason": "not yet"}}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The page of a folder with five recorded runs and three measurements, the last of pairs."""
    folder = tmp_path_factory.mktemp("insight")
    (folder / "titles.yaml").write_text(DOCUMENT, "utf-8")
    cases = [{"id": f"c{n}", "output": f"text {n}", "label": n % 2 == 0} for n in range(4)]
    (folder / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)), "utf-8")
    for run in range(5):
        rules = [{"replies": [verdict(40 + 12 * n + run) for n in range(4)]}]
        (folder / "replies.json").write_text(json.dumps(rules), "utf-8")
        done = call(folder, "run", "titles.yaml", "--input", "x", "--replies", "replies.json")
        assert done.returncode == 3, done.stderr
    (folder / "replies.json").write_text(json.dumps([{"replies": [verdict(20)] * 20}]), "utf-8")
    for run_id in ("bench-a", "bench-b"):
        done = call(
            folder, "measure", "judge", "titles.yaml", "cases.jsonl", "--votes", "2", "--replies",
            "replies.json", "--run-id", run_id,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    (folder / "duels.py").write_text(PROGRAM, "utf-8")
    pairs = [
        {"id": f"p{n}", "first": f"a {n}", "second": f"b {n}", "label": "first"} for n in range(2)
    ]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), "utf-8")
    always = {"json": {"winner": "first", "reason": "r"}}
    (folder / "replies.json").write_text(json.dumps([{"replies": [always] * 4}]), "utf-8")
    done = call(
        folder, "measure", "judge", "duels:duel", "--pairs", "pairs.jsonl", "--replies", "replies.json",
        "--run-id", "pairs",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with serving(folder) as server:
        yield server


def opened(browser: Any, server: Server, path: str, width: int = 1280) -> Any:
    page = browser.new_page()
    page.set_viewport_size({"width": width, "height": 900})
    page.set_default_timeout(60_000)
    page.goto(f"{server.base}/?token={server.token}")
    page.goto(server.base + path)
    return page


@pytest.mark.parametrize("width", [390, 1280])
def test_the_form_compares_policies(browser: Any, recorded: Server, width: int) -> None:
    """Two lines are two policies; the plot has a point for each that is judged; the page can be read by all."""
    page = opened(browser, recorded, "/limits", width)
    page.fill("input[name=runs]", "name:titles")
    page.fill("textarea", "[{score_at_least: 0.6}, {max_iterations: 4}]\n[{max_iterations: 2}]")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_selector("table.policies")
    rows = page.locator("table.policies tbody tr")
    assert rows.count() == 3
    assert "Recorded stops reproduced: 5 of 5" in page.text_content("#replay")
    assert page.locator("figure.plot circle").count() == 3
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if folder := os.environ.get("LOOPWRIGHT_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"replay-{width}.png"), full_page=True)
    page.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_reports_of_judges_over_time(browser: Any, recorded: Server, width: int) -> None:
    """A row for each measurement, newest first, with intervals and the reason where there is none."""
    page = opened(browser, recorded, "/judges", width)
    rows = page.locator("table.reports:not(.of-pairs) tbody tr")
    assert rows.count() == 2
    assert "bench-b" in rows.nth(0).text_content()
    assert "too few: 4 of 100 cases" in rows.nth(0).text_content()
    assert page.locator("figure.plot circle").count() == 6
    assert page.locator(".of-pairs tbody td").all_inner_texts() == [
        "Which title is more exact?", "2", "0.000 [0.000, 0.658]", "0.000 [0.000, 0.658]", "1.000 [0.342, 1.000]",
        "1.000 [0.342, 1.000]", "0",
    ]  # fmt: skip
    # No column is cut, so that nobody has to scroll for the advice.
    for scrolled in page.locator(".scroll").all():
        assert scrolled.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if folder := os.environ.get("LOOPWRIGHT_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"judges-{width}.png"), full_page=True)
    page.close()


@pytest.mark.parametrize("query", ["", "?run=a", "?run=a&run=b&run=c&run=d&run=e"])
def test_a_comparison_needs_two_to_four_runs(recorded: Server, query: str) -> None:
    """The sentence says how many are selected."""
    for page in ("/compare", "/compare/json"):
        status, text = recorded.ask(page + query)
        assert status == 400
        assert f"select 2 to 4 runs in the list, not {query.count('run=')}" in text


def test_the_figures_are_json_too(recorded: Server) -> None:
    """The same objects as on the command line."""
    status, text = recorded.ask(f"/limits/json?{QUERY}")
    assert status == 200, text
    shown = json.loads(text)
    printed = json.loads(
        call(
            recorded.folder, "measure", "limits", "name:titles", "--json", "--until",
            "[{score_at_least: 0.6}, {max_iterations: 4}]", "--until", "[{max_iterations: 2}]",
        ).stdout
    )  # fmt: skip
    assert shown == printed
    status, text = recorded.ask("/judges/json")
    reports = json.loads(text)["reports"]
    assert [row["run_id"] for row in reports] == ["pairs", "bench-b", "bench-a"]
    assert reports[0]["turned"] == ["p0", "p1"]
    assert reports[1]["confusion"]["tn"] == 2


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("runs=name:none", "no run is selected. The page Runs lists the runs.<"),
        ("runs=nme:titles", "is not a selector"),
        ("runs=name:titles&until=[{scor_at_least:+1}]", "conditions:1"),
        ("runs=name:titles&loop=other", "has no loop"),
        ("runs=name:titles&loop=imprve", "did you mean 'improve'"),
        (
            "runs=name:titles&until=[{score_at_least:+.nan}]",
            "conditions:1:19: [0].score_at_least: .nan is not a finite",
        ),
        ("runs=name:titles&until=passed%0A%5B", "conditions:2:2"),
        (
            "runs=name:titles&until=passed%0A{until:+passed,+kep:+last}",
            "conditions:2: unknown key 'kep'",
        ),
        ("runs=name:titles&until=[]", "conditions:1: there is no condition"),
        (
            "runs=name:titles&until={until:+passed,+on_stall:+stop}",
            "conditions:1: on_stall: a policy",
        ),
        ("runs=name:titles+name:judge_bench", "use name: once"),
        ("runs=no-such-run", "there is no run 'no-such-run' in this journal<"),
        ("runs=name:judge_bench", "has no loop"),
        ("runs=name:titles&price=nan", "price: 'nan' is not a price"),
        ("runs=name:titles&price=cheap", "price: 'cheap' is not a price"),
    ],
)
def test_wrong_fields_are_one_sentence(recorded: Server, query: str, sentence: str) -> None:
    """Beside the form on the page, and as status 400 or 404 in JSON; no sentence has a command."""
    status, text = recorded.ask(f"/limits?{query}")
    assert status == 200
    assert sentence in text.replace("&#39;", "'")
    assert "loopwright runs" not in text
    assert recorded.ask(f"/limits/json?{query}")[0] == (404 if "no-such" in query else 400)


def test_explored_iterations_and_the_noise_of_past_runs_are_shown(
    browser: Any, recorded: Server
) -> None:
    """The page and `show` say where the normal end was; an explored iteration is never the best one."""
    text = DOCUMENT.replace("name: titles", "name: explored").replace(
        "{max_iterations: 4}]", "{degrading: {sigma: past}}, {max_iterations: 4}]\n      explore: 1"
    )
    (recorded.folder / "explored.yaml").write_text(text, "utf-8")
    rules = [{"replies": [verdict(60), verdict(92), verdict(95), verdict(97)]}]
    (recorded.folder / "replies.json").write_text(json.dumps(rules), "utf-8")
    words = ("run", "explored.yaml", "--input", "x", "--replies", "replies.json", "--run-id", "far")
    assert call(recorded.folder, *words).returncode == 0
    shown = call(recorded.folder, "show", "far").stdout
    assert "improve: sigma 0.07 of 0 past runs" in shown
    assert "improve: normal end after 2 iterations (score 0.92 is at least 0.9); later" in shown
    assert "2 explored iterations" in shown
    page = opened(browser, recorded, "/runs/far")
    assert "sigma 0.07 of 0 past runs" in page.text_content("h2 .count")
    assert page.locator("tr.iteration.best").get_attribute("data-number") == "2"
    assert page.locator("tr.iteration span.files", has_text="explored").count() == 2
    assert "0.92" in page.text_content("ul.facts")
    page.close()


def test_runs_of_several_fingerprints_are_mixed_on_request(browser: Any, recorded: Server) -> None:
    """A checkbox mixes versions. This test comes last, because its run stays in the journal."""
    other = DOCUMENT.replace("It is exact.", "It is precise.")
    (recorded.folder / "other.yaml").write_text(other, "utf-8")
    rules = [{"replies": [verdict(60), verdict(80)]}]
    (recorded.folder / "replies.json").write_text(json.dumps(rules), "utf-8")
    words = ("run", "other.yaml", "--input", "x", "--replies", "replies.json", "--run-id", "other")
    assert call(recorded.folder, *words).returncode == 3
    page = opened(browser, recorded, "/limits")
    page.fill("input[name=runs]", "name:titles")
    page.fill("textarea", "[{max_iterations: 3}]")
    page.fill("input[name=price]", "0.9")
    page.get_by_role("button", name="Compare").click()
    problem = page.text_content("[role=alert]")
    assert problem.endswith('or mix them: select "Mix runs of several fingerprints"')
    page.check("input[name=mix]")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_selector("table.policies")
    assert "6 of 6" in page.text_content("#replay")
    assert page.input_value("input[name=price]") == "0.9"
    page.close()
