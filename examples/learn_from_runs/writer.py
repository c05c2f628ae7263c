"""A scripted writer, and a judge whose score has noise. Both follow the seed in the input."""

from __future__ import annotations

import random
from typing import Any

from loopwright import Evaluation, Iteration, Usage

FACTS = (
    "who must act", "the date", "the place", "the reason", "the cost", "what to bring",
    "whom to ask", "how to decline", "what happens next", "the contact", "the address", "the hours",
)  # fmt: skip
NOISE = 0.05  # the standard deviation of one score of the judge
CALL = Usage(calls=1, usd=0.002)


def write(task: dict[str, Any], ctx: Any) -> dict[str, Any]:
    """Add some of the missing facts to the draft. Some facts are out of reach."""
    ctx.spend(CALL)
    chance = random.Random(f"write {task['seed']} {ctx.iteration}")
    # A property of the task: the same facts stay out of reach in every iteration.
    of_task = random.Random(f"task {task['seed']}")
    reach = set(of_task.sample(FACTS, k=of_task.randint(9, len(FACTS))))
    draft = task.get("draft", [])
    missing = [fact for fact in FACTS if fact in reach and fact not in draft]
    added = [fact for fact in missing if chance.random() < 0.6]
    return {"seed": task["seed"], "draft": [*draft, *added]}


def judge(output: dict[str, Any], ctx: Any) -> Evaluation:
    """Score the share of facts with noise. `audit` is the share without noise, and decides nothing."""
    ctx.spend(CALL)
    share = len(output["draft"]) / len(FACTS)
    noise = random.Random(f"judge {output['seed']} {ctx.iteration}").gauss(0, NOISE)
    missing = [fact for fact in FACTS if fact not in output["draft"]]
    score = round(min(1.0, max(0.0, share + noise)), 3)
    return Evaluation(score, None, f"missing: {', '.join(missing)}", metrics={"audit": share})


def revise(last: Iteration) -> dict[str, Any]:
    """Continue with the last draft."""
    return last.output if last.error is None else last.input
