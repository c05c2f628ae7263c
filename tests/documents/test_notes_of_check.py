"""What check notes or refuses of single fields: statuses that are accepted, and files outside of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopwright.documents import Settings, load
from loopwright.errors import DocumentError

HEAD = "schema: loopwright/1\nname: x\nsteps:\n"
LOOP = "loop: {execute: {set: 1}, max_iterations: 1}"
NO_EFFECT = "accept: failed has no effect without on_failure: continue"


def written(folder: Path, text: str) -> Path:
    file = folder / "document.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("fields", "noted"),
    [
        ("accept: [failed]", True),
        ("accept: failed", True),
        ("accept: [failed, exhausted], on_failure: retry", True),
        ("accept: [failed], on_failure: continue", False),
        ("accept: [exhausted]", False),
    ],
)
def test_accept_failed_needs_on_failure_continue(fields: str, noted: bool, tmp_path: Path) -> None:
    """Where a step that fails ends the workflow, its status cannot be accepted: a note says so."""
    text = f"{HEAD}  - {{name: a, {fields}, {LOOP}}}\n"
    found = load(written(tmp_path, text), Settings()).lints()
    assert [p.path for p in found if NO_EFFECT in p.message] == ["steps[0].accept"] * noted


@pytest.mark.parametrize(
    "items",
    [
        "file:///etc/passwd", "file:///etc/{{ name }}", "file:///{{ name }}", "file:///{{ name }}/x",
        "file://../{{ name }}", "file://a/../../{{ name }}.txt",
    ],
)  # fmt: skip
def test_a_file_outside_of_the_project_is_refused_before_it_runs(
    items: str, tmp_path: Path
) -> None:
    """What stands before the placeholder is known at check, the root of the disk too."""
    text = f"{HEAD}  - {{name: a, each: {{items: '{items}', execute: {{set: 1}}}}}}\n"
    with pytest.raises(DocumentError, match="is outside the project folder") as caught:
        load(written(tmp_path, text), Settings(sets={"name": "x"} if "{{" in items else {}))
    assert caught.value.problems[0].path == "steps[0].each.items"


@pytest.mark.parametrize("items", ["file://{{ name }}", "file://a/{{ name }}"])
def test_a_file_that_may_be_inside_is_decided_where_it_runs(items: str, tmp_path: Path) -> None:
    text = f"{HEAD}  - {{name: a, each: {{items: '{items}', execute: {{set: 1}}}}}}\n"
    assert load(written(tmp_path, text), Settings(sets={"name": "x"})).name == "x"


@pytest.mark.parametrize("agents", ["", "agents: []\n"])
def test_a_loop_node_document_without_agents_is_recognized(agents: str, tmp_path: Path) -> None:
    """It is read as what it is: what is missing are agents, not a schema."""
    text = f"orchestrator: {{id: o, agents: [a]}}\n{agents}"
    with pytest.raises(DocumentError) as caught:
        load(written(tmp_path, text), Settings())
    (problem,) = caught.value.problems
    assert "agents" in (problem.path or problem.message)
    assert "schema" not in problem.message


@pytest.mark.parametrize(
    ("tests", "noted"),
    [("make test", True), ("{command: ./check.sh, report: none}", True), ("pytest -q", False),
     ("{command: make test, report: report.xml}", False), ("{command: make test, sealed: false}", False)],
)  # fmt: skip
def test_tests_with_an_exit_code_only_are_noted(tests: str, noted: bool, tmp_path: Path) -> None:
    """A sealed check without a report of its tests notices less, and `check` says so at its place."""
    loop = f"{{execute: {{shell: x}}, evaluate: {{tests: {tests}}}, max_iterations: 2}}"
    text = f"{HEAD}  - {{name: a, loop: {loop}}}\n".replace("steps:", "workspace: copy\nsteps:")
    notes = [
        n for n in load(written(tmp_path, text), Settings()).lints() if n.code == "exit_code_only"
    ]
    assert [note.path for note in notes] == ["steps[0].loop.evaluate.tests"] * noted


def test_nested_tests_with_an_exit_code_only_are_noted(tmp_path: Path) -> None:
    """A loop inside a step or another loop runs in the workspace around it."""
    loop = "{execute: {shell: x}, evaluate: {tests: make}, max_iterations: 2}"
    outer = f"{{workspace: copy, execute: {{loop: {loop}}}, max_iterations: 2}}"
    step = f"{{name: b, fallback: [{{name: c, loop: {outer}}}, {{name: d, loop: {loop}}}]}}"
    loaded = load(written(tmp_path, f"{HEAD}  - {step}\n"), Settings())
    notes = [note.path for note in loaded.lints() if note.code == "exit_code_only"]
    assert notes == ["steps[0].fallback[0].loop.execute.loop.evaluate.tests"]


@pytest.mark.parametrize(
    ("wait", "until", "code", "place"),
    [
        ("{event: go, timeout: none}", "", "unbounded_wait", ".timeout"),
        ("{event: go, timeout: none, first_of: {a: {event: b}, c: {for: 1h}}}", None, "", ""),
        ("{event: go}", "[{max_iterations: 2}]", "same_key", ".event"),
        ("{event: go, key: x}", "[{max_iterations: 2}]", "same_key", ".key"),
        ("{event: go, key: '{{ loop.iteration }}'}", "[{max_iterations: 2}]", "", ""),
        ("{event: go, since: wait}", "[{max_iterations: 2}]", "", ""),
        ("{event: go}", "", "", ""),
        ("{url: 'http://localhost:1/', every: {first: 1s, most: 5s}}", "", "frequent_probes", ".every"),
        ("{url: 'http://localhost:1/', every: {first: 1s}}", "", "", ""),
        (
            "{at: '2031-01-01T00:00+00:00'}", "[{deadline: '2030-01-01T00:00:00+00:00'}]",
            "wait_beyond_deadline", ".at",
        ),
    ],
)  # fmt: skip
def test_waits_that_are_valid_but_unusual(
    wait: str, until: str | None, code: str, place: str, tmp_path: Path
) -> None:
    """A wait without an end, one key in all iterations, frequent requests, and a deadline that comes first."""
    if until is None:
        wait, until = "{first_of: {a: {event: b}, c: {for: 1h}}, timeout: none}", ""
    step, at = f"wait: {wait}", "steps[0].wait"
    if until:
        step = f"loop: {{execute: {{wait: {wait}}}, until: {until}}}"
        at = "steps[0].loop.execute.wait"
    found = load(written(tmp_path, f"{HEAD}  - {{name: a, {step}}}\n"), Settings()).lints()
    codes = ("unbounded_wait", "same_key", "frequent_probes", "wait_beyond_deadline")
    expected = [(code, at + place)] if code else []
    assert [(p.code, p.path) for p in found if p.code in codes] == expected
