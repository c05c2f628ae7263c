"""The form with which a person judges in place of a judge that could not decide."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Server, call, visiting

DOCUMENT = """\
schema: loopwright/1
name: unsure
model: openai:any
steps:
  - name: write
    loop:
      execute: {set: "a text by {{ loop.iteration }}"}
      evaluate: {judge: It is good.}
      until: [passed, {score_at_least: 0.9}, {max_iterations: 3}]
      undecided: {after: 1, then: pause}
"""


@pytest.mark.parametrize(
    ("button", "score", "status"),
    [("It is good", "", "satisfied"), ("Give the score", "0.93", "satisfied"),
     ("It is not good", "", "suspended")],
)  # fmt: skip
def test_a_person_judges_on_the_page(
    browser: Any, server: Server, button: str, score: str, status: str
) -> None:
    """The output is shown; a verdict or a score continues the run."""
    run_id = f"unsure-{button.split()[-1]}-{status}"
    (server.folder / "unsure.yaml").write_text(DOCUMENT, "utf-8")
    (server.folder / "hm.yaml").write_text('- replies: ["hm", "hm", "hm", "hm"]\n', "utf-8")
    waiting = call(
        server.folder, "run", "unsure.yaml", "--input", "a", "--replies", "hm.yaml", "--run-id", run_id
    )  # fmt: skip
    assert waiting.returncode == 4, waiting.stderr
    with visiting(browser, server, at=f"/runs/{run_id}") as page:
        form = page.locator("form.question")
        assert "could not decide on iteration 1" in (form.text_content() or "")
        assert page.text_content("#output") == "a text by 1"
        form.locator("input[name=score]").fill(score)
        form.locator("textarea[name=reason]").fill("read by Ann")
        form.get_by_role("button", name=button, exact=True).click()
        page.wait_for_selector("tr.iteration[data-number='1']")
        page.wait_for_selector(f"#head[data-status={status}]")


def test_a_score_that_is_no_number_is_refused_in_place(server: Server) -> None:
    """A program that sends another form gets one sentence."""
    (server.folder / "unsure.yaml").write_text(DOCUMENT, "utf-8")
    (server.folder / "hm.yaml").write_text('- replies: ["hm", "hm"]\n', "utf-8")
    call(server.folder, "run", "unsure.yaml", "--replies", "hm.yaml", "--run-id", "odd")
    body = {"path": "unsure/write/1/verdict", "choice": "score", "score": "high"}
    status, text = server.ask("/runs/odd/answer", body)
    assert status == 400, text
    assert "not a number from 0 to 1" in text


CHOICE = """\
schema: loopwright/1
name: titles
steps:
  - name: title
    loop:
      execute: {set: "a{{ loop.vary }}"}
      max_iterations: 1
      evaluate: {checklist: [{name: loud, contains: "!"}]}
      candidates: {n: 2, vary: ["", "!"], pick: ask}
"""


def test_a_person_chooses_a_candidate_on_the_page(browser: Any, server: Server) -> None:
    """All of them are shown, each has a button, that of the best one first, and another number is refused."""
    (server.folder / "titles.yaml").write_text(CHOICE, "utf-8")
    call(server.folder, "run", "titles.yaml", "--run-id", "titles-1")
    body = {"path": "titles/title/1/choice", "choice": "3"}
    status, text = server.ask("/runs/titles-1/answer", body)
    assert (status, "use one of the buttons" in text) == (400, True)
    with visiting(browser, server, at="/runs/titles-1") as page:
        form = page.locator("form.question")
        assert "candidate 2" in (form.text_content() or "")
        assert form.locator("button[name=choice]").first.inner_text() == "Candidate 2"
        form.get_by_role("button", name="Candidate 2", exact=True).click()
        page.wait_for_selector("#head[data-status=satisfied], #head[data-status=exhausted]")
        assert page.text_content("#output") == "a!"
