"""What the tests of approvals and of reopened runs share: a loop whose rounds are counted."""

from __future__ import annotations

from typing import Any

from loopwright import Iteration, Loop, MaxIterations, ScoreAtLeast
from loopwright.journal.questions import pending


class Work:
    """A loop whose rounds are counted: the score is the number of letters over ten."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.adapted: list[tuple[Any, str]] = []

    def loop(self, limit: int = 3, **options: Any) -> Loop:
        """Return the loop; its output is the input and a letter."""

        def write(value: Any) -> str:
            self.calls.append(value)
            return f"{value}x"

        def judge(output: str) -> dict[str, Any]:
            return {"score": min(1.0, len(output) / 10), "feedback": f"only {len(output)}"}

        def adapt(last: Iteration) -> Any:
            self.adapted.append((last.output, last.feedback))
            return last.output

        until = options.pop("until", ScoreAtLeast(0.95)) | MaxIterations(limit)
        return Loop(write, judge, adapt, until, name="refine", **options)


async def asked(journal: Any) -> Any:
    """Return the one open question of the run."""
    (question,) = await pending(journal, "r")
    return question
