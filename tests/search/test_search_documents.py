"""Optimisers in documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from documents.playing import loaded, play, scripted
from loopwright import run
from loopwright.errors import DocumentError
from loopwright.testing import run_virtual

LOOP = """
- name: search
  loop:
    optimise: {space: {x: {float: [0.0, 1.0]}, n: {int: [1, 4]}}, by: [tpe, cma], startup: 4}
    on_stall: {patience: 2}
    candidates: 2
    execute: {set: "loss: {{ (value.x - 0.5) | abs + value.n }}"}
    evaluate: {metric: {name: loss, pattern: "loss: ([0-9.e-]+)"}}
    metrics: {loss: minimise}
    max_iterations: 16
"""
GEPA = {
    "main.yaml": """\
schema: loopwright/1
name: improve
model: openai:gpt-4o
steps:
  - name: better
    gepa:
      optimise: {prompt: Answer.}
      run: {prompt: "{{ value.prompt }} {{ case.inputs }}"}
      dataset: {file: cases.jsonl}
      evaluate: {check: equals_expected}
      max_metric_calls: 30
      patience: 2
      model: openai:gpt-4o
  - {name: shown, set: "{{ better.prompt }}"}
""",
    "cases.jsonl": "".join(
        f'{{"id": "c{n}", "inputs": "double {n}", "expected": "{2 * n}"}}\n' for n in range(1, 5)
    ),
}
RULES = [
    {"prompt": "new instruction", "replies": ["```\nThe number only.\n```"]},
    *({"prompt": f"The number only. double {n}", "replies": [str(2 * n)]} for n in range(1, 5)),
    {"replies": ["It is a number."]},
]


def test_a_loop_of_a_document_has_an_optimiser(tmp_path: Path) -> None:
    """The key `optimise` of a loop proposes the values that templates see, and hands over after a stall."""
    found = loaded(tmp_path, LOOP)
    assert ", parameters by tpe, then cma, " in found.plan()["shape"][0]
    result = play(found, seed=2)
    history = result.loops["search"].history
    assert [item.strategy for item in history][:1] == ["tpe"]
    assert {item.strategy for item in history} == {"tpe", "cma"}
    assert all(set(item.input) == {"x", "n"} and len(item.candidates) == 2 for item in history)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{int: [1, 4]}", "{ind: [1, 4]}", "space: n: {'ind'"),
        ("[tpe, cma]", "[tpe, cmb]", "by"),
        ("    on_stall: {patience: 2}\n", "", "only a stall hands over from tpe to cma"),
        ("startup: 4", "start: 4", "did you mean 'startup'"),
        ("    candidates: 2\n", "    adapt: feedback\n", "it takes the place of adapt"),
    ],
)
def test_a_wrong_optimiser_of_a_document_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    """Problems of `optimise` are reported with line and column, before anything runs."""
    assert old in LOOP
    with pytest.raises(DocumentError) as error:
        loaded(tmp_path, LOOP.replace(old, new))
    assert said in str(error.value)
    assert "main.yaml:" in str(error.value)


def test_gepa_is_a_step_of_a_document(tmp_path: Path) -> None:
    """Its task sees the texts and the case, and the next step its best text."""
    found = loaded(tmp_path, GEPA)
    work = run(found.step, None, resources={**found.resources, **scripted(RULES)}, seed=1)
    result = run_virtual(work)
    assert result.output == "The number only."
    assert result.usage.calls > 10


def test_the_plan_of_a_document_counts_the_calls_of_gepa(tmp_path: Path) -> None:
    """`check` names the model, and the most calls: the cases with those of the last proposal, and the reflections."""
    plan = loaded(tmp_path, GEPA).plan()
    assert plan["models"] == ["openai:gpt-4o"]
    assert plan["worst_case_calls"] == (30 + 6 + 4) + 11
