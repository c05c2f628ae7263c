"""The JSON Schema for editors: what it accepts loads, and what it refuses does not.

A schema cannot say, and so accepts: which fields belong to which kind, that there is exactly one kind, names and
needs of steps, templates and conditions. It refuses one thing that loads: a text written as a number (`version: 1.10`).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest
import yaml

from documents.corpus import DOCUMENTS
from loopwright.documents import export_schema, load
from loopwright.documents.schema.document import Document
from loopwright.errors import DocumentError

SCHEMA = jsonschema.Draft202012Validator(export_schema())
EDITORS = jsonschema.Draft7Validator(export_schema(draft_07=True))
# What the models know beyond the schema: kinds of errors that only they tell.
BEYOND = {
    "action", "misplaced", "check", "evaluate", "adapt", "duration", "string_type", "node", "preset",
    "address", "finite_number", "int_from_float", "loop", "input",
}  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 3, 0.5, 1001, "", "text", "two words", [], ["a"], {}, {"a": "b"}, "halt", "best",
    [{"name": "s", "set": 1}], {"execute": {"set": 1}}, {"max_words": 3}, {"set": 1},
)  # fmt: skip
KEYS = (
    "name", "set", "needs", "timeout", "required", "steps", "parallel", "loop", "max_retries", "on_failure", "keep",
    "evaluate", "adapt", "until", "unknown", "env", "temperature", "prompt", "at_once", "budget", "output", "version",
    "if", "if_", "with_", "schema_",
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return each container and key in a value."""
    keys: Any = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    return [pair for key in keys for pair in ((value, key), *places(value[key]))]


def changed(source: random.Random, text: str) -> Any:
    """Return a document with up to three values or keys changed."""
    value = yaml.safe_load(text)
    value["version"] = "1"
    value.setdefault("env", {}).clear()
    for _ in range(source.randrange(4)):
        container, key = source.choice(places(value))
        kind = source.random()
        if kind < 0.5:
            container[key] = source.choice(VALUES)
        elif kind < 0.7 and isinstance(container, dict):
            container[source.choice(KEYS)] = source.choice(VALUES)
        elif kind < 0.8:
            del container[key]
    return value


def test_the_schema_and_the_models_agree() -> None:
    """On 600 documents: what the schema refuses, in either draft, the models refuse, and what only they refuse is listed."""
    source = random.Random(4)
    both = {True: 0, False: 0}
    for number in range(600):
        value = changed(source, source.choice([*DOCUMENTS.values()]))
        accepted = SCHEMA.is_valid(value)
        if number % 4 == 0:  # slow
            assert EDITORS.is_valid(value) == accepted, value
        try:
            Document.model_validate(value)
            kinds = set()
        except pydantic.ValidationError as error:
            kinds = {item["type"] for item in error.errors()}
        both[accepted] += 1
        if accepted:
            assert not kinds or kinds & BEYOND, (kinds, value)
        else:
            assert kinds, (next(SCHEMA.iter_errors(value)).message, value)
    assert min(both.values()) > 100, both


def test_the_schema_for_editors_is_draft_07() -> None:
    """Its own schema accepts it, and nothing stands beside a `$ref`, because the draft ignores that."""
    schema = export_schema(draft_07=True)
    jsonschema.Draft7Validator.check_schema(schema)

    def parts(value: Any) -> list[dict[str, Any]]:
        inside = (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        )
        own = [value] if isinstance(value, dict) else []
        return own + [part for item in inside for part in parts(item)]

    references = [part for part in parts(schema) if "$ref" in part]
    assert len(references) > 50
    assert all(len(part) == 1 for part in references)
    assert "$defs" not in str(schema)


def test_a_problem_of_an_object_hides_no_other(tmp_path: Path) -> None:
    """Rule: an unknown key, a key of another action and two ends of a loop are reported together."""
    file = tmp_path / "main.yaml"
    file.write_text(
        "schema: loopwright/1\nname: main\nsteps:\n"
        "  - {name: a, set: 1, sett: 2, stdin: x, allow_exit: [1]}\n"
        "  - {name: b, loop: {execute: {set: 1}, keep: worst, until: passed, termination: {}}}\n"
        "  - {name: c, sett: 1}\n",
        encoding="utf-8",
    )
    with pytest.raises(DocumentError) as caught:
        load(file)
    assert [problem.path for problem in caught.value.problems] == [
        "steps[0].sett",
        "steps[0].stdin",
        "steps[0].allow_exit",
        "steps[1].loop",
        "steps[1].loop.keep",
        "steps[2].sett",
    ]
