"""What is too large, too deep or not text, and what is said of a text that is not YAML."""

from __future__ import annotations

import pytest

from loopwright.documents.yaml.bounds import MAX_BYTES
from loopwright.documents.yaml.reader import read
from loopwright.errors import DocumentError


def refusal(text: str | bytes) -> str:
    """Return what a user sees of a document that is refused, without the name of the file."""
    with pytest.raises(DocumentError) as caught:
        read(text, "f.yaml")
    return str(caught.value).removeprefix("f.yaml:")


def nested(depth: int) -> str:
    """Return a list in a list in a list."""
    return "[" * depth + "x" + "]" * depth


def bomb(levels: int, width: int) -> str:
    """Return anchors of which each holds several aliases of the one before."""
    rows = (
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]"
        for level in range(1, levels)
    )
    return "\n".join(["a0: &a0 [x]", *rows])


DEEP = "the document is nested more than 64 levels deep; flatten it"
EXPANDED = (
    "the document has more than 100,000 values or 4 MiB of text after its aliases are expanded; "
    "split it, or use fewer aliases"
)
LONG = "the document is larger than 1 MiB; split it, or move large texts to separate files"
TAG_LINES = "%TAG directives are not allowed; remove the line"
EXPANDS_DEEP = "\n".join(["a: &a0 [x]", *(f"b{i}: &a{i + 1} [[[*a{i}]]]" for i in range(40))])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 40_000, DEEP),
        (nested(40_000), DEEP),
        ("{" * 40_000, DEEP),
        ("- " * 40_000, DEEP),
        ("? " * 40_000, DEEP),
        ("\n".join(" " * level + "a:" for level in range(1_000)), DEEP),
        (nested(65), DEEP),
        (EXPANDS_DEEP, DEEP),
        (bomb(12, 10), EXPANDED),
        ("a: &a '" + "x" * 500_000 + "'\nb: [" + "*a, " * 1_000 + "]", EXPANDED),
        ("a: " + "x" * MAX_BYTES, LONG),
        ("é" * (MAX_BYTES // 2 + 1), LONG),
        ("".join(f"%TAG !a{number}! x\n" for number in range(60_000)) + "---\na: 1", TAG_LINES),
        ("a: 1\n...\r%TAG !a! x\n", TAG_LINES),
    ],
    ids=range(14),
)
def test_a_bomb_is_refused(text: str, message: str) -> None:
    """Depth, size and expansion are bounded, and a document that passes a bound is one problem."""
    found = refusal(text)
    assert found.endswith(f": {message}")
    assert "\n" not in found


@pytest.mark.parametrize(
    "text",
    [
        nested(64),
        "a: " + "x" * (MAX_BYTES - 3),
        bomb(5, 10),
        bomb(20, 1),
        "a: 100%TAG\nb: ' %TAG'",
    ],
    ids=range(5),
)
def test_what_stays_within_the_limits_is_read(text: str) -> None:
    """The limits refuse nothing below them."""
    assert read(text, "f.yaml").value


CONTROL = 'remove it, or write an escape such as "\\x1b" in double quotes'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"a: 1\nb: \xff", "2:4: byte 0xff is not UTF-8; save the document as UTF-8"),
        ("a: é".encode("utf-16"), "1:1: the document is UTF-16; save it as UTF-8"),
        ("a: 1\nb: \0", f"2:4: character U+0000 is not allowed in a document; {CONTROL}"),
        (b"a: \x1b[1m", f"1:4: character U+001B is not allowed in a document; {CONTROL}"),
        ("a: \ud800", f"1:4: character U+D800 is not allowed in a document; {CONTROL}"),
    ],
)
def test_what_is_not_text_is_refused(text: str | bytes, found: str) -> None:
    """Bytes that are not UTF-8 and control characters are shown by number and place."""
    assert refusal(text) == found


QUOTE = "put quotes around the value"
CURLY = f"'{{{{' without quotes begins a mapping; {QUOTE}"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("run: {{input}}", "1:6: run", CURLY + ': run: "{{input}}"'),
        ("a:\n  - {{x}}  # x", "2:5: a[0]", CURLY + ': - "{{x}}"'),
        ("run: {{a}} and {{b}}", "1:6: run", CURLY + ': run: "{{a}} and {{b}}"'),
        ("run: {{a}}: b", "1:6: run", CURLY + ': run: "{{a}}: b"'),
        ("run: {{a\nb: 1", "1:6: run", CURLY + ': run: "{{a"'),
        ("x: [{{a}}, b]", "1:5: x[0]", CURLY + ': "{{a}}"'),
        ('x: {{"a": 1}}', "1:4: x", CURLY + """: x: '{{"a": 1}}'"""),
        ("x: {% if a %}b", "1:4: x", CURLY.replace("{{", "{%") + ': x: "{% if a %}b"'),
        ("x: {{" + "a" * 99 + "}}", "1:4: x", CURLY),
        ("api_key: {{key}}", "1:10: api_key", CURLY),
    ],
)
def test_an_unquoted_template_is_shown_in_quotes(text: str, place: str, message: str) -> None:
    """Double braces at the head of a value are a mapping to YAML; the message shows the remedy."""
    assert refusal(text) == f"{place}: {message}"


def test_a_template_on_another_line_does_not_hide_a_syntax_error() -> None:
    """The place of a complaint is its own line, though its block begins with a template."""
    found = refusal("run: {{input}}\na:\n  b: 1\n c: 2\n")
    assert [line.removeprefix("f.yaml:")[:3] for line in found.split("\n")] == ["1:6", "4:2"]


TAB = "a tab cannot indent; use spaces"
OPEN = "the quote opened here is never closed"
ESCAPE = "a backslash in double quotes begins an escape; double it or use single quotes"
PAIR = "this escape is not a character; above U+FFFF write \\U and eight digits"
ALIAS = f"this character begins an alias; {QUOTE}"
ANCHOR = f"this character begins an anchor; {QUOTE}"
COLON = f"': ' inside a value needs quotes; {QUOTE}"
KEY = (
    "a key is not expected here; check the indentation of this line, "
    "and that the line above has a space after its ':'"
)
NEITHER = "this is neither 'key: value' nor the rest of a text; check its indentation"
BRACKET = "the bracket opened here is not closed, or a ',' is missing"
BLOCK = "this line does not fit the block that begins on line 1, column 1; check its indentation"
AFTER_BRACKET = "text follows a closing bracket; put quotes around the entire value"
AFTER_QUOTE = f"text follows a closing quote; {QUOTE}"
START = "unexpected text after the value; 'key: value' needs a space after the ':'"
TAGS = "tags and directives are not used here; put quotes around a text with '!' or '%'"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a:\n\tb: 1", "2:1: a", TAB),
        ("a:\n  b: 1\n\tc: 2", "3:1: a.b", TAB),
        ('a: "b\nc: 1', "1:4: a", OPEN),
        ("a: 'b\n---\nc'", "1:4: a", OPEN),
        ('a: "b\nc: "d"', "1:4", "the quote opened here is closed only on line 2"),
        ('a: "C:\\path"', "1:7: a", ESCAPE),
        ('a: "\\xg"', "1:7: a", ESCAPE),
        ('a: "\\ud83d"', "1:7: a", PAIR),
        ("a: *.py", "1:4: a", ALIAS + ': a: "*.py"'),
        ("- &b& c", "1:3: [0]", ANCHOR + ': - "&b& c"'),
        ("a: b: c", "1:5", COLON + ': a: "b: c"'),
        ('a: it\'s: "c"', "1:8", COLON + ": a: 'it''s: \"c\"'"),
        ("password: b: c", "1:12", COLON),
        ("a: b\n  c: d", "2:4", KEY),
        ("a: `b`", "1:4: a", f"'`' cannot begin a value; {QUOTE}" + ': a: "`b`"'),
        ("a: [x, @y]", "1:8: a[1]", f"'@' cannot begin a value; {QUOTE}" + ': "@y"'),
        ("a: ]", "1:4: a", f"']' cannot begin a value; {QUOTE}" + ': a: "]"'),
        ("a: - b", "1:4: a", "a list begins on the line below its key"),
        ("a: ? b", "1:4: a", "mapping keys are not allowed in this context"),
        ("a: 1\nb\nc: 3", "2:1", NEITHER),
        ("a: [1, 2\nb: 3", "1:4: a[2]", BRACKET),
        ("a: [1,", "1:7: a[1]", "a value or a closing bracket is missing here"),
        ("a: > text", "1:6: a", "the text of '|' or '>' begins on the next line"),
        ("a:\n  b: 1\n c: 2", "3:2", BLOCK),
        ("a: 1\n- b", "2:1", BLOCK),
        ("a: 'x'\n- b", "2:1", BLOCK),
        ("- a\nb: 1", "2:1: [1]", BLOCK),
        ("a:\n  b: 'x'\n c: 2", "3:2", BLOCK),
        (": a", "1:1", "a key is missing before this ':'"),
        ("a: [b] c", "1:8", AFTER_BRACKET),
        ('a: "b" or "c"', "1:8", AFTER_QUOTE + """: a: '"b" or "c"'"""),
        ('"a":1', "1:4", START),
        ("%YAML 3.0\n---\na: 1", "1:1", TAGS),
        ("!a!b c", "1:1", TAGS),
        ("!%ed%a0%80 x", "1:1", "the following bytes are not text"),
    ],
)
def test_a_syntax_error_says_what_to_do(text: str, place: str, message: str) -> None:
    """A parser's complaint has the place of the mistake and the remedy of the known ones."""
    assert refusal(text) == f"{place}: not valid YAML: {message}"
