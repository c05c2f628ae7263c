"""The page of an evaluation: its cases by state, sorted, searched, by pages, and against a baseline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Server, call, counted, serving, visiting

CASES = 250
DOCUMENT = """\
schema: loopwright/1
name: answers
eval:
  dataset: {file: cases.jsonl}
  task: {set: "{{ case.inputs }}"}
  evaluate: {check: equals_expected}
"""
# The cases 0, 40, 80, … have no sixth word.
BREAKS = "{{ case.inputs.split()[5] if case.inputs.endswith('0 ') else case.inputs }}"


def write(folder: Path, wrong: set[int], task: str = "{{ case.inputs }}") -> None:
    rows = [
        {
            "id": f"c{n:03}",
            "inputs": f"<b>{n}</b>" + (" " if n % 40 == 0 else ""),
            "expected": f"<b>{n}</b>",
        }
        for n in range(CASES)
    ]
    sea = f"{{% if case.id in {sorted(f'c{n:03}' for n in wrong)} %}}sea{{% else %}}{task}{{% endif %}}"
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "answers.yaml").write_text(DOCUMENT.replace('"{{ case.inputs }}"', json.dumps(sea)))


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A page with two evaluations: of the second, five cases are worse and two better, and seven errored."""
    folder = tmp_path_factory.mktemp("evaluated")
    write(folder, {1, 2})
    assert call(folder, "eval", "answers.yaml", "--yes", "--run-id", "base").returncode == 0
    write(
        folder,
        {11, 12, 13, 14, 15},
        "{{ case.inputs.split('>')[9] if case.inputs.endswith(' ') else case.inputs }}",
    )
    words = ["--baseline", "base", "--max-errors", "10%", "--run-id", "next"]
    done = call(folder, "eval", "answers.yaml", "--yes", *words)
    assert done.returncode == 0, done.stderr
    assert (
        call(
            folder, "eval", "answers.yaml", "--yes", "--max-errors", "1%", "--run-id", "few"
        ).returncode
        == 1
    )
    with serving(folder) as server:
        yield server


def cases(server: Server, query: str = "", run: str = "next") -> Any:
    status, text = server.ask(f"/runs/{run}/cases/json?{query}")
    assert status == 200, text
    return json.loads(text)


def test_the_changed_verdicts_stand_first(evaluated: Server) -> None:
    """The worse ones, the better ones, then the others that did not pass, in the order of the file."""
    shown = cases(evaluated)
    assert [row["change"] for row in shown["rows"]].count("better") == 2
    order = [(row["id"], row["change"], row["state"]) for row in shown["rows"][:15]]
    worse = [(f"c{n:03}", "worse", "errored") for n in range(0, CASES, 40)]
    worse += [(f"c{n:03}", "worse", "failed") for n in range(11, 16)]
    assert order == [
        *worse,
        ("c001", "better", "passed"),
        ("c002", "better", "passed"),
        ("c003", "", "passed"),
    ]
    assert (shown["baseline"]["wins"], shown["baseline"]["losses"]) == (2, 5)
    assert cases(evaluated, "sort=file")["rows"][0]["id"] == "c000"


def test_cases_are_found_by_state_text_and_order(evaluated: Server) -> None:
    """A page has a hundred cases; the numbers of the histogram are those of all cases."""
    assert [cases(evaluated, f"offset={n}")["rows"][0]["id"] for n in (100, 200)] == [
        "c096",
        "c198",
    ]
    assert len(cases(evaluated, "offset=200")["rows"]) == 50
    assert cases(evaluated, "state=failed")["total"] == 5
    assert cases(evaluated, "state=better")["total"] == 2
    assert [row["id"] for row in cases(evaluated, "search=SEA")["rows"]] == [
        f"c{n:03}" for n in range(11, 16)
    ]
    assert cases(evaluated, "sort=score")["rows"][0]["id"] == "c011"
    bars = cases(evaluated)["histogram"]
    assert (bars[0], bars[9]) == (
        {"scores": "0.0 to 0.1", "cases": 5, "before": 2},
        {"scores": "0.9 to 1.0", "cases": 238, "before": 248},
    )
    status, text = evaluated.ask("/runs/next/cases/json?sort=size")
    assert status == 400, text


def test_a_run_that_is_no_evaluation_has_no_cases(server: Server) -> None:
    """The page says so in a sentence, and its own page is as before."""
    status, text = server.ask("/runs/counted/cases")
    assert (status, "not an evaluation" in text) == (400, True)
    assert 'id="trace"' in server.ask("/runs/counted")[1]


def test_an_evaluation_that_failed_has_its_cases_so_far(evaluated: Server) -> None:
    """There is no score, and the counts are those of the cases that have ended."""
    shown = cases(evaluated, run="few")
    assert shown["score"] is None
    assert shown["counts"]["errored"] > 0
    assert "Score none" in evaluated.ask("/runs/few")[1]


def test_the_list_has_the_mean_score_of_an_evaluation(evaluated: Server) -> None:
    """Also in the order by score; an evaluation that failed has none."""
    shown = json.loads(call(evaluated.folder, "runs", "--sort", "score", "--json").stdout)["runs"]
    assert [(row["run_id"], row["score"]) for row in shown] == [
        ("base", 0.992), ("next", pytest.approx(238 / 243)), ("few", None),
    ]  # fmt: skip


def test_the_report_of_an_evaluation_can_be_read(evaluated: Server) -> None:
    """The score, the histogram, the counts, and the cases that did not pass first; it says that nothing is compared."""
    text = evaluated.ask("/runs/next/export/html")[1]
    for shown in ("Score 0.979", "Cases by score", "7 errored", "Not compared with base"):
        assert shown in text
    assert text.index("<b>c011</b>") < text.index("<b>c001</b>")
    assert text.count('<details class="iteration-detail">') == CASES
    assert "<b>11</b>" not in text
    assert '"mean"' not in text


def test_a_deleted_baseline_is_no_reason_to_show_nothing(evaluated: Server) -> None:
    """The cases are shown without a comparison."""
    shown = cases(evaluated, "baseline=gone")
    assert (shown["baseline"], shown["total"]) == (None, CASES)


def test_the_cases_work_in_a_browser(browser: Any, evaluated: Server) -> None:
    """Filters, pages and rows, by mouse and keyboard, without a violation of accessibility."""
    from axe_playwright_python.sync_playwright import Axe

    with visiting(browser, evaluated, at="/runs/next") as page:
        assert "0.979" in page.inner_text(".cases h2")
        counted(page, ".histogram rect", 10)
        page.click("text=Numbers")
        assert page.inner_text(".histogram tbody tr:last-child").split() == [
            "0.9",
            "to",
            "1.0",
            "238",
            "248",
        ]
        counted(page, "tr.iteration", 100)
        page.click("tr[data-case=c011] button.open")
        page.wait_for_selector(".detail")
        assert page.inner_text(".detail pre >> nth=0") == "<b>11</b>"
        assert "base: passed" in page.inner_text(".detail")
        page.click(".detail .trace summary >> nth=0")
        assert "equals_expected" in page.inner_text(".detail") or "check" in page.inner_text(
            ".detail"
        )
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert Axe().run(page).response["violations"] == []
        page.click("button.turn:has-text('Next')")
        page.wait_for_selector("text=101 to 200 of 250")
        assert page.evaluate("document.activeElement.textContent") == "Next"
        page.click("button.turn:has-text('failed')")
        counted(page, "tr.iteration", 5)
        page.fill("input[name=search]", "c012")
        page.click("form.filter button")
        counted(page, "tr.iteration", 1)
    for width in (390, 1920):
        with visiting(browser, evaluated, width=width, at="/runs/next") as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= width
