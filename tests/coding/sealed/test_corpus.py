"""Attacks on a check with pytest, and honest changes: each has the verdict of its table; `make cheats` has all attacks."""

from __future__ import annotations

import os
import subprocess

import pytest

from loopwright.records import Evaluation

from .bench import judged, verdict
from .pytest_corpus import ATTACKS as EVERY
from .pytest_corpus import FAILS_AS_LEFT, HELD_OUT, HONEST, KNOWN_TO_PASS, PROJECT

# Half of them; `make cheats` judges all.
ATTACKS = EVERY if os.environ.get("EVERY_ATTACK") else EVERY[::2]
SCORE = 5 / 6  # of the base: one of six tests fails


def label(row: tuple) -> str:
    """Return the name of a row."""
    return " ".join(str(part) for part in row if isinstance(part, int | str))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Evaluation]:
    """The evaluation of every row, after one measurement of the base."""
    rows = [*ATTACKS, *KNOWN_TO_PASS, *HONEST, *FAILS_AS_LEFT]
    changes = {label(row): row[-1] for row in rows}
    hanging = [label(row) for row in ATTACKS if row[0] in (35, 36)]
    root = tmp_path_factory.mktemp("pytest")
    return judged(root, PROJECT, "pytest -q", changes, hanging=hanging)


def test_base(results: dict[str, Evaluation]) -> None:
    """The base has six tests that count, one of which fails; a skipped test does not count."""
    base = results[""]
    assert (base.score, base.passed) == (SCORE, False)
    assert base.details["tests"]["failing"] == ["tests.test_calc::test_add"]


@pytest.mark.parametrize("row", ATTACKS, ids=label)
def test_attacks(row: tuple, results: dict[str, Evaluation]) -> None:
    """An attack never passes; one on protected files has the score of the clean copy."""
    evaluation = results[label(row)]
    assert verdict(evaluation) == row[2], evaluation.feedback
    assert evaluation.passed is False
    if row[2] == "touched":
        assert evaluation.score == SCORE, evaluation.feedback
        assert evaluation.tampered is not None
        assert evaluation.tampered.files is not None
    if row[2] == "forged":
        assert evaluation.score is None


@pytest.mark.parametrize("row", KNOWN_TO_PASS, ids=label)
def test_known_to_pass(row: tuple, results: dict[str, Evaluation]) -> None:
    """Code that shares a process with its tests can pass without solving the task."""
    assert verdict(results[label(row)]) == "passed", results[label(row)].feedback


@pytest.fixture(scope="module")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Evaluation]:
    """The evaluation of those that are known to pass, and of a fix, with held-out tests."""
    root = tmp_path_factory.mktemp("held_out")
    (root / "hidden").mkdir()
    (root / "hidden" / "test_hidden.py").write_text(HELD_OUT)
    changes = {label(row): row[-1] for row in [*KNOWN_TO_PASS, HONEST[0]]}
    options = {"held_out": str(root / "hidden"), "held_out_required": True}
    return judged(root, PROJECT, "pytest -q", changes, **options)


@pytest.mark.parametrize("row", [*KNOWN_TO_PASS, HONEST[0]], ids=label)
def test_held_out(row: tuple, held_out: dict[str, Evaluation]) -> None:
    """Held-out tests tell a real fix from code that was written for the visible tests."""
    assert held_out[label(row)].passed is (row in HONEST), held_out[label(row)].details


@pytest.mark.parametrize("row", HONEST, ids=label)
def test_honest(row: tuple, results: dict[str, Evaluation]) -> None:
    """A fix passes, with new tests and with renamed files too."""
    evaluation = results[label(row)]
    assert (verdict(evaluation), evaluation.score) == ("passed", 1.0), evaluation.feedback


@pytest.mark.parametrize("row", FAILS_AS_LEFT, ids=label)
def test_what_is_left_must_pass(row: tuple, results: dict[str, Evaluation]) -> None:
    """A fix whose new or moved tests fail does not pass: they count as one test, and their ids are pytest's."""
    evaluation = results[label(row)]
    assert (evaluation.passed, evaluation.score) == (False, 6 / 7)
    assert row[1] in evaluation.feedback
    assert "on the files as you leave them" in evaluation.feedback
    assert evaluation.details["tests"]["failing"]


def test_no_process_is_left(results: dict[str, Evaluation]) -> None:
    """The processes of a check end with it."""
    assert results
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert "sleep 987" not in listed.stdout


def test_paths_of_the_copy_are_not_shown(results: dict[str, Evaluation]) -> None:
    """Feedback names the workspace: an agent must not learn where the check runs."""
    assert not any("loopwright-check-" in item.feedback for item in results.values())
