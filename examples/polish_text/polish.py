"""Improve a text against a rubric until a judge is satisfied, from Python.

python polish.py                                     on scripted replies, no key needed
LOOPWRIGHT_MODEL=openai:gpt-4o python polish.py      on a real model, with OPENAI_API_KEY set
"""

import os
from pathlib import Path

from loopwright import Loop, MaxIterations, NoImprovement, Passed, judge, prompt, run_sync
from loopwright.models import Models, ScriptedModel

HERE = Path(__file__).parent

improve = Loop(
    prompt(
        "Rewrite this announcement. Keep every fact, invent none.\n\n{{ loop.initial }}\n"
        "{% if loop.iteration > 1 %}Your last version:\n{{ loop.last.output }}\n"
        "What a reader missed:\n{{ loop.last.feedback }}{% endif %}",
        temperature=0.5,
    ),
    judge(
        "It says in the first sentence who must act, and what they must do.",
        "It gives the date by which to act.",
        "It says where to get help.",
    ),
    until=Passed() | NoImprovement(patience=2) | MaxIterations(5),
    name="improve",
    on_iteration=lambda item: print(f"{item.number}: {item.score:.2f}  {item.feedback}"),
)

if __name__ == "__main__":
    models = None  # the model that LOOPWRIGHT_MODEL names, with the keys in the environment
    if not os.environ.get("LOOPWRIGHT_MODEL"):
        replies = ScriptedModel((HERE / "replies.yaml").read_text(encoding="utf-8"))
        models = Models(replies, default="openai:gpt-4o-mini")
    result = run_sync(improve, (HERE / "draft.txt").read_text(encoding="utf-8"), models=models)
    print(f"{result.status}: {result.detail}\n\n{result.output}")
