"""The held corpus: whole replies of models, with noise of every class, and what must be read of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from loopwright import run_sync
from loopwright.evaluators import read_verdict, score
from loopwright.models import read_value

CORPUS: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[1] / "data" / "model_replies.yaml").read_text("utf-8")
)
SCHEMA: dict[str, Any] = CORPUS["schema"]
MARK: str = CORPUS["mark"]
VALUES = [
    pytest.param(*row, id=f"{group['group']}-{number}")
    for group in CORPUS["values"]
    for number, row in enumerate(group["replies"])
]


def test_the_corpus_is_large_enough() -> None:
    """At least 150 replies, all different."""
    rows = [p.values[0] for p in VALUES] + [str(row) for row in CORPUS["verdicts"]]
    rows += [row[0] for row in CORPUS["scores"]]
    assert len(set(rows)) == len(rows) >= 150


@pytest.mark.parametrize(("reply", "expected"), VALUES)
def test_a_value_is_read_where_it_is_plain_and_never_a_wrong_one(reply: str, expected: Any) -> None:
    """Each reply gives its value with the types of the schema, or the problem with it."""
    reading = read_value(reply, SCHEMA)
    if isinstance(expected, str):
        assert (reading.value, reading.problem) == (None, expected)
        assert reading.complaint.endswith((".", "}"))
    else:
        assert (reading.value, reading.problem) == (expected, "")
        assert {k: type(v) for k, v in reading.value.items()} == {
            k: type(v) for k, v in expected.items()
        }


@pytest.mark.parametrize(("candidate", "reply", "expected"), CORPUS["verdicts"])
def test_a_verdict_is_read_and_none_is_forged(candidate: str, reply: str, expected: str) -> None:
    """Each reply gives its verdict, or is asked for again."""
    found = read_verdict(reply, candidate=candidate, mark=MARK).answer
    assert found == ("unparsable" if expected == "?" else expected)


@pytest.mark.parametrize(("reply", "expected"), CORPUS["scores"])
def test_a_score_is_read_or_undecided(reply: str, expected: float | None) -> None:
    """Each reply gives its score, or none."""
    found = run_sync(score(), reply).output
    assert (found.score, found.undecided) == (expected, expected is None)
