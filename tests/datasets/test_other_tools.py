"""Data sets of pydantic-evals and configurations of promptfoo as cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopwright import Case, evaluate
from loopwright.datasets import Dataset
from loopwright.errors import ConfigurationError, DocumentError
from loopwright.evaluators import check
from loopwright.testing import run_virtual


def evals(tmp_path: Path, text: str, name: str = "evals.yaml") -> Dataset:
    file = tmp_path / name
    file.write_text(text)
    return Dataset.load(file)


def states(data: Dataset, outputs: Any) -> list[str]:
    """Return the state of each case with these outputs."""
    of = dict(zip(data.ids, outputs, strict=True))
    task = lambda _, ctx: of[ctx.case.id]
    result = run_virtual(evaluate(task, data, check(min_chars=0), most_errors=0))
    assert not result.errors
    return [row[2] for row in result.rows]


def promptfoo(tests: Any, **more: Any) -> str:
    return json.dumps(
        {"prompts": ["{{q}}"], "providers": ["openai:gpt-4o"], "tests": tests, **more}
    )


PYDANTIC = [
    ("EqualsExpected", "four", True),
    ("EqualsExpected", "Four", False),
    ({"Equals": "four"}, "four\n", False),
    ({"Equals": {"value": {"a": 1}}}, {"a": 1}, True),
    ({"Equals": {"value": {"a": 1}}}, {"a": 2}, False),
    ({"name": "Equals", "arguments": [{"a": 1}]}, {"a": 1}, True),
    ({"Contains": "ou"}, "four", True),
    ({"Contains": {"value": "OU", "case_sensitive": False}}, "four", True),
    ({"Contains": "OU"}, "four", False),
    ({"Contains": {"value": {"a": 1}}}, {"a": 1, "b": 2}, True),
    ({"Contains": {"value": 4}}, [3, 4], True),
    ({"Contains": {"value": 4}}, [3], False),
    ({"IsInstance": "int"}, 4, True),
    ({"IsInstance": "dict"}, [4], False),
    ({"IsInstance": "str"}, "four", True),
    ({"MaxDuration": 5}, "four", True),
]


@pytest.mark.parametrize(("evaluator", "output", "passes"), PYDANTIC)
@pytest.mark.parametrize("shared", [False, True])
def test_evaluators_of_pydantic_evals(
    evaluator: Any, output: Any, passes: bool, shared: bool, tmp_path: Path
) -> None:
    """Each evaluator decides as its original does, for all cases or for one."""
    case: dict[str, Any] = {"name": "a", "inputs": "2 + 2", "expected_output": "four"}
    data: dict[str, Any] = {"name": "sums", "cases": [case]}
    (data if shared else case)["evaluators"] = [evaluator]
    loaded = evals(tmp_path, json.dumps(data), "evals.json")
    assert states(loaded, [output]) == ["passed" if passes else "failed"]


def test_a_case_without_an_expectation_is_not_compared(tmp_path: Path) -> None:
    """`EqualsExpected` says nothing about a case without an expected output, as in the original."""
    data = evals(
        tmp_path,
        "name: x\ncases:\n- {name: a, inputs: 1}\n- {name: b, inputs: 1, expected_output: 2}\nevaluators: [EqualsExpected]\n",
    )
    assert [case.evaluators for case in data] == [(), ({"check": {"schema": {"const": 2}}},)]


@pytest.mark.parametrize("value", ["2026-13-45", "="])
def test_yaml_that_pydantic_evals_cannot_read_is_refused(value: str, tmp_path: Path) -> None:
    """Its YAML 1.1 has dates and other tags, whose errors are sentences."""
    with pytest.raises(ConfigurationError, match=r"^evals.yaml: pydantic-evals cannot read it: "):
        evals(tmp_path, f"cases:\n- {{name: a, inputs: {value}}}\n")
    assert evals(tmp_path, "cases:\n- {name: a, inputs: 1e3}\n")[0].inputs == "1e3"


# Type, value and other keys of an assertion; an output that it accepts, and one that it does not.
ASSERTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "equals", "value": "a {{q}}"}, "a Q", "a Q."),
    ({"type": "equals", "value": {"a": [1]}}, '{"a": [1]}', '{"a": [2]}'),
    ({"type": "equals", "value": 4}, "4", "5"),
    ({"type": "not-equals", "value": "x"}, "y", "x"),
    ({"type": "contains", "value": "{{q}}!"}, "the Q!", "the q!"),
    ({"type": "icontains", "value": "q!"}, "the Q!", "the R!"),
    ({"type": "not-icontains", "value": "sorry"}, "fine", "Sorry"),
    ({"type": "contains-any", "value": ["a.c", "x"]}, "-a.c", "abc"),
    ({"type": "contains-any", "value": 'one, "two, three"'}, "two, three", "two"),
    ({"type": "icontains-any", "value": ["AB"]}, "xaby", "ba"),
    ({"type": "not-contains-any", "value": ["a", "b"]}, "c", "b"),
    ({"type": "contains-all", "value": ["a", "b"]}, "b\na", "a"),
    ({"type": "icontains-all", "value": "A, B"}, "ba", "b"),
    ({"type": "not-contains-all", "value": ["a", "b"]}, "a", "ab"),
    ({"type": "regex", "value": "^[0-9]+$"}, "12", "1x"),
    ({"type": "not-regex", "value": "[0-9]"}, "x", "1"),
    ({"type": "is-json"}, '{"a": 1}', "{a: 1}"),
    ({"type": "is-json", "value": {"required": ["a"]}}, '{"a": 1}', '{"b": 1}'),
    ({"type": "latency", "threshold": 1000}, "fast", ""),
    ({"type": "cost", "threshold": 0.5}, "cheap", ""),
]


@pytest.mark.parametrize(("assertion", "good", "bad"), ASSERTIONS)
def test_assertions_of_promptfoo(
    assertion: dict[str, Any], good: str, bad: str, tmp_path: Path
) -> None:
    """Each assertion accepts and refuses the outputs that the original accepts and refuses."""
    # A second assertion that always holds makes a checklist.
    tests = [
        {
            "vars": {"q": "Q", "n": n},
            "assert": [assertion] if n < 2 else [assertion, {"type": "regex", "value": ""}],
        }
        for n in range(4)
    ]
    tests[2]["assert"][1]["value"] = tests[3]["assert"][1]["value"] = "(?s).*"
    data = evals(tmp_path, promptfoo(tests), "promptfooconfig.json")
    wrong = "failed" if bad else "passed"
    assert states(data, [good, bad, good, bad]) == ["passed", wrong, "passed", wrong]


def test_weights_and_thresholds_of_promptfoo(tmp_path: Path) -> None:
    """A test passes from its threshold on, with the weighted share of its assertions."""
    assertions = [
        {"type": "contains", "value": "a", "weight": 3},
        {"type": "contains", "value": "b"},
    ]
    tests = [{"vars": {"q": n}, "assert": assertions, "threshold": 0.7} for n in range(3)]
    data = evals(tmp_path, promptfoo(tests), "promptfooconfig.json")
    assert states(data, ["a", "b", "ab"]) == ["passed", "failed", "passed"]


def test_tests_and_variables_of_promptfoo(tmp_path: Path) -> None:
    """Defaults are merged, and lists of values give a case for each combination."""
    data = evals(
        tmp_path,
        """
prompts: ["{{a}} {{b}}"]
providers: [openai:gpt-4o]
defaultTest:
  vars: {b: 1, c: [x]}
  options: {disableVarExpansion: false}
  metadata: {source: team}
tests:
- description: first
  vars: {a: [1, 2]}
  metadata: {kind: easy}
- vars: {a: [1, 2], b: 3}
  options: {disableVarExpansion: true}
""",
        "promptfooconfig.yaml",
    )
    assert list(data) == [
        Case(
            {"b": 1, "c": "x", "a": 1},
            metadata={"source": "team", "kind": "easy", "description": "first"},
        ),
        Case(
            {"b": 1, "c": "x", "a": 2},
            metadata={"source": "team", "kind": "easy", "description": "first"},
        ),
        Case({"b": 3, "c": ["x"], "a": [1, 2]}, metadata={"source": "team"}),
    ]
    assert [case.place for case in data] == [f"promptfooconfig.yaml:{line}" for line in (9, 9, 12)]


REFUSED = {
    "an evaluator without a counterpart": (
        "cases:\n- inputs: 1\n  evaluators:\n  - GEval: {criteria: x}\n  - Contains: {valu: x}\nevaluators:\n- HasMatchingSpan: {}\n",
        [
            "evals.yaml:4:5: cases[0].evaluators[0]: 'GEval' has no counterpart; there are EqualsExpected, Equals, Contains, IsInstance, MaxDuration, LLMJudge",
            "evals.yaml:5:16: cases[0].evaluators[1].Contains.valu: `valu` has no counterpart; did you mean 'value'?",
            "evals.yaml:5:5: cases[0].evaluators[1]: Contains needs `value`",
            "evals.yaml:7:3: evaluators[0]: 'HasMatchingSpan' has no counterpart; there are EqualsExpected, Equals, Contains, IsInstance, MaxDuration, LLMJudge",
        ],
    ),
    "a judge of a case": (
        "cases:\n- inputs: 1\n  evaluators: [{LLMJudge: good}]\n",
        ["evals.yaml:3:16: cases[0].evaluators[0]: a case has no judge and no program; `loopwright convert` writes a document with them"],
    ),
    "a key of a case": ("cases:\n- {inputs: 1, expected: 2}\n", ["evals.yaml:2:15: cases[0].expected: `expected` has no counterpart; did you mean 'expected_output'?"]),
    "an assertion without a counterpart": (
        "prompts: [x]\nproviders: [y]\ntests:\n- assert:\n  - {type: javascript, value: x}\n  - {type: not-is-json}\n  - {type: contains}\n  - {type: equals, value: '{{ q | upper }}'}\n",
        [
            "evals.yaml:5:5: tests[0].assert[0]: `javascript` has no counterpart; there are equals, contains, icontains, contains-any, icontains-any, contains-all, icontains-all, regex, is-json, python, llm-rubric, latency, cost and not-…",
            "evals.yaml:6:5: tests[0].assert[1]: `not-is-json`: it takes a JSON Schema or nothing, and has no counterpart with not-",
            "evals.yaml:7:5: tests[0].assert[2]: `contains`: it needs a value",
            "evals.yaml:8:27: tests[0].assert[3].value: only {{ variable }} has a counterpart in the value of an assertion",
        ],
    ),
    "other keys and files": (
        "tests: [file://a.csv, {vars: {a: file://b.txt}, transform: x}]\nscenarios: []\n",
        [
            "evals.yaml:1:9: tests[0]: expected an object, written here and not in another file",
            "evals.yaml:1:34: tests[1].vars.a: this value is in another file; write it here",
            "evals.yaml:1:49: tests[1].transform: `transform` has no counterpart; remove it",
            "evals.yaml:2:1: scenarios: `scenarios` has no counterpart; remove it",
        ],
    ),
    "parts that are no object and no list": (
        "tests:\n- {vars: [1], metadata: m, assert: x}\n",
        [
            "evals.yaml:2:10: tests[0].vars: expected an object, written here and not in another file",
            "evals.yaml:2:25: tests[0].metadata: expected an object, written here and not in another file",
            "evals.yaml:2:36: tests[0].assert: expected a list, written here and not in another file",
        ],
    ),
    "an evaluator without its argument": (
        "cases:\n- {inputs: 1, metadata: m, evaluators: [{name: Equals, arguments: []}]}\n",
        [
            "evals.yaml:2:25: cases[0].metadata: expected an object, written here and not in another file",
            "evals.yaml:2:41: cases[0].evaluators[0]: Equals needs `value`",
        ],
    ),
    "no case": ("tests: []\n", ["evals.yaml:1:1: there is no case"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_counterpart_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    """Nothing of another tool's file is dropped without a word: every problem is named with line and column."""
    text, problems = REFUSED[name]
    with pytest.raises(DocumentError) as caught:
        evals(tmp_path, text)
    assert sorted(str(caught.value).splitlines()) == sorted(problems)
