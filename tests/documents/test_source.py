"""What reading a document promises: values, places, joined blocks, every problem at once."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright.documents.yaml import bounds
from loopwright.documents.yaml.reader import Source, Stage, read
from loopwright.errors import DocumentError

REPEATABLE = frozenset({"steps", "loops"})

TEXT = "put quotes around it if it is text"
VALUE = "put quotes around the value"
QUOTE = f"{VALUE} if it is text"
ALIAS = "alias *{} has no anchor before it"

WORKFLOW = """\
# a comment
name: develop
version: 1.0
env: {FLAG: yes, COUNT: 012}
steps:
  - name: draft
    run: |
      Write about {{input}}
      in two lines
  - name: review
    needs: [draft]
loops:
  - until: &condition
      max_iterations: 5
    guards: *condition
"""


def problems(text: str | bytes, repeatable: frozenset[str] = REPEATABLE) -> list[str]:
    """Return the problems of a document as a user sees them."""
    with pytest.raises(DocumentError) as caught:
        read(text, "f.yaml", repeatable=repeatable)
    return [str(problem) for problem in caught.value.problems]


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of every value in a document."""
    below: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        below = list(value.items())
    elif isinstance(value, list):
        below = list(enumerate(value))
    return [path, *(each for part, child in below for each in paths(child, (*path, part)))]


# Places


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ((), (2, 1), (2, 1)),
        (("name",), (2, 7), (2, 1)),
        (("env", "FLAG"), (4, 13), (4, 7)),
        (("steps",), (6, 3), (5, 1)),
        (("steps", 0), (6, 5), (6, 5)),
        (("steps", 0, "run"), (7, 10), (7, 5)),
        (("steps", 1, "needs", 0), (11, 13), (11, 13)),
        (("loops", 0, "until", "max_iterations"), (14, 23), (14, 7)),
        (("loops", 0, "guards"), (15, 13), (15, 5)),
        (("loops", 0, "guards", "max_iterations"), (14, 23), (14, 7)),
        (("steps", 1, "model"), (10, 5), (10, 5)),
        (("steps", 7, "run"), (6, 3), (5, 1)),
        (("steps", -1), (6, 3), (5, 1)),
        (("name", "first", 0), (2, 7), (2, 1)),
    ],
)
def test_every_path_has_a_place(
    path: tuple[str | int, ...], value: tuple[int, int], key: tuple[int, int]
) -> None:
    """A value and its key are found by path; a path that leads nowhere has its ancestor's place."""
    source = read(WORKFLOW, "f.yaml")
    assert (source.position(path), source.position(path, key=True)) == (value, key)


@pytest.mark.parametrize(
    ("path", "key", "text"),
    [
        (("loops", 0, "until", "conditions", 1), False, "13:12: loops[0].until.conditions[1]: no"),
        (("env", "FLAG"), True, "4:7: env.FLAG: no"),
        (("env", "A B"), False, "4:6: env['A B']: no"),
        (("$schema",), False, "2:1: $schema: no"),
        (("x" * 99,), False, f"2:1: {'x' * 59}…: no"),
        ((0,), False, "2:1: [0]: no"),
        ((), False, "2:1: no"),
    ],
)
def test_a_problem_shows_place_and_path(path: tuple[str | int, ...], key: bool, text: str) -> None:
    """A problem at a path reads as file, line, column, path and message."""
    assert str(read(WORKFLOW, "f.yaml").problem(path, "no", key=key)) == f"f.yaml:{text}"


JSON_TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=12)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(JSON_TEXT, inner, max_size=4),
    max_leaves=12,
).filter(lambda value: value is not None)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(JSON_VALUES, st.booleans(), st.sampled_from([None, 2, "\t"]))
def test_json_is_read_as_json(value: Any, ascii_only: bool, indent: Any) -> None:
    """A JSON document has its JSON value, and each value stands where its place says."""
    value = {"top": value}
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    source = read(text, "f.json")
    assert source.value == value
    lines = bounds.split_lines(text)
    for path in paths(value):
        line, column = source.position(path)
        found = value
        for part in path:
            found = found[part]
        written = json.dumps(found, ensure_ascii=ascii_only, indent=indent)
        assert lines[line - 1][column - 1 :].startswith(bounds.split_lines(written)[0])


def test_an_alias_is_a_copy() -> None:
    """Values behind an alias are equal to their anchor's and share nothing with them."""
    value = read("a: &x {b: [1]}\nc: *x\n", "f.yaml").value
    value["c"]["b"].append(2)
    assert value == {"a": {"b": [1]}, "c": {"b": [1, 2]}}


@pytest.mark.parametrize(
    "text", [b"\xef\xbb\xbfa: \xc3\xa9", "\ufeffa: é", "a: é\r\n", "--- {a: é}"]
)
def test_text_and_bytes_are_read_alike(text: str | bytes) -> None:
    """UTF-8 bytes and text are the same document, with or without a byte order mark."""
    assert read(text, "f.yaml").value == {"a": "é"}


# Structure


def test_all_problems_are_reported_at_once() -> None:
    """One wrong part does not hide the next: everything up to a syntax error is listed."""
    text = (
        "a: .nan\nb: !!int x\na: 2\n<<: {c: 1}\n? [q]\n: 1\nd: *none\ne: {a: {b, b: .inf}}\nf: @\n"
    )
    assert problems(text) == [
        f"f.yaml:1:4: a: .nan is not a finite number; {TEXT}",
        "f.yaml:2:4: b: 'x' is not a value of tag !!int",
        "f.yaml:3:1: a: key 'a' on line 3 is already set on line 1; remove one",
        "f.yaml:4:1: merge keys (<<) are not supported; write the fields out",
        "f.yaml:5:3: a key must be a text, not a list or a mapping",
        f"f.yaml:7:4: d: {ALIAS.format('none')}; {QUOTE}",
        "f.yaml:8:12: e.a.b: key 'b' on line 8 is already set on line 8; remove one",
        f"f.yaml:8:15: e.a.b: .inf is not a finite number; {TEXT}",
        f"f.yaml:9:4: f: not valid YAML: '@' cannot begin a value; {VALUE}: f: \"@\"",
    ]


def test_reading_ends_after_a_hundred_problems() -> None:
    """A document of nothing but mistakes does not bury its reader."""
    found = problems("a: 1\n" * 500)
    assert len(found) == bounds.MAX_PROBLEMS + 1
    assert found[-1] == "f.yaml:101:1: reading stops after 100 problems"


EMPTY = "1:1: the document is empty; write at least one 'key: value'"
SECOND = "a second document begins here, but a file holds one"
LISTS = "2:1: steps: key 'steps' on line 2 is already set on line 1, and only lists can be joined"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", EMPTY),
        ("# nothing\n", EMPTY),
        ("---\n~\n", EMPTY),
        (
            "a: 1\n---\nb: 2\n",
            f"2:1: {SECOND}; remove the '---', or move the rest to another file",
        ),
        ("*a", f"1:1: {ALIAS.format('a')}; {QUOTE}"),
        ("*a : 1", f"1:1: {ALIAS.format('a')}; {QUOTE}"),
        (
            "a: &base 1\nb: *bass",
            f"2:4: b: {ALIAS.format('bass')}; did you mean 'base'?; {QUOTE}",
        ),
        ("a: &x [*x]", "1:8: a[0]: alias *x contains itself; write the value out"),
        ("a: 1\na: 2", "2:1: a: key 'a' on line 2 is already set on line 1; remove one"),
        ('1: a\n"1": b', "2:1: ['1']: key '1' on line 2 is already set on line 1; remove one"),
        ("x: {<<: {a: 1}}", "1:5: x: merge keys (<<) are not supported; write the fields out"),
        ("{? : 1}", "1:4: a key is missing before this ':'"),
        ("x: {[a]: 1}", "1:5: x: a key must be a text, not a list or a mapping"),
        (
            "a: {steps: [], steps: []}",
            "1:16: a.steps: key 'steps' on line 1 is already set on line 1; remove one",
        ),
        ("steps: [a]\nsteps: b", f"{LISTS}; remove one"),
        ("steps: b\nsteps: [a]", f"{LISTS}; remove one"),
    ],
)
def test_a_structure_that_is_not_plain_is_refused(text: str, found: str) -> None:
    """One document, no cycles, no merge keys, no repeated and no compound keys."""
    assert problems(text) == [f"f.yaml:{found}"]


def test_repeated_blocks_are_joined_in_document_order() -> None:
    """The lists of a repeatable key become one; stages, places and a note keep the blocks."""
    text = "steps:\n- a\nloops: [x]\nsteps:\n- b\n- c\nother: 1\nloops:\nsteps: [d]\n"
    source = read(text, "f.yaml", repeatable=REPEATABLE)
    assert source.value == {"steps": ["a", "b", "c", "d"], "loops": ["x"], "other": 1}
    assert source.stages == (
        Stage("steps", 0, 1),
        Stage("loops", 0, 1),
        Stage("steps", 1, 3),
        Stage("loops", 1, 1),
        Stage("steps", 3, 4),
    )
    assert [source.position(("steps", index)) for index in range(4)] == [
        (2, 3), (5, 3), (6, 3), (9, 9)
    ]  # fmt: skip
    assert [str(note) for note in source.notes] == [
        "f.yaml:4:1: steps: keys_joined: key 'steps' on line 4 adds items to the list on line 1",
        "f.yaml:8:1: loops: keys_joined: key 'loops' on line 8 adds items to the list on line 3",
        "f.yaml:9:1: steps: keys_joined: key 'steps' on line 9 adds items to the list on line 1",
    ]


def test_joining_leaves_an_anchored_list_as_it_is() -> None:
    """An alias of the first block means that block, not what was joined to it."""
    text = "steps: &first [a]\nsteps: [b]\nagain: *first\nloops: {}\n"
    source = read(text, "f.yaml", repeatable=REPEATABLE)
    assert source.value == {"steps": ["a", "b"], "again": ["a"], "loops": {}}


# Any text


SEEDS = [
    WORKFLOW,
    "steps: [a]\nloops: [b]\nsteps:\n- c\n",
    '{"a": [1, 2.5, {"b": "\\ud83d\\ude00"}], "c": null}',
    "? x\n: - y\n  - |\n    z\n  - >-\n    k\n",
    "a: &x [1, {b: *x}]\nc: *x\n",
]
TOKENS = [
    "{{", "}}", "[", "]", "{", "}", "- ", ": ", "\n", "\t", '"', "'", "&a ", "*a ", "!x ", "!!int ",
    "<<: ", "|", ">", "%TAG", "---\n", "...\n", "#", ", ", "? ", "\0", "\x85", "\u2028", "\ufeff",
    "\\", "\\ud83d", ".nan", "1e999", "\U0001f600", "\r\n", "@", "`", "\n  ", "!%ed%a0%80 ", "{%",
    '"\\UFFFFFFFF"', "[" * 70,
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Draw a document with tokens put in, spans cut out and spans repeated."""
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 6))):
        place, other = sorted(draw(st.integers(0, len(text))) for _ in range(2))
        insert = draw(st.sampled_from([*TOKENS, text[place:other]]))
        text = text[:place] + insert + text[draw(st.sampled_from([place, other])) :]
    return text


def consistent(text: str | bytes) -> None:
    """Read a text and compare every answer about it with its value."""
    try:
        source = read(text, "f.yaml", repeatable=REPEATABLE)
    except DocumentError as error:
        found = error.problems
    else:
        found = list(source.notes)
        answers(source)
    assert all(min(problem.line, problem.column) >= 1 for problem in found)
    assert all("\n" not in problem.message for problem in found)


def answers(source: Source) -> None:
    """Compare every answer of a source with its value."""
    assert isinstance(source, Source)
    json.dumps(source.value, allow_nan=False)
    for path in paths(source.value):
        assert min(*source.position(path), *source.position(path, key=True)) >= 1
    for key, start, end in source.stages:
        assert 0 <= start <= end <= len(source.value[key])


@settings(max_examples=200, deadline=None)
@given(mutated() | st.text(max_size=60) | st.binary(max_size=60))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    """Whatever the text, the outcome is a source or a document error."""
    consistent(text)


def test_the_parser_without_libyaml_keeps_the_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where libyaml is missing, the parser in Python gives the same values and refuses the same."""
    expected = read(WORKFLOW, "f.yaml")
    monkeypatch.setattr(bounds, "_LOADER", yaml.SafeLoader)
    source = read(WORKFLOW, "f.yaml")
    assert source.value == expected.value
    assert all(source.position(p) == expected.position(p) for p in paths(source.value))
    assert problems("[" * 40_000)[0].endswith("64 levels deep; flatten it")
    assert problems("a: b: c")[0].endswith('a: "b: c"')
    assert problems('"\\UFFFFFFFF"')[0].endswith("the following bytes are not text")
    assert problems('"\\ud83d"')[0].endswith("cannot contain the character U+D83D; remove it")
    chance = random.Random(0)
    for _ in range(40):
        text = chance.choice(SEEDS)
        place = chance.randrange(len(text))
        consistent(text[:place] + chance.choice(TOKENS) + text[place:])
