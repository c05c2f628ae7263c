"""What a scalar means, and the text it keeps."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright.documents.yaml.reader import read
from loopwright.errors import DocumentError

TEXT = "put quotes around it if it is text"
LARGE = f"is too large or too long, at most 1.8e+308; {TEXT}"
TAGS = "is not allowed, only those of plain YAML such as !!str"
MARK = "put quotes around the value if '!' is part of the text"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~", None), ("null", None), ("NULL", None), ("", None), ('""', ""),
        ("true", True), ("True", True), ("FALSE", False),
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("OFF", "OFF"), ("y", "y"),
        ("12", 12), ("-3", -3), ("+3", 3), ("012", 12), ("0o17", 15), ("0xfF", 255), ("0", 0),
        ("1:30", "1:30"), ("0b1", "0b1"), ("1_000", "1_000"), ("-0x1", "-0x1"), ("0o8", "0o8"),
        ("1.10", 1.1), (".5", 0.5), ("1.", 1.0), ("1e-1", 0.1), ("-1.5E+2", -150.0), (".", "."),
        ("2026-01-07", "2026-01-07"), ("1.2.3", "1.2.3"), ("nan", "nan"), ("=", "="),
        ("'12'", "12"), ('"true"', "true"), ("one two", "one two"),
        ("!!str 12", "12"), ("! 12", "12"), ('!!int "3"', 3), ("!!int 0x1f", 31),
        ("!!float 3", 3.0), ('!!float "3.5"', 3.5), ('!!bool "true"', True), ("!!null ''", None),
        ("!!seq [1]", [1]), ("!!map {a: 1}", {"a": 1}), ("! [1]", [1]),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    """An unquoted scalar is null, boolean, integer or float by YAML 1.2 core, else text."""
    found = read(f"key: {text}", "f.yaml").value["key"]
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".nan", f".nan is not a finite number; {TEXT}"),
        ("-.inf", f"-.inf is not a finite number; {TEXT}"),
        ("1e999", f"number 1e999 {LARGE}"),
        ("9" * 5000, f"number 99999999999999999999999… {LARGE}"),
        ("!!python/object:os.x x", f"tag !!python/object:os.x {TAGS}; {MARK}"),
        ("!!integer 3", f"tag !!integer {TAGS}; did you mean '!!int'?; {MARK}"),
        ("!important note", f"tag !important {TAGS}; {MARK}"),
        ("!<str> 1", f"tag str {TAGS}; did you mean '!!str'?; {MARK}"),
        ("!!bool yes", "'yes' is not a value of tag !!bool"),
        ("!!map 1", "'1' is not a value of tag !!map"),
        ("!!set {a}", "tag !!set is not allowed here; remove it"),
        ("!!seq {a: 1}", "tag !!seq is not allowed here; remove it"),
        ('"a\\0"', "a text cannot contain the character U+0000; remove it"),
    ],
)  # fmt: skip
def test_a_scalar_that_means_nothing_is_refused(text: str, message: str) -> None:
    """Numbers that are not finite and tags outside the core schema are problems with a place."""
    with pytest.raises(DocumentError) as caught:
        read(f"key: {text}", "f.yaml")
    assert str(caught.value) == f"f.yaml:1:6: key: {message}"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("1.0", "1.0"), ("yes", "yes"), ("012", "012"), ("1.10", "1.10"), ("0xff", "0xff"),
        ("2026-01-07", "2026-01-07"), ("~", "~"), ("", ""), ("'a'", "a"), ('"1.0"', "1.0"),
        ('"\\u00e9"', "é"), ("!!str 007", "007"), ("[]", None), ("{}", None),
    ],
)  # fmt: skip
def test_a_scalar_keeps_its_source_text(written: str, text: str | None) -> None:
    """A field that wants text gets the characters that were written, never a value printed back."""
    assert read(f"key: {written}", "f.yaml").text(("key",)) == text


def test_a_path_that_leads_nowhere_has_no_text() -> None:
    """There is no source text beside the document."""
    source = read("a: [1]", "f.yaml")
    nowhere: list[tuple[str | int, ...]] = [("b",), ("a", 1), ("a", "x"), ("a", 0, "b")]
    assert [source.text(path) for path in nowhere] == [None] * 4


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("1: a\ntrue: b\n~: c\n2026-01-07: d\n.nan: e\n", ["1", "true", "~", "2026-01-07", ".nan"]),
        ('"": a\n"<<": b\n!!int 3: c\n? d\n', ["", "<<", "3", "d"]),
        ("a: &k name\n*k : b\n", ["a", "name"]),
    ],
)
def test_keys_are_text_as_written(text: str, keys: list[str]) -> None:
    """A key is the source text of its scalar, whatever a schema would make of it."""
    assert list(read(text, "f.yaml").value) == keys
