"""Changes to the check and held-out tests on the page of a run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Server, environ, serving, visiting
from .test_browser import accessible

# The first iteration weakens a test; the second passes the visible test, and one of two held-out ones.
LOOP = """
import sys
from loopwright import Loop, Passed, Workspace, run_sync, tests

def agent(_, ctx):
    if ctx.iteration == 1:
        (ctx.folder / "tests" / "test_add.py").write_text("def test_add():\\n    pass\\n")
    else:
        (ctx.folder / "add.py").write_text("def add(a, b):\\n    return 5\\n")
    return "changed"

check = tests([sys.executable, "-m", "pytest", "-q", "tests"], held_out="hidden")
loop = Loop(agent, check, until=Passed(), max_iterations=3, name="fix",
            workspace=Workspace("project", merge="none"))
run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id="sealed")
"""
CASE = "from add import add\n\ndef test_{0}():\n    assert add({1}, {2}) == {3}\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The page of a folder with one run whose first iteration changed a test."""
    made = tmp_path_factory.mktemp("sealed")
    for name in ("project/tests", "hidden"):
        (made / name).mkdir(parents=True)
    (made / "project/add.py").write_text("def add(a, b):\n    return 0\n")
    (made / "project/tests/test_add.py").write_text(CASE.format("add", 2, 3, 5))
    hidden = CASE.format("one", 1, 4, 5) + CASE.format("other", 1, 1, 2)
    (made / "hidden/test_more.py").write_text(hidden)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        subprocess.run([*git, *words], cwd=made / "project", check=True)
    (made / "loop.py").write_text(LOOP)
    subprocess.run([sys.executable, "loop.py"], cwd=made, env=environ(made), check=True)
    with serving(made) as page:
        yield page


def test_the_page_shows_the_gap_and_the_changes_to_the_check(browser: Any, server: Server) -> None:
    """The head has the held-out tests with the gap; the row and the open iteration name the changed test."""
    with visiting(browser, server, at="/runs/sealed") as page:
        head = " ".join(page.text_content("#head .facts").split())
        assert "Held-out tests 1 of 2 pass score gap 0.50" in head
        assert "check changed" in page.text_content("tr.iteration[data-number='1']")
        assert "check changed" not in page.text_content("tr.iteration[data-number='2']")
        page.locator("button.open").nth(0).click()
        page.wait_for_selector(".opened .tampering")
        text = page.text_content(".opened .tampering")
        assert "tests/test_add.py was changed and put back" in text
        assert "The check used the files of the start." in text
        accessible(page)
