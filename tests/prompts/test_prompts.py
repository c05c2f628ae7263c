"""Prompts as steps: rendered once, asked once, and a conversation where one is wanted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Loop,
    MaxIterations,
    MemoryJournal,
    Result,
    Workflow,
    retry,
    run,
    run_sync,
    sequence,
)
from loopwright.documents import Settings, load
from loopwright.errors import ConfigurationError, DocumentError
from loopwright.evaluators import judge
from loopwright.models import Models, ScriptedModel
from loopwright.prompts import prompt
from loopwright.records import Status
from loopwright.templates import TemplateError
from loopwright.testing import run_virtual

MODEL = "openai:gpt-4o"


class World:
    """A journal, and the calls that were made of scripted models, each by a process of its own."""

    def __init__(self, replies: Any) -> None:
        self.replies = replies
        self.journal = MemoryJournal()
        self.records: list[Any] = []

    def run(self, step: Any, value: Any = "in", **options: Any) -> Result:
        models = Models(ScriptedModel(self.replies), transcript=self.records.append)
        return run_virtual(
            run(
                step, value, journal=self.journal, run_id="r",
                resources={"models": models, "model": MODEL}, **options,
            )
        )  # fmt: skip

    @property
    def said(self) -> list[list[tuple[str, str]]]:
        """The messages of each call."""
        return [[(m["role"], m["content"]) for m in record["messages"]] for record in self.records]


def script(*replies: Any) -> list[Any]:
    return [{"replies": list(replies)}]


def rounds(step: Any, count: int = 3, **options: Any) -> Loop:
    return Loop(step, until=MaxIterations(count), name="talk", **options)


ASK = "{% if loop.iteration == 1 %}Begin.{% else %}Round {{ loop.iteration }}.{% endif %}"


def test_a_prompt_is_a_step() -> None:
    """Its input is rendered into the text, its output is the reply; what it cost is counted."""
    world = World(script("the reply"))
    result = world.run(prompt("Say {{ value }}.", system="Be {{ value | upper }}."))
    assert (result.output, result.usage.calls) == ("the reply", 1)
    assert world.said == [[("system", "Be IN."), ("user", "Say in.")]]


def test_a_value_is_never_rendered_again() -> None:
    """What an earlier reply says in braces is text in the next prompt (single pass)."""
    hostile = "{{ env }} {% for x in range(9) %}x{% endfor %}"
    world = World(script(hostile, "ok"))
    world.run(sequence(prompt("First.", name="one"), prompt("Got: {{ value }}", name="two")))
    assert world.said[1] == [("user", f"Got: {hostile}")]


def test_structured_output_is_data() -> None:
    """With a schema the output is the value that meets it; what does not is asked for again."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    world = World(script('{"n": "two"}', {"json": {"n": 2}}))
    assert world.run(prompt("How many?", schema=schema)).output == {"n": 2}
    assert len(world.records) == 2


@pytest.mark.parametrize("kind", ["truncated", "refused", "empty_output", "permanent"])
def test_what_is_no_whole_reply_is_an_error(kind: str) -> None:
    """A cut, refused or empty reply is never an output."""
    result = World(script({"error": kind})).run(rounds(prompt("Go.")))
    error = result.history[0].error
    assert error is not None
    assert (result.status, error.stage, error.kind) == (Status.FAILED, "execute", kind)


def test_the_next_model_is_asked_when_one_is_not_available() -> None:
    """A prompt fails over in order; which model answered is on record."""
    world = World(script({"error": "quota"}, "from the second"))
    result = world.run(prompt("Go.", model=["openai:one", "openai:two"]))
    assert result.output == "from the second"
    assert [record["model"] for record in world.records] == ["one", "two"]


def test_a_template_that_cannot_be_read_is_refused_where_it_is_written() -> None:
    """Syntax is checked when the step is made, with line and column."""
    with pytest.raises(TemplateError, match="line 2, column"):
        prompt("fine\n{{ value | nosuchfilter }}")


def test_a_field_that_is_not_there_is_found_before_its_call_is_paid_for() -> None:
    """Rendering comes before asking: the error names the field and its place, and nothing is spent."""
    world = World(script("never"))
    result = world.run(prompt("Hello\n{{ value.nmae }}"))
    assert result.status is Status.FAILED
    assert "nmae" in result.detail
    assert "line 2, column" in result.detail
    assert (result.usage.calls, world.records) == (0, [])


@pytest.mark.parametrize("model", ["", "gpt-4o", ":gpt-4o", "openai:"])
def test_a_model_is_named_as_provider_and_model(model: str) -> None:
    """What names no provider, or nothing, is told with an example."""
    world = World(script("never"))
    with pytest.raises(ConfigurationError, match="provider:model"):
        run_virtual(
            run(
                prompt("Go.", model=model or ()), "in",
                resources={"models": Models(ScriptedModel(world.replies))}, journal=world.journal,
            )
        )  # fmt: skip


def test_a_number_out_of_its_range_is_refused_as_a_prompt_is_made() -> None:
    """A temperature and a limit of tokens are checked before any call, as in documents."""
    with pytest.raises(ConfigurationError, match=r"temperature: 9 is .*at least 0 and at most 2"):
        prompt("Go.", model="openai:gpt-4o", temperature=9)
    with pytest.raises(ConfigurationError, match="max_tokens: 0 is too small; give at least 1"):
        prompt("Go.", model="openai:gpt-4o", max_tokens=0)


# Conversations.


def test_rounds_start_afresh_unless_they_are_carried() -> None:
    """The switch: without it each round sends its own message only."""
    world = World(script("a", "b", "c"))
    world.run(rounds(prompt(ASK)))
    assert [len(messages) for messages in world.said] == [1, 1, 1]


def test_carried_rounds_are_one_conversation() -> None:
    """Each round sends what was said and answered before; the system prompt stands once, in front."""
    world = World(script("a", "b", "c"))
    world.run(rounds(prompt(ASK, system="Be brief.", carried=True)))
    assert world.said[2] == [
        ("system", "Be brief."), ("user", "Begin."), ("assistant", "a"),
        ("user", "Round 2."), ("assistant", "b"), ("user", "Round 3."),
    ]  # fmt: skip


def shapes() -> dict[str, Any]:
    """Bodies of a loop with a carried prompt inside."""
    ask = prompt(ASK, carried=True, name="ask")
    return {
        "alone": ask,
        "in a workflow": Workflow("body", {"ask": ask}, needs={}),
        "in a sequence": sequence(ask, name="body"),
        "retried": retry(ask, attempts=3, delay=0),
    }


@pytest.mark.parametrize("shape", shapes())
@pytest.mark.parametrize("crash", range(1, 20, 3))
def test_a_conversation_goes_on_after_a_crash(shape: str, crash: int) -> None:
    """A new process sends the same messages and pays again at most for the call in flight."""
    undisturbed = World(script("a", "b", "c"))
    expected = undisturbed.run(rounds(shapes()[shape]))
    world = World(script("a", "b", "c"))

    class Crash(BaseException):
        pass

    left = [crash]

    def listener(entry: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash

    try:
        world.run(rounds(shapes()[shape]), listeners=[listener])
    except Crash:
        world.journal.crash()
    result = world.run(rounds(shapes()[shape]))
    assert (result.output, result.reason) == (expected.output, expected.reason)
    assert world.said[-1] == undisturbed.said[-1]
    assert len(world.records) <= 4


def test_a_failed_round_is_not_part_of_the_conversation() -> None:
    """What was asked and not answered is left out of what is carried on."""
    world = World(script("a", {"error": "permanent"}, "c"))
    world.run(rounds(prompt(ASK, carried=True), on_failure="continue"))
    assert world.said[2] == [("user", "Begin."), ("assistant", "a"), ("user", "Round 3.")]


def test_a_retried_round_stays_in_the_conversation() -> None:
    """By whatever try a round is answered, the next one knows of it."""
    world = World(script("a", *[{"error": "transient"}] * 5, "b", "c"))
    flaky = Loop(
        prompt(ASK, carried=True), until=MaxIterations(3), name="talk", on_failure="retry",
        retry_delay=0,
    )  # fmt: skip
    world.run(flaky)
    assert [text for _, text in world.said[-1]] == ["Begin.", "a", "Round 2.", "b", "Round 3."]


def test_two_loops_do_not_share_a_conversation() -> None:
    """A conversation belongs to a loop and a place in its body: an inner loop begins anew."""
    world = World(script(*"abcdefgh"))
    inner = rounds(prompt(ASK, carried=True), 2)
    world.run(Loop(inner, until=MaxIterations(2), name="outer"))
    assert [len(messages) for messages in world.said] == [1, 3, 1, 3]


# Documents.

DOCUMENT = """\
schema: loopwright/1
name: doc
model: openai:gpt-4o
steps:
  - name: draft
    prompt: |
      Write about {{ input }}.
  - name: polish
    prompt: |
      Polish this:
      {{ BODY }}
"""


def loaded(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "doc.yaml"
    file.write_text(text)
    replies = tmp_path / "replies.yaml"
    replies.write_text('- replies: ["one", "two"]\n')
    return load(file, Settings(replies=str(replies)))


def test_prompts_of_a_document_see_the_steps_before_them(tmp_path: Path) -> None:
    """The same step as in Python, with the outputs of earlier steps by name."""
    made = loaded(tmp_path, DOCUMENT.replace("BODY", "draft"))
    result = run_virtual(run(made.step, "cats", resources=made.resources))
    assert (result.output, result.steps["draft"]) == ("two", "one")


def test_an_undefined_name_in_a_document_is_an_error_at_load(tmp_path: Path) -> None:
    """With file, line, column and the nearest name, before any call is paid for."""
    with pytest.raises(DocumentError) as told:
        loaded(tmp_path, DOCUMENT.replace("BODY", "draaft"))
    (problem,) = told.value.problems
    assert (problem.line >= 9, problem.column > 0) == (True, True)
    assert "'draaft'" in problem.message
    assert "did you mean 'draft'" in problem.message


def test_a_conversation_and_a_judge_of_a_document(tmp_path: Path) -> None:
    """`conversation: carried`, `until` with a sentence, and a rejudged winner."""
    file, replies = tmp_path / "doc.yaml", tmp_path / "replies.yaml"
    file.write_text(
        "schema: loopwright/1\nname: doc\nmodel: openai:gpt-4o\nsteps:\n  - name: talk\n    loop:\n"
        "      execute: {prompt: 'Go on, {{ input }}.', conversation: carried}\n"
        "      evaluate: {judge: {preset: validation/lenient, rejudge: 1}}\n"
        "      until: ['It names a date.', {max_iterations: 3}]\n"
    )
    names = judge(preset="validation/lenient").question
    good = dict.fromkeys(names.weights, True) | {"reason": ""}  # type: ignore[attr-defined]
    yes = {"verdict": "yes", "score": 100, "reason": "it does"}
    replies.write_text(
        json.dumps(
            [
                {"prompt": "Criteria:", "replies": [{"json": good}]},
                {
                    "prompt": "names a date",
                    "replies": [{"json": {**yes, "verdict": "no"}}, {"json": yes}],
                },
                {"replies": ["a", "b"]},
            ]
        )
    )
    made = load(file, Settings(replies=str(replies)))
    result = run_virtual(run(made.step, "please", resources=made.resources))
    talk = result.loops["talk"]
    assert (result.status, talk.iterations, result.output) == (Status.SATISFIED, 2, "b")
    assert talk.reported_score == 1.0
    apart: Any = result.to_json()["usage_by"]
    # The winner is evaluated once more; a sentence is a condition, and is not asked again.
    assert (apart["work"]["calls"], apart["judging"]["calls"]) == (2, 5)


@pytest.mark.parametrize(
    ("judge_", "said"),
    [
        ("{preset: qualty/strict}", "did you mean 'quality'"),
        (
            "{preset: quality/strict, criterion: It is short.}",
            "one of criterion, criteria and preset",
        ),
        ("{criterion: It is short., weights: {a: 1}}", "weights: there is no criterion 'a'"),
        ("{criterion: It is short., max_votes: 1, accept_lead: 3}", "needs at least as many votes"),
        ("{}", "has none"),
    ],
)
def test_a_wrong_judge_is_an_error_at_load(tmp_path: Path, judge_: str, said: str) -> None:
    """With its place, before any call is paid for."""
    file = tmp_path / "doc.yaml"
    file.write_text(
        "schema: loopwright/1\nname: doc\nmodel: openai:gpt-4o\nsteps:\n  - name: talk\n    loop:\n"
        f"      execute: {{prompt: Go.}}\n      evaluate: {{judge: {judge_}}}\n      until: passed\n"
    )
    with pytest.raises(DocumentError) as told:
        load(file, Settings())
    assert said in str(told.value)
    assert told.value.problems[0].line == 8


def test_a_model_without_its_provider_is_refused_before_the_run() -> None:
    """Nobody runs half a loop to learn that a model's name cannot be read."""
    with pytest.raises(ConfigurationError, match="write provider:model, like openai:gpt-4o"):
        run_sync(prompt("Write", model="gpt-4o"), "x")
    with pytest.raises(ConfigurationError, match="write provider:model, like openai:gpt-4o"):
        prompt("Write", model=":gpt-4o")


async def test_a_name_that_nothing_supplies_is_found_before_anything_is_asked() -> None:
    """A template's undefined name is an error of the run with line and column, and no call is made;
    the name of a step of the workflow around it is supplied."""
    model = ScriptedModel([{"replies": ["ok"]}])
    resources = {"models": Models(model), "model": "openai:any"}
    asked: list[str] = []

    async def first(value: Any) -> Any:
        asked.append("first")
        return value

    late = Loop(prompt("On {{ first }}:\nwrite {{ topik }}"), name="late", until=MaxIterations(1))
    broken = Workflow("w", {"first": first, "late": late}, needs={"late": ["first"]})
    with pytest.raises(ConfigurationError) as caught:
        await run(broken, "tea", resources=resources)
    assert str(caught.value) == (
        "prompt 'prompt': template line 2, column 10: nothing supplies 'topik'"
    )
    assert asked == []
    sound = Workflow(
        "w", {"first": first, "late": prompt("On {{ first }}")}, needs={"late": ["first"]}
    )
    assert (await run(sound, "tea", resources=resources)).output == "ok"
