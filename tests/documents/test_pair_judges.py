"""The mapping of a judge of pairs in a document: its settings, its report, and what is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from loopwright.documents import Settings
from loopwright.documents.compiler.compilation import Compilation
from loopwright.documents.compiler.prompts import compile_pair_judge
from loopwright.documents.project import Project
from loopwright.documents.schema.evaluators import PairJudgeSpec
from loopwright.documents.yaml.reader import read
from loopwright.evaluators import pair_judge

EXACT = "Which title is more exact?"


def compiled(folder: Path, **keys: Any) -> tuple[Any, list[str]]:
    """Return the judge that a mapping declares, and the problems."""
    document = folder / "doc.yaml"
    text = json.dumps({"judge": {"criterion": EXACT, **keys}})
    source = read(text, "doc.yaml")
    project = Project(Settings(), folder, folder, open=[document])
    compilation = Compilation(
        source, folder=folder, project=project, kinds={}, call=lambda *_: None,
        defaults={"model": "openai:any", "temperature": 0.9},
    )  # fmt: skip
    judge = compile_pair_judge(compilation, PairJudgeSpec(criterion=EXACT, **keys), ("judge",))
    return judge, [f"{one.line}: {one.message}" for one in compilation.problems]


def report(judge: Any, low: float) -> str:
    row = {"value": low + 0.05, "low": low, "high": low + 0.1}
    return json.dumps({"judge": {"identity": judge.identity}, "consistent_accuracy": row})


def test_a_mapping_is_the_judge_of_python(tmp_path: Path) -> None:
    """With the model of the document, and not its temperature, which is meant for prompts."""
    judge, problems = compiled(tmp_path, goal="A good title")
    assert problems == []
    own = pair_judge(EXACT, model="openai:any", goal="A good title")
    assert (judge.fingerprint, judge.identity) == (own.fingerprint, own.identity)
    other, _ = compiled(tmp_path, model="openai:other")
    assert other.model_settings.models == ("openai:other",)
    assert other.identity != own.identity


def test_the_report_is_that_of_this_judge_and_above_a_coin(tmp_path: Path) -> None:
    """A refusal has the line of the mapping and the name of the file."""
    own = pair_judge(EXACT, model="openai:any")
    (tmp_path / "good.json").write_text(report(own, 0.6))
    (tmp_path / "coin.json").write_text(report(own, 0.2))
    judge, problems = compiled(tmp_path, measured="good.json")
    assert (judge.identity, problems) == (own.identity, [])
    [problem] = compiled(tmp_path, measured="coin.json")[1]
    assert problem.startswith(
        "1: coin.json: unattainable: the judge is right in both orders in 20% to 30%"
    )
    [problem] = compiled(tmp_path, measured="good.json", temperature=0.5)[1]
    assert "good.json: it measures another judge" in problem
    [problem] = compiled(tmp_path, measured="none.json")[1]
    assert "none.json" in problem


@pytest.mark.parametrize("keys", [{"criterion": ""}, {"max_votes": 3}, {"temperature": 3}])
def test_other_keys_and_values_are_refused(keys: dict[str, Any]) -> None:
    """A duel needs no votes: it asks in both orders."""
    with pytest.raises(ValidationError, match=next(iter(keys))):
        PairJudgeSpec(**{"criterion": EXACT, **keys})
