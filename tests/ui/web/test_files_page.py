"""The files of a run on the page: changes of iterations, differences, branches, and exports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loopwright.ui.web.render import lines_of

from .conftest import Server, call, environ, serving, visiting
from .test_browser import accessible

# Three iterations: the second is best, the third breaks a test that was green.
LOOP = """
from loopwright import Evaluation, Loop, Workspace, run_sync, shell

EDIT = "n=$(cat n.txt); n=$((n+1)); echo $n > n.txt; printf 'key=%s %0200d\\n' $SECRET_TOKEN 0 > new$n; cat n.txt"
# The result shows it on a line of its own, as it shows the names of tests that turned green.
EDIT += " # fails: tests/test_prices_of_all_the_countries.py::test_that_a_price_is_rounded_to_the_next_cent"
LONG = "tests/test_prices_of_all_the_countries.py::test_that_a_price_is_rounded_to_the_next_cent_and_test_"
FAILING = {"0": ["a", "b"], "1": ["a", "b"], "2": ["b"], "3": ["a", "b"]}
SCORES = {"1": 0.2, "2": 0.6, "3": 0.4}

def judge(output):
    details = {"tests": {"passing": 1, "total": 3, "failing": [LONG + name for name in FAILING[output]]}}
    return Evaluation(SCORES[output], False, "not yet", details=details)

loop = Loop(shell(EDIT, name="edit", pass_env=["SECRET_TOKEN"]), judge, max_iterations=3, name="fix",
            workspace=Workspace("project", merge="none"))
run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id="files")
"""
TOKEN = "tok-4f9a8b7c6d5e"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run of a loop in a workspace."""
    made = tmp_path_factory.mktemp("files")
    project = made / "project"
    project.mkdir()
    (project / "n.txt").write_text("0\n")
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "-A")
    git(project, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "start")
    (made / "loop.py").write_text(LOOP)
    env = environ(made) | {"SECRET_TOKEN": TOKEN}
    subprocess.run([sys.executable, "loop.py"], cwd=made, env=env, check=True)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """The page of that folder."""
    with serving(folder, SECRET_TOKEN=TOKEN) as made:
        yield made


@pytest.mark.parametrize("width", [390, 1280])
def test_the_files_of_iterations_are_shown_and_compared(
    browser: Any, server: Server, width: int
) -> None:
    """Rows have counts; an open row has tests and changes; two iterations are compared, without a key."""
    with visiting(browser, server, width=width, at="/runs/files") as page:
        assert "files 2 +2 -1" in page.text_content("tr.iteration[data-number='2']")
        # The result is the second iteration, with what the first one changed before it.
        assert "Changed files 3 +3 -1" in " ".join(page.text_content("#result").split())
        page.locator("button.open").nth(1).click()
        page.wait_for_selector(".opened .detail")
        assert "test_a turned green" in page.text_content(".opened .criteria")
        page.locator(".opened .changes summary").click()
        page.wait_for_selector(".opened .patch .added")
        assert "new2" in page.text_content(".opened .changed")
        form = page.locator("form.compare[action$='/files']")
        form.locator("button").click()
        page.wait_for_selector(".compared .patch")
        text = page.text_content(".compared .patch-of")
        assert "Files of the start and iteration 3" in text
        assert "key=[redacted]" in text
        assert TOKEN not in page.content()
        page.locator(".action", has_text="Files…").locator("summary").click()
        accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # A long line of a difference scrolls inside the difference, not with the table.
        wider = "[...document.querySelectorAll('.loop .wide')].filter(e => e.scrollWidth > e.clientWidth)"
        assert page.evaluate(f"{wider}.length") == 0


def test_a_test_that_fails_again_turned_red(browser: Any, server: Server) -> None:
    """The third iteration broke what the second had repaired."""
    with visiting(browser, server, at="/runs/files") as page:
        page.locator("button.open").nth(2).click()
        page.wait_for_selector(".opened .detail")
        assert "test_a turned red" in page.text_content(".opened .criteria")


def test_an_application_is_confirmed_with_the_number_of_files(server: Server, folder: Path) -> None:
    """Another number than that of the question changes nothing, and is asked about again."""
    before = (folder / "project" / "n.txt").read_text()
    fields = {"loop": "fix", "number": "3", "confirmed": 99}
    status, text = server.ask("/runs/files/apply", fields)
    reply = json.loads(text)
    assert (status, set(reply)) == (200, {"confirm", "confirmed"})
    assert f"This changes {reply['confirmed']} file" in reply["confirm"]
    assert (folder / "project" / "n.txt").read_text() == before


def test_a_branch_is_made_and_files_are_applied(browser: Any, server: Server, folder: Path) -> None:
    """Both need the token and the header of the page; the branch that is checked out does not move."""
    from playwright.sync_api import expect

    project = folder / "project"
    head = git(project, "rev-parse", "HEAD")
    assert server.ask("/runs/files/branch", None, **{"x-loopwright": "1"})[0] in (404, 405)
    assert server.ask("/runs/files/branch", {"loop": "fix", "number": "1", "name": "-x"})[0] == 400
    with visiting(browser, server, at="/runs/files") as page:
        page.locator(".action", has_text="Files…").locator("summary").click()
        form = page.locator("form[data-action$='/branch']")
        form.locator("input[name=number]").fill("1")
        form.locator("input[name=name]").fill("first")
        form.get_by_role("button", name="Make branch").click()
        expect(form.locator(".outcome")).to_contain_text("first", timeout=60_000)
        form.locator("input[name=number]").fill("2")
        form.get_by_role("button", name="Apply to my folder").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(
            f"Apply iteration 2 to {project}? This changes 3 files: n.txt, new1, new2",
            timeout=60_000,
        )
        accessible(page)
        dialog.get_by_role("button", name="Cancel").click()
        expect(form.locator(".outcome")).to_contain_text("Nothing was changed", timeout=60_000)
        assert (project / "n.txt").read_text() == "0\n"
        form.get_by_role("button", name="Apply to my folder").click()
        dialog.get_by_role("button", name="Do it").click()
        expect(form.locator(".outcome")).to_contain_text("3 files", timeout=60_000)
        form.get_by_role("button", name="Apply to my folder").click()
        expect(form.locator(".outcome")).to_contain_text("already", timeout=60_000)
    assert git(project, "show", "first:n.txt") == "1"
    assert git(project, "rev-parse", "HEAD") == head
    assert (project / "n.txt").read_text() == "2\n"


def test_files_without_a_record_are_listed_with_their_command(
    server: Server, folder: Path, browser: Any
) -> None:
    """An edit that a restore replaced can be put in place again."""
    assert "Files without a record" not in server.ask("/runs/files")[1]
    edited = folder / ".loopwright" / "trees" / "files" / "fix" / "mine"
    edited.write_text("mine")
    assert call(folder, "files", "restore", "files").returncode == 0
    with visiting(browser, server, width=390, at="/runs/files") as page:
        text = page.text_content(".unrecorded")
        command = page.text_content(".unrecorded td code")
        accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert "mine" in text and not edited.exists()
    assert command.startswith("loopwright files restore files ")
    assert call(folder, *command.split()[1:]).returncode == 0
    assert edited.read_text() == "mine"
    assert "1 state of files without a record" in call(folder, "show", "files").stdout


def test_a_removed_line_is_no_header() -> None:
    """Two dashes at the start of a line look like the header of a patch, and only its place tells."""
    patch = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n--- old\n+++ new\n same\n"
    kinds = [line.kind for line in lines_of(patch)]
    assert kinds == ["file", "header", "header", "hunk", "removed", "added", "same"]


def test_exports_have_the_files(server: Server, folder: Path) -> None:
    """A report has the differences, a patch applies, and a bundle is cloned with all iterations."""
    html = server.ask("/runs/files/export/html")[1]
    assert 'class="added">+2' in html
    assert TOKEN not in html
    assert "+2" in server.ask("/runs/files/export/patch")[1]
    assert (
        call(folder, "export", "files", "--format", "bundle", "--out", "f.bundle").returncode == 0
    )
    git(folder, "clone", "-q", "f.bundle", "clone")
    assert git(folder / "clone", "show", "origin/iteration-3:n.txt") == "3"
    assert (folder / "clone" / "n.txt").read_text() == "0\n"
    refused = call(folder, "export", "files", "--format", "bundle")
    assert refused.returncode == 2
    assert "--out FILE" in refused.stderr
