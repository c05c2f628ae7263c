"""What people do on the page, in a real browser: start, cancel, go on, go back, answer."""

from __future__ import annotations

from typing import Any

from .conftest import Server, call, counted, visiting
from .lines import program


def test_a_run_is_started_followed_and_cancelled(browser: Any, server: Server) -> None:
    """A workflow that was agreed to starts with an input; a run is seen live, and is cancelled."""
    with visiting(browser, server) as page:
        page.get_by_role("link", name="Start a run").click()
        start = page.locator("form.start", has_text="count.yaml")
        start.locator("textarea").fill("two words")
        start.locator("summary").click()
        start.locator("input[name=usd]").fill("0.5")
        start.get_by_role("button", name="Start").click()
        page.wait_for_url("**/runs/*")
        page.wait_for_selector("#head[data-status=satisfied]")
        assert page.text_content("pre[aria-label=Input]") == "two words"
        assert page.text_content("#output") == "two words more"
        assert "of $0.5000" in page.text_content(".facts")
        other = server.ask("/start", {"file": "other.yaml"})
        assert other[0] == 400
        assert "approved" in other[1]


def test_a_form_has_a_field_for_each_declared_input(browser: Any, server: Server) -> None:
    """Texts, choices and boxes become one input; what the document refuses is said below the form."""
    with visiting(browser, server, at="/start", refused=True) as page:
        form = page.locator("form.start", has_text="poem.yaml")
        assert "What it is about." in form.text_content()
        assert form.locator("select option").all_text_contents() == ["calm", "dry"]
        form.locator("textarea").fill("rain")
        form.locator("select").select_option("dry")
        form.locator("input[name='input.lines']").fill("7")
        form.locator("input[type=checkbox]").check()
        form.get_by_role("button", name="Start").click()
        page.wait_for_url("**/runs/*")
        page.wait_for_selector("#head[data-status=satisfied]")
        assert page.text_content("#output") == "rain dry 7 True"
        for fields, sentence in (
            ({"input.topic": ""}, "poem needs the input topic"),
            ({"input.topic": "a", "input.tone": "wet"}, "input tone: 'wet' is not one of"),
        ):
            status, answer = server.ask("/start", {"file": "poem.yaml", **fields})
            assert status == 400
            assert sentence in answer


def test_a_running_run_is_live_and_ends_by_the_button(browser: Any, server: Server) -> None:
    """Rows come as they are committed, the list follows too, and Cancel ends it."""
    folder = server.folder
    with visiting(browser, server) as page:
        listed = browser.new_page()
        listed.goto(server.base)
        with program(server, "run", "steps:slowly", "--run-id", "live") as process:
            listed.wait_for_selector("tr[data-run=live] .badge.running")
            page.goto(f"{server.base}/runs/live")
            page.wait_for_selector(".in-flight code")
            assert "slowly/1/execute" in page.text_content(".in-flight")
            for number in (1, 2, 3):
                (folder / f"go-{number}").touch()
                page.wait_for_selector(f"tr.iteration[data-number='{number}']")
            page.wait_for_selector(".uplot")
            assert page.locator("tr.iteration").count() == 3
            page.get_by_role("button", name="Cancel").click()
            page.wait_for_selector("#head[data-status=cancelled]")
            assert process.wait(30) == 130
            listed.wait_for_selector("tr[data-run=live] .badge.cancelled")


def test_an_exhausted_run_goes_on_with_more(browser: Any, server: Server) -> None:
    """Raise a limit and it goes on; go back to an iteration with another input and it is done again."""
    from playwright.sync_api import expect

    with visiting(browser, server) as page:
        page.goto(f"{server.base}/runs/exhausted")
        page.locator("summary", has_text="Raise a limit").click()
        page.fill("form[data-action$=raise] input[name=iterations]", "4")
        with page.expect_navigation():
            page.get_by_role("button", name="Raise and resume").click()
        counted(page, "tr.iteration", 4)
        page.wait_for_selector("#head[data-status=exhausted]")
        assert "of 4" in page.text_content(".facts")
        page.locator("summary", has_text="Rewind").click()
        page.fill("form[data-action$=rewind] input[name=number]", "2")
        page.fill("form[data-action$=rewind] textarea", "another input")
        with page.expect_navigation():
            page.get_by_role("button", name="Rewind and resume").click()
            expect(page.get_by_role("dialog")).to_contain_text("This discards 3 iterations")
            page.get_by_role("dialog").get_by_role("button", name="Do it").click()
        page.wait_for_selector("#head[data-status=exhausted]")
        counted(page, "tr.iteration", 2)  # what came later is set aside, the raised limit too
        page.locator("button.open").nth(1).click()
        page.wait_for_selector(".opened pre[aria-label^=Input]")
        assert page.text_content(".opened pre[aria-label^=Input]") == "another input"


def test_a_question_is_answered(browser: Any, server: Server) -> None:
    """A run that waits for a person shows its question; the answer may edit the feedback."""
    with visiting(browser, server) as page:
        page.goto(f"{server.base}/runs/asking")
        form = page.locator("form.question")
        form.locator("textarea[name=feedback]").fill("Name the date")
        form.get_by_role("button", name="Continue").click()
        counted(page, "tr.iteration", 2)
        page.wait_for_selector("form.question")
        page.locator("form.question").get_by_role("button", name="Accept this output").click()
        page.wait_for_selector("#head[data-status=satisfied]")
        told = call(server.folder, "show", "asking", "--json").stdout
        assert "satisfied" in told


def test_what_is_refused_is_told_in_place(browser: Any, server: Server) -> None:
    """An action that cannot be done says why beside its button, and changes nothing."""
    with visiting(browser, server, refused=True) as page:
        page.goto(f"{server.base}/runs/limited")
        page.locator("summary", has_text="Raise a limit").click()
        page.fill("form[data-action$=raise] input[name=iterations]", "1")
        page.get_by_role("button", name="Raise and resume").click()
        outcome = page.locator("form[data-action$=raise] .outcome.error")
        outcome.wait_for()
        assert "is not above the 2 iterations" in (outcome.text_content() or "")
        page.goto(f"{server.base}/runs/none")
        assert "there is no run" in page.text_content("main")


CHANGED = """\
schema: loopwright/1
name: changed
steps:
  - name: grow
    loop:
      execute: {set: "{{ loop.initial }}WORD"}
      until: {max_iterations: 2}
      approve: iteration
"""


def test_a_run_whose_document_changed_is_not_gone_on_with(server: Server) -> None:
    """The sentence of the process that refused is what the page tells, and the run is as it was."""
    document = server.folder / "changed.yaml"
    document.write_text(CHANGED.replace("WORD", "x"), "utf-8")
    waiting = call(server.folder, "run", "changed.yaml", "--input", "a", "--run-id", "changed")
    assert waiting.returncode == 4, waiting.stderr
    answered = call(server.folder, "approve", "changed", "--yes")
    assert answered.returncode == 0, answered.stderr
    document.write_text(CHANGED.replace("WORD", "y"), "utf-8")
    status, told = server.ask("/runs/changed/resume", {})
    assert status == 400
    assert "changed since" in told
    document.write_text(CHANGED.replace("WORD", "x"), "utf-8")
    assert server.ask("/runs/changed/resume", {})[0] == 200


SLOW_TO_END = """\
import atexit
import time

from loopwright import Loop, MaxIterations

atexit.register(time.sleep, 2)  # a process that needs long to end after it has refused
loop = Loop(lambda text: text + "WORD", until=MaxIterations(2), approve="iteration", name="loop")
"""


def test_a_refusal_is_reported_however_long_the_process_needs(server: Server) -> None:
    """The page waits for the word of the process it started, and not for a time."""
    module = server.folder / "slow_to_end.py"
    module.write_text(SLOW_TO_END.replace("WORD", "x"), "utf-8")
    words = ("slow_to_end:loop", "--input", "a", "--run-id", "refused-late")
    waiting = call(server.folder, "run", *words)
    assert waiting.returncode == 4, waiting.stderr
    answered = call(server.folder, "approve", "refused-late", "--yes")
    assert answered.returncode == 0, answered.stderr
    module.write_text(
        SLOW_TO_END.replace("WORD", "y").replace("MaxIterations(2)", "MaxIterations(3)"), "utf-8"
    )
    status, text = server.ask("/runs/refused-late/resume", {})
    assert status == 400
    assert "changed since" in text


UNSURE = """\
schema: loopwright/1
name: unsure
steps:
  - name: answer
    phased:
      max_planning_iterations: 1
      max_execution_iterations: 2
      max_refinement_iterations: 1
      planning: {set: a plan}
      execution: {set: a note}
      refinement: {set: an answer}
      evaluate: {check: {contains: certain}}
      enable_dynamic_termination: true
"""


def test_the_limit_that_is_raised_by_default_is_that_of_the_last_phase(server: Server) -> None:
    """An agent that was not confident enough is given answers more, not plans."""
    (server.folder / "unsure.yaml").write_text(UNSURE, "utf-8")
    ended = call(server.folder, "run", "unsure.yaml", "--run-id", "unsure")
    assert ended.returncode == 3, ended.stderr
    status, told = server.ask("/runs/unsure")
    assert (status, told.count(" selected>refinement</option>")) == (200, 1)
    assert told.count(" selected>") == 1


LIMITED = """\
schema: loopwright/1
name: limited
steps:
  - name: grow
    loop:
      execute: {set: "{{ loop.initial }}x"}
      until: {max_iterations: 2}
      approve: limit
"""


def test_a_question_at_a_limit_proposes_what_an_answer_without_a_number_gives(
    server: Server,
) -> None:
    """The field holds as many iterations as the command line would go on with, and only the field."""
    (server.folder / "asks_more.yaml").write_text(LIMITED, "utf-8")
    waiting = call(server.folder, "run", "asks_more.yaml", "--input", "a", "--run-id", "more")
    assert waiting.returncode == 4, waiting.stderr
    status, told = server.ask("/runs/more")
    assert status == 200
    assert 'name="more" min="1" max="998" value="2"' in told
    assert "<summary>more</summary>" not in told
