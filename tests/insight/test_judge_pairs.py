"""The measurement of a judge of pairs: shares by pairs, in both orders, with intervals that cover."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from loopwright import pair_judge, run
from loopwright._statistics import wilson
from loopwright.errors import ConfigurationError
from loopwright.evaluators.pairs import check_measured
from loopwright.insight import PairCase, PairMeasurement, measure_pairs, pairs_from_jsonl
from loopwright.models import Models, Reply, Request
from loopwright.testing import run_virtual

ROOT = Path(__file__).parents[2]


def case(label: str | None, *answers: str | None, name: str = "a") -> PairCase:
    return PairCase(name, "one", "other", label, answers=answers)


def test_a_pair_is_right_only_in_both_orders() -> None:
    """The second answer is about the other order, so `second` there means the first output of the case."""
    pairs = [
        case("first", "first", "second", name="right"),
        case("tie", "tie", "tie", name="right too"),
        case("first", "first", "first", name="turned"),
        case("first", "tie", "second", name="turned too"),
        case("second", "first", "second", name="wrong"),
        case("second", "second", None, name="undecided"),
    ]
    report = measure_pairs(pairs).to_json()
    assert (report["pairs"], report["undecided"]) == (6, 1)
    assert report["consistent_accuracy"]["value"] == 2 / 5
    assert report["consistency"]["value"] == 3 / 5
    assert report["flip_rate"]["value"] == 2 / 5
    assert report["first_share"]["value"] == 4 / 10
    assert report["turned"] == ["turned", "turned too"]
    assert report["persistent"] == [{"id": "wrong", "label": "second", "winner": "first"}]


def test_each_share_has_the_interval_of_wilson_over_pairs() -> None:
    """Two answers about a pair depend on each other, so they are no two cases of the share of `first`."""
    pairs = [case("first", "first", "second")] * 30 + [case("first", "first", "first")] * 10
    report = measure_pairs(pairs).to_json()
    for name, share in (
        ("consistent_accuracy", 0.75),
        ("consistency", 0.75),
        ("first_share", 50 / 80),
    ):
        row = report[name]
        assert (row["value"], row["low"], row["high"]) == wilson(share, 40)


def test_without_labels_only_consistency_is_known() -> None:
    report = measure_pairs([case(None, "first", "second"), case(None, "tie", "tie")]).to_json()
    assert report["consistent_accuracy"] == {"why": "no pair has a label"}
    assert report["consistency"]["value"] == 1.0
    assert report["persistent"] == []
    with pytest.raises(ConfigurationError, match="unknown: no pair has a label"):
        check_measured(report, "any", "f.json")


def test_nothing_is_measured_without_a_readable_pair() -> None:
    with pytest.raises(ConfigurationError, match="no pair has a readable answer in both orders"):
        measure_pairs([case("first", "first", None), case("first")])


GOOD = '{"id": "a", "first": "x", "second": {"b": 1}, "label": "first"}\n'


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"first": "x"', r"f:2:14: not valid JSON"),
        ("[]", "f:2: this line is not a JSON object"),
        ('{"first": "x", "label": "tie"}', "f:2: second: missing"),
        ('{"first": "x", "second": "y", "label": "frst"}', "f:2: label: 'frst' is not .*'first'"),
        ('{"first": "x", "second": "y", "label": true}', "f:2: label: True is not first, second"),
        ('{"first": "x", "second": "y"}', "f:2: label: missing, and other pairs have one"),
        ('{"first": "x", "second": "y", "lable": "tie"}', "f:2: unknown key 'lable'.*'label'"),
        (GOOD.strip(), "f:2: id 'a' is already used in line 1"),
    ],
)
def test_a_line_that_is_no_pair_is_named(line: str, problem: str) -> None:
    """One sentence with the file and the line."""
    assert len(pairs_from_jsonl(GOOD, "f")) == 1
    with pytest.raises(ConfigurationError, match=problem) as caught:
        pairs_from_jsonl(GOOD + line, "f")
    assert "\n" not in str(caught.value)


class Longer:
    """A model that prefers the longer candidate, and says `first` if both have the same length."""

    def __init__(self) -> None:
        self.questions: list[str] = []

    async def complete(self, request: Request, on_text: Any = None) -> Reply:
        question = request.messages[-1].content
        self.questions.append(question)
        first, second = (part.split("\n")[1] for part in question.split("<<<")[1:])
        winner = "second" if len(second) > len(first) else "first"
        return Reply(json.dumps({"winner": winner, "reason": "longer"}))


def test_every_pair_is_asked_in_both_orders_with_its_goal() -> None:
    """The run reports the judge and what it found, and the report names exactly this judge."""
    model = Longer()
    judge = pair_judge("Which is longer?", model="openai:any")
    pairs = [
        PairCase("long", "a longer text", "short", "first", "the goal of this pair"),
        PairCase("same length", "abc", "xyz", "tie"),
    ]
    step, value = PairMeasurement(judge, at_once=1), [pair.to_json() for pair in pairs]
    report = run_virtual(run(step, value, resources={"models": Models(model)})).output
    assert ["the goal of this pair" in asked for asked in model.questions] == [
        True,
        True,
        False,
        False,
    ]
    assert report["consistent_accuracy"]["value"] == 0.5
    assert report["turned"] == ["same length"]
    other = pair_judge("Which is shorter?", model="openai:any")
    with pytest.raises(ConfigurationError, match=r"another judge \('Which is longer\?'\)"):
        check_measured(report, other.identity)
    with pytest.raises(ConfigurationError, match="unattainable"):
        check_measured(report, judge.identity)


def test_the_intervals_cover_the_truth_of_simulated_judges() -> None:
    """A sample of `benchmarks/search/pairs.py`, which has the full figure: 93 % of 1,000 draws."""
    file = ROOT / "benchmarks" / "search" / "pairs.py"
    spec = importlib.util.spec_from_file_location("simulated_pairs", file)
    assert spec is not None
    assert spec.loader is not None
    simulated = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = simulated
    spec.loader.exec_module(simulated)
    for judge in simulated.JUDGES[2], simulated.JUDGES[-1]:
        shares = simulated.coverage(judge, 150)
        assert min(shares.values()) >= 0.9, (judge, shares)
