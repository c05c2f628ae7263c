"""The last lines of a running agent on the page, which another process serves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loopwright.journal.views import LINES

from .conftest import Server, serving, visiting
from .lines import Terminal, program
from .test_browser import accessible

DOCUMENT = """
schema: loopwright/1
name: agent
steps:
  - name: fix
    loop:
      execute:
        agent: {cli: ./fake.yaml, prompt: Repair it., workspace: here}
      evaluate: {check: {min_words: 1}}
      until: [passed, {max_iterations: 2}]
"""
MANIFEST = """
extends: claude
program: [python, -m, loopwright.testing.fake_agent, --as, claude, --script, script.yaml]
tested: []
"""
TOKEN = "tok-77f9a8b7c6d5e"
# More lines than are shown, then markup, a secret and a terminal escape, then a tool that waits.
SCRIPT = f"""
- - run: 'true # first'
{chr(10).join(f"  - say: line {number}" for number in range(LINES))}
  - say: "<b id=bold>bold</b> {TOKEN} \\e[31mred"
  - run: until [ -e go ]; do sleep 0.05; done
  - say: done
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """The page of a folder with a document of an agent."""
    (tmp_path / "agent.yaml").write_text(DOCUMENT)
    (tmp_path / "fake.yaml").write_text(MANIFEST)
    (tmp_path / "script.yaml").write_text(SCRIPT)
    with serving(tmp_path, ANTHROPIC_API_KEY=TOKEN) as made:
        yield made


def test_the_last_lines_of_an_agent_are_shown_while_it_runs(
    browser: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session, a bounded number of lines as text without secrets, on a desktop, a phone and a terminal; then none."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", TOKEN)
    words = ("run", "agent.yaml", "--yes", "--run-id", "live")
    with program(server, *words) as run, visiting(browser, server, at="/runs/live") as page:
        page.wait_for_selector(".agent-lines li:has-text('until [ -e go ]')")
        assert page.locator(".agent-lines li").count() == LINES
        text = page.text_content("#head")
        assert re.search(r"Claude Code, session [0-9a-f-]{36}", text)
        assert "<b id=bold>bold</b>" in text
        assert page.locator("#bold").count() == 0
        assert TOKEN not in text
        assert "\x1b" not in text
        page.set_viewport_size({"width": 390, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        accessible(page)
        with Terminal(server.folder, "watch", "live") as terminal:
            terminal.wait_for("Bash until [ -e go ]")
        (server.folder / "go").touch()
        page.wait_for_selector("#head[data-status=satisfied]")
        assert page.locator(".agent-lines").count() == 0
        assert run.wait(60) == 0
    assert not list(server.folder.glob(".loopwright/*.live/*"))
