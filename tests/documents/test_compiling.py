"""Documents that run: each kind of step, its fields, and what becomes of users' mistakes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from documents.corpus import DOCUMENTS, MODULE
from loopwright import Result, run
from loopwright.documents import Settings, load
from loopwright.models import Models, ScriptedModel

HEAD = "schema: loopwright/1\nname: x\nmodel: scripted:any\nsteps:\n"
USERS = """\
def upper(value): return str(value).upper()
def rate(output): return {"score": min(1.0, len(str(output)) / 40), "feedback": "longer"}
def longer(last): return f"{last.input} and more"
def raises(value): raise ValueError("no such thing")
def leaves(value): raise SystemExit(3)
def nothing(value): return object()
def endless(value):
    value = []
    value.append(value)
    return value
def not_a_number(value): return {"score": float("nan")}
def surrogate(value): return "a\\ud800b"
def nul(value): return "a\\0b"
def huge(value): return "x" * 50_000_000
def keys(value): return {1: 2}
class Strange:
    def __call__(self, value): raise RuntimeError
strange = Strange()
"""


def played(
    folder: Path, text: str, replies: Any = "- {replies: [ok]}", value: Any = None
) -> Result:
    """Run a document on scripted replies."""
    (folder / "users.py").write_text(USERS)
    (folder / "steps.py").write_text(MODULE)
    (folder / "document.yaml").write_text(text)
    loaded = load(folder / "document.yaml", Settings())
    given = loaded.default_input if value is None else value
    resources = {**loaded.resources, "models": Models(ScriptedModel(replies))}
    return asyncio.run(run(loaded.step, given, resources=resources, budget=loaded.budget))


def step(text: str) -> str:
    """Return a document of one step."""
    return f"{HEAD}  - {{name: a, {text}}}\n"


KINDS = {
    "python": ('python: "users:upper"', "HEY"),
    "shell, input on stdin": ("shell: [cat]", "hey"),
    "shell, a script": ('shell: "printf %s \\"$A\\"", env: {A: "{{ input }}!"}', "hey!"),
    "shell, stdin": ('shell: [cat], stdin: "<{{ input }}>"', "<hey>"),
    "shell, json": ("shell: \"echo '[1, 2]'\", output: json", [1, 2]),
    "shell, allow_exit": ('shell: "printf no; exit 3", allow_exit: [0, 3]', "no"),
    "set": ('set: {a: ["{{ input }}", 1, null]}', {"a": ["hey", 1, None]}),
    "set keeps a value": ('set: "{{ [1, 2] }}"', [1, 2]),
    "input": ('set: "{{ value }}", input: "{{ input }} you"', "hey you"),
    "prompt": ('prompt: "Say {{ input }}"', "ok"),
    "steps": ("steps: [{name: b, set: 1}, {name: c, set: '{{ b + 1 }}'}]", 2),
    "parallel": ("parallel: [{name: b, set: 1}, {name: c, set: 2}]", {"b": 1, "c": 2}),
    "fallback": ('fallback: [{name: b, shell: ["false"]}, {name: c, set: 2}]', 2),
    "each": ('each: {items: [1, 2], execute: {set: "{{ loop.current * 2 }}"}}', [2, 4]),
    "loop": ('loop: {execute: {python: "users:upper"}, until: [{output_matches: HEY}]}', "HEY"),
    "if not": ("set: 1, if: input == 'you', otherwise: none", "none"),
    "if": ("set: 1, if: \"{{ input == 'hey' }}\"", 1),
    "continue": ('python: "users:raises", on_failure: continue, otherwise: well', "well"),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_step_gives_its_output(name: str, tmp_path: Path) -> None:
    """One document per kind and field, on the input `hey`."""
    text, expected = KINDS[name]
    result = played(tmp_path, step(text), value="hey")
    assert (result.status.value, result.output) == ("satisfied", expected)


MISTAKES = {
    "an exception": ("users:raises", "ValueError: no such thing"),
    "leaving the process": ("users:leaves", "SystemExit"),
    "an output that is no JSON": ("users:nothing", "object"),
    "an output that contains itself": ("users:endless", ""),
    "an output with keys that are no text": ("users:keys", ""),
    "an exception without a word": ("users:strange", "RuntimeError"),
}


@pytest.mark.parametrize("place", ["execute", "evaluate", "adapt", "step"])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_a_function_is_a_failure_on_record(
    name: str, place: str, tmp_path: Path
) -> None:
    """Never a traceback: the run has failed, or the round is on record with its error."""
    reference, said = MISTAKES[name]
    loop = {"execute": "{set: 1}", "until": "[{max_iterations: 3}]"}
    loop[place] = f'{{python: "{reference}"}}'
    body = ", ".join(f"{key}: {value}" for key, value in loop.items() if key != "step")
    whole = f'python: "{reference}"' if place == "step" else f"loop: {{{body}}}"
    result = played(tmp_path, step(whole))
    if name.startswith("an output") and place in ("adapt", "step", "execute") and result.output:
        return  # a mapping whose keys became text
    assert result.status.value == "failed", result
    assert said in result.detail


STRANGE = ("surrogate", "nul", "huge")


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_text_is_an_output_or_a_failure(name: str, tmp_path: Path) -> None:
    """A lone surrogate, a NUL and 50 MB end as a result, with a sentence if it is one of failure."""
    result = played(tmp_path, step(f'python: "users:{name}"'))
    assert result.status.value in ("satisfied", "failed")
    assert result.output is not None or result.detail


def test_a_score_that_is_no_number_is_a_failure_of_the_round(tmp_path: Path) -> None:
    """NaN never becomes a score."""
    text = 'loop: {execute: {set: 1}, evaluate: {python: "users:not_a_number"}, max_iterations: 2}'
    result = played(tmp_path, step(text))
    assert result.status.value == "failed"
    assert all(item.score is None for item in result.history)


def test_every_step_runs_in_one_document(tmp_path: Path) -> None:
    """The document with all kinds of steps ends with the output that it names."""
    result = played(tmp_path, DOCUMENTS["every_step"])
    assert result.status.value == "satisfied", result.detail


def test_a_workflow_is_called_with_its_variables(tmp_path: Path) -> None:
    """`with` gives names to the called document, which sees nothing else of its caller."""
    child = (
        "schema: loopwright/1\nname: child\nsteps: [{name: b, set: '{{ topic }} of {{ input }}'}]\n"
    )
    (tmp_path / "child.yaml").write_text(child)
    result = played(
        tmp_path, step('workflow: child, with: {topic: "{{ input }}", input: us}'), value="all"
    )
    assert result.output == "all of us"


def test_a_timeout_ends_a_step(tmp_path: Path) -> None:
    """A step over its time has failed, with the seconds it had."""
    result = played(tmp_path, step('shell: [sleep, "30"], timeout: 200ms'))
    assert result.status.value == "failed"
    assert "0.2" in result.detail


def test_steps_at_once_wait_for_the_steps_that_they_name(tmp_path: Path) -> None:
    """With several steps at once, a template that names an earlier step is a need of it."""
    text = """\
schema: loopwright/1
name: x
at_once: 4
steps:
  - {name: slow, shell: "sleep 0.2; printf done"}
  - {name: after, steps: [{name: b, set: "{{ slow }}!"}]}
"""
    assert played(tmp_path, text).output == "done!"
