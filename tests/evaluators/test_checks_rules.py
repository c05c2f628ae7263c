"""Checks by rules for the text, and what cannot be a check."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from checking import error, found, same
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import Criterion, Loop
from loopwright.errors import ConfigurationError
from loopwright.evaluators import check, checklist, gates, score
from loopwright.evaluators import test_report as tests_of


@pytest.mark.parametrize(
    ("rule", "output", "gap"),
    [
        ({"max_words": 2}, "a b", ""),
        ({"max_words": 2}, " a\tb\nc ", "has 3 words, 1 more than allowed"),
        ({"min_words": 3}, "a b", "has 2 words, 1 fewer than asked for"),
        ({"min_words": 0}, "", ""),
        ({"max_chars": 3}, "aé🙂", ""),
        ({"max_chars": 3}, "abcde", "has 5 chars, 2 more than allowed"),
        ({"min_chars": 2}, "a", "has 1 chars, 1 fewer than asked for"),
        ({"contains": "b"}, "abc", ""),
        ({"contains": "B"}, "abc", "'B' is not in it"),
        ({"contains": "B", "ignore_case": True}, "abc", ""),
        ({"matches": "^b"}, "abc", "nothing in it matches"),
        ({"matches": "^A", "ignore_case": True}, "abc", ""),
        ({"not_matches": r"\d+"}, "abc", ""),
        ({"not_matches": r"\d+"}, "ab12c", "'12' in it matches"),
        ({"contains": '"a": 1'}, {"a": 1}, ""),
        ({"max_chars": 0}, None, ""),
    ],
)
def test_a_rule_says_what_is_missing(rule: dict[str, Any], output: Any, gap: str) -> None:
    """A rule holds or names its gap; the score is 1 or 0, and the feedback names the rule."""
    evaluation = found(check(**rule), output)
    keyword, value = next(iter(rule.items()))
    name = f"{keyword} {value!r}"
    assert evaluation.criteria == (Criterion(name, not gap, gap),)
    assert (evaluation.passed, evaluation.score) == (not gap, 0.0 if gap else 1.0)
    assert evaluation.feedback == (f"{name}: {gap}" if gap else "")
    assert evaluation.improvements == ((f"{name}: {gap}",) if gap else ())


def test_all_rules_are_criteria_and_all_must_hold() -> None:
    """Several rules are looked at together, and each that fails is named."""
    evaluation = found(check(min_words=3, contains=["a", "z"], max_words=9), "a b")
    assert [(item.name, item.passed) for item in evaluation.criteria] == [
        ("max_words 9", True),
        ("min_words 3", False),
        ("contains 'a'", True),
        ("contains 'z'", False),
    ]
    assert (evaluation.passed, evaluation.score) == (False, 0.0)
    assert len(evaluation.improvements) == 2


@settings(max_examples=30)
@given(st.text(max_size=60), st.integers(0, 12))
def test_counting_words_agrees_with_itself(text: str, limit: int) -> None:
    """At most n and at least n both hold exactly at n."""
    words = len(text.split())
    most = check(max_words=limit)
    least = check(min_words=limit)
    both = [asyncio.run(rule.act(text, None)).passed for rule in (most, least)]
    assert both == [words <= limit, words >= limit]


@pytest.mark.parametrize("evaluator", [check(matches="(a+)+$"), score(pattern="(a+)+$")])
def test_a_pattern_that_takes_too_long_decides_nothing(evaluator: Any) -> None:
    """A hostile pattern is an error of the check, neither passed nor not passed."""
    assert error(evaluator, "a" * 5000 + "b")[0] == "pattern_timeout"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, ("check: no rule. Use a function, command, schema, matches, "
         "contains or a limit such as max_words.")),
        ({"max_word": 3}, "check: unknown option 'max_word'; did you mean 'max_words'?"),
        ({"command": ["a"], "max_words": 3}, ("check: unknown option 'max_words'; it takes "
         "command, name, score, args, env, stdin, cwd, timeout, sandbox")),
        ({"schema": {}, "nam": ""}, "check: unknown option 'nam'; did you mean 'name'?"),
        ({"max_words": -1}, "check: max_words: -1 is too small; give at least 0"),
        ({"max_words": 1.5}, "check: max_words: 1.5 is not an integer"),
        ({"contains": ""}, "check: contains: '' is not a text. Use a text, or a list of texts."),
        ({"contains": [1]}, "check: contains: 1 is not a text. Use a text, or a list of texts."),
        ({"matches": "("}, "pattern '(': missing ) at position 1"),
        ({"command": []}, "shell: [] is not a command. Use a list of words, or a script as text."),
    ],
)  # fmt: skip
def test_a_check_that_could_mean_nothing_is_refused(options: Any, message: str) -> None:
    """Mistakes are found when the check is made, with the nearest valid name."""
    with pytest.raises(ConfigurationError) as raised:
        check(**options)
    assert str(raised.value) == message


def test_a_step_made_of_steps_is_no_function() -> None:
    """A loop that judges is an evaluator as it is."""
    with pytest.raises(ConfigurationError, match="same consists of several steps"):
        check(Loop(same))
    with pytest.raises(ConfigurationError, match="at_least: 2 is out of range"):
        check(same, at_least=2)


def test_a_fingerprint_follows_the_meaning_of_a_check() -> None:
    """Another limit, function, schema or command is another step."""
    made = [
        check(max_words=1), check(max_words=2), check(min_words=1), check(contains="a"),
        check(contains="a", ignore_case=True), check(schema={}), check(schema={"type": "null"}),
        check(command=["a"]), check(command=["b"]), check(same), check(same, at_least=0.5),
        score(), score("x"), score(scale=(0, 10)), score(pattern="x"), tests_of(["a"]),
        tests_of(["a"], report="b"), checklist({"a": same}), checklist({"b": same}),
        checklist({"a": same}, {"a": 2}), gates(same), gates(same, same),
    ]  # fmt: skip
    assert len({item.fingerprint for item in made}) == len(made)
