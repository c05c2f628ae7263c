"""What a step of a document sees and hands on: of its callers, of loops, and where there is nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from documents.playing import HEAD, crashed_everywhere, loaded, play, scripted
from loopwright import run
from loopwright.errors import DocumentError
from loopwright.testing import run_virtual

CHILD = "schema: loopwright/1\nname: child\nsteps:\n"
TWO = CHILD + "  - {name: write, prompt: 'W{{ loop.iteration }}'}\n  - {name: review, prompt: R}\n"


def asked(folder: Path, files: Any, replies: Any = (), value: Any = "in") -> list[str]:
    """Return what models were asked, in order."""
    found = loaded(folder, files)
    resources = scripted(list(replies) or [{"replies": ["x"]}])
    said: list[str] = []
    resources["models"].transcript = lambda record: said.append(record["messages"][-1]["content"])
    run_virtual(run(found.step, value, resources=resources))
    return said


@pytest.mark.parametrize(
    ("steps", "output"),
    [
        ("  - {name: a, if: 'false', prompt: x, otherwise: none of it}", "none of it"),
        ("  - {name: a, if: 'true', prompt: x, otherwise: none of it}", "x"),
        ("  - {name: a, if: 'false', prompt: x}", None),
        ("  - {name: a, prompt: x, on_failure: continue, otherwise: {k: []}}", "x"),
        ("  - {name: a, set: null, otherwise: ''}", ""),
    ],
)  # fmt: skip
def test_otherwise_is_the_output_where_there_is_none(
    tmp_path: Path, steps: str, output: Any
) -> None:
    """A skipped step, or one that gives null, has the output that it says; others keep theirs."""
    assert play(loaded(tmp_path, steps + "\n"), [{"replies": ["x"]}]).output == output


def test_otherwise_stands_in_for_a_failure_that_is_gone_on_from(tmp_path: Path) -> None:
    """on_failure: continue with otherwise: the workflow goes on with that value, and warns."""
    steps = "  - {name: a, prompt: x, on_failure: continue, otherwise: {k: []}}\n"
    result = play(loaded(tmp_path, steps), [{"replies": [{"error": "permanent"}]}])
    assert (result.status, result.output) == ("satisfied", {"k": []})
    assert len(result.warnings) == 1


@pytest.mark.parametrize(
    "around", ["", ", otherwise: ''", ", on_failure: continue", ", timeout: 60s", ", if: 'true'"]
)
def test_what_is_required_ends_the_workflow(tmp_path: Path, around: str) -> None:
    """A required loop that is not satisfied ends the workflow as exhausted, whatever is around it."""
    steps = (
        "  - {name: a, loop: {execute: {prompt: x}, max_iterations: 1}, required: true"
        + around
        + "}\n"
        "  - {name: b, prompt: y}\n"
    )
    result = play(loaded(tmp_path, steps))
    assert (result.status, result.usage.calls) == ("exhausted", 1)


def test_what_the_caller_gives_is_there_by_name(tmp_path: Path) -> None:
    """Keys that are no names are members of given; an own step stands before a variable."""
    files = {
        "main.yaml": HEAD
        + "  - {name: c, workflow: child, with: {a: A, b: B, 'x y': Z, value: V}}\n",
        "child.yaml": CHILD
        + "  - {name: b, prompt: 'b of {{ b }}'}\n"
        + "  - {name: d, prompt: '{{ a }} {{ b }} {{ given[\"x y\"] }} {{ given.value }} {{ given.b }}'}\n",
    }
    assert asked(tmp_path, files, [{"replies": ["own", "x"]}]) == ["b of B", "A own Z V B"]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("{{ given.nope }}", "'nope'; known here: input, a, b"),
        ('{{ given["x z"] }}', "'x z'; known here: input, a, b"),
        ("{{ nope }}", "'nope'; known here: input, a, b"),
        ("{{ b1 }}", "'b1'; did you mean 'b'?"),
        ("{{ inputt }}", "'inputt'; did you mean 'input'?"),
        ("{{ loop.iteration }}", "'loop'; no loop contains this step or ends before it"),
    ],
)
def test_names_that_nobody_supplies_are_problems(tmp_path: Path, text: str, missing: str) -> None:
    """Before anything runs: with the nearest name, or all that are known."""
    files = {
        "main.yaml": HEAD + "  - {name: c, workflow: child, with: {a: A, b: B}}\n",
        "child.yaml": CHILD + f"  - name: d\n    prompt: '{text}'\n",
    }
    with pytest.raises(DocumentError) as caught:
        loaded(tmp_path, files)
    name, _, hint = missing.partition(";")
    message = f"{name} is not defined;{hint}"
    assert [message in str(p) for p in caught.value.problems] == [True]


def test_names_that_are_asked_about_may_be_absent(tmp_path: Path) -> None:
    """A default, or a test for being defined, is no need."""
    text = "{{ x | default('-') }} {{ 'y' if y is defined else '-' }} {{ given.z | default('-') }}"
    assert asked(tmp_path, f'  - {{name: a, prompt: "{text}"}}\n') == ["- - -"]


def test_after_a_loop_it_is_the_one_that_ended_last(tmp_path: Path) -> None:
    """loop names the latest; loops keeps each by its name."""
    one = "loop: {execute: {prompt: one}, max_iterations: 1}"
    two = "loop: {execute: {prompt: two}, max_iterations: 2}"
    steps = (
        f"  - {{name: first, {one}}}\n  - {{name: mid, prompt: '{{{{ loop.name }}}} {{{{ loop.iteration }}}}'}}\n"
        f"  - {{name: second, {two}}}\n"
        "  - {name: end, prompt: '{{ loop.name }} {{ loop.outputs | join(\"+\") }} {{ loops.first.output }}'}\n"
    )
    said = asked(tmp_path, steps, [{"replies": ["a", "m", "b", "c", "x"]}])
    assert (said[1], said[-1]) == ("first 1", "second b+c a")


def test_a_called_workflow_sees_the_loop_that_calls_it(tmp_path: Path) -> None:
    """And of its caller nothing else: not its steps, not the loops that ended there."""
    files = {
        "main.yaml": HEAD
        + "  - {name: before, prompt: b}\n"
        + "  - {name: l, loop: {execute: {workflow: child}, max_iterations: 2}}\n",
        "child.yaml": CHILD
        + "  - {name: d, prompt: '{{ loop.iteration }} {{ loop.output }} {{ steps }}'}\n",
    }
    assert asked(tmp_path, files, [{"replies": ["B", "x", "y"]}]) == ["b", "1  {}", "2 x {}"]


def test_a_failed_round_leaves_the_outputs_alone(tmp_path: Path) -> None:
    """I27: loop.output is that of the last round that did not fail; last is the round itself."""
    prompt = "{{ loop.output }}|{{ loop.last.error }}|{{ loop.outputs | length }}|{{ loop.failed }}"
    steps = f"  - {{name: l, loop: {{execute: {{prompt: '{prompt}'}}, on_failure: continue, max_iterations: 3}}}}\n"
    said = asked(
        tmp_path, steps, [{"replies": ["one", {"error": "permanent", "message": "no"}, "x"]}]
    )
    assert said[0] == "||0|0"
    assert said[1] == "one||1|0"
    assert said[2].startswith("one|") and said[2].endswith("no|1|1")


def test_steps_of_a_round_are_kept_if_asked_for(tmp_path: Path) -> None:
    """expose keeps the outputs of a child's steps with the round, for the next one and for after."""
    files = {
        "main.yaml": HEAD
        + "  - name: l\n    loop:\n      execute: {workflow: child, expose: write, with: "
        + "{code: '{{ loop.steps.write | default(\"\") }}'}}\n      max_iterations: 2\n"
        + "  - {name: end, prompt: '{{ loops.l.steps.write }} {{ l }}'}\n",
        "child.yaml": TWO.replace("W{{ loop.iteration }}", "[{{ code }}]"),
    }
    replies = [
        {"step": "*/write", "replies": ["w1", "w2"]},
        {"step": "*/review", "replies": ["r1", "r2"]},
        {"replies": ["x"]},
    ]
    assert asked(tmp_path, files, replies) == ["[]", "R", "[w1]", "R", "w2 r2"]
    result = play(loaded(tmp_path, files), replies)
    assert [item.steps for item in result.loops["l"].history] == [{"write": "w1"}, {"write": "w2"}]


@pytest.mark.parametrize("before", [True, False])
def test_kept_steps_outlive_a_crash(tmp_path: Path, before: bool) -> None:
    """I35: killed at every journal write, the next round is given what it would have been."""
    files = {
        "main.yaml": HEAD
        + "  - name: l\n    loop:\n      execute: {workflow: child, expose: [write], with: "
        + "{code: '{{ loop.steps.write | default(\"\") }}'}}\n      max_iterations: 2\n"
        + "  - {name: end, prompt: '{{ loops.l.steps.write }} {{ loop.iteration }}'}\n",
        "child.yaml": TWO.replace("W{{ loop.iteration }}", "[{{ code }}]"),
    }
    replies = [
        {"prompt": "^.w1.$", "replies": ["w2"]}, {"prompt": "^..$", "replies": ["w1"]},
        {"prompt": "^w2 2$", "replies": ["right"]}, {"prompt": "^R$", "replies": ["r"]},
    ]  # fmt: skip
    crashed_everywhere(loaded(tmp_path, files), replies, before=before)
    assert play(loaded(tmp_path, files), replies).output == "right"


def test_a_step_that_is_not_there_cannot_be_exposed(tmp_path: Path) -> None:
    """The problem is at the name, with the nearest step of the child."""
    files = {
        "main.yaml": HEAD + "  - {name: c, workflow: child, expose: [writ]}\n",
        "child.yaml": TWO.replace("{{ loop.iteration }}", ""),
    }
    with pytest.raises(
        DocumentError, match=r"expose\[0\]: child has no step 'writ'; did you mean 'write'\?"
    ):
        loaded(tmp_path, files)


def test_a_criterion_may_be_a_template(tmp_path: Path) -> None:
    """Filled in with the output as value; what stands in the record is what was written."""
    steps = (
        "  - name: l\n    loop:\n      execute: {prompt: x}\n      until: passed\n      max_iterations: 1\n"
        "      evaluate: {judge: {criterion: '{{ value }} answers {{ input }}', style: yes_no}}\n"
    )
    said = asked(tmp_path, steps, [{"replies": ["out", "YES"]}])
    assert said[1].startswith('Evaluate this condition: "out answers in"')
    result = play(loaded(tmp_path, steps), [{"replies": ["out", "YES"]}], "in")
    votes = result.loops["l"].history[0].evaluation.votes
    assert votes == ({"condition": "{{ value }} answers {{ input }}", "answer": "YES"},)


def test_a_call_has_its_own_time(tmp_path: Path) -> None:
    """call_timeout cuts one call off, which is tried again; timeout is for the whole step."""
    late = [{"replies": [{"text": "late", "after": 60}, "in time"]}]
    assert (
        play(loaded(tmp_path, "  - {name: a, prompt: x, call_timeout: 5s}\n"), late).output
        == "in time"
    )
    result = play(loaded(tmp_path, "  - {name: a, prompt: x, timeout: 5s}\n"), late)
    assert (result.status, result.usage.calls) == ("failed", 1)


def test_a_child_without_a_model_is_asked_as_its_caller_is(tmp_path: Path) -> None:
    """Model, temperature and the rest are inherited together; a child with a model has its own."""
    files = {
        "main.yaml": HEAD.replace("steps:", "temperature: 0.5\nmax_tokens: 9\nsteps:")
        + "  - {name: a, workflow: bare}\n  - {name: b, workflow: own}\n",
        "bare.yaml": "schema: loopwright/1\nname: bare\nsteps: [{name: p, prompt: x}]\n",
        "own.yaml": "schema: loopwright/1\nname: own\nmodel: ollama:q\nsteps: [{name: p, prompt: x}]\n",
    }
    found = loaded(tmp_path, files)
    resources = scripted([{"replies": ["x"]}])
    rows: list[Any] = []
    resources["models"].transcript = lambda r: rows.append(
        (r["provider"], r["model"], r["temperature"])
    )
    run_virtual(run(found.step, "in", resources=resources))
    assert rows == [("openai", "gpt-4o", 0.5), ("ollama", "q", None)]


def test_problems_of_a_child_are_told_once(tmp_path: Path) -> None:
    """Two callers of one wrong document make one problem of it."""
    files = {
        "main.yaml": HEAD + "  - {name: a, workflow: child}\n  - {name: b, workflow: child}\n",
        "child.yaml": CHILD + "  - {name: d, prompt: '{{ nope }}'}\n",
    }
    with pytest.raises(DocumentError) as caught:
        loaded(tmp_path, files)
    assert len(caught.value.problems) == 1
