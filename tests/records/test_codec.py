"""Values to JSON and back: what is kept, what is refused, and what counts as the same."""

from __future__ import annotations

import enum
import json
import math
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from engine.support import examples, json_values, texts
from loopwright import Evaluation
from loopwright.errors import ConfigurationError, StepError
from loopwright.records.codec import (
    canonical,
    decode,
    digest,
    encode,
    integer,
    normalise,
    number,
    text_of,
)


class Shade(enum.StrEnum):
    RED = "red"


class Tone(str, enum.Enum):  # noqa: UP042 - the older mixin prints its name, which is the point
    LOW = "low"


class Size(enum.IntEnum):
    SMALL = 1


@dataclass
class Point:
    x: int
    inner: tuple[str, ...] = ()


class Model(BaseModel):
    name: str
    tags: set[str] = set()


class Own:
    def to_json(self) -> Any:
        return {"own": (1, 2)}


class Ratio(float):
    pass


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        (3, 3),
        (True, True),
        (None, None),
        (0.5, 0.5),
        ((1, [2, (3,)]), [1, [2, [3]]]),
        ({"a": (1,)}, {"a": [1]}),
        (Point(1, ("b",)), {"x": 1, "inner": ["b"]}),
        (Model(name="n", tags={"t"}), {"name": "n", "tags": ["t"]}),
        (Own(), {"own": [1, 2]}),
        ([Own()], [{"own": [1, 2]}]),
        (Shade.RED, "red"),
        (Tone.LOW, "low"),
        (Size.SMALL, 1),
        (Ratio(0.5), 0.5),
        ([Shade.RED, Size.SMALL, Ratio(0.25)], ["red", 1, 0.25]),
        ({Shade.RED: 1, Tone.LOW: 2}, {"red": 1, "low": 2}),
    ],
)
def test_a_value_becomes_plain_json(value: Any, expected: Any) -> None:
    """Dataclasses, models, tuples and subclasses of atoms become what JSON can hold."""
    found = normalise(value)
    assert found == expected
    assert json.loads(json.dumps(found)) == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"bytes", ("output: bytes is not a JSON value; return text, finite numbers, booleans, lists, "
         "objects with text keys, dataclasses or pydantic models")),
        ({"a": [{1, 2}]}, ("output.a[0]: set is not a JSON value; return text, finite numbers, booleans, "
         "lists, objects with text keys, dataclasses or pydantic models")),
        (math.nan, "output: nan is not a finite number; return a number, or None without a value"),
        ([math.inf], "output[0]: inf is not a finite number; return a number, or None without a value"),
        (Decimal(1), ("output: Decimal is not a JSON value; return text, finite numbers, booleans, lists, "
         "objects with text keys, dataclasses or pydantic models")),
        (Point, ("output: type is not a JSON value; return text, finite numbers, booleans, lists, "
         "objects with text keys, dataclasses or pydantic models")),
        ({"a": {1: 2}}, "output.a: the key 1 is not text; JSON objects have text keys"),
    ],
)  # fmt: skip
def test_what_json_cannot_hold_is_refused_with_its_place(value: Any, message: str) -> None:
    """The refusal names the place and the type, and says what to return."""
    with pytest.raises(StepError) as caught:
        normalise(value, what="output")
    assert str(caught.value) == message
    assert (caught.value.kind, caught.value.retryable) == ("not_json", False)


def test_what_is_nested_too_deep_is_refused() -> None:
    """A value that holds itself is refused at 100 levels and not followed for ever."""
    value: list[Any] = []
    value.append(value)
    with pytest.raises(StepError, match=r"nested deeper than 100 levels; flatten it"):
        normalise(value)


@pytest.mark.parametrize(
    "value", [10**5000, [10**5000], {"a": -(10**5000)}], ids=["alone", "in a list", "negative"]
)
def test_a_whole_number_that_no_store_can_write_is_refused(value: Any) -> None:
    """Python itself refuses to write integers above 4300 digits, so they are refused at the door."""
    with pytest.raises(StepError, match=r"an integer of \d+ bits is not a JSON value"):
        normalise(value)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain", "plain"),
        ("nul\0byte", "nulbyte"),
        ("né\0", "né"),
        ("\ud800", "\ufffd"),
        ("a\udfffb", "a\ufffdb"),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_text_is_cleaned_at_this_single_point(text: str, kept: str) -> None:
    """NUL is dropped and half a surrogate pair becomes U+FFFD, in values and in keys."""
    assert normalise(text) == kept
    assert normalise([text]) == [kept]
    assert normalise({text: 1}) == {kept: 1}


@given(json_values)
def test_a_json_value_goes_to_text_and_back(value: Any) -> None:
    """I43: decode(encode(v)) = v for every normalised value, and normalising twice changes nothing."""
    plain = normalise(value)
    assert decode(encode(plain)) == plain
    assert normalise(plain) == plain


def test_normalising_copies() -> None:
    """What a step changes after it returned does not reach the record."""
    value = {"list": [1]}
    kept = normalise(value)
    value["list"].append(2)
    assert kept == {"list": [1]}


def test_an_evaluation_is_json_wherever_it_stands() -> None:
    """An evaluation inside a value becomes its object, so that a record never holds a live one."""
    assert normalise({"judged": Evaluation(0.5)}) == {"judged": {"score": 0.5, "passed": None}}
    assert encode(Evaluation(0.5)) == '{"score":0.5,"passed":null}'


def test_encoding_refuses_what_was_not_normalised() -> None:
    """There is no fallback serialiser."""
    with pytest.raises(TypeError, match="object is not a JSON value"):
        encode(object())


# Sameness.


@given(st.dictionaries(texts, json_values, max_size=5), st.randoms(use_true_random=False))
def test_key_order_does_not_matter(value: dict[str, Any], chance: Any) -> None:
    """I22: the repeat hash is the same for every order of keys."""
    items = list(value.items())
    chance.shuffle(items)
    assert canonical(dict(items)) == canonical(value)
    assert digest(canonical(dict(items))) == digest(canonical(value))


@given(json_values)
def test_unicode_form_does_not_matter(value: Any) -> None:
    """I22: the repeat hash is the same for composed and decomposed text, in values and keys."""

    def form(item: Any, name: Any) -> Any:
        if isinstance(item, str):
            return unicodedata.normalize(name, item)
        if isinstance(item, list):
            return [form(i, name) for i in item]
        if isinstance(item, dict):
            return {form(k, name): form(v, name) for k, v in item.items()}
        return item

    composed, apart = form(value, "NFC"), form(value, "NFD")
    if len(json.dumps(composed)) >= 0 and _same_shape(composed, apart):
        assert canonical(composed) == canonical(apart)


def _same_shape(a: Any, b: Any) -> bool:
    """Whether no two keys fell together when the form was changed."""
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(_same_shape, a.values(), b.values()))
    return not isinstance(a, list) or all(map(_same_shape, a, b))


odd = st.one_of(
    st.binary(max_size=3),
    st.floats(),
    st.complex_numbers(),
    st.sets(st.integers(), max_size=3),
    st.just(Own()),
    st.just(object()),
    st.integers(4000, 5000).map(lambda digits: 10**digits),
    st.characters(),
    st.just(Evaluation(0.5)),
    st.dictionaries(st.integers() | texts | st.none(), st.integers(), max_size=3),
)


@given(st.recursive(odd | json_values, lambda v: st.lists(v, max_size=3) | st.tuples(v, v)))
def test_the_canonical_form_never_raises(value: Any) -> None:
    """I22: hashing an odd output is total: it never raises."""
    assert isinstance(digest(canonical(value)), str)
    assert isinstance(digest(value), str)


def test_a_value_that_holds_itself_has_a_canonical_form() -> None:
    """I22: a circle is cut at the depth limit."""
    value: list[Any] = []
    value.append(value)
    assert "list" in canonical(value)


def test_volatile_keys_do_not_count() -> None:
    """Keys that are declared volatile are left out at every depth."""
    a = {"text": "x", "at": 1, "inner": [{"at": 2, "n": 1}]}
    b = {"text": "x", "at": 9, "inner": [{"at": 8, "n": 1}]}
    assert canonical(a, volatile=["at"]) == canonical(b, volatile=["at"])
    assert canonical(a) != canonical(b)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("short", "'short'"),
        (3, "3"),
        (None, "None"),
        ([1, 2], "[1,2]"),
        ("x" * 41, "48e7d1a5b9c1"),
        (list(range(100)), ""),
    ],
)
def test_a_digest_is_readable_while_short(value: Any, expected: str) -> None:
    """Short values name themselves, long ones have 32 hex digits."""
    found = digest(value)
    if len(expected) < 12 and expected:
        assert found == expected
    else:
        assert len(found) == 32
        assert set(found) <= set("0123456789abcdef")


@examples(0.5)
@given(*[st.lists(st.integers(0, 3), min_size=20, max_size=22)] * 2)
def test_different_values_have_different_digests(a: list[int], b: list[int]) -> None:
    """Two values share a digest only if they are equal."""
    assert (digest(a) == digest(b)) == (a == b)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("text", "text"), (None, ""), ({"a": "é"}, '{"a": "é"}'), (Evaluation(1.0), None), (3, "3")],
)
def test_a_reader_sees_text_as_text_and_the_rest_as_json(value: Any, expected: str | None) -> None:
    """text_of is what a pattern or a person reads."""
    assert text_of(value) == (expected or text_of(value))


# Numbers of a configuration.


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "limit: True is not an integer"),
        (1.0, "limit: 1.0 is not an integer"),
        ("3", "limit: '3' is not an integer"),
        (0, "limit: 0 is too small; give at least 1"),
        (-(1 << 2000), "limit: a number of 2001 bits is out of range"),
    ],
)
def test_a_whole_number_is_checked(value: Any, message: str) -> None:
    """The refusal names the field, the value and what was expected."""
    with pytest.raises(ConfigurationError) as caught:
        integer("limit", value, minimum=1)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("value", "bounds", "message"),
    [
        (True, {}, "share: True is not a number"),
        ("1", {}, "share: '1' is not a number"),
        (math.nan, {}, "share: nan is not finite"),
        (math.inf, {}, "share: inf is not finite"),
        (-1, {"minimum": 0}, "share: -1 is out of range; give a number at least 0"),
        (0, {"minimum": 0, "above": True}, "share: 0 is out of range; give a number above 0"),
        (2, {"minimum": 0, "maximum": 1},
         "share: 2 is out of range; give a number at least 0 and at most 1"),
        (1 << 2000, {"maximum": 1}, "share: a number of 2001 bits is out of range"),
    ],
)  # fmt: skip
def test_a_number_is_checked(value: Any, bounds: dict[str, Any], message: str) -> None:
    """NaN, infinity and what is out of range are refused with the range."""
    with pytest.raises(ConfigurationError) as caught:
        number("share", value, **bounds)
    assert str(caught.value) == message


def test_numbers_in_range_are_returned() -> None:
    """A number comes back as a float, a whole number as it is."""
    assert integer("limit", 3, minimum=1) == 3
    assert number("share", 1, minimum=0, maximum=1) == 1.0
    assert isinstance(number("share", 1), float)
