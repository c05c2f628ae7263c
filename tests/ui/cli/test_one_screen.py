"""One run on one screen: `show` of a long list, its failures, one item, pages by index; and the trace of its calls."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopwright.ui.cli import main

from .conftest import Answer, Project

STEPS = """
def item(value):
    if value % 37 == 5:
        raise ValueError(f"cannot read {value}")
    return f"read {value}"

def temperature(city: str) -> float:
    return {"Oslo": -3.5}[city]
"""
LIST = """
schema: loopwright/1
name: read
steps:
  - {name: records, each: {items: "{{ input }}", execute: {python: "own:item"}, on_failure: continue}}
"""
TRIP = """
schema: loopwright/1
name: trip
model: openai:gpt-4o-mini
tools: {temperature: {python: "own:temperature"}, clock: {commands: [[date, -u]]}}
steps:
  - name: packing
    loop:
      execute: {prompt: "What should I pack for {{ loop.initial }}?", tools: [temperature, clock]}
      evaluate: {judge: {criterion: It names degrees}}
      until: [passed, {max_iterations: 3}]
  - name: checked
    loop:
      execute: {set: "{{ input }}"}
      evaluate: {check: {contains: "s"}}
      max_iterations: 1
  - {name: saved, shell: [cat]}
"""
REPLIES = """
- prompt: What should I pack
  replies:
    - tool_calls:
        - {name: temperature, arguments: {city: Oslo}}
        - {name: temperature, arguments: {city: Paris}}
        - {name: wind, arguments: {city: Oslo}}
        - {name: clock, arguments: {}}
    - "A coat: it is -3.5 degrees."
- {replies: [{json: {verdict: "yes", score: 90, reason: "-3.5", mark: "{{ mark }}"}}]}
"""
ITEMS = 300


class Recorded(Project):
    """A folder with runs, for tests that only read them."""

    def of(self, *words: str) -> Answer:
        return self.call("show", *words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run over a list of which eight items fail, and a run of a model with tools."""
    made, before = tmp_path_factory.mktemp("screen"), Path.cwd()
    os.chdir(made)
    try:
        for name, text in {
            "own.py": STEPS, "list.yaml": LIST, "trip.yaml": TRIP, "replies.yaml": REPLIES,
            "items.json": json.dumps(list(range(1, ITEMS + 1))),
        }.items():  # fmt: skip
            Path(name).write_text(text)
        run = ("run", "list.yaml", "--yes", "--run-id", "listed", "--input-file", "items.json")
        assert main(run) == 1
        trip = ("run", "trip.yaml", "--yes", "--run-id", "trip", "--replies", "replies.yaml")
        assert main((*trip, "--input", "Oslo")) == 0
        yield made
    finally:
        os.chdir(before)


@pytest.fixture
def recorded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Recorded:
    """The command line in that folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")
    return Recorded(folder, capsys)


def test_a_long_list_fits_a_screen(recorded: Recorded) -> None:
    """Counts by status, the failed items with their reasons, and what was left out with its command."""
    lines = recorded.of("listed").out.splitlines()
    assert len(lines) <= 40
    place = lines.index("300 items: 8 failed, 292 done")
    failed = [f"records {n}  ! failed  {n}: ValueError: cannot read {n}" for n in range(5, 300, 37)]
    assert lines[place + 1 : place + 9] == failed
    assert any("more rows: loopwright show listed --first 1; or --failed" in line for line in lines)


def test_what_failed_is_shown_alone(recorded: Recorded) -> None:
    """`--failed` has the counts, the failed step and the failed items, for people and for programs."""
    out = recorded.of("listed", "--failed").out
    assert out.startswith("300 items: 8 failed, 292 done\nrecords ")
    assert out.count("! failed") == 8
    data = recorded.of("listed", "--failed", "--json").json
    assert data["counts"] == {"failed": 8, "done": 292}
    assert [row["iteration"] for row in data["rows"]] == list(range(5, 300, 37))
    assert [step["name"] for step in data["steps"]] == ["records"]


def test_a_list_is_read_by_index(recorded: Recorded) -> None:
    """`--first` shows 50 rows and the command for the next ones, `--item` one item in full."""
    lines = recorded.of("listed", "--first", "101").out.splitlines()
    assert len(lines) == 52
    assert lines[1].startswith("records 101 ")
    assert lines[-1] == "150 more rows: loopwright show listed --first 151"
    out = recorded.of("listed", "--item", "42").out
    assert "error:\nValueError: cannot read 42\n" in out
    refused = recorded.of("trip", "--item", "1")
    assert (refused.code, refused.err) == (
        2,
        "loopwright: --item: trip has no list; use --iteration\n",
    )


def test_a_trace_names_calls_tools_judges_and_commands(recorded: Recorded) -> None:
    """Each node has its kind, what it did, its tokens and its status; a failed tool is failed."""
    lines = [line.strip() for line in recorded.of("trip", "--trace").out.splitlines()]
    heads = [line.split("  ")[0] for line in lines]
    assert heads == [
        "step trip", "loop packing", "iteration 1", "step execute", "model call execute",
        "tool call temperature", "tool call temperature", "tool call wind", "tool call clock",
        "model call execute", "judge evaluate", "loop checked", "iteration 1", "step execute", "check evaluate",
        "command saved",
    ]  # fmt: skip
    called = "calls temperature, temperature, wind, clock"
    assert f"openai:gpt-4o-mini: {called}" in lines[4] and "tokens" in lines[4]
    assert '{"city": "Oslo"}: -3.5' in lines[5] and "failed" not in lines[5]
    assert "KeyError: 'Paris'  failed" in lines[6]
    # A call that was refused has the reason.
    assert "there is no tool 'wind'; there are: temperature, clock  failed" in lines[7]
    assert "{}: clock: arguments: 'argv' is a required property  failed" in lines[8]
    assert "cat: exit code 0" in lines[-1]
    (root,) = recorded.of("trip", "--trace", "--json").json["trace"]
    call = root["children"][0]["children"][0]["children"][0]["children"][0]
    assert (call["kind"], call["status"]) == ("model call", "done")
    assert [part["title"] for part in call["parts"]] == [
        "User",
        *(f"Call of {one}" for one in called[6:].split(", ")),
    ]
