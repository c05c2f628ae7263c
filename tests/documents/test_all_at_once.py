"""One check reports all that is wrong in a file, and nothing that only follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopwright.documents import Settings, load
from loopwright.errors import DocumentError
from loopwright.models.providers.endpoints import PROVIDER_NAMES

HEAD = "schema: loopwright/1\nname: x\nmodel: openai:gpt-4o\nsteps:\n"


def problems(folder: Path, text: str, name: str = "document.yaml", **settings: object) -> list[str]:
    """Return each problem as `line:column path`, in the order in which they are told."""
    file = folder / name
    file.write_text(text)
    with pytest.raises(DocumentError) as caught:
        load(file, Settings(providers=PROVIDER_NAMES, **settings))
    return [f"{p.line}:{p.column} {p.path}" for p in caught.value.problems]


def test_fields_and_names_are_reported_at_once(tmp_path: Path) -> None:
    """An unknown key in one step does not hide an unknown name in another."""
    text = HEAD + (
        "  - {name: a, prompt: hi}\n"
        "  - {name: b, prompt: hi, foo: 1}\n"
        "  - {name: c, set: '{{ zork }}'}\n"
        "  - {name: d, shell: [ls], needs: [nobody]}\n"
    )
    assert problems(tmp_path, text) == [
        "6:27 steps[1].foo", "7:24 steps[2].set", "8:36 steps[3].needs[0]",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "broken",
    [
        "prompt: hi, foo: 1", "promt: hi", "prompt: 5, shell: [ls]", "loop: {execute: {set: 1}, max: 2}",
        "each: {items: [1]}", "parallel: [{name: p, set: 1, foo: 2}]", "needs: 7, set: 1",
    ],
)  # fmt: skip
def test_what_a_broken_step_supplies_is_known(tmp_path: Path, broken: str) -> None:
    """Its output, a loop that it may be, and its name in needs and output."""
    text = HEAD + (
        f"  - {{name: b, {broken}}}\n"
        "  - {name: c, needs: [b], set: '{{ b }} {{ b.field }} {{ loop.last.output }} {{ steps.b }}'}\n"
        "output: b\n"
    )
    assert [p for p in problems(tmp_path, text) if not p.startswith("5:")] == []


@pytest.mark.parametrize("named", ["nmae: draft, set: 1", "name: 1 draft!, set: 1", "set: 1"])
def test_a_step_without_a_name_that_can_be_read_supplies_any_name(
    tmp_path: Path, named: str
) -> None:
    text = HEAD + (
        f"  - {{{named}}}\n  - {{name: c, needs: [draft], set: '{{{{ draft }}}}'}}\noutput: draft\n"
    )
    assert all(p.startswith("5:") for p in problems(tmp_path, text))


def test_a_wrong_key_of_the_head_may_have_named_models_and_tools(tmp_path: Path) -> None:
    text = (
        "schema: loopwright/1\nname: x\nmodle: openai:gpt-4o\ntool:\n  t: {python: 'm:f'}\nsteps:\n"
        "  - {name: a, prompt: hi, tools: [t]}\n  - {name: b, set: '{{ zork }}'}\n"
    )
    assert problems(tmp_path, text) == ["3:1 modle", "4:1 tool", "8:24 steps[1].set"]


def test_a_broken_tool_is_known_to_those_that_name_it(tmp_path: Path) -> None:
    text = HEAD.replace("steps:", "tools:\n  t: {commands: [[ls]], foo: 1}\nsteps:") + (
        "  - {name: a, prompt: hi, tools: [t]}\n  - {name: b, prompt: hi, tools: [u]}\n"
    )
    assert problems(tmp_path, text) == ["5:25 tools.t.foo", "8:35 steps[1].tools[0]"]


def test_a_variable_that_a_broken_step_may_use_is_not_refused(tmp_path: Path) -> None:
    text = HEAD + "  - {name: a, set: '{{ topic }}', foo: 1}\n"
    assert problems(tmp_path, text, sets={"topic": "x"}) == ["5:35 steps[0].foo"]


def test_a_document_that_is_wrong_imports_nothing(tmp_path: Path) -> None:
    """What never runs is not executed for the sake of its other problems."""
    (tmp_path / "marks.py").write_text(
        "import pathlib\npathlib.Path(__file__).with_name('mark').touch()\ndef f(v): return v\n"
    )
    text = HEAD + "  - {name: a, python: 'marks:f'}\n  - {name: b, set: 1, foo: 2}\n"
    assert problems(tmp_path, text, execute=True) == ["6:23 steps[1].foo"]
    assert not (tmp_path / "mark").exists()


def test_a_document_of_another_version_is_not_looked_into(tmp_path: Path) -> None:
    text = "schema: loopwright/9\nname: x\nsteps:\n  - {name: b, set: '{{ zork }}'}\n"
    assert problems(tmp_path, text) == ["1:9 schema"]


def test_called_documents_are_looked_into_too(tmp_path: Path) -> None:
    """The fields of a child that are wrong, its names, and those of its caller."""
    child = "schema: loopwright/1\nname: child\nsteps:\n  - {name: i, set: 1, foo: 2}\n  - {name: j, set: '{{ zork }}'}\n"
    (tmp_path / "child.yaml").write_text(child)
    text = (
        HEAD
        + "  - {name: a, workflow: child, expose: [i]}\n  - {name: b, set: '{{ a }} {{ k }}'}\n"
    )
    assert sorted(problems(tmp_path, text)) == [
        "4:23 steps[0].foo", "5:24 steps[1].set", "6:32 steps[1].set",
    ]  # fmt: skip


def test_a_problem_of_a_called_document_makes_none_of_its_caller(tmp_path: Path) -> None:
    """The step that calls it exists, also where it is the output of the caller or another step names it."""
    child = "schema: loopwright/1\nname: child\nsteps:\n  - {name: i, set: '{{ zork }}'}\n"
    (tmp_path / "child.yaml").write_text(child)
    text = (
        HEAD
        + "  - {name: a, workflow: child}\n  - {name: b, set: '{{ a }}'}\n  - {name: c, workflow: child}\n"
    )
    assert problems(tmp_path, text) == ["4:24 steps[0].set"]


V2 = '$schema: "workflow/v2.0"\nname: x\nexecution: {provider: openai, model: gpt-4o}\n'


def test_workflow_v2_reports_fields_placeholders_and_names_at_once(tmp_path: Path) -> None:
    text = V2 + (
        "steps:\n"
        "  - {name: a, run: hi, foo: 1}\n"
        "  - {name: b, run: '{{a}} {{env.KEI}}'}\n"
        "  - {name: c, run: '{{b}} {{zork}}'}\n"
        "loops:\n  - {name: l, workflow: nofile, mode: iterate, items: '{{c}}'}\n"
    )
    assert problems(tmp_path, text) == [
        "5:24 steps[0].foo", "6:20 steps[1].run", "7:29 steps[2].run", "9:25 loops[0].workflow",
    ]  # fmt: skip


def test_workflow_v2_names_of_a_loop_that_is_left_out_are_known(tmp_path: Path) -> None:
    text = V2 + (
        "loops:\n  - {name: l, workflow: c, mode: iterate, items: x, accumulate: all_of_it, foo: 1}\n"
        "steps:\n  - {name: a, run: '{{l}} {{all_of_it}} {{l_accumulator}} {{zork}}'}\n"
    )
    assert problems(tmp_path, text) == ["5:76 loops[0].foo", "7:61 steps[0].run"]


def test_loop_nodes_report_agents_and_templates_at_once(tmp_path: Path) -> None:
    """Unknown agents, wrong fields and templates, inside of a loop and outside."""
    text = """\
orchestrator: {id: o, agents: [l, w, v], model: gpt-4o, provider: openai}
agents:
  - id: l
    type: loop
    internal_workflow:
      orchestrator: {id: i, agents: [a, b, nix]}
      agents:
        - {id: a, type: openai-ansswer, prompt: hi}
        - id: b
          type: openai-answer
          params:
            prompt: |
              Hello
              my {{ x | uper }}
  - {id: w, type: openai-answer, temperature: 7, prompt: hi}
  - {id: v, type: openai-answer, prompt: "one {% if %}"}
"""
    assert problems(tmp_path, text) == [
        "6:44 agents[0].internal_workflow.orchestrator.agents[2]",
        "8:25 agents[0].internal_workflow.agents[0].type",
        "14:25 agents[0].internal_workflow.agents[1].params.prompt",
        "15:47 agents[1].temperature",
        "16:47 agents[2].prompt",
    ]
