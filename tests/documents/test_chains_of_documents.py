"""Stalls, parents and strategies of documents: the same as in Python, and the forms of earlier versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from documents.playing import loaded, written
from loopwright import Loop, OnStall, Status, run_sync
from loopwright.documents import Settings, check, load
from loopwright.documents.project import Recorded
from loopwright.ui.cli import main

LOOP = """
  - name: fix
    loop:
      execute: {set: "{{ loop.chain }} {{ loop.parent.output }} {{ loop.strategy }} {{ loop.last.output }}"}
      evaluate: {score: {pattern: "([0-9.]+)"}}
      until: [{score_at_least: 0.9}, {max_iterations: 6}]
"""
FORMER = """
  - name: fix
    loop:
      workspace: {kind: snapshot, merge: none, refine_from: best}
      execute: {set: "{{ loop.restarts }}"}
      evaluate: {check: {contains: "2"}}
      approve: iteration
      max_iterations: 3
"""


def loop_in(found: Any) -> Loop[Any, Any]:
    """Return the only loop of a document."""
    (step,) = found.step.parts()
    while not isinstance(step, Loop):
        (step,) = step.parts()
    return step


def test_the_keys_are_those_of_python(tmp_path: Path) -> None:
    """A word, or a mapping with the settings."""
    words = loop_in(loaded(tmp_path, f"{LOOP}      on_stall: fresh\n      refine_from: best\n"))
    assert words.on_stall == OnStall("fresh")
    assert words.policies is not None
    assert words.policies.refine_from.rule == "best"
    more = f"{LOOP}      on_stall: {{then: last, patience: 1, restarts: 2, min_delta: 0.1}}\n"
    found = loop_in(loaded(tmp_path, f"{more}      strategies: {{a: one, b: {{heat: 1}}}}\n"))
    assert found.on_stall == OnStall("last", 1, 2, 0.1)
    assert found.policies is not None
    assert found.policies.strategies == {"a": "one", "b": {"heat": 1}}
    drawn = loop_in(loaded(tmp_path, f"{LOOP}      refine_from: {{rule: sample, power: 2}}\n"))
    assert drawn.policies is not None
    rule = drawn.policies.refine_from
    assert (rule.rule, rule.power, rule.fresh_share) == ("sample", 2, 0.15)


def test_templates_see_the_chain(tmp_path: Path) -> None:
    """After a fresh start the fields of the last and the parent are empty, and the strategy is the next one."""
    steps = """
  - name: fix
    loop:
      execute: {set: "{{ loop.chain }}{{ loop.strategy }} after {{ loop.parent.iteration }}{% for one in loop.chains %}, \
{{ one.iteration }}{% endfor %}{% if not loop.last %}, new{% endif %}"}
      evaluate: {check: {contains: never}}
      on_stall: {then: fresh, patience: 1}
      strategies: {one: a, two: b}
      max_iterations: 4
"""
    result = run_sync(loaded(tmp_path, steps).step, None)
    outputs = [item.output for item in result.loops["fix"].history]
    assert outputs == ["1a after 0, new", "1a after 1", "2b after 0, 1, new", "2b after 3, 1"]


def test_earlier_forms_are_refused_on_disk(tmp_path: Path) -> None:
    """Each with the new form; the document that is recorded with a run is read with them."""
    path = written(tmp_path, FORMER)
    assert [str(problem).partition(": ")[2] for problem in check(path)] == [
        "steps[0].loop.workspace.refine_from: is a key of the loop now, not of the workspace; write refine_from: best in the loop",
        "steps[0].loop.execute.set: template: 'loop.restarts' is not defined; it is loop.chain now, which is 1 before the first stall",
    ]
    found = load(path, Settings(recorded=Recorded({str(path): path.read_bytes()})))
    loop = loop_in(found)
    assert loop.policies is not None
    assert loop.policies.refine_from.rule == "best"
    other = load(path, Settings(recorded=Recorded({str(path): path.read_bytes()}), former=True))
    assert other.step.fingerprint == found.step.fingerprint


def test_a_run_with_an_earlier_form_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its document on disk is still the recorded one."""
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, FORMER)
    found = load(path, Settings(recorded=Recorded({str(path): path.read_bytes()})))
    first = run_sync(found, None, journal="sqlite:runs.db", run_id="r")
    assert first.status is Status.SUSPENDED
    journal = ["--journal", "sqlite:runs.db", "--json"]
    main(["approve", "r", "--yes", *journal])
    capsys.readouterr()
    main(["resume", "r", "--yes", *journal])
    told = json.loads(capsys.readouterr().out)
    assert told["loops"]["fix"]["iterations"] == 2, told


def test_check_shows_the_shape_of_a_loop(tmp_path: Path) -> None:
    """Candidates, iterations, new chains, strategies and the calls that they can make."""
    steps = """
  - name: title
    loop:
      execute: {prompt: "A title, {{ loop.strategy }}"}
      evaluate: {judge: "It is short."}
      candidates: 4
      on_stall: fresh
      strategies: {plain: a, bold: b}
      max_iterations: 12
"""
    found = loaded(tmp_path, steps)
    (line,) = found.plan()["shape"]
    calls = found.plan()["worst_case_calls"]
    assert calls == 12 * 4 * 3
    assert line == (
        f"title: 4 candidates × ≤ 12 iterations, a new chain after 2 stalls, 2 strategies, worst case {calls} calls"  # noqa: RUF001
    )
    assert "shape" not in loaded(tmp_path, LOOP).plan()
