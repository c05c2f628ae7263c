"""The examples of search: a rule for bin packing with held-out lists, and a training with confirmed losses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from examples.programs import EXAMPLES, loopwright

EXHAUSTED = 3  # the exit code


def shortened(name: str, folder: Path, file: str, changes: dict[str, str]) -> Path:
    """Copy an example with changes in one of its files; return the folder."""
    copy = folder / name
    shutil.copytree(EXAMPLES / name, copy, ignore=shutil.ignore_patterns(".loopwright"))
    text = (copy / file).read_text(encoding="utf-8")
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    (copy / file).write_text(text, encoding="utf-8")
    return copy


def held_out(result: dict[str, Any]) -> dict[str, Any]:
    """Return the comparison of the held-out cases."""
    (loop,) = result["loops"].values()
    found: dict[str, Any] = loop["held_out"]["dataset"]["difference"]
    return found


@pytest.mark.parametrize(("document", "better"), [("bin_packing", True), ("other_lists", False)])
def test_held_out_lists_confirm_the_gain_or_refuse_it(
    document: str, better: bool, tmp_path: Path
) -> None:
    """The same search gains on held-out lists of its own kind, and loses on short lists of others."""
    file = f"{document}.yaml"
    copy = shortened("bin_packing", tmp_path, file, {"max_iterations: 40": "max_iterations: 2"})
    result = loopwright("run", file, "--yes", "--seed", "3", cwd=copy, code=EXHAUSTED)
    difference = held_out(result)
    assert difference["paired"] == (30 if better else 60)
    assert (difference["low"] > 0) if better else (difference["high"] < 0)


def test_a_training_is_confirmed_by_new_trainings(tmp_path: Path) -> None:
    """The first settings are measured again, and every loss on record is the mean of these measurements."""
    changes = {
        "max_iterations: 10": "max_iterations: 1",
        "baseline: 3": "baseline: 2",
        "candidates: 2": "candidates: 1",
    }
    copy = shortened("tune_training", tmp_path, "tune_training.yaml", changes)
    program = (copy / "train.py").read_text(encoding="utf-8")
    (copy / "train.py").write_text(program.replace("PASSES = 12", "PASSES = 2"), encoding="utf-8")
    result = loopwright(
        "run", "tune_training.yaml", "--yes", "--seed", "1", cwd=copy, code=EXHAUSTED
    )
    (loop,) = result["loops"].values()
    (first,) = loop["history"]
    measured = first["evaluation"]["details"]["confirm"]["candidate"]
    assert len(set(measured)) == 2
    assert first["evaluation"]["metrics"]["val_loss"] == pytest.approx(sum(measured) / 2)
    assert set(first["input"]) == {"rate", "width", "decay"}
