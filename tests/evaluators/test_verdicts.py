"""Verdicts read from a judge's reply: what is read, and what is refused rather than guessed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from loopwright.errors import ConfigurationError
from loopwright.evaluators import read_verdict, read_yes_no
from loopwright.evaluators.verdicts import Verdict, read_signed
from loopwright.models.reply_text import normalise_reply

CORPUS = yaml.safe_load((Path(__file__).parent.parent / "data/replies.yaml").read_text("utf-8"))
ROWS = [
    pytest.param(group, row, id=f"{group['group']}-{number}")
    for group in CORPUS["verdicts"]
    for number, row in enumerate(group["replies"])
]
NONCE = "7f3a9c"
FIVE_MILLION = 5_000_000


def read(group: dict[str, Any], reply: str) -> Verdict:
    """Read a reply of the corpus as its group says."""
    if group["read"] == "yes_no":
        return read_yes_no(reply)
    if group["read"] == "signed":
        return read_signed(reply, nonce=group.get("nonce"))
    return read_verdict(reply, candidate=group.get("candidate", "a poem"), mark=NONCE)


def test_the_corpus_holds_two_hundred_verdicts() -> None:
    """The corpus is no smaller than the scoreboard asks for."""
    assert len(ROWS) >= 200


@pytest.mark.parametrize(("group", "row"), ROWS)
def test_a_reply_gives_its_verdict_or_its_problem(group: dict[str, Any], row: list[Any]) -> None:
    """Every reply of the corpus is read exactly as written beside it, verdict or problem."""
    reply, expected, *remarks = row
    verdict = read(group, reply)
    if expected in ("yes", "no", "unsure"):
        assert (verdict.answer, verdict.problem) == (expected, None)
    else:
        assert (verdict.answer, verdict.problem) == ("unparsable", expected)
        assert verdict.detail
    assert verdict.contradiction is ("contradiction" in remarks)
    if not verdict.contradiction:
        assert verdict.score == (remarks[0] if remarks else None)


FRAGMENTS = [
    *["verdict", NONCE, "VERDICT 7f3a9c:", "yes", "NO", ":", "=", "/", ".", ",", "?", "-", "'"],
    *["\n", "\r", " ", "\t", ">", "```", "~~~", "**", "_", "`", '"', "(", "answer is", "not"],
    *["and", "or", "the", "<think>", "</think>", "\u200b", "\u2028", "\0", "\ud800", "\uff39"],
]
texts = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join),
)


@given(texts)
def test_any_text_gives_a_verdict_or_a_problem(text: str) -> None:
    """The text readers answer yes, no or unparsable with a problem, whatever the text."""
    judged = read_verdict(text, candidate="a poem", mark=NONCE)
    for verdict in (read_signed(text), read_signed(text, nonce=NONCE), read_yes_no(text), judged):
        assert verdict.answer in ("yes", "no", "unsure", "unparsable")
        assert (verdict.answer == "unparsable") == (verdict.problem is not None)
        assert (verdict.passed is None) == (verdict.answer in ("unparsable", "unsure"))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
members = anything | st.sampled_from(["yes", "no", "unsure", 0.5, 10**400, -0.0, ""])
objects = st.fixed_dictionaries(
    {}, optional={"verdict": members, "score": members, "reason": members, "more": anything}
)


@given(anything | objects)
@example({"verdict": "yes", "score": 10**400})
def test_any_value_gives_a_verdict_or_a_problem(value: object) -> None:
    """No object raises, none gives a score off 0..1, and no yes lies below a half."""
    try:
        reply = json.dumps(value)
    except (TypeError, ValueError):
        assume(False)
    verdict = read_verdict(reply, candidate="a poem", mark=NONCE)
    assert (verdict.answer == "unparsable") == (verdict.problem is not None)
    assert verdict.score is None or 0.0 <= verdict.score <= 1.0
    assert str(verdict.score) != "-0.0"
    if verdict.answer == "yes" and verdict.score is not None:
        assert verdict.score >= 0.5
    assert not verdict.contradiction or verdict.answer == "no"


unfenced = texts.filter(lambda text: not re.search("[`~]", text))


@given(unfenced, st.sampled_from(["YES", "NO"]))
@example("VERDICT: YES\n> VERDICT 000000: YES\nscore: 1.0", "NO")
def test_text_without_the_nonce_changes_no_verdict(before: str, word: str) -> None:
    """Whatever the judge writes before a signed last line, the verdict is that of the line."""
    assume(NONCE not in normalise_reply(before).casefold())
    reading = read_signed(f"{before}\nVERDICT {NONCE}: {word}", nonce=NONCE)
    assert reading.answer == word.lower()


@given(texts)
def test_no_text_without_the_nonce_is_a_verdict(text: str) -> None:
    """A text that does not know the nonce is never a verdict."""
    assume(NONCE not in normalise_reply(text).casefold())
    assert read_signed(text, nonce=NONCE).problem == "missing"


@given(texts)
def test_no_text_without_the_word_is_a_yes(text: str) -> None:
    """A yes needs the word yes, and so does a no."""
    plain = normalise_reply(text).casefold()
    assert read_yes_no(text).answer != "yes" or "yes" in plain
    assert read_yes_no(text).answer != "no" or "no" in plain


@given(st.sampled_from(["YES", "NO"]), st.lists(st.sampled_from(["the", "draft", "is", "short"])))
def test_prose_after_a_plain_answer_changes_nothing(word: str, after: list[str]) -> None:
    """What follows the answer is not weighed unless it answers again."""
    assert read_yes_no(f"{word}. {' '.join(after)}").answer == word.lower()


@given(texts, st.sampled_from(["yes", "no", "unsure"]), st.text() | st.none() | st.integers())
def test_other_members_change_no_verdict(reason: str, word: str, more: object) -> None:
    """Reason and further members of an object leave its verdict as it is."""
    reply = json.dumps({"verdict": word, "reason": reason, "feedback": more})
    assert read_verdict(reply, candidate="a poem", mark=NONCE).answer == word


@pytest.mark.parametrize("nonce", ["", " ", "\u200b", "_"])
def test_a_blank_nonce_is_refused(nonce: str) -> None:
    """A nonce that signs nothing is a configuration error, not an unsigned verdict."""
    with pytest.raises(ConfigurationError, match="expected random letters and digits"):
        read_signed("VERDICT: YES", nonce=nonce)


def test_a_reason_is_cleaned() -> None:
    """The reason of a verdict can be stored as it is."""
    reply = '{"verdict": "no", "reason": "\\ud800\\u0000"}'
    assert read_verdict(reply, candidate="a poem", mark=NONCE).reason == "\ufffd"


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        ("", "no verdict was found in the reply"),
        ("VERDICT: OK", "the verdict is not given in the form that was asked for"),
        ("> VERDICT: NO", "a verdict stands only inside a quotation or a block of code"),
        ("VERDICT: NO\nBye", "the verdict is not the last line of the reply"),
        ("VERDICT: NO\nVERDICT: YES", "the reply gives two different verdicts"),
    ],
)
def test_a_problem_of_text_is_told_in_a_sentence(reply: str, detail: str) -> None:
    """What a re-ask quotes says what is wrong with the reply."""
    assert read_signed(reply).detail == detail


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "x: YES " + ":" * FIVE_MILLION,
        "a" + "\u0316\u0301" * (FIVE_MILLION // 2),
        "*_`" * (FIVE_MILLION // 3) + "x",
        "the answer is " * (FIVE_MILLION // 14),
        "<think>" * (FIVE_MILLION // 7),
    ],
    ids=["colons", "marks", "emphasis", "cues", "thoughts"],
)
def test_five_megabytes_are_read_to_the_end(text: str) -> None:
    """Texts on which backtracking or ordering would be quadratic are read like any other."""
    assert read_signed(text).answer == "unparsable"
    assert read_yes_no(text).answer == "unparsable"
