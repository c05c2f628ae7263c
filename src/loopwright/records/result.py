"""How a run, or a loop inside it, ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ..codec import Json
from ..errors import NotSatisfied
from .history import History
from .iteration import Iteration
from .reasons import Reason, Status
from .usage import NOTHING, Usage, by_purpose


@dataclass(slots=True)
class Result:
    """How a run, or a loop inside it, ended and what it produced.

    `judging` is the part of `usage` that was spent on judging, `reported_score` the mean of fresh
    votes on the output, where the loop asked for them: unlike the score by which the output was
    chosen, it is not the luckiest of several.

    `loops` maps the name of each loop that ran to its own result (another of the same name goes by
    its path without the numbers of rounds), `steps` the name of each workflow step to its output,
    `agents` the name of each agent to what it reports of itself.
    """

    status: Final[Status]
    reason: Final[Reason]
    detail: Final[str]
    output: Final[Json] = None
    history: Final[History] = field(default_factory=History)
    usage: Final[Usage] = NOTHING
    run_id: Final[str] = ""
    name: Final[str] = ""
    also: Final[tuple[Reason, ...]] = ()
    loops: Final[Mapping[str, Result]] = field(default_factory=dict)
    steps: Final[Mapping[str, Json]] = field(default_factory=dict)
    warnings: Final[tuple[str, ...]] = ()
    seconds: Final[float] = 0.0
    request: Final[Mapping[str, Json] | None] = None
    judging: Final[Usage] = NOTHING
    reported_score: Final[float | None] = None
    agents: Final[Mapping[str, Mapping[str, Json]]] = field(default_factory=dict)

    @property
    def satisfied(self) -> bool:
        """Whether the condition that ended it was one of success."""
        return self.status is Status.SATISFIED

    @property
    def best(self) -> Iteration | None:
        """The best iteration; see History.best."""
        return self.history.best

    @property
    def iterations(self) -> int:
        """How many iterations were recorded."""
        return len(self.history)

    def unwrap(self) -> Json:
        """Return the output of a satisfied run.

        Raises:
            NotSatisfied: carrying this result, if the run ended any other way.
        """
        if not self.satisfied:
            raise NotSatisfied(self)
        return self.output

    def loop_json(self) -> Json:
        """Return the row of a loop in the `loops` of the command line's JSON."""
        best = self.best
        return {
            "iterations": self.iterations,
            "exit_reason": self.reason.value,
            "status": self.status.value,
            "detail": self.detail,
            "score": best.score if best else None,
            "best_iteration": best.number if best else None,
            "output": self.output,
            **self._reported(),
            "history": [item.to_json() for item in self.history],
        }

    def _reported(self) -> dict[str, Json]:
        return {} if self.reported_score is None else {"reported_score": self.reported_score}

    def to_json(self) -> Json:
        """Return the one JSON object that the command line prints."""
        best = self.best or next((r.best for r in self.loops.values() if r.best), None)
        return {
            "run_id": self.run_id,
            "status": self.status.value,
            "reason": self.reason.value,
            "detail": self.detail,
            "also": [reason.value for reason in self.also],
            "output": self.output,
            "iterations": self.iterations or sum(r.iterations for r in self.loops.values()),
            "best": {"iteration": best.number, "score": best.score} if best else None,
            **self._reported(),
            "loops": {name: result.loop_json() for name, result in self.loops.items()},
            "steps": dict(self.steps),
            **({"agents": {k: dict(v) for k, v in self.agents.items()}} if self.agents else {}),
            "usage": self.usage.to_json(),
            "usage_by": by_purpose(self.usage, self.judging),
            "seconds": round(self.seconds, 6),
            "warnings": list(self.warnings),
            **({"request": dict(self.request)} if self.request is not None else {}),
        }
