"""Agents in native documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopwright import Result, run_sync
from loopwright.documents import Settings, load
from loopwright.documents.plan import plan
from loopwright.errors import DocumentError
from loopwright.models import Models, ScriptedModel

CAPS = """
from loopwright.agents import Capability

class Loud(Capability):
    async def process_prompt(self, agent, context, prompt):
        return prompt.upper()

def quiet():
    return Loud()

def work(given):
    return {"found": given["plan"]}
"""
HEAD = "schema: loopwright/1\nname: flow\nmodel: openai:any\nsteps:\n"
RESEARCH = """\
  - name: research
    phased:
      role: qa_specialist
      planning: {prompt: "Plan {{ task }}"}
      execution: {python: "caps:work"}
      refinement: {prompt: "Answer {{ task }} by {{ plan }} from {{ results | length }}: {{ loop.last.output }}"}
      evaluate: {check: {min_words: 2}}
      %s
"""
THINK = """\
  - name: think
    reasoning:
      prompt: "Improve {{ input }}"
      role: an editor
      %s
"""
REPLIES = [
    {"step": "*planning*", "replies": ["the plan"]},
    {"step": "*refinement*", "replies": ["first answer", "second answer"]},
    {"step": "*think*", "replies": ["let me see", "TASK_COMPLETE: done"]},
    {"replies": ["another word"]},
]


def document(folder: Path, text: str) -> str:
    """Write a document and the module that it names."""
    (folder / "caps.py").write_text(CAPS)
    file = folder / "flow.yaml"
    file.write_text(HEAD + text)
    return str(file)


def play(folder: Path, text: str, value: Any = "What?") -> tuple[Result, list[Any]]:
    """Load and run a document; return how it ended, and what was asked."""
    told: list[Any] = []
    loaded = load(document(folder, text))
    models = Models(ScriptedModel(REPLIES), transcript=told.append)
    return run_sync(loaded.step, value, resources={"models": models}), told


def test_a_phased_agent_runs_as_written(tmp_path: Path) -> None:
    """Its phases are actions, their templates know task, plan and results; its report is the run's."""
    result, told = play(tmp_path, RESEARCH % "max_refinement_iterations: 2")
    asked = [row["messages"][-1]["content"] for row in told]
    assert asked == [
        "Plan What?",
        "Answer What? by the plan from 5: ",
        "Answer What? by the plan from 5: first answer",
    ]
    assert (result.output, result.satisfied) == ("first answer", True)
    report = result.agents["research"]
    assert report["phase_iterations"] == {"planning": 1, "execution": 5, "refinement": 2}
    assert (report["phase_sum"], report["max_iterations_effective"]) == (8, 9)


def test_capabilities_are_named_by_class_or_function(tmp_path: Path) -> None:
    """A class, or a function that makes one: both change the prompt."""
    for name in ("caps:Loud", "caps:quiet"):
        _, told = play(tmp_path, RESEARCH % f"capabilities: [{name}]")
        assert told[0]["messages"][-1]["content"] == "PLAN WHAT?"


def test_settings_mean_what_they_mean_in_python(tmp_path: Path) -> None:
    """Caps, reserve, confidence and durations reach the agent."""
    settings = "max_iterations: 4\n      reserve_refinement: true\n      max_duration_seconds: 5m"
    result, _ = play(tmp_path, RESEARCH % settings)
    assert result.agents["research"]["phase_iterations"] == {
        "planning": 1,
        "execution": 2,
        "refinement": 1,
    }
    sure, _ = play(tmp_path, RESEARCH % "enable_dynamic_termination: true")
    assert sure.agents["research"]["phase"] == "execution"


def test_a_cap_below_the_sum_is_noted_before_it_runs(tmp_path: Path) -> None:
    """`check` tells it at its place."""
    loaded = load(document(tmp_path, RESEARCH % "max_iterations: 5"), Settings(execute=False))
    (note,) = loaded.notes
    assert "steps[0].phased.max_iterations: phases_capped: max_iterations 5 is below the 8" in str(
        note
    )


def test_a_reasoning_agent_runs_as_written(tmp_path: Path) -> None:
    """Its prompt is a template, its answer the output, its rounds the loop `reasoning`."""
    result, told = play(
        tmp_path,
        THINK % "max_iterations: 3"
        + '  - {name: after, set: "<{{ think }}> {{ loop.iterations }}"}\n',
    )
    assert result.output == "<done> 2"
    assert told[0]["messages"][1]["content"] == "Improve What?"
    assert told[0]["messages"][0]["content"].startswith("You are an editor.\n\n")
    assert result.agents["think"]["interaction_count"] == 2


def test_a_single_call_is_written_by_its_mode(tmp_path: Path) -> None:
    """mode: single is one plain call."""
    result, told = play(tmp_path, THINK % "mode: single")
    assert (result.output, len(told)) == ("let me see", 1)


def test_agents_are_steps_of_loops_and_workflows(tmp_path: Path) -> None:
    """An agent may be the body of a loop."""
    text = """\
  - name: outer
    loop:
      execute: {reasoning: {prompt: "{{ input }}", max_iterations: 2}}
      until: [{max_iterations: 2}]
"""
    result, _ = play(tmp_path, text)
    assert result.loops["outer"].iterations == 2


def test_the_plan_counts_the_calls_of_agents(tmp_path: Path) -> None:
    """Limits, functions, models and the worst case are told before anything runs."""
    loaded = load(
        document(tmp_path, RESEARCH % "capabilities: [caps:Loud]" + THINK % "max_iterations: 4"),
        Settings(execute=False),
    )
    told = plan(loaded)
    assert [(row["kind"], row["limit"]) for row in told["steps"]] == [
        ("phased", 8),
        ("reasoning", 4),
    ]
    assert told["python"] == ["caps:Loud", "caps:work"]
    assert told["worst_case_calls"] == 1 + 2 + 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RESEARCH % "max_iterations: 0", "greater than or equal to 1"),
        (RESEARCH.replace("qa_spe", "qa_sp") % "on_failure: halt", "did you mean 'qa_specialist'"),
        (RESEARCH % "max_plan_iterations: 1", "did you mean 'max_planning_iterations'"),
        (RESEARCH % "min_confidence_threshold: 85", "less than or equal to 1"),
        (RESEARCH % "token_split: [1, 1, 1]", "is above 1"),
        (RESEARCH % "capabilities: [caps:Lout]", "caps"),
        (RESEARCH.replace("{{ plan }}", "{{ plam }}") % "on_failure: halt", "'plam' is not defined"),
        (RESEARCH % "preset: base", "set only one of them"),
        ("  - name: a\n    phased: {role: base}\n", "no phase has an iteration"),
        (THINK % "max_iterations: 0", "greater than or equal to 1"),
        (THINK % "mode: once", "is not 'iterate' or 'single'"),
        (THINK % "model: gpt", "is not a model"),
        (THINK.replace("{{ input }}", "{{ inptu }}") % "max_iterations: 2", "'inptu' is not defined"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_at_its_place(tmp_path: Path, text: str, message: str) -> None:
    """Every problem of an agent is a problem of the document."""
    with pytest.raises(DocumentError) as caught:
        load(document(tmp_path, text), Settings(execute=False))
    assert message in str(caught.value)
