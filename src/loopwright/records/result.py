"""How a run, or a loop inside it, ended.

The results of the loops of a run, by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from ..errors import NotSatisfied
from .codec import Json
from .history import History
from .isolation import Held, Record, read_by_copy
from .iteration import Failure, Iteration
from .outcome import Reason, Status, Stop
from .parts import ItemOutcome, StepOutcome
from .usage import NOTHING, Usage, by_purpose

__all__ = ["LoopResults", "Result", "failure_of"]


_COPIED = (
    "output",
    "loops",
    "steps",
    "request",
    "agents",
    "items",
    "outcomes",
)  # what could be changed
_BY_ERRORS = (
    Reason.ERROR, Reason.REPEATED_FAILURE, Reason.ALL_FAILED, Reason.ITEMS_FAILED,
    Reason.SUCCESS_RATE,
)  # fmt: skip


def failure_of(stop: Stop, history: History) -> Failure | None:
    """Return the failure that ended a loop: that of its latest failed iteration, where errors did."""
    if stop.failure is not None:
        return stop.failure
    if stop.reason not in _BY_ERRORS:
        return None
    failed = (item.error for item in reversed(history) if not item.interrupted)
    return next((error for error in failed if error is not None), None)


@read_by_copy(*_COPIED)
@dataclass(frozen=True, slots=True)
class Result(Record):
    """How a run, or a loop inside it, ended and what it produced.

    `judging` is the part of `usage` that was spent on judging, `reported_score` the mean of fresh
    votes on the output, where the loop asked for them: unlike the score by which the output was
    chosen, it is not the luckiest of several.

    `gone_on` says that the document goes on after it, although it failed. `total` is the number of
    iterations of the run, those of loops in loops and the items of lists included.

    `loops` maps the name of each loop that ran to its own result (another of the same name goes by
    its path without the numbers of rounds; one inside a list by its path with the number of the
    item), `steps` the name of each workflow step to its output, `outcomes` to how it ended,
    `agents` the name of each agent to what it reports of itself. `items` is the table of a list:
    one row for each of its items, done or not.

    `error` is the failure that ended it, where one did; `cause` the user's exception itself, in the
    process in which it was raised: no journal keeps it.
    """

    status: Status
    reason: Reason
    detail: str
    output: Json = None
    history: History = field(default_factory=History)
    usage: Usage = NOTHING
    run_id: str = ""
    name: str = ""
    also: tuple[Reason, ...] = ()
    loops: Mapping[str, Result] = field(default_factory=dict)
    steps: Mapping[str, Json] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    request: Mapping[str, Json] | None = None
    judging: Usage = NOTHING
    reported_score: float | None = None
    agents: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    error: Failure | None = None
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    gone_on: bool = False
    items: tuple[ItemOutcome, ...] = ()
    outcomes: Mapping[str, StepOutcome] = field(default_factory=dict)
    total: int = 0

    def view(self) -> Result:
        """Return it for one reader, who gets copies of the values in it."""
        made = object.__new__(Result)
        for name in _SHARED:
            object.__setattr__(made, name, getattr(self, name))
        for name in _COPIED:
            object.__setattr__(made, name, Held(getattr(self, name)))
        object.__setattr__(made, "history", self.history.view())
        return made

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
            NotSatisfied: carrying this result, if the run ended any other way; its `__cause__` is
                the user's exception, if one ended the run in this process.
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
            **self._failed(),
            **({"items": [item.to_json() for item in self.items]} if self.items else {}),
            "history": [item.to_json() for item in self.history],
        }

    def _reported(self) -> dict[str, Json]:
        return {} if self.reported_score is None else {"reported_score": self.reported_score}

    def _failed(self) -> dict[str, Json]:
        return {} if self.error is None else {"error": self.error.to_json()}

    def _outcomes(self) -> dict[str, Json]:
        found = {name: outcome.to_json() for name, outcome in self.outcomes.items()}
        return {"outcomes": found} if found else {}

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
            "iterations": self.total
            or self.iterations
            or sum(r.iterations for r in self.loops.values()),
            "best": {"iteration": best.number, "score": best.score} if best else None,
            **self._reported(),
            "loops": {name: result.loop_json() for name, result in self.loops.items()},
            "steps": dict(self.steps),
            **self._outcomes(),
            **({"agents": {k: dict(v) for k, v in self.agents.items()}} if self.agents else {}),
            "usage": self.usage.to_json(),
            "usage_by": by_purpose(self.usage, self.judging),
            "seconds": round(self.seconds, 6),
            "warnings": list(self.warnings),
            **self._failed(),
            **({"request": dict(self.request)} if self.request is not None else {}),
        }


_SHARED = tuple(f.name for f in fields(Result) if f.name not in {*_COPIED, "history"})


class LoopResults(dict[str, Result]):
    """Results by the names of their loops, the latest of each, in the order in which they ended.

    Another loop of the same name, in another place of the workflow, goes by its place: its path
    without the numbers of rounds and attempts. A loop inside a list goes by its path with the
    number of the item. `lists` are the paths of the lists.
    """

    __slots__ = ("_places", "lists")

    def __init__(self) -> None:
        self._places: dict[str, str] = {}
        self.lists: set[str] = set()

    def keep(self, path: str, result: Result) -> None:
        """Keep the result of the loop at a path."""
        place, in_list = self._place(path)
        first = self._places.setdefault(result.name, place) if not in_list else ""
        key = result.name if first == place else place
        self.pop(key, None)
        self[key] = result

    def _place(self, path: str) -> tuple[str, bool]:
        """Return a path without the numbers of rounds and attempts, and whether it is in a list."""
        if "/" not in path:
            return path, False
        parts, kept, in_list = path.split("/"), [], False
        for i, part in enumerate(parts):
            if part.removeprefix("attempt-").isdigit() and i:
                if "/".join(parts[:i]) not in self.lists:
                    continue
                in_list = True
            kept.append(part)
        return "/".join(kept), in_list
