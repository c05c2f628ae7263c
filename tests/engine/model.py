"""The reference: what a loop means, in plain lists and without an engine.

A *mark* is how one round went: a score, ERROR, UNDECIDED, or CUT for a round that a guard or a
cancel cut short. `Model` follows contract.md sections 3, 4, 7, 8 and 9 and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .support import ERROR, UNDECIDED

CUT = "cut"
STATUS = {
    "condition_met": "satisfied", "cancelled": "cancelled", "error": "failed",
    "repeated_failure": "failed", "evaluator_unusable": "failed", "all_failed": "failed",
}  # fmt: skip


@dataclass(frozen=True)
class Rules:
    """What a loop is configured to do."""

    threshold: float = 1.0
    patience: int = 1000
    limit: int = 10
    seconds: float = 1e9
    calls: int = 10**9
    on_failure: str = "halt"
    minimum: int = 1
    keep: str = "best"


@dataclass
class Model:
    """A loop as the contract has it: rounds so far, calls spent, active seconds, and how it ended."""

    rules: Rules
    marks: list[Any] = field(default_factory=list)
    spent: int = 0
    active: float = 0.0
    reason: str = ""
    drafts: list[int] = field(default_factory=list)  # iterations with an output that nobody judged

    def record(self, mark: Any, *, output: bool = True) -> None:
        """Take up an iteration and decide; `output` is whether `execute` gave one."""
        self.marks.append(mark)
        if output and mark in (UNDECIDED, ERROR):
            self.drafts.append(len(self.marks))
        self.reason = self.decide()

    def cut(self, reason: str) -> None:
        """End inside a round."""
        self.marks.append(CUT)
        self.reason = reason

    def decide(self) -> str:
        """Return the first reason that holds, or nothing."""
        rules, marks, last = self.rules, self.marks, self.marks[-1]
        if last == ERROR and rules.on_failure == "halt":
            return "error"
        if marks[-3:] == [ERROR] * 3:
            return "repeated_failure"
        if marks[-2:] == [UNDECIDED] * 2:
            return "evaluator_unusable"
        grown = len(marks) >= rules.minimum
        held = [
            ("condition_met", grown and isinstance(last, float) and last >= rules.threshold),
            ("timeout", self.active >= rules.seconds),
            ("budget", self.spent >= rules.calls),
            ("no_improvement", grown and self.stall() >= rules.patience),
            ("max_iterations", len(marks) >= rules.limit),
        ]
        return next((reason for reason, holds in held if holds), "")

    def stall(self) -> int:
        """Return how many scores in a row did not beat the best before them."""
        best, stall = -1.0, 0
        for score in self.scores():
            stall, best = (0, score) if score > best else (stall + 1, best)
        return stall

    def scores(self) -> list[float]:
        """Return the valid scores."""
        return [mark for mark in self.marks if isinstance(mark, float)]

    def ending(self) -> tuple[str, str]:
        """Return status and reason: where every round failed, that is the reason."""
        whole = [mark for mark in self.marks if mark not in (ERROR, CUT)]
        reason = self.reason
        if STATUS.get(reason, "exhausted") == "exhausted" and not whole and ERROR in self.marks:
            reason = "all_failed"
        return STATUS.get(reason, "exhausted"), reason

    def kept(self) -> int | None:
        """Return the number of the round whose output is the result's."""
        rounds = [n for n, mark in enumerate(self.marks, start=1) if isinstance(mark, float)]
        if not rounds:  # the latest output that nobody could judge is better than none
            return self.drafts[-1] if self.drafts else None
        if self.reason == "condition_met":
            return len(self.marks)
        if self.rules.keep == "last":
            return rounds[-1]
        return max(rounds, key=lambda n: (self.marks[n - 1], -n))
