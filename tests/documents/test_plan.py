"""What `check` tells before anything runs: facts, bounds, the most calls, and remarks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from documents.corpus import DOCUMENTS, MODULE
from loopwright import run
from loopwright.documents import Loaded, Settings, load
from loopwright.errors import DocumentError
from loopwright.models import Models, ScriptedModel

HEAD = "schema: loopwright/1\nname: x\nmodel: openai:gpt-4o-mini\nsteps:\n"


def loaded(folder: Path, text: str, **settings: Any) -> Loaded:
    """Load a document beside the module of the corpus."""
    (folder / "steps.py").write_text(MODULE)
    (folder / "document.yaml").write_text(text)
    return load(folder / "document.yaml", Settings(**settings))


def test_a_plan_names_all_that_would_run(tmp_path: Path) -> None:
    """Steps in order, models, commands, functions, hosts and environment names."""
    plan = loaded(tmp_path, DOCUMENTS["every_step"]).plan()
    names = ["shout", "count", "maybe", "both", "either", "inner", "many", "last"]
    assert [row["name"] for row in plan["steps"]] == names
    assert plan["models"] == ["openai:gpt-4o-mini"]
    assert plan["commands"] == ["wc -w", "false", "echo second"]
    assert plan["python"] == ["steps:upper"]
    assert plan["hosts"] == ["api.openai.com"]
    assert plan["environment"] == ["OPENAI_API_KEY", "LIMIT"]
    assert plan["bounds"]["timeout"] == 600
    assert plan["bounds"]["budget"] == {"calls": 200, "tokens": 100000, "usd": 2.5}


def test_a_loop_without_a_name_is_bounded_by_the_name_of_its_step(tmp_path: Path) -> None:
    """A loop that a list or another loop executes has no name of its own; `check` prints its limit."""
    text = (
        "  - {name: many, each: {items: [1], execute: "
        "{loop: {execute: {set: x}, max_iterations: 3}}}}\n"
    )
    bounds = loaded(tmp_path, HEAD + text).plan()["bounds"]
    assert bounds["loops"] == {"many/execute": 3}


CALLS = {
    "a prompt": ("prompt: hi", "- {replies: [no]}", 1),
    "a loop": ("loop: {execute: {prompt: hi}, max_iterations: 4}", "- {replies: [no]}", 4),
    "a loop in a loop": (
        "loop: {execute: {loop: {execute: {prompt: hi}, max_iterations: 3}}, max_iterations: 4}",
        "- {replies: [no]}", 12,
    ),
    "a list": (
        'each: {items: [1, 2, 3], max_items: 3, execute: {prompt: "{{ loop.current }}"}}',
        "- {replies: [no]}", 3,
    ),
    "a called document": ("workflow: child.yaml", "- {replies: [no]}", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_most_calls_are_those_of_a_run_that_never_succeeds(name: str, tmp_path: Path) -> None:
    """The number that the plan gives is the number of calls that such a run makes."""
    text, replies, expected = CALLS[name]
    child = (
        "schema: loopwright/1\nname: child\nsteps: [{name: a, prompt: x}, {name: b, prompt: y}]\n"
    )
    (tmp_path / "child.yaml").write_text(child)
    found = loaded(tmp_path, f"{HEAD}  - {{name: a, {text}}}\n")
    result = asyncio.run(
        run(
            found.step,
            "go",
            resources={"models": Models(ScriptedModel(replies)), "model": "openai:gpt-4o-mini"},
        )
    )
    assert (found.plan()["worst_case_calls"], result.usage.calls) == (expected, expected)


LINTS = {
    "a sentence that code can decide": (
        '{name: a, loop: {execute: {prompt: hi}, until: "It has at most 50 words"}}',
        "5:52: steps[0].loop.until: code_can_decide: code can decide this without a model call and always in the same way; "
        "put evaluate: {check: {max_words: …}} before the judge",
    ),
    "an if that is never true": (
        "{name: a, set: 1, if: 1 > 2}",
        "5:27: steps[0].if: constant_condition: this condition is always false, so the step never runs; compare the output of a step",
    ),
    "a judge of another text": (
        '{name: a, loop: {execute: {steps: [{name: code, set: 1}, {name: review, set: 2}]}, until: "The code is good"}}',
        "5:95: steps[0].loop.until: other_output: this reads the output of 'review', which is the output of each iteration, "
        "not that of 'code'; set output:, or expose it and use loop.steps.code",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINTS)
def test_what_is_seldom_meant_is_remarked_on(name: str, tmp_path: Path) -> None:
    """Each remark has its place and its remedy; the document loads all the same."""
    step, expected = LINTS[name]
    lints = loaded(tmp_path, f"{HEAD}  - {step}\n").lints()
    found = [
        str(lint) for lint in lints if lint.code != "judge_writes"
    ]  # of every document with one model
    assert [text.partition("document.yaml:")[2] for text in found] == [expected]


JUDGED = """
  - name: a
    loop:
      execute: {{prompt: hi, max_tokens: 1000}}
      evaluate: {{judge: {{criterion: It is good, model: {model}}}}}
      until: [passed, {{max_iterations: 9}}]
"""


def test_a_judge_of_its_own_texts_is_remarked_on(tmp_path: Path) -> None:
    """A judge that is the model that writes prefers its own texts; another model does not."""
    own = loaded(tmp_path, HEAD + JUDGED.format(model="openai:gpt-4o-mini")).lints()
    assert [(lint.code, lint.line, "openai:gpt-4o-mini" in lint.message) for lint in own] == [
        ("judge_writes", 9, True)
    ]
    assert loaded(tmp_path, HEAD + JUDGED.format(model="openai:gpt-4o")).lints() == []


@pytest.mark.parametrize(("usd", "said"), [(0.01, "less than one"), (0.1, "about 3"), (5, "")])
def test_a_budget_for_fewer_iterations_is_remarked_on(
    tmp_path: Path, usd: float, said: str
) -> None:
    """`check` says how many iterations a budget in dollars allows, from prices and limits, if the limit is higher."""
    head = HEAD.replace(
        "steps:",
        f"budget: {{usd: {usd}}}\nprices: {{gpt-4o: {{input: 0, output: 10}}, gpt-4o-mini: free}}\nsteps:",
    )
    # The judge gives two replies at most, of 1,000 tokens and a cent each.
    text = JUDGED.format(model="openai:gpt-4o, max_tokens: 1000")
    lints = loaded(tmp_path, head + text).lints()
    assert [lint.code for lint in lints] == (["budget_iterations"] if said else [])
    assert all(f"with this budget {said} of 9 iterations" in lint.message for lint in lints)


COSTLY = "budget: {usd: 1}\nprices: {gpt-4o-mini: {input: 0, output: 10}}\n"
ENDS = "until: [{max_iterations: 90}]"
WRITER = "{prompt: hi, max_tokens: 1000}"
JUDGE = "{judge: {criterion: It is good, max_tokens: 1000}}"
CASE = f"{{file: cases.jsonl, run: {WRITER}, evaluate: {JUDGE}}}"


@pytest.mark.parametrize(
    ("text", "said", "judges"),
    [
        # A call costs at most a cent, and a vote has two replies.
        (f"loop: {{execute: {WRITER}, candidates: 4, {ENDS}}}", "about 25 of 90 iterations", 0),
        (
            f"loop: {{execute: {WRITER}, candidates: {{n: 4, pick: duel, judge: {{criterion: Which?, max_tokens: 1000}}}}, {ENDS}}}",
            "about 12 of 90 iterations", 1,
        ),
        # 5 cases of a call and a vote each.
        (f"loop: {{execute: {{set: x}}, evaluate: {{dataset: {CASE}}}, {ENDS}}}", "about 6 of 90 iterations", 1),
        # The same, and the iteration and its base three times each again.
        (
            f"loop: {{execute: {{set: x}}, evaluate: {{dataset: {CASE}}}, metrics: {{n: {{maximise: true}}}}, objective: n, "
            f"confirm: {{}}, {ENDS}}}",
            "less than one of 90 iterations", 1,
        ),
        # A data set whose cases a writer works on has no judge.
        (
            f"loop: {{execute: {WRITER}, evaluate: {{dataset: {{file: cases.jsonl, run: {WRITER}, "
            f"evaluate: {{check: equals_expected}}}}}}, {ENDS}}}",
            "about 16 of 90 iterations", 0,
        ),
    ],
)  # fmt: skip
def test_the_notes_on_budgets_and_judges_count_every_call(
    tmp_path: Path, text: str, said: str, judges: int
) -> None:
    """Candidates, duels, cases and confirmations count; what works on a case writes, also below `evaluate`."""
    rows = "".join(f'{{"id": "c{n}", "inputs": {n}, "expected": {n}}}\n' for n in range(5))
    (tmp_path / "cases.jsonl").write_text(rows)
    head = HEAD.replace("steps:", f"{COSTLY}steps:")
    lints = loaded(tmp_path, f"{head}  - {{name: a, {text}}}\n").lints()
    found = [lint.message for lint in lints if lint.code == "budget_iterations"]
    assert len(found) == 1
    assert f"with this budget {said}" in found[0]
    assert sum(lint.code == "judge_writes" for lint in lints) == judges


def test_the_notes_are_for_an_evaluation_too(tmp_path: Path) -> None:
    """A budget is told as a number of cases."""
    rows = "".join(f'{{"id": "c{n}", "inputs": {n}, "expected": {n}}}\n' for n in range(500))
    (tmp_path / "cases.jsonl").write_text(rows)
    head = HEAD.replace("steps:", COSTLY)
    text = (
        f"eval: {{dataset: {{file: cases.jsonl}}, task: {WRITER}, evaluate: {JUDGE}, repeat: 2}}\n"
    )
    lints = loaded(tmp_path, head + text).lints()
    assert {lint.code for lint in lints} == {"judge_writes", "budget_iterations"}
    assert any(
        "with this budget about 33 of 1,000 cases may be possible" in lint.message for lint in lints
    )


def test_a_price_of_no_model_is_remarked_on(tmp_path: Path) -> None:
    """A price under a name that no prompt uses is a mistake in writing."""
    text = (
        HEAD.replace("steps:", "prices: {gpt-4o-mimi: free}\nsteps:")
        + "  - {name: a, prompt: hi}\n"
    )
    found = [lint.message for lint in loaded(tmp_path, text).lints()]
    assert found == [
        "the document does not use the model 'gpt-4o-mimi', so its price has no effect"
    ]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_good_documents_get_no_remarks(name: str, tmp_path: Path) -> None:
    """Nothing is said of what is meant."""
    assert loaded(tmp_path, DOCUMENTS[name]).lints() == []


ONE_PROMPT = "schema: loopwright/1\nname: x\n{}steps: [{{name: a, prompt: hi}}]\n"
ANTHROPIC = {"models": ["anthropic:a"], "hosts": ["api.anthropic.com"], "environment": ["ANTHROPIC_API_KEY"]}  # fmt: skip
LOCAL = {"models": ["openai:a"], "hosts": ["127.0.0.1"], "environment": []}


@pytest.mark.parametrize(
    ("head", "settings", "expected"),
    [
        ("model: openai:gpt-4o\n", {"model": "anthropic:a"}, ANTHROPIC),
        ("", {"model": "anthropic:a"}, ANTHROPIC),
        ("", {"environ": {"LOOPWRIGHT_MODEL": "anthropic:a"}}, ANTHROPIC),
        ("model: openai:a\nmodel_url: http://127.0.0.1:80\n", {}, LOCAL),
    ],
    ids=["instead of the document's", "without one", "of the environment", "at another address"],
)
def test_a_plan_names_the_models_that_a_run_calls(
    head: str, settings: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    """The caller's model replaces that of the document, also in the hosts and keys that a person approves."""
    plan = loaded(tmp_path, ONE_PROMPT.format(head), **settings).plan()
    assert {key: plan[key] for key in expected} == expected


def test_a_wrong_model_of_the_caller_is_not_a_problem_of_a_line(tmp_path: Path) -> None:
    """It is reported once, with the name of the option, for a document with several prompts."""
    text = ONE_PROMPT.format("").replace("}]", "}, {name: b, prompt: ho}]")
    with pytest.raises(DocumentError) as caught:
        loaded(tmp_path, text, model="gpt-4o")
    (problem,) = caught.value.problems
    assert (problem.line, problem.message.split(":")[0]) == (0, "--model")


@pytest.mark.parametrize(
    ("template", "hint"),
    [
        ("{{ loop.last.feedbak }}", "did you mean 'feedback'?"),
        ("{% if loop.best %}{{ loop.best.scor }}{% endif %}", "did you mean 'score'?"),
        ("{{ loop.last.zzzz }}", "its fields are accepted, error, feedback, "),
    ],
)
def test_an_unknown_field_of_an_iteration_is_reported_before_the_run(
    template: str, hint: str, tmp_path: Path
) -> None:
    """A first iteration has empty fields, so the second one would fail after calls that cost money."""
    text = (
        HEAD + f"  - {{name: a, loop: {{execute: {{prompt: '{template}'}}, max_iterations: 2}}}}\n"
    )
    with pytest.raises(DocumentError) as caught:
        loaded(tmp_path, text)
    assert hint in str(caught.value)
