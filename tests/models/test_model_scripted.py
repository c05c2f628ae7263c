"""The scripted model: its rules, its faults, and its place after a resume."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import DocumentError
from loopwright.models import KINDS, Message, ModelError, Request, ScriptedModel, Timers
from loopwright.records import Usage
from loopwright.testing import run_virtual

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def ask(prompt: str = "hello", path: str = "step", **more: Any) -> Request:
    return Request((Message("user", prompt),), "m", "openai", path=path, **more)


def answers(model: ScriptedModel, *requests: Request) -> list[str]:
    async def all_of_them() -> list[str]:
        found = []
        for request in requests:
            try:
                found.append((await model.complete(request)).text)
            except ModelError as fault:
                found.append(f"{fault.kind}{'/' + fault.reason if fault.reason else ''}")
        return found

    return run_virtual(all_of_them())


def test_the_first_rule_that_matches_answers_in_turn_and_repeats_its_last() -> None:
    """The example of the command line's contract, call by call."""
    model = ScriptedModel(
        """
        - {step: "*scorer*", replies: ["SCORE: 0.6", "SCORE: 0.9"]}
        - {prompt: "(?i)answer with yes", replies: ["NO", "YES"]}
        - {step: "*writer*", replies: [{error: throttled, retry_after: 1}, "second try"]}
        - {replies: ["ok"]}
        """
    )
    found = answers(
        model, ask(path="a/1/scorer"), ask("Answer with YES"), ask(path="writer"), ask(path="x"),
        ask(path="a/2/scorer/b"), ask("please answer WITH yes"), ask(path="the/writer"),
        ask(path="a/3/scorer"), ask("answer with yes"), ask(path="writer/2"), ask("answer", path="scorer"),
    )  # fmt: skip
    assert found == [
        "SCORE: 0.6", "NO", "throttled", "ok", "SCORE: 0.9", "YES", "second try", "SCORE: 0.9",
        "YES", "second try", "SCORE: 0.9",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("NO", "NO"), ("yes", "yes"), ("on", "on"), ("0.90", "0.90"), ("012", "012"), ("1e3", "1e3"),
        ("1_000", "1_000"), ("2026-01-01", "2026-01-01"), ("'0.5'", "0.5"), ('"a\\nb"', "a\nb"),
        ("true", "true"), ("0x1F", "0x1F"), ("-3", "-3"),
    ],
)  # fmt: skip
def test_a_plain_reply_is_the_text_that_was_written(written: str, text: str) -> None:
    """YAML 1.2: NO and 0.90 mean themselves, as text."""
    assert answers(ScriptedModel(f"- replies: [{written}]"), ask()) == [text]


def test_rules_come_as_yaml_json_or_a_list() -> None:
    """The same rules in all three forms answer the same."""
    rules = [{"step": "a*", "replies": ["one", {"json": {"a": 1}}]}, {"replies": ["other"]}]
    yaml = "- {step: 'a*', replies: [one, {json: {a: 1}}]}\n- replies: [other]\n"
    calls = [ask(path="ab"), ask(path="b"), ask(path="ab")]
    found = [answers(ScriptedModel(form), *calls) for form in (rules, json.dumps(rules), yaml)]
    assert found == [["one", "other", '{"a":1}']] * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {step: a}", "r.yaml:1:3: [0]: has no result; give replies of a model, or output, exit or error of another effect"),
        ("- replies: []", "r.yaml:1:12: [0].replies: give a list of at least one reply"),
        ("- {stp: a, replies: [x]}", "r.yaml:1:9: [0].stp: unknown key 'stp'; did you mean 'step'?"),
        ("- replies: [{error: throtled}]",
         "r.yaml:1:21: [0].replies[0].error: unknown error 'throtled'; did you mean 'throttled'?"),
        ("- replies:\n  - {text: x, finish: lenght}",
         "r.yaml:2:23: [0].replies[0].finish: unknown finish 'lenght'; did you mean 'length'?"),
        ("- replies:\n  - {}", "r.yaml:2:5: [0].replies[0]: is empty; give text, json, tool_calls or error"),
        ("- replies:\n  - null", "r.yaml:2:5: [0].replies[0]: null is not a reply; give text, or an object"),
        ("- replies: [[x]]", "r.yaml:1:13: [0].replies[0]: list is not a reply; give text, or an object"),
        ("- {prompt: '(a', replies: [x]}", "r.yaml:1:12: [0].prompt: pattern '(a': missing ) at position 2"),
        ("- {step: 3, replies: [x]}", "r.yaml:1:10: [0].step: 3 is not text; give a glob such as '*draft*'"),
        ("- replies: [{error: quota, after: -1}]",
         "r.yaml:1:35: [0].replies[0].after: after: -1 is out of range; give a number at least 0"),
        ("- replies: [{text: x, usage: {tokens: 3}}]",
         "r.yaml:1:30: [0].replies[0].usage: unknown key 'tokens'; did you mean 'input_tokens'?"),
        ("- replies: [{text: x, text: y}]", "r.yaml:1:29: [0].replies[0].text: the key 'text' is repeated"),
        ("- replies: [{tool_calls: [{arguments: {}}]}]",
         "r.yaml:1:27: [0].replies[0].tool_calls[0].name: is missing; name the tool to call"),
        ("ok", "r.yaml:1:1: give a list of rules, such as - {step: '*draft*', replies: ['a text']}"),
        ("", "r.yaml: give a list of rules, such as - {step: '*draft*', replies: ['a text']}"),
        ("- [", "r.yaml:1:4: expected the node content, but found '<stream end>'; it is neither YAML nor JSON"),
        ("- " + "[" * 40 + "]" * 40, "r.yaml: has more than 32 levels or 200,000 values"),
        ("- " + "[" * 50_000, "r.yaml: has more than 32 levels or 200,000 values"),
        ("- &a [*a]", "r.yaml: has more than 32 levels or 200,000 values"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_rules_has_its_place(text: str, message: str) -> None:
    """Every problem names file, line, column and path, what is wrong and what to do."""
    with pytest.raises(DocumentError) as caught:
        ScriptedModel(text, file="r.yaml")
    assert str(caught.value) == message


def test_all_mistakes_are_reported_at_once() -> None:
    """One reading finds every problem, in order of the text."""
    with pytest.raises(DocumentError) as caught:
        ScriptedModel("- {stp: a, replies: [x]}\n- replies: [{error: no_such}]\n")
    assert [problem.line for problem in caught.value.problems] == [1, 2]


KEYS = ("replies", "step", "prompt", "text", "error", "json", "after", "usage", "x")
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda i: st.lists(i, max_size=3) | st.dictionaries(st.sampled_from(KEYS), i, max_size=4),
)


def problems_of(rules: Any) -> list[Any] | None:
    try:
        ScriptedModel(rules)
    except DocumentError as error:
        return error.problems
    return None


@given(anything)
def test_reading_rules_is_total(value: Any) -> None:
    """Whatever is given as rules is a model or a list of problems, never another exception."""
    for form in (value, json.dumps(value)):
        assert problems_of(form) != []


@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_of_the_vocabulary_can_be_had(kind: str) -> None:
    """Each kind can be scripted, and is retried or billed like a real one."""
    model = ScriptedModel([{"replies": [{"error": kind, "message": "as told"}]}])
    with pytest.raises(ModelError, match="openai/m: as told") as caught:
        asyncio.run(model.complete(ask()))
    real = ModelError("x", kind=kind)
    assert (caught.value.kind, caught.value.retryable, caught.value.billed) == (
        kind, real.retryable, real.billed,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "request_options", "outcome"),
    [
        ({"error": "stream_incomplete"}, {}, "transient/stream_incomplete"),
        ({"error": "context_too_long"}, {}, "permanent/context_too_long"),
        ({"text": "half", "finish": "length"}, {}, "truncated"),
        ({"text": "half", "finish": "length"}, {"on_cutoff": "accept"}, "half"),
        ({"text": "no", "finish": "content_filter"}, {}, "refused/content_filter"),
        ({"text": "  "}, {}, "empty_output"),
        ("prose", {"schema": SCHEMA}, "malformed"),
        ({"json": {"a": "one"}}, {"schema": SCHEMA}, "malformed"),
        ({"json": {"a": "1"}}, {"schema": SCHEMA, "strict": True}, "malformed"),
        ({"json": {"a": "1"}}, {"schema": SCHEMA}, '{"a":"1"}'),
        ({"json": {"a": 1}}, {"schema": SCHEMA}, '{"a":1}'),
        ('```json\n{"a": 2}\n```', {"schema": SCHEMA}, '```json\n{"a": 2}\n```'),
        ({"text": "x", "after": 61}, {}, "unknown_outcome/first_byte_timeout"),
        ({"text": "x", "after": 59}, {}, "x"),
        ({"text": "x", "after": 5}, {"timeouts": Timers(1, 1, 1)}, "unknown_outcome/first_byte_timeout"),
    ],
)  # fmt: skip
def test_a_script_goes_the_way_of_a_real_reply(
    reply: Any, request_options: dict[str, Any], outcome: str
) -> None:
    """What is cut, refused, empty or in the wrong format is the same error as from a provider."""
    assert answers(ScriptedModel([{"replies": [reply]}]), ask(**request_options)) == [outcome]


def test_data_and_tool_calls_come_back() -> None:
    """A reply for a schema has its value, and scripted tool calls are calls."""
    model = ScriptedModel(
        [
            {
                "replies": [
                    {"json": {"a": 1}},
                    {"tool_calls": [{"name": "search", "arguments": {"q": "x"}}]},
                ]
            }
        ]
    )
    first = asyncio.run(model.complete(ask(schema=SCHEMA)))
    second = asyncio.run(model.complete(ask()))
    assert (first.data, first.finish) == ({"a": 1}, "stop")
    assert [(c.id, c.name, c.arguments) for c in second.tool_calls] == [
        ("call-1", "search", {"q": "x"})
    ]
    assert second.finish == "tool_calls"


def test_usage_is_fixed_by_length_unless_stated() -> None:
    """One token for four characters, rounded up; a stated usage stands."""
    model = ScriptedModel(
        [{"replies": ["12345", {"text": "x", "usage": {"input_tokens": 7, "usd": 0.5}}]}]
    )
    first, second = (asyncio.run(model.complete(ask("123456789"))) for _ in range(2))
    assert first.usage == Usage(1, 3, 2)
    assert second.usage == Usage(1, 7, 0, 0.5)


def test_a_call_without_a_rule_is_a_clear_error() -> None:
    """The message names the path and how the prompt begins, and what to add."""
    model = ScriptedModel([{"step": "other", "replies": ["x"]}])
    with pytest.raises(ModelError) as caught:
        asyncio.run(model.complete(ask("Write " + "a" * 100, path="draft/1/execute")))
    assert caught.value.kind == "permanent"
    assert str(caught.value) == (
        "no rule of the replies matches the call 'draft/1/execute' whose prompt begins "
        f"'Write {'a' * 74}…'; add a rule for it, or a last one without step and prompt"
    )


def test_runs_do_not_disturb_each_other() -> None:
    """Each run has its own place in the script."""
    model = ScriptedModel([{"replies": ["1", "2", "3"]}])
    order = ["a", "b", "a", "a", "b"]
    assert answers(model, *(ask(run_id=run) for run in order)) == ["1", "1", "2", "3", "2"]


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=8), st.integers(0, 8))
def test_skipping_is_the_same_as_asking(paths: list[str], cut: int) -> None:
    """After skipping the calls already made, the rest is answered as without the pause."""
    rules = [{"step": "a", "replies": ["1", "2"]}, {"replies": [str(n) for n in range(9)]}]
    requests = [ask(path=path) for path in paths]
    whole = answers(ScriptedModel(rules), *requests)
    resumed = ScriptedModel(rules)
    resumed.skip([(path, "hello") for path in paths[:cut]])
    assert answers(resumed, *requests[cut:]) == whole[cut:]


async def test_a_script_can_repeat_the_mark_of_a_judge() -> None:
    """`{{ mark }}` is the mark of the question, so that the reply fits the schema that a judge requires."""
    question = Request(
        (Message("user", "The mark is 0123456789abcdef. Candidate: x"),),
        model="m",
        provider="openai",
        schema={"type": "object", "required": ["mark"]},
    )
    scripted = ScriptedModel([{"replies": [{"json": {"mark": "{{ mark }}"}}]}])
    assert (await scripted.complete(question)).data == {"mark": "0123456789abcdef"}
