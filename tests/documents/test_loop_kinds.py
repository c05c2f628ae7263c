"""Every way to judge, to adapt and to end of native documents: loaded, and run on a script."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from documents.playing import loaded, scripted
from loopwright import Result, run_sync
from loopwright.documents.schema.document import EvaluateSpec, ScoreSpec
from loopwright.documents.schema.evaluators import CHECKS, AdaptSpec
from loopwright.errors import DocumentError

MODULE = """\
def rate(output):
    return {"score": 0.9 if "good" in str(output) else 0.2, "feedback": "say good"}

def good(output):
    return "good" in str(output)

def more(last):
    return f"{last.input}, then {last.output}"
"""
# Replies of the model: the work is bad, then good; judges say so.
WORK = {"step": "*execute", "replies": ["bad work of mine", "a good work of mine"]}
SCORED = {"step": "*execute", "replies": ["it is bad, score: 2/10", "good now, score: 9/10"]}


def rated(percent: int) -> dict[str, Any]:
    gap = "" if percent > 80 else "say good"
    return {"json": {"score_1": percent, "gap_1": gap, "suggestions": ["say good"]}}


def verdict(value: bool) -> dict[str, Any]:
    said = {"verdict": "yes", "score": 90} if value else {"verdict": "no", "score": 10}
    return {"json": {**said, "reason": "because of what was asked for"}}


def share(body: str) -> str:
    """Return a score by tests: of two checks of what is on stdin, as pytest sums them up."""
    program = (
        f"import sys; text = sys.stdin.read(); ok = sum([len(text) > 3, 'good' in text]); {body}"
    )
    more = ", report: out.xml" if "out.xml" in body else ""
    return f"score: {{tests: {json.dumps([sys.executable, '-c', program])}, timeout: 30s{more}}}"


SUMMARY = "print(f'{2 - ok} failed, {ok} passed in 0.01s' if ok < 2 else '2 passed in 0.01s'); sys.exit(ok < 2)"
REPORT = (
    "case = '<testcase name=%r/>'; lost = '<testcase name=%r><failure/></testcase>'; "
    "open('out.xml', 'w').write('<testsuite>' + case % 'a' * ok + lost % 'b' * (2 - ok) + '</testsuite>'); sys.exit(ok < 2)"
)
JUDGED = [WORK, {"replies": [verdict(False), verdict(True)]}]
EVALUATORS: dict[str, tuple[str, list[Any]]] = {
    "check command": ("check: {command: [grep, -q, good]}", [WORK]),
    "check script": ('check: {command: "grep -q good", timeout: 10s}', [WORK]),
    "check schema": ("check: {schema: {type: object, required: [good]}}",
        [{"step": "*execute", "replies": ["bad", '{"good": 1}']}],),
    "check python": ('check: {python: "steps:good"}', [WORK]),
    "check matches": ("check: {matches: goo?d}", [WORK]),
    "check not_matches": ("check: {not_matches: ^bad}", [WORK]),
    "check contains": ("check: {contains: good, name: kind}", [WORK]),
    "check min_words": ("check: {min_words: 5}", [WORK]),
    "check max_words": (
        "check: {max_words: 2}", [{"step": "*execute", "replies": ["one two three", "one two"]}],
    ),
    "check min_chars": ("check: {min_chars: 19}", [WORK]),
    "check max_chars": (
        "check: {max_chars: 3}", [{"step": "*execute", "replies": ["long", "abc"]}],
    ),
    "checklist": ("checklist: [{contains: good}, {min_words: 2, weight: 3}]", [WORK]),
    "score": ("score: {label: score, scale: [0, 10]}", [SCORED]),
    "score pattern": ('score: {pattern: "(\\\\d+)/10", scale: [0, 10]}', [SCORED]),
    "score: tests": (share(SUMMARY), [WORK]),
    "score: report": (share(REPORT), [WORK]),
    "confidence": (
        "confidence: {criteria: [It is good], goal: kindness, threshold: 0.85}",
        [WORK, {"replies": [rated(40), rated(90)]}],
    ),
    "confidence strict": (
        "confidence: {criteria: [It is good], weights: {It is good: 2}, strict: true, threshold: 0.85}",
        [WORK, {"replies": [rated(84), rated(85)]}],
    ),
    "score of a step": ('score: {scale: [0, 10], of: {set: "{{ value }}"}}', [SCORED]),
    "graded": ("{check: {contains: good}, judge: It is good, graded: true}",
        [WORK, {"replies": [verdict(True)]}],),
    "metric": (
        "metric: {name: words, command: [wc, -w]}",
        [{"step": "*execute", "replies": ["one", "one two three"]}],
    ),
    "judge sentence": ("judge: It is good", JUDGED),
    "judge criterion": ("judge: {criterion: It is good, goal: kindness}", JUDGED),
    "judge yes or no": (
        "judge: {criterion: It is good, style: yes_no}", [WORK, {"replies": ["NO", "YES"]}],
    ),
    "judge criteria": (
        "judge: {criteria: {kind: It is kind, good: It is good}}",
        [WORK, {"replies": [verdict(False), verdict(True), verdict(True), verdict(True)]}],
    ),
    "judge votes": (
        "judge: {criterion: It is good, max_votes: 3, accept_lead: 2}",
        [WORK, {"replies": [verdict(False), verdict(True), verdict(True)]}],
    ),
    "judge confirm": (
        "judge: {criterion: It is good, confirm: true}",
        [WORK, {"replies": [verdict(False), verdict(True), verdict(True)]}],
    ),
    "judge models": ('judge: {criterion: It is good, models: ["openai:a", "openai:b"]}', JUDGED),
    "python": ('python: "steps:rate"', [WORK]),
    "several": ('{check: {min_words: 1}, judge: It is good}', JUDGED),
    # Time and cost are those of a case.
    "dataset": (
        'dataset: {file: cases.jsonl, run: {set: "{{ value }}"}, evaluate: '
        "[{check: {contains: good}}, {check: {max_seconds: 60}}, {check: {max_usd: 1}}]}",
        [WORK],
    ),
}  # fmt: skip


def play(found: Any, replies: Any = (), value: Any = None) -> Result:
    return run_sync(found.step, value, resources=scripted(list(replies) or [{"replies": ["ok"]}]))


def document(folder: Path, loop: str) -> Any:
    (folder / "steps.py").write_text(MODULE, encoding="utf-8")
    (folder / "cases.jsonl").write_text('{"inputs": "a case"}', encoding="utf-8")
    return loaded(
        folder, f"- name: work\n  loop:\n    execute: {{prompt: 'Do {{{{ value }}}}'}}\n{loop}"
    )


@pytest.mark.parametrize("name", EVALUATORS)
def test_each_evaluator_refuses_the_bad_and_takes_the_good(name: str, tmp_path: Path) -> None:
    """The first output is judged bad, the second good, in no more calls than `check` says."""
    text, replies = EVALUATORS[name]
    evaluate = text if text.startswith("{") else f"{{{text}}}"
    until = "[{score_at_least: 0.8}]" if text.startswith(("score", "python")) else "passed"
    if text.startswith("metric"):
        until = "[{metric_at_least: {metric: words, value: 3}}]"
    found = document(
        tmp_path, f"    evaluate: {evaluate}\n    until: {until}\n    max_iterations: 3\n"
    )
    result = play(found, replies, "it")
    assert result.satisfied, result.detail
    rows = result.loops["work"].history
    assert len(rows) == 2
    assert rows[0].score is None or rows[1].score is None or rows[0].score < rows[1].score
    assert result.usage.calls <= found.plan()["worst_case_calls"]


def test_no_evaluator_was_forgotten() -> None:
    """Each field of the models of judging is in the table, and each field of a score."""
    texts = " ".join(text for text, _ in EVALUATORS.values())
    fields = {field.alias or name for name, field in EvaluateSpec.model_fields.items()}
    wanted = {*fields, *(name.rstrip("_") for name in CHECKS), *ScoreSpec.model_fields} - {"cwd"}
    assert not [name for name in wanted if name not in texts]


ADAPTERS: dict[str, tuple[str, list[str]]] = {
    "feedback": ("feedback", ["it", "say good"]),
    "keep_input": ("keep_input", ["Do it", "Do it"]),
    "use_output": ("use_output", ["Do it", "Do bad work of mine"]),
    "python": ('{python: "steps:more"}', ["Do it", "Do it, then bad work of mine"]),
    "rotate": ("{rotate: [first way, second way]}", ["Do it", "way"]),
    "set": ('{set: "again: {{ loop.last.output }}"}', ["Do it", "Do again: bad work of mine"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ADAPTERS)
def test_each_adapter_makes_the_next_input(name: str, tmp_path: Path) -> None:
    """The second call is asked with what the adapter made of the first round."""
    text, asked = ADAPTERS[name]
    loop = f'    evaluate: {{python: "steps:rate"}}\n    adapt: {text}\n    until: [{{score_at_least: 0.8}}, {{max_iterations: 3}}]\n'
    found = document(tmp_path, loop)
    rules = [{"step": "*execute", "prompt": asked[0], "replies": ["bad work of mine"]}]
    second = {"step": "*execute", "prompt": asked[1], "replies": ["a good work of mine"]}
    same = asked[0] == asked[1]
    result = play(found, [WORK] if same else [second, *rules], "it")
    assert result.satisfied, result.detail
    assert result.loops["work"].iterations == 2


def test_merge_changes_fields_of_the_first_input(tmp_path: Path) -> None:
    """`merge` keeps the fields that it does not name."""
    (tmp_path / "steps.py").write_text(MODULE, encoding="utf-8")
    found = loaded(
        tmp_path,
        "- name: work\n  loop:\n    execute: {set: '{{ value.topic }}-{{ value.hint }}'}\n"
        "    adapt: {merge: {hint: 'good {{ loop.iteration }}'}}\n    until: [{output_matches: good}, {max_iterations: 3}]\n",
    )
    result = play(found, [], {"topic": "tea", "hint": "none"})
    assert [row.output for row in result.loops["work"].history] == ["tea-none", "tea-good 2"]


def test_no_adapter_was_forgotten() -> None:
    """Each field of the model of adapting is in a test here."""
    assert set(AdaptSpec.model_fields) <= {*ADAPTERS, "merge"}


RATED = '    evaluate: {python: "steps:rate"}\n'
ENDS: dict[str, tuple[str, str, int]] = {
    "passed": ("    evaluate: {check: {contains: good}}\n    until: passed\n", "condition_met", 2),
    "a list": (RATED + "    until: [{score_at_least: 0.8}, {max_iterations: 5}]\n", "condition_met", 2),
    "a mapping": (RATED + "    until: {score_at_least: 0.8, max_iterations: 5}\n", "condition_met", 2),
    "any_of": (RATED + "    until: {any_of: [{score_at_least: 0.8}, {max_iterations: 5}]}\n", "condition_met", 2),
    "all_of": (
        RATED + "    until: {any_of: [{all_of: [{score_at_least: 0.8}, {output_matches: good}]}, {max_iterations: 4}]}\n",
        "condition_met", 2,
    ),
    "a sentence": ("    until: It is good work\n    max_iterations: 4\n", "condition_met", 2),
    "a sentence in a list": ("    until: [It is good work, {max_iterations: 4}]\n", "condition_met", 2),
    "output_matches": ("    until: [{output_matches: good}, {max_iterations: 4}]\n", "condition_met", 2),
    "all_criteria_met": (
        "    evaluate: {checklist: [{contains: good}]}\n    until: [all_criteria_met, {max_iterations: 4}]\n",
        "condition_met", 2,
    ),
    "max_iterations": ("    until: [{max_iterations: 3}]\n", "max_iterations", 3),
    "max_iterations beside": ("    max_iterations: 3\n", "max_iterations", 3),
    "phase_limit": ("    until: [{phase_limit: 1}, {max_iterations: 3}]\n", "phase_limit", 1),
    "no_improvement": (RATED + "    until: [{no_improvement: 1}, {max_iterations: 6}]\n", "no_improvement", 3),
    "repeated_output": ("    adapt: {rotate: [a, b, c]}\n    until: [{repeated_output: 2}, {max_iterations: 6}]\n", "repeated_output", 3),
    "degrading": (
        RATED + "    adapt: keep_input\n    until: [{degrading: 3}, {max_iterations: 4}]\n", "max_iterations", 4,
    ),
    "timeout": ("    until: [{timeout: 1h}, {max_iterations: 2}]\n", "max_iterations", 2),
    "deadline": ('    until: [{deadline: "2999-01-01T00:00:00Z"}, {max_iterations: 2}]\n', "max_iterations", 2),
    "budget": ("    until: [{budget: {calls: 2}}, {max_iterations: 5}]\n", "budget", 2),
    "the controller's": (
        RATED + "    until: {type: combined, operator: OR, conditions: [{type: confidence, threshold: 0.8}]}\n",
        "condition_met", 2,
    ),
    "termination": (RATED + "    termination: {type: confidence, threshold: 0.8}\n", "condition_met", 2),
    "guards": ("    guards: [{budget: {calls: 2}}]\n    max_iterations: 5\n", "budget", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_each_way_to_end_ends_the_loop(name: str, tmp_path: Path) -> None:
    """The loop ends for that reason, in that round."""
    text, reason, rounds = ENDS[name]
    result = play(document(tmp_path, text), JUDGED, "it")
    ended = result.loops["work"]
    assert (ended.reason.value, ended.iterations) == (reason, rounds), ended.detail


def test_until_and_termination_are_one(tmp_path: Path) -> None:
    """A loop that says twice how it ends is refused, and what is wrong in `termination` is told there."""
    both = "    until: passed\n    termination: {type: max_iterations, limit: 2}\n"
    wrong = "    termination: {type: confidence, threshold: 85}\n"
    for text, said in ((both, "keep one"), (wrong, "loop.termination")):
        with pytest.raises(DocumentError) as caught:
            document(tmp_path, text)
        assert said in str(caught.value)


def test_steps_named_through_steps_are_waited_for(tmp_path: Path) -> None:
    """With several steps at once, `steps.NAME`, `steps["NAME"]` and `loops.NAME` are needs like names alone."""
    text = (
        "schema: loopwright/1\nname: main\nat_once: 4\nsteps:\n"
        "- {name: a, shell: [sh, -c, 'sleep 0.05; echo one']}\n"
        "- {name: b, set: \"{{ steps.a }}, {{ steps['a'] }}\"}\n"
        "- {name: l, loop: {execute: {set: two}, max_iterations: 2}}\n"
        '- {name: c, set: "{{ loops.l.iterations }}"}\n'
    )
    result = play(loaded(tmp_path, {"main.yaml": text}))
    assert result.steps["b"].split() == ["one,", "one"]
    assert result.steps["c"] == 2


evaluators = st.fixed_dictionaries(
    {"criterion": st.just("It is good")},
    optional={
        "max_votes": st.integers(3, 7), "accept_lead": st.integers(1, 3), "reject_lead": st.integers(1, 3),
        "confirm": st.booleans(), "rejudge": st.integers(0, 3), "self_test": st.booleans(),
        "style": st.sampled_from(["structured", "yes_no"]),
    },
)  # fmt: skip
said = st.lists(
    st.sampled_from([verdict(True), verdict(False), "YES", "NO", "perhaps", {"json": {"odd": 1}}]),
    min_size=1, max_size=8,
)  # fmt: skip


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(evaluators, said, st.integers(1, 3), st.sampled_from(["halt", "continue", "retry"]))
def test_no_run_asks_more_than_the_plan_says(
    tmp_path: Path, judge: dict[str, Any], replies: list[Any], rounds: int, policy: str
) -> None:
    """Whatever a judge answers, a run makes no more calls than `check` said."""
    fields = ", ".join(
        f"{k}: {str(v).lower() if isinstance(v, bool) else v}" for k, v in judge.items()
    )
    text = f"    evaluate: {{judge: {{{fields}}}}}\n    until: passed\n    max_iterations: {rounds}\n    on_failure: {policy}\n"
    try:
        found = document(tmp_path, text)
    except DocumentError:  # leads that no number of votes can have
        return
    asked = play(found, [{"step": "*execute", "replies": ["work"]}, {"replies": replies}], "it")
    assert asked.usage.calls <= found.plan()["worst_case_calls"]


def test_a_template_of_the_wrong_types_costs_its_round(tmp_path: Path) -> None:
    """What goes wrong while a template is filled in is a failure of the round, with its place, and the next goes on."""
    text = (
        "- name: work\n  loop:\n    execute: {set: '{{ loop.last.output + loop.iteration }}'}\n"
        "    on_failure: continue\n    max_iterations: 2\n- {name: after, set: here}\n"
    )
    result = play(loaded(tmp_path, text))
    errors = [row.error for row in result.loops["work"].history]
    assert errors[0] is not None
    assert errors[0].message.startswith("template line 1")
    assert "+ does not work on text and a number" in errors[0].message
    assert len(errors) == 2
