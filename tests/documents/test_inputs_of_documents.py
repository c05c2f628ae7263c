"""Declared inputs: what a document takes, in one sentence for what it does not, and the same for every caller."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from documents.playing import written
from loopwright import MemoryJournal, resume, run, run_sync
from loopwright.cluster import Submission
from loopwright.documents import Settings, check, convert, load
from loopwright.documents.schema.inputs import DeclaredInputs, InputSpec
from loopwright.errors import ConfigurationError, DocumentError, ReplayMismatch
from loopwright.records.codec import text_of

INPUTS = """\
inputs:
  topic: {description: What it is about.}
  tone: {choices: [calm, dry], default: calm}
  lines: {type: integer, default: 4}
  rhyme: {type: boolean, default: false}
"""
HEAD = "schema: loopwright/1\nname: poem\n"
ALL = "  - {name: all, set: ['{{ input.topic }}', '{{ input.tone }}', '{{ input.lines }}', '{{ input.rhyme }}']}\n"
POEM = f"{HEAD}{INPUTS}steps:\n{ALL}"


def poem(folder: Path, **sets: str) -> Any:
    """Load the poem."""
    return load(written(folder, {"poem.yaml": POEM}), Settings(sets=sets))


@pytest.mark.parametrize(
    ("sets", "value", "output"),
    [
        ({}, "rain", ["rain", "calm", 4, False]),
        ({}, {"topic": "rain", "rhyme": True}, ["rain", "calm", 4, True]),
        ({"topic": "5", "lines": "5", "rhyme": "true"}, None, ["5", "calm", 5, True]),
        ({"tone": "dry"}, {"topic": "rain", "tone": "calm"}, ["rain", "dry", 4, False]),
    ],
)
def test_a_run_has_the_values_of_its_caller_and_the_defaults(
    tmp_path: Path, sets: dict[str, str], value: Any, output: list[Any]
) -> None:
    """A text is the only text that is required; a value that is set counts more than one in the input."""
    found = poem(tmp_path, **sets)
    assert run_sync(found, value).output == output
    # The step alone, as the command line and workers run it, and a submitted run have the same input.
    assert run_sync(found.step, value).output == output
    assert list(Submission(found.step).row(value, "").input.values()) == output


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, 'poem needs the input topic; give it with --set topic=…, or as {"topic": …} in the input'),
        ({"topc": "a"}, "poem has no input 'topc'; did you mean 'topic'?"),
        ({"topic": 3}, "input topic: 3 is not text"),
        ({"topic": "a", "lines": True}, "input lines: true is not an integer"),
        ({"topic": "a", "lines": 1.5}, "input lines: 1.5 is not an integer"),
        ({"topic": "a", "rhyme": "yes"}, "input rhyme: 'yes' is not true or false"),
        ({"topic": "a", "tone": "calmm"}, "input tone: 'calmm' is not one of 'calm', 'dry'; did you mean 'calm'?"),
        (["a"], "input: poem takes an object with topic, tone, lines, rhyme, not ['a']"),
    ],
)  # fmt: skip
def test_a_wrong_input_is_one_sentence_before_the_run(
    tmp_path: Path, value: Any, sentence: str
) -> None:
    """The journal has no run then."""
    journal = MemoryJournal()
    with pytest.raises(ConfigurationError) as caught:
        run_sync(poem(tmp_path), value, journal=journal)
    assert str(caught.value) == sentence
    assert asyncio.run(journal.runs()) == []


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        ({"topc": "a"}, "poem.yaml: --set: poem has no input 'topc'; did you mean 'topic'?"),
        ({"lines": "many"}, "poem.yaml: --set: input lines: 'many' is not an integer"),
        ({"tone": "wet"}, "poem.yaml: --set: input tone: 'wet' is not one of 'calm', 'dry'"),
    ],
)  # fmt: skip
def test_what_is_set_by_name_is_checked_when_the_document_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sets: dict[str, str], sentence: str
) -> None:
    """So that `check` reports what `run` refuses."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DocumentError) as caught:
        poem(tmp_path, **sets)
    assert [str(problem) for problem in caught.value.problems] == [sentence]


def test_a_resumed_run_keeps_its_recorded_input(tmp_path: Path) -> None:
    """A default that has changed since does not change it; another input is refused as for every run."""
    journal = MemoryJournal()
    run_sync(poem(tmp_path), "rain", journal=journal, run_id="r")
    written(tmp_path, {"poem.yaml": POEM.replace("calm}", "dry}")})
    later = load(tmp_path / "poem.yaml")
    again = asyncio.run(resume(later, "r", journal=journal))
    assert again.output == ["rain", "calm", 4, False]
    with pytest.raises(ReplayMismatch, match="topic of its input changed"):
        run_sync(poem(tmp_path), "snow", journal=journal, run_id="r")


CALL = f"{HEAD}steps:\n  - {{name: a, set: x}}\n  - {{name: c, workflow: child, CALL}}\n"
CHILD = POEM.replace("name: poem", "name: child")


def called(folder: Path, call: str) -> Any:
    """Load a document that calls another with inputs."""
    return load(written(folder, {"main.yaml": CALL.replace("CALL", call), "child.yaml": CHILD}))


@pytest.mark.parametrize(
    ("call", "output"),
    [
        ("with: {topic: '{{ a }}', lines: '7', rhyme: true}", ["x", "calm", 7, True]),
        ("with: {input: {topic: sun}, tone: dry}", ["sun", "dry", 4, False]),
        ("input: '{{ a }}'", ["x", "calm", 4, False]),
    ],
)
def test_a_call_gives_the_inputs_of_the_called_document(
    tmp_path: Path, call: str, output: list[Any]
) -> None:
    """Texts of templates become values of the declared type; without values the input of the step counts."""
    assert run_sync(called(tmp_path, call)).output == output


@pytest.mark.parametrize(
    ("call", "path", "sentence"),
    [
        ("with: {topc: x, topic: y}", "steps[1].with.topc", "child has no input 'topc'; did you mean 'topic'?"),
        ("with: {lines: 3}", "steps[1].with", "child needs the input topic; write with: {topic: …}"),
        ("with: {topic: y, lines: many}", "steps[1].with.lines", "input lines: 'many' is not an integer"),
    ],
)  # fmt: skip
def test_a_call_that_the_called_document_refuses_is_a_problem_of_the_caller(
    tmp_path: Path, call: str, path: str, sentence: str
) -> None:
    """As far as it is known before the run; the rest fails the step with the same sentence."""
    with pytest.raises(DocumentError) as caught:
        called(tmp_path, call)
    assert [(one.path, one.message) for one in caught.value.problems] == [(path, sentence)]
    late = run_sync(called(tmp_path, "with: {topic: '{{ a }}', lines: '{{ a }}'}"))
    assert late.status == "failed"
    assert "input lines: 'x' is not an integer" in late.detail


@pytest.mark.parametrize(
    ("text", "path", "sentence"),
    [
        ("inputs: {a-b: {}}", "inputs.a-b",
         "'a-b' is not a name; use letters from a to z, digits and _, starting with a letter"),
        ("inputs: {a: {type: text}}", "inputs.a.type",
         "'text' is not 'string', 'integer', 'number', 'boolean', 'array' or 'object'"),
        ("inputs: {a: {default: 3}}", "inputs.a", "default: 3 is not text"),
        ("inputs: {a: {choices: [b], default: c}}", "inputs.a", "default: 'c' is not one of 'b'"),
        ("inputs: {a: {type: integer, choices: [b]}}", "inputs.a", "choices: 'b' is not an integer"),
        ("input: x\ninputs: {a: {}}", "", "has both input and inputs; give each input a default instead"),
        ("inputs: {ab: {}}\noutput: '{{ input.ba }}'", "output", "there is no step '{{ input.ba }}'"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_a_problem_at_its_place(
    tmp_path: Path, text: str, path: str, sentence: str
) -> None:
    """With what a name, a type or a default may be."""
    found = check(written(tmp_path, {"x.yaml": f"{HEAD}{text}\nsteps: [{{name: s, set: 1}}]\n"}))
    assert [(one.path, one.message) for one in found] == [(path, sentence)]


def test_a_template_names_declared_inputs_only(tmp_path: Path) -> None:
    """An input that is not declared is a problem, and one without its `input.` too."""
    steps = "steps: [{name: a, set: '{{ input.topc }}'}, {name: b, set: '{{ tone }}'}]\n"
    found = check(written(tmp_path, {"x.yaml": f"{HEAD}{INPUTS}{steps}"}))
    assert [one.message.removeprefix("template: ") for one in found] == [
        "'input.topc' is not defined; did you mean 'input.topic'?",
        "'tone' is not defined; did you mean 'input.tone'?",
    ]


def test_a_conversion_and_a_schema_have_the_inputs(tmp_path: Path) -> None:
    """The schema of the input accepts exactly what a run accepts; a document without inputs takes any value."""
    found = poem(tmp_path)
    again = load(written(tmp_path / "again", {"poem.yaml": convert(tmp_path / "poem.yaml")}))
    schema = found.input_schema()
    assert again.input_schema() == schema
    jsonschema.Draft7Validator.check_schema(schema)
    assert (schema["required"], schema["additionalProperties"]) == (["topic"], False)
    assert schema["properties"]["tone"] == {
        "type": "string",
        "default": "calm",
        "enum": ["calm", "dry"],
    }
    plain = load(written(tmp_path, {"x.yaml": f"{HEAD}input: [1]\nsteps: [{{name: s, set: 1}}]\n"}))
    assert plain.input_schema() == {"default": [1]}
    assert (plain.inputs, plain.step.complete_input) == (None, None)


def test_declared_inputs_do_not_change_the_fingerprint(tmp_path: Path) -> None:
    """A run that began before its document declared inputs can be resumed."""
    plain = load(written(tmp_path, {"x.yaml": f"{HEAD}steps:\n{ALL}"}))
    assert plain.step.fingerprint == poem(tmp_path).step.fingerprint


VALUES = {
    "string": st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    "integer": st.integers(-(10**20), 10**20),
    "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    "boolean": st.booleans(),
    "array": st.lists(st.integers() | st.text()),
    "object": st.dictionaries(st.text(), st.booleans()),
}


@given(st.sampled_from(sorted(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind])))
def test_a_value_written_as_text_is_read_as_itself(case: tuple[str, Any]) -> None:
    """The conversion of texts is the inverse of writing a value, for each type."""
    kind, value = case
    inputs = DeclaredInputs("d", {"a": InputSpec(type=kind)})  # type: ignore[arg-type]
    read = inputs.value("a", text_of(value), text=True)
    assert (type(read), read) == (type(value), value)
    assert inputs.complete({"a": value}) == {"a": value}


TEXTS = st.sampled_from(
    ["", "1", "1.5", "true", "calm", "[1]", "{}", "NaN", "1e999", "rain", "0x1", "null"]
)


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(["topic", "tone", "lines", "rhyme", "other"]), TEXTS, min_size=1
    )
)
def test_check_and_run_refuse_the_same_inputs(
    tmp_path_factory: pytest.TempPathFactory, sets: dict[str, str]
) -> None:
    """What is set by name is refused by both with the same words, and what both accept fits the schema."""
    file = written(tmp_path_factory.getbasetemp(), {"poem.yaml": POEM})
    told = [str(one) for one in check(file, Settings(sets=sets, execute=False))]
    try:
        result = run_sync(load(file, Settings(sets=sets)), None if "topic" in sets else "rain")
        refused = []
    except DocumentError as error:
        refused = [str(one) for one in error.problems]
    assert told == refused
    if not told:
        assert result.status == "satisfied"
    # The same values as JSON are valid for the schema exactly if a run takes them.
    found = load(file)
    for text in sets.values():
        try:
            value = {"topic": "a", "lines": json.loads(text)}
        except ValueError:
            continue
        valid = jsonschema.Draft202012Validator(found.input_schema()).is_valid(value)
        try:
            asyncio.run(run(found, value))
            accepted = True
        except ConfigurationError:
            accepted = False
        assert accepted == valid, text
