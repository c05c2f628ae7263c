"""What an analysis of an interview must have, and what the next round is told of what it lacks."""

from __future__ import annotations

from typing import Any

from loopwright import Evaluation, Iteration
from loopwright.adapters import merge

GOOD = 0.85
DETAILED = 200  # characters of feedback in full

ANALYSIS = {
    "type": "object",
    "properties": {
        "overall_score": {"type": "integer", "minimum": 0, "maximum": 100},
        "strengths": {"type": "array", "items": {"type": "string"}},
        "improvements": {"type": "array", "items": {"type": "string"}},
        "detailed_feedback": {"type": "string"},
        "action_items": {"type": "array", "items": {"type": "string"}},
    },
    "required": [
        "overall_score",
        "strengths",
        "improvements",
        "detailed_feedback",
        "action_items",
    ],
    "additionalProperties": False,
}


def judge(analysis: dict[str, Any]) -> Evaluation:
    """Judge an analysis: a quarter of the score for each of four things it must have."""
    wanted = {
        "Need more strengths identified": len(analysis["strengths"]) >= 2,
        "Need more areas for improvement": len(analysis["improvements"]) >= 2,
        "Need actionable next steps": len(analysis["action_items"]) >= 1,
        "Feedback needs more detail": len(analysis["detailed_feedback"]) >= DETAILED,
    }
    missing = tuple(words for words, there in wanted.items() if not there)
    score = 1 - len(missing) / len(wanted)
    return Evaluation(score, score >= GOOD, "; ".join(missing) or "It is comprehensive", missing)


@merge
def adapt(last: Iteration) -> dict[str, Any]:
    """Add what was missing to the interview as it was first given, which stays."""
    missing = last.evaluation.improvements if last.evaluation else ()
    return {"previous_feedback": last.feedback, "focus_areas": list(missing)}
