"""Hints and holds on the page."""

from __future__ import annotations

import re
from pathlib import Path

from .conftest import call, serving

ASKS = """schema: loopwright/1
name: asks
input: rain
steps:
  - name: draft
    loop:
      execute: {set: "{{ input }}, hints: {{ loop.hints }}"}
      max_iterations: 2
      approve: iteration
"""


def test_a_person_steers_and_holds_a_run_on_the_page(tmp_path: Path) -> None:
    """The list says who gave a hint and which iteration read it; a held run is continued by its question."""
    (tmp_path / "asks.yaml").write_text(ASKS)
    assert call(tmp_path, "run", "asks.yaml", "--run-id", "r").returncode == 4
    with serving(tmp_path) as server:
        place = "/runs/r"
        for fields, said in (
            ({}, "write a hint"),
            ({"text": "x", "loop": "m"}, "has no loop &#39;m&#39;"),
            ({"drop": "3"}, "has no hint 3"),
        ):
            status, text = server.ask(f"{place}/steer", fields)
            assert (status, said.replace("&#39;", "'") in text) == (400, True), text
        assert server.ask(f"{place}/steer", {"text": "Name <b>the town</b>."})[0] == 200
        shown = server.ask(f"{place}/hints")[1]
        assert "Name &lt;b&gt;the town&lt;/b&gt;." in shown
        assert "not yet" in shown
        assert server.ask(f"{place}/hold", {})[0] == 200
        page = server.ask(place)[1]
        assert re.search(r'name="path" value="hold 1"', page)
        answered = {"path": "hold 1", "choice": "approve"}
        assert server.ask(f"{place}/answer", answered)[0] == 200
        call(tmp_path, "approve", "r", "--yes", "--resume")
        assert "asks/draft/2" in server.ask(f"{place}/hints")[1]
    assert "hint 1 of " in call(tmp_path, "show", "r", "--trace").stdout
