"""One iteration, and why one failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..codec import Json
from .evaluation import Evaluation, as_evaluation
from .usage import NOTHING, Usage


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an iteration has no verdict: the stage that failed, a kind to act on, a sentence to read.

    A worker's failure (stage adapt or execute), a check's and a judge's (stage evaluate) stay three
    different facts.
    """

    stage: str
    kind: str
    message: str
    path: str = ""
    retryable: bool = True
    retry_after: float | None = None

    def to_json(self) -> Json:
        """Return it as a JSON object; `retry_after` only if it was told."""
        data = {
            "stage": self.stage,
            "kind": self.kind,
            "message": self.message,
            "path": self.path,
            "retryable": self.retryable,
        }
        return data if self.retry_after is None else data | {"retry_after": self.retry_after}

    @classmethod
    def from_json(cls, data: Mapping[str, Json] | None) -> Failure | None:
        """Return the failure that `to_json` wrote."""
        return cls(**data) if data else None


@dataclass(slots=True)
class Iteration:
    """One execute and evaluate of a loop's body, numbered from 1, failed or not.

    `seconds` is how long the round took, `interrupted` that a guard cut it short, `truncated` that
    its output is not whole, `steps` what those of its steps gave that the loop asked to keep.
    """

    number: Final[int]
    input: Final[Json] = None
    output: Final[Json] = None
    evaluation: Final[Evaluation | None] = None
    error: Final[Failure | None] = None
    usage: Final[Usage] = NOTHING
    seconds: Final[float] = 0.0
    interrupted: Final[bool] = False
    truncated: Final[bool] = False
    steps: Final[Mapping[str, Json] | None] = None

    @property
    def score(self) -> float | None:
        """The score, if the round was evaluated and scored."""
        return self.evaluation.score if self.evaluation is not None else None

    @property
    def passed(self) -> bool | None:
        """The verdict, if there is one."""
        return self.evaluation.passed if self.evaluation is not None else None

    @property
    def feedback(self) -> str:
        """What the next round is told: the error of a failed round, else the evaluator's
        feedback."""
        if self.error is not None:
            return self.error.message
        return self.evaluation.feedback if self.evaluation is not None else ""

    @property
    def undecided(self) -> bool:
        """Whether the judge could not be read."""
        return self.evaluation is not None and self.evaluation.undecided

    @property
    def eligible(self) -> bool:
        """Whether its output may be the best or the last: not failed, cut short, truncated or
        undecided."""
        if self.error is not None or self.interrupted or self.truncated:
            return False
        return self.evaluation is None or not self.evaluation.undecided

    def to_json(self) -> Json:
        """Return it as a JSON object, one row of a result's `history`."""
        data: dict[str, Json] = {
            "iteration": self.number,
            "score": self.score,
            "passed": self.passed,
            "feedback": self.feedback,
            "error": self.error.to_json() if self.error else None,
            "output": self.output,
            "input": self.input,
            "seconds": round(self.seconds, 6),
            "usage": self.usage.to_json(),
        }
        if self.evaluation is not None:
            data["evaluation"] = self.evaluation.to_json()
        for flag in ("interrupted", "truncated"):
            if getattr(self, flag):
                data[flag] = True
        if self.steps:
            data["steps"] = dict(self.steps)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Iteration:
        """Return the iteration that `to_json` wrote."""
        evaluation = data.get("evaluation")
        return cls(
            number=data["iteration"],
            input=data.get("input"),
            output=data.get("output"),
            evaluation=None if evaluation is None else as_evaluation(evaluation),
            error=Failure.from_json(data.get("error")),
            usage=Usage.from_json(data.get("usage")),
            seconds=data.get("seconds", 0.0),
            interrupted=data.get("interrupted", False),
            truncated=data.get("truncated", False),
            steps=data.get("steps"),
        )
