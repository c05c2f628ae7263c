"""Patterns: bad ones are refused with a place, slow ones given up, long texts follow a rule."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright._regex import (
    PATTERN_CHARS,
    TEXT_CHARS,
    Match,
    PatternError,
    PatternTimeout,
    compile_pattern,
)
from loopwright.errors import ConfigurationError, EvaluationError

HOSTILE_SHAPES = (
    r"((?:{a}+\.?)+)x",
    r"({a}+)+$",
    r"({a}*)*$",
    r"(?:{a}|{a}{a}|{b})*!",
    r"(?s){a}.*?{b}.*?{a}.*?{b}.*?!",
    r"(?s)(.*?,){{9,}}!",
    r"({a}+)+\1!",
    r"({a}*)\s?\1{b}",
    r"(?=({a}+))\1*{b}!",
    r"(?<={a}.*){b}!",
    r"(?<!{b}.*){a}+!",
    r"(?>{a}*){b}!",
    r"{a}*{b}",
    r"{a}*?{b}",
    r"{a}*\b{b}",
    r"[^!]*{b}[^!]*!",
    r"(?:[^!]*{b}|.)*$",
    r"[^\p{{Han}}\p{{Greek}}\p{{Thai}}!]*\d!",
    r"(?i)(?:{a}|{b})*ß!",
    r"(?:{a}?){{300}}{a}{{300}}!",
    r"(?:{a}{{1,30}}){{1,30}}!",
    r"(?:{a}{{0,99}}{b}?){{0,99}}!",
    r"(?:\w*{b}|\W)*$",
    r"(?:(?:{a}|b)*?c?)*?!",
    r"(?:{a}+)+(?:{b}+)+(?:{a}+)+!",
    r"({a}{{2,}}?,?)*{b}!",
    r"(?:({a})|({b})|(\1|\2))+!",
    r"(?|({a}+)|({b}+))+!",
    r"^(?:{a}+,?)+!$",
    r"\X*{b}!",
    r"{branches}!",
    r"(?:{branches})*!",
    r"(?:{a}+{b}+){{e<=3}}!",
    r"(?m)^(?:{a}|\s)*?$!",
)
REPEATED = ("a", "[a-z]", r"\w", ".", "(?:a|b)", r"[\w.]", r"\p{L}", "[^!]", r"\S")
WANTED = ("b", "[0-9]", "1", r"\d", "é", "ab", r"[\d\s]")
TEXTS = ("a", "a", "a", "ab", "aab", "a,", "a b ", "aaaab\n", "a1", "é", "ab!c", "a\u0301", "1.")
LENGTHS = (30, 400, 5_000, 60_000, TEXT_CHARS)


def hostile_pairs(count: int = 200, seed: int = 7) -> Iterator[tuple[str, str]]:
    """Generate pairs of a backtracking pattern and a text for it; 2,000 is the full set."""
    chance = random.Random(seed)
    for number in range(count):
        shape = HOSTILE_SHAPES[number % len(HOSTILE_SHAPES)]
        letter = chance.choice("ab1")
        branches = "|".join(letter * size for size in range(1, chance.randint(5, 40)))
        pattern = shape.format(
            a=chance.choice(REPEATED), b=chance.choice(WANTED), branches=branches
        )
        unit, length = chance.choice(TEXTS), chance.choice(LENGTHS)
        # Ends that hold the literal a pattern needs keep the library from giving up at once.
        ends = chance.choice(
            (("", "?!"), ("!", "?"), ("!?", "b?!ß"), ("", "b"), ("", "\n"), ("", ""))
        )
        yield pattern, ends[0] + (unit * length)[:length] + ends[1]


def longest_stall(count: int = 2_000) -> tuple[float, str]:
    """Measure the longest wait of a compile and a search over the hostile pairs, in seconds."""
    worst = (0.0, "")
    for pattern, text in hostile_pairs(count):
        begun = time.perf_counter()
        with contextlib.suppress(PatternTimeout, PatternError):
            compile_pattern(pattern).search(text)
        worst = max(worst, (time.perf_counter() - begun, pattern))
    return worst


def test_hostile_patterns_end_in_an_answer_or_a_timeout() -> None:
    """Every search of a hostile pair gives a match, None, or PatternTimeout, and nothing else."""
    outcomes = set()
    for pattern, text in hostile_pairs(200):
        try:
            found = compile_pattern(pattern, timeout=0.01).search(text)
        except PatternTimeout:
            outcomes.add("timeout")
        else:
            assert found is None or text[found.start : found.end] == found.text
            outcomes.add("answer")
    assert outcomes == {"timeout", "answer"}


def test_a_timeout_is_an_evaluation_error_that_names_pattern_and_remedy() -> None:
    """A search that is given up raises PatternTimeout, which is not retried."""
    with pytest.raises(PatternTimeout) as caught:
        compile_pattern("(a+)+$", timeout=0.01).search("a" * 5_000 + "b")
    assert isinstance(caught.value, EvaluationError)
    assert (caught.value.kind, caught.value.retryable) == ("pattern_timeout", False)
    assert str(caught.value) == (
        "the search for pattern '(a+)+$' was stopped after 0.01 s; "
        "avoid a repeat inside a repeat, or search a shorter text"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only there a thread has a priority of its own")
def test_a_search_that_was_given_up_stands_back() -> None:
    """Its thread, which ends later by the library's clock, works only where nothing else wants to."""
    before = set(threading.enumerate())
    with pytest.raises(PatternTimeout):
        compile_pattern("(a+)+$", timeout=0.1).search("a" * 5_000 + "b")
    (left,) = set(threading.enumerate()) - before
    assert left.native_id is not None
    assert os.getpriority(os.PRIO_PROCESS, left.native_id) == 19


def test_one_timeout_covers_all_matches() -> None:
    """Many quick matches together count against the same timeout."""
    with pytest.raises(PatternTimeout):
        compile_pattern(".", timeout=0.001).findall("a" * TEXT_CHARS)


@pytest.mark.parametrize(
    ("pattern", "position", "reason"),
    [
        ("(abc", 4, "missing )"),
        ("a**", 2, "multiple repeat"),
        ("[a", 2, "unterminated character set"),
        ("*a", 0, "nothing to repeat"),
        (r"\L<names>", 9, "undefined named list"),
        ("a{9999999}", 1, "repeat count too big"),
        ("a{20001}", 8, "repeats too much: nested or large repeat counts multiply"),
        ("(?:" * 16 + "a" + ")+" * 16, 73, None),
        ("(?:" * 20 + "a" + "){1,2}" * 20, None, None),
        ("((((a{99}){99}){99}){99})", None, None),
        ("(" * 50 + "a" + ")" * 50, 50, "groups nested more than 49 deep"),
        ("[" + "a-b" * 40 + "]", 0, "character set too large; use fewer ranges and properties"),
        ("a" * (PATTERN_CHARS + 1), 2_000, "longer than 2,000 characters (it has 2,001)"),
        ("(?x) a b", 1, "inline flags 'x' are not supported, only those of 'aimsu'"),
        ("(a)(?1)", 4, "a call of a group is not supported: repeat its pattern"),
        ("a(?P>b)", 2, "a call of a group is not supported: repeat its pattern"),
        ("a(?V1:b)", 2, "inline flags 'V1' are not supported, only those of 'aimsu'"),
    ],
)
def test_a_bad_pattern_is_refused_with_place_and_reason(
    pattern: str, position: int | None, reason: str | None
) -> None:
    """A pattern that cannot be compiled, or not cheaply, is an error with a position."""
    with pytest.raises(PatternError) as caught:
        compile_pattern(pattern)
    assert isinstance(caught.value, ConfigurationError)
    assert position is None or caught.value.position == position
    assert reason is None or caught.value.reason == reason
    assert f"at position {caught.value.position}" in str(caught.value)


@pytest.mark.parametrize(
    "pattern",
    [
        r"SCORE:\s*([0-9.]+)",
        r"^(\d{1,3}\.){3}\d{1,3}$",
        r"(?i)\b(?:pass|fail)(?:ed)?\b",
        r"(?P<year>\d{4})-(?P<month>\d{2})",
        r"[]a]|[^]a]|[(]|[[:alpha:])]",
        r"a(?#a ( comment \) here)b",
        r"(?s:.{1,5000})end",
        r"(a)(?(1)b|c)",
        r"x{,3}y{2,}z{a}",
    ],
)
def test_ordinary_patterns_compile(pattern: str) -> None:
    """The limits leave room for what people write."""
    assert compile_pattern(pattern).text == pattern


def test_a_match_carries_its_place_and_groups() -> None:
    """A match tells what, where, its groups by number and by name; an unused group is None."""
    found = compile_pattern(r"(?P<key>\w+)=(\d+)?").search("a b=1")
    assert found == Match("b=1", 2, 5, ("b", "1"), {"key": "b"})
    found = compile_pattern(r"(a)|b").search("b")
    assert found == Match("b", 0, 1, (None,), {})


def test_search_findall_and_finditer_agree() -> None:
    """The first match, all matches and the iterator are the same matches."""
    pattern = compile_pattern("[ab]", ignore_case=True)
    found = pattern.findall("xAyb")
    assert [match.text for match in found] == ["A", "b"]
    assert list(pattern.finditer("xAyb")) == found
    assert pattern.search("xAyb") == found[0]
    assert compile_pattern("q").search("xAyb") is None


def test_case_matters_unless_told_otherwise() -> None:
    """`ignore_case` decides; the default is exact."""
    assert compile_pattern("yes").search("YES") is None
    assert compile_pattern("yes", ignore_case=True).search("YES") is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k" + "-" * (2 * TEXT_CHARS), [0]),
        ("-" * (2 * TEXT_CHARS) + "k", [2 * TEXT_CHARS]),
        ("-" * TEXT_CHARS + "k" + "-" * TEXT_CHARS, []),
        ("-" * (TEXT_CHARS - 1) + "k", [TEXT_CHARS - 1]),
    ],
)
def test_of_a_long_text_the_first_and_last_part_are_searched(
    text: str, expected: list[int]
) -> None:
    """Above 200,000 characters only the first and last 100,000 count."""
    assert [match.start for match in compile_pattern("k", timeout=1).findall(text)] == expected


def test_a_match_that_touches_the_cut_is_dropped() -> None:
    """A number cut in half by the limit is not reported as a number."""
    half = TEXT_CHARS // 2
    text = "-" * (half - 2) + "12345" + "-" * TEXT_CHARS + "678" + "-" * (half - 2)
    assert compile_pattern(r"\d+", timeout=1).findall(text) == []


def test_the_timeout_must_be_positive() -> None:
    """A timeout of zero or less means nothing and is refused."""
    with pytest.raises(
        ConfigurationError, match="timeout: 0 is out of range; use a number above 0"
    ):
        compile_pattern("a", timeout=0)


def _depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def test_a_pattern_too_deep_for_the_stack_is_an_error_not_a_crash() -> None:
    """What the library cannot compile where it is asked to is reported as such."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(_depth() + 60)
    try:
        with pytest.raises(PatternError, match="too complex to compile at position 0"):
            compile_pattern("(?:" * 45 + "a" + ")" * 45)
    finally:
        sys.setrecursionlimit(limit)


@given(st.text(alphabet="ab(){}[]^?:*+#|\\1,2.-&<>=!PRV", max_size=40))
def test_any_text_is_a_pattern_or_a_pattern_error(text: str) -> None:
    """Compiling is total: a Pattern, or a PatternError whose position lies in the text."""
    position = 0
    try:
        compile_pattern(text)
    except PatternError as error:
        position = error.position
    assert 0 <= position <= len(text)


def test_a_busy_machine_does_not_make_a_search_time_out() -> None:
    """Only the search's own work counts: while other threads keep the processor, it is waited
    for."""
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            sum(range(100))

    others = [threading.Thread(target=spin) for _ in range(2)]
    for other in others:
        other.start()
    try:
        pattern = compile_pattern("b", timeout=0.01)
        assert all(pattern.search("a" * 1000 + "b") for _ in range(5))
    finally:
        ended.set()
        for other in others:
            other.join()
