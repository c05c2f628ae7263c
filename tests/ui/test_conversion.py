"""Evaluations of pydantic-evals and promptfoo as documents that run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from documents.playing import play
from loopwright.documents import Settings, load
from loopwright.documents.load import to_native_yaml
from loopwright.errors import ConfigurationError, DocumentError
from loopwright.ui.conversion import converted

PROMPTFOO = """\
description: Capitals
prompts:
  - "Name the capital of {{country}}{% if style %} ({{ style }}){% endif %}, not \\"country\\"."
providers:
  - id: openai:chat:gpt-4o-mini
    config: {temperature: 0}
evaluateOptions: {maxConcurrency: 3}
defaultTest:
  options: {provider: openai:gpt-4o}
  assert: [{type: not-icontains, value: sorry}]
tests:
  - vars: {country: Germany, style: brief}
    assert:
      - {type: contains-any, value: [Berlin, Bonn]}
      - {type: llm-rubric, value: "It names {{country}} and {braces}."}
  - vars: {country: Spain, style: ""}
    assert:
      - {type: python, value: "'Madrid' in output and context['vars']['country'] == 'Spain'"}
      - {type: llm-rubric, value: "It is {{country}}'s."}
"""
EVALS = """\
name: my sums
cases:
- name: a
  inputs: 2 + 2
  expected_output: "4"
- name: b
  inputs: {x: 1}
evaluators:
- EqualsExpected
- LLMJudge: {rubric: "Polite {{x}}", model: "openai:gpt-4o", include_expected_output: true, model_settings: {temperature: 0.5}}
"""
YES = json.dumps({"verdict": "yes", "score": 90, "reason": "It does."})


def write(folder: Path, name: str, text: str) -> Path:
    """Convert a file, write what it becomes, and return the path of the document."""
    (folder / name).write_text(text)
    found = converted(folder / name)
    assert found is not None
    document = folder / f"{found.document.name}.ours.yaml"
    document.write_text(to_native_yaml(found.document))
    for file, content in found.files.items():
        (folder / file).write_text(content)
    return document


def test_a_configuration_of_promptfoo_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompt, model, checks, rubrics and Python assertions are carried over."""
    monkeypatch.syspath_prepend(str(tmp_path))
    document = write(tmp_path, "capitals.yaml", PROMPTFOO)
    found = load(document, Settings())
    replies = [
        {"prompt": '^Name the capital of Germany \\(brief\\), not "country"\\.$', "replies": ["Berlin"]},
        {"prompt": '^Name the capital of Spain, not "country"\\.$', "replies": ["Barcelona"]},
        {"prompt": "It names Germany and {braces}", "replies": [YES]},
    ]  # fmt: skip
    result = play(found, replies)
    assert (result.output["counts"]["passed"], result.output["counts"]["failed"]) == (1, 1)
    assert result.output["worst"][0]["feedback"] == "assertion_1"
    assert result.usage.calls == 3  # the assertion failed, so no judge was asked about Spain
    spec = load(document, Settings()).documents
    text = to_native_yaml(next(iter(spec.values())))
    assert "model: openai:gpt-4o-mini" in text
    assert "at_once: 3" in text
    assert "criterion: '{{ case.metadata.rubric }}'" in text.replace('"', "'")


def test_a_data_set_of_pydantic_evals_runs(tmp_path: Path) -> None:
    """The cases and evaluators are carried over; the task is left to the author, with a note."""
    document = write(tmp_path, "sums.yaml", EVALS)
    text = document.read_text()
    assert "{% raw %}Polite {{x}}{% endraw %}" in text
    # One case expects nothing, so the comparison stands with the other one.
    assert "equals_expected" not in text
    lines = [
        json.loads(line) for line in (tmp_path / "my-sums.cases.jsonl").read_text().splitlines()
    ]
    assert lines == [
        {"id": "a", "inputs": "2 + 2", "expected": "4", "evaluators": [{"check": {"matches": "\\A4\\Z"}}]},
        {"id": "b", "inputs": {"x": 1}},
    ]  # fmt: skip
    replies = [
        {"prompt": "^2 \\+ 2$", "replies": ["5"]},
        {"prompt": '^{"x": 1}$', "replies": ["6"]},
        {"prompt": "Polite {{x}}", "replies": [YES]},
    ]
    result = play(load(document, Settings(model="openai:gpt-4o")), replies)
    assert (result.output["counts"]["passed"], result.output["counts"]["failed"]) == (1, 1)


REFUSED = {
    "two prompts": ("prompts: [a, b]\nproviders: [openai:x]\ntests: []\n", "a.yaml:1:10: prompts: an evaluation has one task; keep one, and compare runs with --baseline"),
    "a provider": ("prompts: [a]\nproviders: [exec:./a.sh]\ntests: []\n", "a.yaml:2:13: providers[0]: 'exec:./a.sh' is not a model of Loopwright, `provider:model`"),
    "settings": ("prompts: [a]\nproviders: [{id: openai:x, config: {top_k: 3}}]\ntests: []\n", "a.yaml:2:37: providers[0].config.top_k: `top_k` has no counterpart; remove it"),
    "judges of some cases": (
        "cases:\n- {inputs: 1}\n- {inputs: 2, evaluators: [{LLMJudge: x}]}\n",
        "a.yaml:3:28: cases[1].evaluators[0]: judges are the same for all cases, or one for each case with the same settings",
    ),
    "a script elsewhere": (
        "prompts: [a]\nproviders: [openai:x]\ntests: [{assert: [{type: python, value: file://../b.py}]}]\n",
        "a.yaml:3:41: tests[0].assert[0].value: a Python assertion is code, or a file beside this one",
    ),
    "a prompt that is not there": ("prompts: file://a.txt\nproviders: [openai:x]\ntests: []\n", "a.yaml:1:10: prompts: a prompt is a text, or a file with the suffix .txt or .md"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_document_cannot_say_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    """Prompts, models and judges without a counterpart are problems with line and column."""
    text, problem = REFUSED[name]
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(DocumentError) as caught:
        converted(tmp_path / "a.yaml")
    assert any(str(one).startswith(problem) for one in caught.value.problems), str(caught.value)


def test_other_files_are_no_evaluations(tmp_path: Path) -> None:
    """Documents, lists and broken files are left to the reader of documents."""
    for text in ("schema: loopwright/1\ncases: []\n", "- inputs: 1\n", "a: [", "a: 1\n"):
        (tmp_path / "a.yaml").write_text(text)
        assert converted(tmp_path / "a.yaml") is None
    assert converted(tmp_path / "b.yaml") is None


def test_a_value_that_no_document_can_have_is_refused(tmp_path: Path) -> None:
    """What a file says of the task is checked as in a document, and its problem is a sentence."""
    file = tmp_path / "capitals.yaml"
    file.write_text(PROMPTFOO.replace("maxConcurrency: 3", "maxConcurrency: many"))
    with pytest.raises(
        ConfigurationError, match=r"^capitals.yaml: it becomes no valid document: eval.at_once: "
    ):
        converted(file)
