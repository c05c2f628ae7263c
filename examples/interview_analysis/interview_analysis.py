"""The same loop as interview_analysis.yaml, in Python.

python interview_analysis.py                                    on replies that come with it
LOOPWRIGHT_MODEL=openai:gpt-4o python interview_analysis.py     on a real model, OPENAI_API_KEY set
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from interview import ANALYSIS, GOOD, adapt, judge

from loopwright import (
    Iteration,
    Loop,
    MaxIterations,
    NoImprovement,
    ScoreAtLeast,
    Timeout,
    prompt,
    run_sync,
)
from loopwright.models import Models, ScriptedModel

HERE = Path(__file__).parent
PROMPT = """\
Analyse this {{ value.interview_type }} interview: a score from 0 to 100, the strengths, the areas to improve,
feedback in full sentences, and what to do next.
{% if value.previous_feedback is defined %}
An earlier analysis of the same interview fell short: {{ value.previous_feedback }}
Focus on: {{ value.focus_areas | join(", ") }}
{% endif %}
The transcript:
{{ value.transcript }}
"""


def tell(item: Iteration) -> None:
    """Print a round once it is recorded."""
    print(f"{item.number}  {item.score:.2f}  {item.feedback}")


analysis = Loop(
    prompt(PROMPT, schema=ANALYSIS),
    judge,
    adapt,
    until=ScoreAtLeast(GOOD) | NoImprovement(patience=2) | MaxIterations(3),
    guards=Timeout(60),
    name="analysis",
)

if __name__ == "__main__":
    models = None  # the model that LOOPWRIGHT_MODEL names, with the keys in the environment
    if not os.environ.get("LOOPWRIGHT_MODEL"):
        replies = ScriptedModel((HERE / "replies.yaml").read_text(encoding="utf-8"))
        models = Models(replies, default="openai:gpt-4o-mini")
    interview = {
        "transcript": (HERE / "transcript.txt").read_text(encoding="utf-8"),
        "interview_type": "behavioral",
    }
    result = run_sync(replace(analysis, on_iteration=tell), interview, models=models)
    print(f"{result.status} after {result.iterations} iterations: {result.detail}")
    for part in ("strengths", "improvements", "action_items"):
        print(part.replace("_", " ") + ":", *result.output[part], sep="\n  ")
