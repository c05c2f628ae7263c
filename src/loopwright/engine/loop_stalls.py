"""What a loop does after iterations without progress."""

from __future__ import annotations

from dataclasses import dataclass

from ..conditions import stalls
from ..errors import ConfigurationError, nearest
from ..records import History, Reason, Stop
from ..records.codec import integer

__all__ = ["OnStall"]

STALL_THEN = ("fresh", "best", "ask", "stop")


@dataclass(frozen=True)
class OnStall:
    """What a loop does after iterations without progress.

    The first stalls start again: with `best` from the best iteration, with `fresh` from the last one, both
    with a new session of the agent. The stall after the last restart ends the loop as `no_progress`.

    Args:
        then: `fresh`, `best`, `ask` (a person decides) or `stop`. Default: `best`.
        patience: The iterations in a row without progress that are a stall. Default: 2.
        restarts: How many stalls do not end the loop. Default: 1.

    Raises:
        ConfigurationError: For an unknown word, or a number out of range.

    Example:
        >>> OnStall("fresh", patience=3).restarts
        1
    """

    then: str = "best"
    patience: int = 2
    restarts: int = 1

    def __post_init__(self) -> None:
        if self.then not in STALL_THEN:
            raise ConfigurationError(
                f"on_stall: then: {self.then!r} is none of {', '.join(STALL_THEN)}{nearest(str(self.then), STALL_THEN)}"
            )
        integer("on_stall: patience", self.patience, minimum=1)
        integer("on_stall: restarts", self.restarts, minimum=0)

    def check(self, history: History) -> Stop | None:
        """Return the stop after the stall that ends the loop, or None."""
        _, ends = stalls(history, self.patience)
        allowed = 0 if self.then == "stop" else self.restarts
        if len(ends) <= allowed or history.last is None or ends[-1] != history.last.number:
            return None
        times = "once" if len(ends) == 1 else f"{len(ends)} times"
        same = "the score and the failing tests stayed the same"
        if history.last.accepted is not None:
            same = "no iteration was accepted"
        return Stop(Reason.NO_PROGRESS, f"{same} for {self.patience} iterations, {times}")

    def restarts_after(self, history: History) -> int:
        """Return how many stalls there were."""
        return len(stalls(history, self.patience)[1])

    def restarts_now(self, history: History) -> bool:
        """Return whether the next iteration is the first one after a stall."""
        _, ends = stalls(history, self.patience)
        return bool(ends) and history.last is not None and ends[-1] == history.last.number
