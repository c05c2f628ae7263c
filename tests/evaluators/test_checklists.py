"""Checklists: the share of items that pass, and what an undecided one leaves of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from checking import error, found, same
from hypothesis import given
from hypothesis import strategies as st

from loopwright import Evaluation, Loop, MemoryJournal, Passed, run
from loopwright.errors import ConfigurationError
from loopwright.evaluators import check, checklist, score
from loopwright.evaluators.check import grade, segments

ITEMS: dict[str, Any] = {
    "short": {"max_words": 3},
    "has a date / time": check(matches="[0-9]"),
    "polite": lambda text: "please" in text,
}


def test_a_checklist_scores_the_share_that_passes() -> None:
    """Each item is a criterion with its gap, and the feedback lists what fails."""
    evaluation = found(checklist(ITEMS), "please wait a moment")
    assert [(item.name, item.passed) for item in evaluation.criteria] == [
        ("short", False),
        ("has a date / time", False),
        ("polite", True),
    ]
    assert (evaluation.score, evaluation.passed) == (pytest.approx(1 / 3), False)
    assert evaluation.feedback == (
        "2 of 3 items are not met:\n"
        "- short: max_words 3: has 4 words, 1 more than allowed\n"
        "- has a date / time: matches '[0-9]': nothing in it matches"
    )
    assert evaluation.improvements == (
        "short: max_words 3: has 4 words, 1 more than allowed",
        "has a date / time: matches '[0-9]': nothing in it matches",
    )


def test_a_checklist_that_is_met_is_exactly_1() -> None:
    """All items passed means passed, a score of 1 and nothing to say, whatever the weights."""
    evaluation = found(checklist(ITEMS, {"short": 0.1, "polite": 0.7}), "please: 12")
    assert (evaluation.score, evaluation.passed, evaluation.feedback) == (1.0, True, "")


@given(st.lists(st.tuples(st.booleans(), st.floats(0.001, 1000)), min_size=1, max_size=8))
def test_a_grade_is_the_weighted_share(rows: list[tuple[bool, float]]) -> None:
    """The score is in 0..1, is 1 only if all passed, and grows with each item that passes."""
    names = [f"i{n}" for n in range(len(rows))]
    weights = dict(zip(names, (weight for _, weight in rows), strict=True))
    one, none = Evaluation(1.0, True), Evaluation(0.0, False)
    items = [(n, one if met else none) for n, (met, _) in zip(names, rows, strict=True)]
    evaluation = grade(items, weights)
    assert evaluation.score is not None
    assert 0 <= evaluation.score <= 1
    assert evaluation.passed is all(met for met, _ in rows)
    assert (evaluation.score == 1) >= evaluation.passed
    more = grade([(names[0], one), *items[1:]], weights)
    assert more.score is not None
    assert more.score >= evaluation.score


def test_an_undecided_item_leaves_the_list_undecided() -> None:
    """What could not be judged counts neither for nor against; the vote names it."""
    evaluation = found(checklist({"a": score(), "b": ITEMS["polite"]}), "nothing")
    assert (evaluation.undecided, evaluation.score, evaluation.passed) == (True, None, None)
    assert evaluation.votes == ({"item": "a", "undecided": True},)
    assert [item.passed for item in evaluation.criteria] == [False, False]


def test_an_item_without_a_verdict_is_an_error() -> None:
    """A score alone says neither that an item is met nor that it is not."""
    assert error(checklist({"a": lambda text: 0.7})) == (
        "no_verdict",
        (
            "item 'a': its check gave no verdict. Return True or False, or set the score from "
            "which it passes: check(function, at_least=0.8)."
        ),
    )


def test_an_error_of_one_item_is_an_error_of_the_list() -> None:
    """Nothing is scored that was not looked at."""
    assert (
        error(checklist({"a": {"max_words": 9}, "b": {"command": "exit 127"}}))[0]
        == "evaluator_broken"
    )


@pytest.mark.parametrize(
    ("items", "weights", "message"),
    [
        ({}, None, "checklist: {} has no items. Use an object of checks."),
        ({"tone": same}, {"tune": 1}, "checklist: weights: no item 'tune'; did you mean 'tone'?"),
        ({"a": same}, {"a": 0}, "checklist: weights: a: 0 is out of range; give a number above 0"),
        ({"a": {"max_word": 1}}, None,
         "check: unknown option 'max_word'; did you mean 'max_words'?"),
    ],
)  # fmt: skip
def test_a_checklist_that_could_mean_nothing_is_refused(
    items: Any, weights: Any, message: str
) -> None:
    """Mistakes are found when the checklist is made."""
    with pytest.raises(ConfigurationError) as raised:
        checklist(items, weights)
    assert str(raised.value) == message


class Crash(BaseException):
    """Stands for the death of the process."""


def test_a_resumed_checklist_looks_only_at_what_is_left() -> None:
    """Each item is an effect of its own, on record once it was looked at."""
    looks: list[str] = []

    def look(name: str) -> Any:
        def looked(text: str) -> bool:
            if name == "b" and "crashed" not in looks:
                looks.append("crashed")
                raise Crash
            looks.append(name)
            return True

        return looked

    async def crashed() -> Any:
        journal = MemoryJournal()
        loop = Loop(same, checklist({n: look(n) for n in "abc"}), until=Passed(), name="l")
        with pytest.raises(Crash):
            await run(loop, "x", journal=journal, run_id="r")
        journal.crash()
        result = await run(loop, journal=journal, run_id="r")
        return result, [e.path for e in await journal.entries("r") if e.kind == "finished"]

    result, paths = asyncio.run(crashed())
    assert result.satisfied
    assert looks == ["a", "crashed", "b", "c"]
    assert paths == ["l/1/execute", *(f"l/1/evaluate/{n}" for n in "abc")]


@given(st.lists(st.text("ab/", max_size=3), max_size=6))
def test_segments_are_parts_of_paths_and_each_once(names: list[str]) -> None:
    """Whatever the names, no part has a slash, none is empty and none is there twice."""
    parts = segments(names)
    assert len(set(parts)) == len(parts) == len(names)
    assert all(part and "/" not in part for part in parts)
