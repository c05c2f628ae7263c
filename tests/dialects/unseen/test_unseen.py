"""Small documents of constructs that the documents' own projects accept: each is accepted, converted and run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialects.workflow_v2.support import Case, converted, loaded, played, written

HOST = "orchestrator: {id: host, model: gpt-4o, agents: [%s]%s}\nagents:\n"
WORK = '  - {id: work, type: openai-answer, prompt: "Work on {{ input }}"}\n'
JUDGED = '{"completeness": {"has_all_required_steps": true}}'
QUALITY = (
    '{"accuracy": {"factually_correct": true, "addresses_question": true, "no_hallucinations": true}, '
    '"completeness": {"comprehensive_answer": true, "includes_examples": false}, "clarity": {"well_structured": true, '
    '"easy_to_understand": true}, "relevance": {"stays_on_topic": true}}'
)
V2 = '$schema: "workflow/v2.0"\nname: main\nexecution: {provider: deepseek, model: deepseek-chat}\n'
CHILD = '$schema: "workflow/v2.0"\nname: child\nexecution: {provider: deepseek, model: deepseek-chat}\nsteps: [{name: s, run: "child {{input}}"}]\n'


def agents(listed: str, text: str, more: str = "") -> str:
    """A document of loop nodes with a working agent before those given."""
    return HOST % (listed, more) + WORK + text


def loop(more: str, *inner: str) -> str:
    """A loop node over a writer and a scorer, with more fields."""
    scorer = inner or (
        '{id: scorer, type: openai-answer, prompt: "Score {{ previous_outputs.writer }}"}',
    )
    body = "".join(f"        - {each}\n" for each in scorer)
    names = ", ".join(["writer", *(each.split("id: ")[1].split(",")[0] for each in scorer)])
    return (
        "  - id: refine\n    type: loop\n    max_loops: 2\n    score_threshold: 0.8\n"
        + "".join(f"    {line}\n" for line in more.splitlines())
        + "    internal_workflow:\n"
        + f"      orchestrator: {{id: inner, agents: [{names}]}}\n      agents:\n"
        + '        - {id: writer, type: openai-answer, prompt: "Write {{ input }}"}\n'
        + body
    )


PATTERN = 'score_extraction_pattern: "SCORE:\\\\s*([0-9.]+)"'
VALIDATOR = "{id: judge, type: loop_validator, evaluation_target: writer, scoring_context: quality}"
PLANNED = "{id: judge, type: plan_validator, scoring_context: quality, custom_weights: {accuracy.factually_correct: %s}}"

DOCUMENTS: dict[str, str] = {}
for n, label in enumerate(["orka:core", '"a label"', "orka:fact-core", "x.y.z"]):
    DOCUMENTS[f"a label in queue {n}"] = agents("work", "", f", queue: {label}")
for n, key in enumerate(["insight", "risks", "questions", "next_steps"]):
    DOCUMENTS[f"a category of its own {n}"] = agents(
        "refine",
        loop(
            f'{PATTERN}\ncognitive_extraction: {{enabled: true, extract_patterns: {{{key}: ["(x+)"], insights: ["(y+)"]}}}}'
        ),
    )
for n, kind in enumerate(["nested_path", "json", "regex", "llm"]):
    DOCUMENTS[f"a strategy of its own {n}"] = agents(
        "refine",
        loop(
            f'score_extraction_config: {{strategies: [{{type: {kind}, path: a.b}}, {{type: pattern, patterns: ["SCORE: ([0-9.]+)"]}}]}}'
        ),
    )
for n, name in enumerate(
    [
        "completeness.has_all_required_steps",
        "safety.validates_inputs",
        "efficiency.optimizes_cost",
        "accuracy.factually_correct",
    ]
):
    DOCUMENTS[f"weights without a context {n}"] = agents(
        "refine", loop(f"{PATTERN}\nscoring: {{preset: moderate, custom_weights: {{{name}: 0.3}}}}")
    )
for n, child in enumerate(["first", "second"]):
    DOCUMENTS[f"needs a child of a failover {n}"] = agents(
        "after, safe",
        "  - id: safe\n    type: failover\n    children:\n"
        "      - {id: first, type: openai-answer, prompt: F}\n      - {id: second, type: openai-answer, prompt: S}\n"
        f"  - {{id: after, type: openai-answer, prompt: A, depends_on: [{child}]}}\n",
    )
for n, shape in enumerate(
    ["[name, age]", "{name: text, age: number}", '"name and age"', "[]", "[a]", "{}", "{a: [b]}"]
):
    DOCUMENTS[f"a structure {n}"] = agents(
        "work, check",
        f"  - {{id: check, type: validate_and_structure, store_structure: {shape}}}\n",
    )
for n, shape in enumerate([
    "{enabled: true}", "{enabled: true, schema: {required: [response], types: {response: string}}}",
    "{schema: {type: object, properties: {response: {type: string}}, required: [response]}}",
    "{enabled: false, schema: {required: [a]}}", "{enabled: true, mode: prompt, coerce_types: false}",
    "{enabled: true, schema: {required: [response], optional: {confidence: number}}}",
]):  # fmt: skip
    DOCUMENTS[f"structured output {n}"] = agents(
        "tell",
        f'  - {{id: tell, type: openai-answer, prompt: "T {{{{ input }}}}", structured_output: {shape}}}\n',
    )
    DOCUMENTS[f"structured output in params {n}"] = agents(
        "tell",
        f"  - {{id: tell, type: local_llm, prompt: T, provider: ollama, model: q, params: {{structured_output: {shape}}}}}\n",
    )
for n, text in enumerate([
    "{{ get_agent_response('writer') }}", "{{ get_agent_response('writer')['response'] }}",
    "{{ get_agent_response('writer').response }}", "{{ get_agent_response('nobody') }}",
]):  # fmt: skip
    DOCUMENTS[f"an entry with a reply {n}"] = agents(
        "refine", loop(f'{PATTERN}\npast_loops_metadata: {{said: "{text}"}}')
    )
for n, text in enumerate([
    "{% if has_past_loops() %}{% set last = get_past_loops()[-1] %}{{ last.score }}{% endif %}{{ last.score }}",
    "{{ previous_outputs.get('work') }}", "{{ previous_outputs.items() | list | length }}",
    "{% for k in previous_outputs.keys() %}{{ k }}{% endfor %}",
]):  # fmt: skip
    DOCUMENTS[f"a template {n}"] = agents(
        "work, told", f"  - id: told\n    type: openai-answer\n    prompt: |\n      T {text}\n"
    )
for n, weight in enumerate(["0.5", "0.9", "0.1"]):
    DOCUMENTS[f"weights of a plan validator {n}"] = agents(
        "refine",
        loop("max_loops: 2".replace("max_loops: 2", "fallback_score: 0.1"), PLANNED % weight),
    )
for n, field in enumerate(
    ["overall_assessment", "validation_score", "failed_criteria", "dimension_scores"]
):
    DOCUMENTS[f"a field of a validator {n}"] = agents(
        "refine, told",
        loop("fallback_score: 0.1", VALIDATOR)
        + f'  - {{id: told, type: openai-answer, prompt: "told {{{{ previous_outputs.refine.result.judge.{field} }}}}"}}\n',
    )
for n, more in enumerate(["", ", run: ignored"]):
    for m, items in enumerate(["[a, b]", '"a"', '"[1, 2, 3]"']):
        DOCUMENTS[f"a list without a limit {n} {m}"] = (
            V2
            + f"steps: [{{name: walk{more}, loop: {{mode: iterate, items: {items}, workflow: child}}}}]\n"
        )
for n, name in enumerate(["execution.timestamp", "s.field", "step.s.field", "a | upper"]):
    DOCUMENTS[f"left in place {n}"] = (
        V2 + f'steps: [{{name: s, run: x}}, {{name: t, run: "y {{{{{name}}}}}"}}]\n'
    )


def _case(name: str) -> Case:
    text = DOCUMENTS[name]
    replies = [
        {"step": "*scorer*", "replies": ["SCORE: 0.9"]},
        {"step": "*judge*", "replies": [QUALITY]},
        {"replies": ['{"response": "fine", "confidence": 0.9}']},
    ]
    settings = {"lenient": True} if name.startswith("left") else {}
    return Case(name, {"main.yaml": text, "child.yaml": CHILD}, replies, {}, [], "tea", settings)


def test_the_corpus_is_large() -> None:
    """At least sixty documents."""
    assert len(DOCUMENTS) >= 60


@pytest.mark.parametrize("name", DOCUMENTS)
def test_unseen_documents_are_accepted_converted_and_run(name: str, tmp_path: Path) -> None:
    """Each loads and is checked without a problem, runs to its end, and its native form makes the same calls."""
    case = _case(name)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        folder.mkdir()
        file = written(case, folder)
    found = loaded(case, theirs / file.name)
    assert found.plan()["steps"]
    assert not any("is not defined" in str(note) and "{{" not in str(note) for note in found.notes)
    first = played(case, theirs / file.name)
    assert first.result.status == "satisfied", first.result.detail
    again = converted(first.loaded, theirs / file.name, ours)
    second = played(case, again)
    assert second.calls == first.calls


def prompts(name: str, tmp_path: Path) -> list[str]:
    """Return what models were asked in a run of a document."""
    case = _case(name)
    return [request.prompt for request in played(case, written(case, tmp_path)).asked]


def test_fields_of_a_validator_are_there_after_its_loop(tmp_path: Path) -> None:
    """`result.NAME.overall_assessment`, `.validation_score` and `.failed_criteria` are those of the chosen round."""
    told = [prompts(f"a field of a validator {n}", _made(tmp_path / str(n)))[-1] for n in range(3)]
    assert told == ["told APPROVED", "told 0.875", 'told ["completeness.includes_examples"]']


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_failed_criteria_are_the_mistakes_where_no_pattern_finds_any(tmp_path: Path) -> None:
    """What a validator names is in the entry of the round."""
    case = _case("a field of a validator 0")
    done = played(case, written(case, tmp_path))
    entries = done.result.loops["refine"].history[0].evaluation.votes
    found = [vote["past_loop"]["mistakes"] for vote in entries if "past_loop" in vote]
    assert found == ["completeness.includes_examples"]


def test_a_reply_is_text_with_its_response_in_entries(tmp_path: Path) -> None:
    """`get_agent_response(x)` prints as text and has `.response` and `['response']`."""
    for n in range(3):
        case = _case(f"an entry with a reply {n}")
        done = played(case, written(case, _made(tmp_path / str(n))))
        votes = done.result.loops["refine"].history[0].evaluation.votes
        assert [v["past_loop"]["said"] for v in votes if "past_loop" in v] == ["fine"]


def test_a_plan_validators_weights_change_its_score(tmp_path: Path) -> None:
    """The more a criterion that holds weighs, the higher the score."""
    scores = []
    for n in (2, 0, 1):
        case = _case(f"weights of a plan validator {n}")
        done = played(case, written(case, _made(tmp_path / str(n))))
        scores.append(done.result.loops["refine"].history[0].score)
    assert scores == sorted(scores) and len(set(scores)) == 3


def test_structured_output_asks_for_its_schema(tmp_path: Path) -> None:
    """The fields of the document are the schema that the model is asked for."""
    case = _case("structured output 5")
    asked = played(case, written(case, tmp_path)).asked
    assert asked[0].schema == {
        "type": "object",
        "properties": {"response": {"type": "string"}, "confidence": {"type": "number"}},
        "required": ["response"],
        "additionalProperties": True,
    }


def test_placeholders_that_upstream_leaves_stay(tmp_path: Path) -> None:
    """Under lenient they are sent as they are written."""
    assert prompts("left in place 0", tmp_path)[-1] == "y {{execution.timestamp}}"
