"""Scores read from text: what is read, and what is refused rather than guessed."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from loopwright.errors import ConfigurationError
from loopwright.evaluators import read_score
from loopwright.evaluators.score import ScoreReading, read_number, read_score_by_pattern
from loopwright.models.reply_text import normalise_reply

CORPUS = yaml.safe_load((Path(__file__).parent.parent / "data/replies.yaml").read_text("utf-8"))
ROWS = [
    pytest.param(group, row, id=f"{group['group']}-{number}")
    for group in CORPUS["scores"]
    for number, row in enumerate(group["replies"])
]
FIVE_MILLION = 5_000_000


def search(pattern: str, text: str) -> list[tuple[int, int, str]]:
    """Search as the loop node does: without case, first group."""
    return [(*found.span(1), found[1]) for found in re.finditer(pattern, text, re.IGNORECASE)]


def read(group: dict[str, Any], reply: str) -> ScoreReading:
    """Read a reply of the corpus as its group says."""
    low, high = group.get("scale", (0.0, 1.0))
    if "pattern" in group:
        text = normalise_reply(reply)
        return read_score_by_pattern(text, search(group["pattern"], text), (low, high))
    label = None if group.get("read") == "bare" else group.get("label", "score")
    return read_score(reply, label=label, scale=(low, high))


def test_the_corpus_holds_three_hundred_scores() -> None:
    """The corpus is no smaller than the scoreboard asks for."""
    assert len(ROWS) >= 300


@pytest.mark.parametrize(("group", "row"), ROWS)
def test_a_reply_gives_its_score_or_its_problem(group: dict[str, Any], row: list[Any]) -> None:
    """Every reply of the corpus is read exactly as written beside it, score or problem."""
    reply, expected, *remarks = row
    reading = read(group, reply)
    if isinstance(expected, str):
        assert (reading.problem, reading.score) == (expected, None)
        assert reading.detail
    else:
        assert (reading.problem, reading.score) == (None, expected)
        assert math.copysign(1.0, reading.score or 0.0) == 1.0
    assert reading.ambiguous is ("ambiguous" in remarks)


FRAGMENTS = [
    *["score", "SCORE:", "score=", ":", "=", "/", "%", ".", "0", "9", "0.9", "8/10", "93%", "-"],
    *["+", "1e5", "nan", "inf", "n/a", "out of", "\n", "\r", " ", "\t", ">", "```", "~~~", "**"],
    *["_", "`", "x", "\u200b", "\u2028", "\0", "\ud800", "\uff10", "\u0669", "\u00b2", "\u0301"],
]
texts = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join),
)
scales = st.sampled_from([(0.0, 1.0), (0, 10), (1, 5), (-1.0, 1.0), (0.1, 0.7)])


@given(texts, scales)
def test_any_text_gives_a_score_in_range_or_a_problem(
    text: str, scale: tuple[float, float]
) -> None:
    """A score is None with a problem, or finite in 0..1 and not -0.0, whatever the text."""
    plain = normalise_reply(text)
    readings = [
        read_score(text, scale=scale),
        read_score(text, label=None, scale=scale),
        read_score_by_pattern(plain, search(r"([0-9.]*)", plain), scale),
        read_score_by_pattern(plain, search(r"([0-9.]+)", plain), scale),
        read_score_by_pattern(plain, search(r"(\S+)", plain), scale),
        read_number(text, text, scale, preceding=text),
    ]
    for reading in readings:
        assert (reading.score is None) == (reading.problem is not None)
        assert reading.score is None or 0.0 <= reading.score <= 1.0
        assert str(reading.score) != "-0.0"
        assert not (reading.ambiguous and reading.score is None)
        assert len(reading.found) <= 20


@given(texts, st.lists(st.tuples(st.integers(), st.integers(), texts)))
def test_any_matches_are_read_without_raising(
    text: str, matches: list[tuple[int, int, str]]
) -> None:
    """Positions that lie outside the text, or out of order, do no harm."""
    reading = read_score_by_pattern(text, matches)
    assert (reading.score is None) == (reading.problem is not None)


unfenced = texts.filter(lambda text: not re.search("[`~]", text))


@given(unfenced, unfenced, st.integers(0, 1000))
def test_text_around_the_labelled_line_changes_no_score(
    before: str, after: str, thousandths: int
) -> None:
    """Lines without the label, above and below, leave the score and its clarity as they are."""
    for text in (before, after):
        assume("score" not in normalise_reply(text).casefold())
    reading = read_score(f"{before}\nSCORE: {thousandths / 1000}\n{after}")
    assert (reading.score, reading.ambiguous) == (thousandths / 1000, False)


@given(texts)
def test_no_text_without_the_label_gives_a_score(text: str) -> None:
    """Numbers in prose are not scores: without the label nothing is found."""
    assume("score" not in normalise_reply(text).casefold())
    assert read_score(text).problem == "missing"


@given(st.integers(0, 100_000))
def test_a_percentage_equals_the_same_decimal(thousandths: int) -> None:
    """93.7% and 0.937 are one float, so that a threshold treats them alike."""
    percent = f"{thousandths // 1000}.{thousandths % 1000:03d}"
    decimal = f"{thousandths // 100_000}.{thousandths % 100_000:05d}"
    assert read_score(f"score: {percent}%").score == float(decimal)


@given(st.integers(0, 200), st.integers(1, 200))
def test_a_quotient_is_exact_or_out_of_range(number: int, den: int) -> None:
    """number/den is the float nearest to the quotient, and refused above 1."""
    reading = read_score(f"score: {number}/{den}")
    if number <= den:
        assert reading.score == float(Fraction(number, den))
    else:
        assert reading.problem == "out_of_range"


@pytest.mark.parametrize(
    ("token", "following", "preceding", "expected"),
    [
        ("0.9", "", "", 0.9),
        ("0.9.", " Next", "", 0.9),
        ("8", "/10", "", 0.8),
        ("1.", "/10", "", 0.1),
        ("93", "%", "", 0.93),
        ("8/10", "", "", 0.8),
        ("0.9", " (100% of tests)", "", 0.9),
        ("**0.9**", "", "", 0.9),
        ("0.5", "", "-", "out_of_range"),
        ("0.5", "", "E-", 0.5),
        ("0.5", "", "3-", "unreadable"),
        ("5", "", "0.", "unreadable"),
        ("10", "", "8/", "unreadable"),
        ("0", ",85", "", "unreadable"),
        ("0", ".85", "", "unreadable"),
        ("85%", "5", "", "unreadable"),
        ("", "", "", "unreadable"),
        (".", "", "", "unreadable"),
    ],
)
def test_a_captured_number_is_read_with_what_stands_beside_it(
    token: str, following: str, preceding: str, expected: float | str
) -> None:
    """Units after a captured number count, and a piece of a longer number is no number."""
    reading = read_number(token, following, preceding=preceding)
    assert expected == (reading.score if reading.problem is None else reading.problem)


def test_the_raw_matches_are_kept() -> None:
    """A reading shows what was found, in order, the last twenty and each cut to size."""
    assert read_score("SCORE: X.XX\nSCORE: 8/10").found == ("X.XX", "8/10")
    many = read_score("\n".join(f"score: 0.{number:02d}" for number in range(50)))
    assert (len(many.found), many.found[-1]) == (20, "0.49")
    assert len(read_score("score: 0." + "9" * 500).found[0]) == 80


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        ("", "no score was found in the reply"),
        (
            "SCORE: high",
            "what stands where the score belongs is not one number, number/den or number%",
        ),
        ("SCORE: 7", "the score lies off its scale, and a score is never clamped"),
        ("> SCORE: 0.7", "a score stands only inside a quotation or a block of code"),
    ],
)
def test_a_problem_is_told_in_a_sentence(reply: str, detail: str) -> None:
    """What a re-ask quotes says what is wrong with the reply."""
    assert read_score(reply).detail == detail


@pytest.mark.parametrize("scale", [(1, 1), (1, 0), (0, math.inf), (math.nan, 1)])
def test_a_scale_without_extent_is_refused(scale: tuple[float, float]) -> None:
    """A degenerate scale is a configuration error for every reader, not a score."""
    expected = "two finite numbers, the lower first; write \\(0, 10\\) for a score from 0 to 10$"
    with pytest.raises(ConfigurationError, match=expected):
        read_score("score: 1", scale=scale)
    with pytest.raises(ConfigurationError, match=expected):
        read_number("1", "", scale)
    with pytest.raises(ConfigurationError, match=expected):
        read_score_by_pattern("1", [(0, 1, "1")], scale)


@pytest.mark.parametrize("label", ["", " ", ":", "**", "\u200b"])
def test_a_blank_label_is_refused(label: str) -> None:
    """A label that would match everything is a configuration error."""
    with pytest.raises(ConfigurationError, match="expected a word such as 'score'"):
        read_score("score: 1", label=label)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("score: " + "9" * FIVE_MILLION, "unreadable"),
        ("score:" * (FIVE_MILLION // 6), "unreadable"),
        ("score" + " " * FIVE_MILLION + ": 1", None),
        ("(" * FIVE_MILLION + "score: 1", None),
        ("a" + "\u0316\u0301" * (FIVE_MILLION // 2) + "\nscore: 1", None),
        ("*_`" * (FIVE_MILLION // 3) + "x", "missing"),
        ("8/" * (FIVE_MILLION // 2), "missing"),
    ],
    ids=["digits", "labels", "spaces", "brackets", "marks", "emphasis", "quotients"],
)
def test_five_megabytes_are_read_to_the_end(text: str, problem: str | None) -> None:
    """Texts on which backtracking or ordering would be quadratic are read like any other."""
    assert read_score(text).problem == problem
