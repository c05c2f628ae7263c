"""The public names of evaluators: similarity, and what importing evaluators costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from checking import found
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import ConfigurationError
from loopwright.evaluators import similarity, test_report

EXPECTED = "The cat sat."


@pytest.mark.parametrize(
    ("output", "score"),
    [
        ("The cat sat.", 1.0),
        ("  the CAT\n sat. ", 1.0),  # case and white space are ignored
        ("The cat sat down.", round(2 * 10 / 27, 4)),  # 10 common pairs of 11 and 16
        ("xyz", 0.0),
        ("", 0.0),
    ],
)
def test_similarity_is_the_share_of_common_pairs(output: str, score: float) -> None:
    """The score is 2 |A and B| / (|A| + |B|) of the pairs of characters, without a verdict."""
    evaluation = found(similarity(EXPECTED), output)
    assert (evaluation.score, evaluation.passed) == (score, None)


@given(st.text(min_size=1).filter(str.strip), st.text())
def test_similarity_is_symmetric_and_a_share(a: str, b: str) -> None:
    """Any two texts have a score from 0 to 1, whichever of them is expected."""
    score = found(similarity(a), b).score
    assert score is not None
    assert 0 <= score <= 1
    if b.strip():
        assert found(similarity(b), a).score == score


def test_similarity_with_a_limit_has_a_verdict_and_a_gap() -> None:
    """`at_least` turns the score into a verdict; what falls short says by how much."""
    evaluation = found(similarity(EXPECTED, at_least=0.9), "The dog sat.")
    assert evaluation.passed is False
    assert "below 0.9" in evaluation.feedback
    assert evaluation.improvements == (evaluation.feedback,)


@pytest.mark.parametrize("wrong", ["", "  ", None, 3])
def test_similarity_needs_a_text(wrong: object) -> None:
    """There is nothing to compare with otherwise."""
    with pytest.raises(ConfigurationError, match="Use a text"):
        similarity(wrong)  # type: ignore[arg-type]


def test_pytest_does_not_collect_the_evaluator() -> None:
    """A test module that imports `test_report` has no extra test."""
    assert vars(test_report)["__test__"] is False


def test_evaluators_load_no_schema_library_and_no_client() -> None:
    """Importing the evaluators is cheap: schemas and models are loaded when they are used."""
    code = (
        "import sys, loopwright.evaluators;"
        "print([m for m in ('jsonschema', 'pydantic_ai', 'openai', 'mcp') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
