"""Interview analysis: the transcript stays, and round 2 is told what was missing (7.5 F1)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.programs import EXAMPLES, answer, loopwright, python

HERE = EXAMPLES / "interview_analysis"
TRANSCRIPT = (HERE / "transcript.txt").read_text(encoding="utf-8")
SCORES = [0.25, 0.75, 1.0]

pytestmark = pytest.mark.slow

ADAPTED_AS_IN_THE_SEED = """
import json
from dataclasses import replace
from pathlib import Path
from interview_analysis import analysis
from loopwright import run_sync
from loopwright.models import Models, ScriptedModel

def lost(last):  # the transcript is looked for in the output of the first round
    return {"transcript": last.output.get("transcript", ""), "interview_type": "behavioral",
            "previous_feedback": last.feedback, "focus_areas": list(last.evaluation.improvements)}

given = {"transcript": Path("transcript.txt").read_text(), "interview_type": "behavioral"}
told = {}
for name, adapt in (("ours", analysis.adapt), ("seed", lost)):
    resources = {"models": Models(ScriptedModel(Path("replies.yaml").read_text())),
                 "model": "openai:gpt-4o-mini"}
    result = run_sync(replace(analysis, adapt=adapt, on_failure="continue"), given,
                      resources=resources)
    told[name] = [result.status, [item.score for item in result.history], result.output]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What interview_analysis.yaml gives on its replies."""
    folder = tmp_path_factory.mktemp("interview")
    return loopwright(
        "run", HERE / "interview_analysis.yaml", "--input-file", HERE / "transcript.txt",
        "--replies", HERE / "replies.yaml", "--yes", cwd=folder,
    )  # fmt: skip


def test_the_transcript_is_the_input_of_every_round(analysed: dict[str, Any]) -> None:
    """No round loses what it is to analyse, nor the type of the interview."""
    rounds = [item["input"] for item in analysed["loops"]["analysis"]["history"]]
    assert [item["transcript"] for item in rounds] == [TRANSCRIPT] * 3
    assert {item["interview_type"] for item in rounds} == {"behavioral"}


def test_feedback_and_focus_areas_reach_the_next_round(analysed: dict[str, Any]) -> None:
    """Round n is told in words and as a list what round n - 1 lacked; round 1 is told nothing."""
    history = analysed["loops"]["analysis"]["history"]
    assert "previous_feedback" not in history[0]["input"]
    for before, after in zip(history, history[1:], strict=False):
        assert after["input"]["previous_feedback"] == before["feedback"]
        assert after["input"]["focus_areas"] == before["evaluation"]["improvements"]
    assert history[1]["input"]["focus_areas"] == [
        "Need more areas for improvement", "Need actionable next steps", "Feedback needs more detail",
    ]  # fmt: skip


def test_the_analysis_is_satisfied_by_its_score(analysed: dict[str, Any]) -> None:
    """Three rounds, the reason names the score, and the report is made of the last analysis."""
    loop = analysed["loops"]["analysis"]
    assert [item["score"] for item in loop["history"]] == SCORES
    assert (analysed["status"], loop["detail"]) == ("satisfied", "score 1 is at least 0.85")
    assert analysed["output"].startswith("74 of 100. ")


def test_python_goes_the_same_way(analysed: dict[str, Any], tmp_path: Path) -> None:
    """The loop in Python has the scores, the feedback and the items of the document."""
    told = python(HERE / "interview_analysis.py", cwd=tmp_path)
    rounds = re.findall(r"^\d  (\S+)  (.*)$", told, re.MULTILINE)
    history = analysed["loops"]["analysis"]["history"]
    assert rounds == [(f"{item['score']:.2f}", item["feedback"]) for item in history]
    for item in (*history[-1]["output"]["strengths"], *history[-1]["output"]["action_items"]):
        assert f"  {item}\n" in told


def test_adapting_as_the_seed_does_loses_the_transcript() -> None:
    """With the seed's adapt the model is asked about nothing from round 2 on; with ours it is not."""
    told = answer(ADAPTED_AS_IN_THE_SEED, cwd=HERE, path=HERE)
    assert told["ours"][:2] == ["satisfied", SCORES]
    assert told["seed"][0] != "satisfied"
    assert told["seed"][1][1:] == [None] * len(told["seed"][1][1:])


def test_the_document_and_the_program_ask_for_the_same() -> None:
    """Prompt, schema and the bar are written twice, and are the same."""
    document = yaml.safe_load((HERE / "interview_analysis.yaml").read_text(encoding="utf-8"))
    loop = document["steps"][0]["loop"]
    code = (
        "import json, interview, interview_analysis as a\n"
        "print(json.dumps([interview.ANALYSIS, a.PROMPT, interview.GOOD]))"
    )
    schema, prompt, good = answer(code, cwd=HERE, path=HERE)
    assert schema == loop["execute"]["output"]["schema"]
    assert prompt == loop["execute"]["prompt"]
    assert loop["until"][0] == {"score_at_least": good}


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_an_average_over_nothing_is_an_error_and_no_score(bad: str, tmp_path: Path) -> None:
    """NaN from a judge (7.5 F3) fails the round with a sentence; it is neither good nor bad."""
    code = (
        "import json\nfrom loopwright import Loop, MaxIterations, ScoreAtLeast, run_sync\n"
        f"loop = Loop(lambda v: [], lambda out: float({bad!r}),\n"
        "            until=ScoreAtLeast(0.7) | MaxIterations(3), name='matching')\n"
        "result = run_sync(loop, 'x')\n"
        "print(json.dumps([result.status, result.history[0].error.kind, result.detail]))"
    )
    status, kind, detail = json.loads(python("-c", code, cwd=tmp_path))
    assert (status, kind) == ("failed", "not_json")
    assert bad in detail
