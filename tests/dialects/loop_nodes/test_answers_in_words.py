"""Agents that a prompt asks for data: what they answer in words counts, and later iterations can read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dialects.workflow_v2.support import Listening
from loopwright import Result, run
from loopwright.documents import Settings, load
from loopwright.models import Models
from loopwright.testing import run_virtual

PATTERN = r"SCORE:\s*([0-9.]+)"
PROMPT = {
    "mode": "prompt",
    "schema": {"required": ["response"], "optional": {"confidence": "number"}},
}


def agent(name: str, prompt: str = "Rate it", **more: Any) -> dict[str, Any]:
    """An agent of a provider, with data by prompt unless `more` says otherwise."""
    return {
        "id": name, "type": "openai-answer", "prompt": prompt, "structured_output": PROMPT, **more
    }  # fmt: skip


def loop(*agents: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A document with one loop node over some agents."""
    node = {
        "id": "refine", "type": "loop", "max_loops": 3, "score_threshold": 0.8,
        "score_extraction_pattern": PATTERN,
        "internal_workflow": {
            "orchestrator": {"id": "inner", "agents": [each["id"] for each in agents]},
            "agents": list(agents),
        },
        **more,
    }  # fmt: skip
    return {
        "orchestrator": {"id": "host", "model": "gpt-4o", "agents": ["refine"]},
        "agents": [node],
    }


def ran(document: Any, folder: Path, replies: dict[str, list[str]]) -> tuple[Result, Listening]:
    """Run a document on the replies of each agent; a document is JSON, so it is YAML too."""
    file = folder / "main.yaml"
    file.write_text(json.dumps(document), encoding="utf-8")
    loaded = load(file, Settings())
    model = Listening([{"step": f"*/{name}", "replies": texts} for name, texts in replies.items()])
    resources = {**loaded.resources, "models": Models(model)}
    return run_virtual(run(loaded.step, "tea", resources=resources)), model


TWICE = ["SCORE: 0.5", "It is good now. SCORE: 0.9"]
ANSWER = {"mode": "prompt", "schema": {"required": ["answer", "rank"], "types": {"rank": "number"}}}
CUSTOM = {
    "mode": "prompt",
    "schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
LOOPS: dict[str, tuple[Any, dict[str, list[str]], int]] = {
    "both in words": (loop(agent("writer"), agent("scorer")), {"writer": ["Tea."], "scorer": TWICE}, 2),
    "data and words": (
        loop(agent("writer"), agent("scorer")),
        {"writer": ['{"response": "Tea.", "confidence": 0.7}'], "scorer": TWICE},
        2,
    ),
    "data that does not fit": (
        loop(agent("writer"), agent("scorer")),
        {"writer": ['{"text": 4}'], "scorer": ['{"response": "SCORE: 0.9", "confidence": "high"}']},
        1,
    ),
    "one required text": (
        loop(agent("writer", structured_output=ANSWER), agent("scorer")),
        {"writer": ["Tea."], "scorer": TWICE},
        2,
    ),
    "a schema of its own": (
        loop(agent("writer", structured_output=CUSTOM), agent("scorer")),
        {"writer": ["Tea."], "scorer": TWICE},
        2,
    ),
    "a local model": (
        loop(
            agent("writer", type="local_llm", provider="ollama", model="q",
                  structured_output={"enabled": True}),
            agent("scorer"),
        ),
        {"writer": ["Tea."], "scorer": TWICE},
        2,
    ),
    "data in a fence": (
        loop(agent("writer"), agent("scorer")),
        {"writer": ['```json\n{"response": "Tea."}\n```'], "scorer": ["```\nSCORE: 0.9\n```"]},
        1,
    ),
    "thinking before words": (
        loop(agent("writer"), agent("scorer")),
        {"writer": ["<think>hm</think>Tea."], "scorer": ["<think>SCORE: 0.1</think>SCORE: 0.9"]},
        1,
    ),
    "a question with two answers": (
        loop(
            agent("asked", type="openai-binary", structured_output={"enabled": True, "mode": "prompt"}),
            agent("scorer"),
        ),
        {"asked": ["It depends on the tea."], "scorer": TWICE},
        2,
    ),
    "a choice": (
        loop(
            agent("choice", type="openai-classification", options=["green", "black"],
                  structured_output={"enabled": True, "mode": "prompt"}),
            agent("scorer"),
        ),
        {"choice": ["It is green."], "scorer": TWICE},
        2,
    ),
    "never good enough": (
        loop(agent("writer"), agent("scorer")),
        {"writer": ["Tea."], "scorer": ["SCORE: 0.2"]},
        3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_over_answers_in_words_ends_as_its_scores_say(name: str, tmp_path: Path) -> None:
    """In mode prompt no reply fails an agent, and each is asked once per iteration."""
    document, replies, rounds = LOOPS[name]
    result, model = ran(document, tmp_path, replies)
    assert result.satisfied == (name != "never good enough"), result.detail
    assert result.output["loops_completed"] == rounds
    assert len(model.asked) == rounds * len(replies)


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("both in words", "Tea."),
        ("data and words", {"response": "Tea.", "confidence": 0.7}),
        ("data that does not fit", {"text": 4, "response": '{"text": 4}'}),
        ("one required text", {"answer": "Tea."}),
        ("a schema of its own", {"text": "Tea."}),
        ("a question with two answers", "It depends on the tea."),
        ("a choice", "green"),
    ],
)
def test_what_can_be_read_is_read_and_words_are_the_text_field(
    name: str, output: Any, tmp_path: Path
) -> None:
    """An object keeps its fields; words are `response`, or the only text that the schema requires."""
    document, replies, _ = LOOPS[name]
    result, _ = ran(document, tmp_path, replies)
    found = next(iter(result.output["result"].values()))
    assert found in (output, {"response": output})


def test_the_record_notes_that_words_were_taken(tmp_path: Path) -> None:
    """The warning says what was missing and where the text is."""
    document, replies, _ = LOOPS["one required text"]
    result, _ = ran(document, tmp_path, replies)
    assert "the reply has no JSON value; its text is 'answer'" in "".join(result.warnings)


@pytest.mark.parametrize("mode", ["model_json", "tool_call", "auto"])
def test_modes_that_a_provider_enforces_stay_strict(mode: str, tmp_path: Path) -> None:
    """A reply in words is asked for again, and then the agent fails."""
    strict = agent("writer", structured_output={**PROMPT, "mode": mode})
    result, model = ran(loop(strict), tmp_path, {"writer": ["Tea."]})
    assert result.status == "failed"
    assert len(model.asked) > 3


LOOKUPS = {
    "{{ get_past_loops() | length }}": ("0", "1"),
    "{{ has_past_loops() }}": ("False", "True"),
    "{{ get_past_insights() }}": ("", "ice"),
    "{{ past_loops_metadata.insights }}": ("", "ice"),
    "{{ get_past_loop_data('quality_score') }}": ("", "0.5"),
    "{{ get_past_loop_data('note') }}": ("", "round 1: ice"),
    "{{ get_past_loops()[-1].iteration }}": ("", "1"),
    "{{ previous_outputs.past_loops[0].key_insights }}": ("", "ice"),
    "{% for loop in get_past_loops() %}{{ loop.quality_score }}{% endfor %}": ("", "0.5"),
    "{% for loop in get_past_loops() %}{% if loop.quality_score > 0.4 %}good{% endif %}{% endfor %}": ("", "good"),
    "{% for loop in get_past_loops() %}{{ loop.iteration + 1 }}{% endfor %}": ("", "2"),
    "{% if get_past_insights() %}some{% else %}none{% endif %}": ("none", "some"),
    "{% for loop in get_past_loops() %}{{ loop.mistakes_found }}{% endfor %}": ("", ""),
    "{{ score }}": ("", "0.5"),
}  # fmt: skip
METADATA = {
    "iteration": "{{ loop_number }}", "quality_score": "{{ score }}", "key_insights": "{{ insights }}",
    "mistakes_found": "{{ mistakes }}", "note": "round {{ loop_number }}: {{ insights }}",
}  # fmt: skip


def test_every_look_up_of_past_loops_is_answered(tmp_path: Path) -> None:
    """Numbers are numbers, a short lesson of a short reply is kept, and what is not there is empty."""
    document = loop(
        agent("writer", "\n@@\n".join(LOOKUPS)), agent("scorer"),
        past_loops_metadata=METADATA,
        cognitive_extraction={
            "enabled": True, "extract_patterns": {"insights": ["add (.+?)$"], "mistakes": ["wrong (.+?)$"]},
        },
    )  # fmt: skip
    result, model = ran(document, tmp_path, {"writer": ["add ice"], "scorer": TWICE})
    told = [request.prompt.split("\n@@\n") for request in model.asked if "writer" in request.path]
    for number, texts in enumerate(told):
        answers = dict(zip(LOOKUPS, texts, strict=True))
        assert answers == {lookup: answer[number] for lookup, answer in LOOKUPS.items()}
    past = result.output["past_loops"]
    assert [(entry["iteration"], entry["quality_score"]) for entry in past] == [(1, 0.5), (2, 0.9)]


@pytest.mark.parametrize("most", [1, 3, 4, 20, 500])
def test_the_length_of_the_document_is_the_only_one(most: int, tmp_path: Path) -> None:
    """A lesson of 300 characters is whole where a category may be longer, otherwise cut to exactly that."""
    document = loop(
        agent("writer"), agent("scorer"),
        past_loops_metadata={"insights": "{{ insights }}"},
        cognitive_extraction={
            "enabled": True, "max_length_per_category": most,
            "extract_patterns": {"insights": ["add (.+?)$"]},
        },
    )  # fmt: skip
    result, _ = ran(document, tmp_path, {"writer": ["add " + "i" * 300], "scorer": TWICE})
    found = result.output["past_loops"][0]["insights"]
    assert len(found) == min(most, 300)
    assert found == "i" * 300 or found.endswith("..."[:most])
