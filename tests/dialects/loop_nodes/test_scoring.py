"""Scores out of what agents write, lessons, and answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.dialects.orka.loop_node import LoopNodeLessons, Scorer, Strategy, extract
from loopwright.dialects.orka.presets import CONTEXTS, LEVELS, criteria_of, preset, weighted
from loopwright.dialects.orka.templates import (
    AGENTS,
    agents_in,
    reply_text,
    same_decision,
    shown,
)
from loopwright.errors import ConfigurationError, StepError
from loopwright.evaluators import agreement
from loopwright.evaluators.answers import answer, read_binary, read_classification
from loopwright.models import Reply

PATTERN = Scorer((Strategy((r"SCORE:\s*([0-9.]+)",)),))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_weights_of_every_preset_sum_to_one(level: str, context: str) -> None:
    """The weights of a preset are shares of 1, and all criteria together give 1."""
    weights = preset(level, context)
    assert sum(weights.values()) == pytest.approx(1.0)
    found: dict[str, dict[str, bool]] = {}
    for name in weights:
        dimension, _, criterion = name.partition(".")
        found.setdefault(dimension, {})[criterion] = True
    assert weighted(found, weights) == (pytest.approx(1.0), [])


def test_custom_weights_are_renormalised() -> None:
    """A weight of one's own changes all shares; an unknown criterion names the nearest."""
    weights = preset("strict", "quality", {"clarity.well_structured": 1.0})
    assert sum(weights.values()) == pytest.approx(1.0)
    assert weights["clarity.well_structured"] == pytest.approx(1 / 1.92)
    with pytest.raises(ConfigurationError, match="did you mean"):
        preset("strict", "quality", {"clarity.structured": 1.0})
    with pytest.raises(ConfigurationError, match="at least 0"):
        preset("strict", "quality", {"clarity.well_structured": -1.0})


def test_half_of_the_criteria_must_be_there() -> None:
    """With fewer than half of a preset's criteria it is not an evaluation by it; missing ones count as false."""
    weights = preset("moderate", "validation")
    few = {"schema_compliance": {"matches_schema": True, "correct_types": True}}
    assert weighted(few, weights) is None
    enough = {
        "schema_compliance": {
            "matches_schema": "yes",
            "correct_types": 1,
            "all_required_fields": "PASSED",
        }
    }
    assert weighted(enough, weights) == (0.6, [
        "constraints.within_bounds", "constraints.valid_relationships", "format.well_formed",
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("outputs", "score"),
    [
        ({"scorer": "SCORE: 0.4 then SCORE: 0.6"}, 0.6),
        ({"a": "SCORE: 0.4", "b": "SCORE: 0.6"}, 0.6),
        ({"a": "SCORE: 0.4", "b": "nothing"}, 0.4),
        ({"scorer": "nothing", "b": "SCORE: 0.6"}, None),
        ({"a": "SCORE: 0.4", "f": {AGENTS: {"x": "SCORE: 0.7"}}}, 0.7),
        ({"scorer": {"response": "SCORE: 0.3", "confidence": 0.9}}, 0.3),
        ({"scorer": "SCORE: nan"}, None),
        ({}, None),
    ],
)
def test_the_score_is_that_of_the_scorer(outputs: dict[str, Any], score: float | None) -> None:
    """Of several matches the last, of several agents the one that looks like a scorer, else the last, counts."""
    found = PATTERN.evaluate(outputs)
    assert found.score == score
    assert found.undecided is (score is None)


@given(st.dictionaries(st.sampled_from(["a", "scorer", "b"]), st.text(max_size=60), max_size=3))
def test_scoring_is_total(outputs: dict[str, str]) -> None:
    """Whatever agents write, there is a score from 0 to 1 or none, and never an error (invariant I19)."""
    score = Scorer().evaluate(outputs).score
    assert score is None or 0 <= score <= 1


OUTPUTS = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["response", "score", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(OUTPUTS)
def test_any_output_has_a_text(output: Any) -> None:
    """An output of any shape reads as text and as a value of templates."""
    assert isinstance(reply_text(output), str)
    assert shown(output).text == reply_text(output)


def test_groups_are_flat() -> None:
    """Agents of groups within groups stand at the place of the group."""
    outputs = {"a": 1, "f": {AGENTS: {"b": 2, "g": {AGENTS: {"c": 3}}}}, "d": 4}
    assert list(agents_in(outputs)) == ["a", "b", "c", "d"]
    assert reply_text(outputs["f"]) == "b: 2\n\nc: 3"


def test_lessons_are_found_once_and_cut() -> None:
    """A lesson is found once, however short or long it is, and a category has the bound of the document."""
    patterns, _ = LoopNodeLessons({"insights": (r"finds (.+?)(?:\n|$)",)}).compiled()
    text = "It finds a clear structure\nit finds A CLEAR STRUCTURE\nfinds ice\nfinds " + "x" * 201
    assert (
        extract(patterns, {"a": text}, 300)["insights"] == f"a clear structure | ice | {'x' * 201}"
    )
    assert extract(patterns, {"a": text}, 8)["insights"] == "a cle..."
    assert extract(patterns, {"a": "finds a"}, 300)["insights"] == "a"


@pytest.mark.parametrize(
    ("text", "said"),
    [("Yes.", True), ("TRUE", True), ("incorrect", False), ("That is not right", False), ("No, yes", False),
     ('{"response": "true"}', True), ('{"response": false}', False), ("<think>no</think> yes", True),
     ("affirmative", True)],
)  # fmt: skip
def test_binary_answers_are_read_by_their_first_word(text: str, said: bool) -> None:
    """The first word that is a yes or a no decides; `incorrect` is no yes."""
    assert read_binary(text) is said


def test_an_answer_that_is_neither_is_an_error() -> None:
    """A reply without a yes or a no is an error and never a guess."""
    with pytest.raises(StepError, match="neither true nor false"):
        read_binary("perhaps")


@pytest.mark.parametrize(
    ("text", "option"),
    [("tea", "tea"), ("**Tea**.", "tea"), ("It is tea", "tea"), ("tea or coffee", "not-classified"),
     ("teapot", "not-classified"), ('{"response": "coffee"}', "coffee"), ("", "not-classified")],
)  # fmt: skip
def test_classifications_are_options(text: str, option: str) -> None:
    """A reply is an option, names exactly one of them, or is not classified."""
    assert read_classification(text, ["tea", "coffee"]) == option
    assert answer("classification", ["tea", "coffee"]).read(Reply(text)) == option


@pytest.mark.parametrize(
    ("output", "key", "same"),
    [(True, "true", True), (True, "yes", True), ("YES", "True", True), (False, "no", True), (False, "true", False),
     ("tea", "Tea", True), ({"response": "tea"}, "tea", True), ({"result": True}, "1", True),
     ("tea time", "tea", False)],
)  # fmt: skip
def test_decisions_match_keys_by_meaning(output: Any, key: str, same: bool) -> None:
    """True, yes and 1 are one decision, false, no and 0 another, and words compare without case."""
    assert same_decision(output, key) is same


def test_validators_tell_both_scores() -> None:
    """A validator's reply gives the share that holds and its weight, and a word for them."""
    criteria = criteria_of("lenient", "validation")
    found = criteria.read(
        "matches_schema: true\nall required fields: passed\ncorrect_types = false\nwithin_bounds yes"
    )
    assert found["validation_score"] == 0.5
    assert found["weighted_score"] == 0.58
    assert found["overall_assessment"] == "REJECTED"
    assert found["dimension_scores"] == {
        "schema_compliance": {"score": 0.38, "max_score": 0.53, "percentage": 71.7},
        "constraints": {"score": 0.2, "max_score": 0.35, "percentage": 57.1},
        "format": {"score": 0, "max_score": 0.12, "percentage": 0.0},
    }


@pytest.mark.parametrize("reply", ["{}", "Sorry, I cannot help", "matches_schema: true"])
def test_a_validator_that_says_too_little_is_undecided(reply: str) -> None:
    """A reply with fewer than half of the criteria is no judgement: no score, and nothing has failed."""
    found = criteria_of("lenient", "validation").read(reply)
    assert found["overall_assessment"] == "UNDECIDED"
    assert found["validation_score"] is None
    assert found["failed_criteria"] == []


@given(st.lists(st.text(max_size=40), max_size=5))
def test_agreement_is_a_share_that_no_order_changes(texts: list[str]) -> None:
    """It is from 0 to 1, the same in any order, and 1 for texts with the same words."""
    found = agreement(texts)
    assert 0.0 <= found <= 1.0
    assert agreement(texts[::-1]) == pytest.approx(found, abs=1e-4)
    assert agreement(["buy the red car", "the red car BUY"]) == 1.0


def test_agreement_stands_in_only_where_nobody_was_to_give_a_score() -> None:
    """One agent agrees with nobody, and an agent of high priority that gave no score leaves none."""
    alike = {"a": "green tea", "b": "green tea"}
    assert Scorer(agree=True).evaluate(alike).score == 1.0
    assert Scorer(agree=True).evaluate({"a": "green tea"}).undecided
    assert Scorer(agree=True, first=("a",)).evaluate(alike).undecided
    assert Scorer(agree=True).evaluate({**alike, "c": "SCORE: 0.2"}).score == 0.2
    assert Scorer().evaluate(alike).undecided


def test_under_parity_the_earliest_score_counts() -> None:
    """Pattern by pattern, then agent by agent in the order in which they ran, then the first match."""
    patterns = (r"SCORE:\s*([0-9.]+)", r"RATE:\s*([0-9.]+)")
    parity = Scorer((Strategy(patterns),), earliest=True)
    outputs = {"one": "RATE: 0.1", "two": "SCORE: 0.4, SCORE: 0.6", "scorer": "SCORE: 0.9"}
    assert parity.evaluate(outputs).score == 0.4
    assert Scorer((Strategy(patterns),)).evaluate(outputs).score == 0.9
