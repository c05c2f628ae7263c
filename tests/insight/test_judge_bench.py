"""The measurement of a judge recovers known rates, and its advice agrees with the exact calculation."""

from __future__ import annotations

import json
import random

import pytest

from loopwright.errors import ConfigurationError
from loopwright.evaluators.judge import Votes, error_rates
from loopwright.insight import JudgeCase, cases_from_jsonl, measure_judge


def simulated(
    seed: int, count: int, *, sensitivity=0.9, specificity=0.85, icc=0.5
) -> list[JudgeCase]:
    """Return cases of a judge whose chance of yes on one output is a Beta with correlation `icc`."""
    chance, cases = random.Random(seed), []
    for number in range(count):
        label = number % 2 == 0
        mean = sensitivity if label else 1 - specificity
        yes = chance.betavariate(mean * (1 - icc) / icc, (1 - mean) * (1 - icc) / icc)
        votes = tuple(chance.random() < yes for _ in range(3))
        cases.append(JudgeCase(f"c{number}", "text", label, votes))
    return cases


def test_intervals_cover_the_known_rates() -> None:
    """A sample; `make bench-insight` has 1,000 draws of 100 and 200 cases, with the bounds of each row."""
    truth = {"sensitivity": 0.9, "specificity": 0.85, "kappa": 0.75, "flip_rate": 0.10875}
    draws, hits = 25, dict.fromkeys(truth, 0)
    for seed in range(draws):
        report = measure_judge(simulated(seed, 60)).to_json()
        for name, value in truth.items():
            hits[name] += report[name]["low"] <= value <= report[name]["high"]
    assert min(hits.values()) >= 0.84 * draws, hits


def test_report_has_a_stable_shape() -> None:
    report = measure_judge(simulated(1, 120), certify=0.1).to_json()
    assert list(report) == [
        "cases", "votes", "confusion", "sensitivity", "specificity", "precision", "agreement", "kappa", "flip_rate",
        "icc", "error", "advice", "robustness", "certified", "persistent",
    ]  # fmt: skip
    assert json.loads(json.dumps(report)) == report
    assert 0.2 < report["icc"]["value"] < 0.8
    assert report["error"]["unlimited"] <= report["error"]["one"]


def test_advice_keeps_alpha_by_the_exact_calculation() -> None:
    report = measure_judge(simulated(2, 400, sensitivity=0.95, specificity=0.93, icc=0.2)).to_json()
    advice, counts = report["advice"], report["confusion"]
    rule = Votes(advice["accept_lead"], advice["reject_lead"], advice["max_votes"])
    bad = counts["fp"] / (counts["fp"] + counts["tn"])
    exact = error_rates(bad, rule, report["icc"]["value"]).accept
    assert advice["false_accept"] == pytest.approx(exact, abs=1e-12)
    assert exact <= 0.05


def test_a_judge_whose_errors_persist_is_unattainable() -> None:
    cases = [JudgeCase(f"g{i}", "fine", True, (True,) * 3) for i in range(60)]
    cases += [JudgeCase(f"b{i}", f"bad {i}", False, (i < 20,) * 3) for i in range(60)]
    report = measure_judge(cases).to_json()
    assert "use a second judge" in report["advice"]["unattainable"]
    assert [row["id"] for row in report["persistent"]] == [f"b{i}" for i in range(20)]
    assert report["error"]["majority"] == report["error"]["one"]


def test_too_few_cases_have_a_reason_in_place_of_a_value() -> None:
    report = measure_judge(simulated(3, 40)).to_json()
    assert report["icc"] == {"why": "too few: 40 of 100 cases"}
    assert "why" in report["advice"]
    one_sided = measure_judge([JudgeCase("a", "x", True, (True,))] * 3).to_json()
    assert "why" in one_sided["specificity"]
    assert "why" in one_sided["flip_rate"]


def test_certified_threshold_counts_labels_of_high_scores() -> None:
    liked = [JudgeCase(f"c{i}", "x", True, (True,), 0.95) for i in range(29)]
    assert measure_judge(liked, certify=0.1).to_json()["certified"] == {
        "threshold": 0.95, "labels": 29, "errors": 0,
    }  # fmt: skip
    why = measure_judge(liked[:22], certify=0.1).to_json()["certified"]["why"]
    assert why == "needs 29 labels of scores from 0.75 without an error for 10%; there are 22"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ('{"output": "x"}', "c.jsonl:2: label: missing"),
        ('{"output": "x", "lable": true}', "c.jsonl:2: unknown key 'lable'; did you mean 'label'?"),
        ('{"output": "x", "label": true, "score": NaN}', "c.jsonl:2: score"),
        ('{"output": "x", "label": true, "score": true}', "c.jsonl:2: score: true is not a number"),
        ('{"output": "x", "label": true, "votes": ["yes"]}', "c.jsonl:2: votes"),
        ('{"output": "x", "label"', "c.jsonl:2:24: not valid JSON: "),
        ("[]", "c.jsonl:2: this line is not a JSON object"),
        (
            '{"id": "1", "output": "x", "label": true}',
            "c.jsonl:2: id '1' is already used in line 1",
        ),
    ],
)
def test_a_wrong_line_is_one_sentence_with_its_number(row: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        cases_from_jsonl('{"id": "1", "output": "x", "label": true}\n' + row, "c.jsonl")
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)
