"""Paths that one entry stands for: a resume does not enter them, and their spending counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from loopwright import Budget, Context, MemoryJournal, Result, Usage, resume, run, step
from loopwright.engine.budgets import Account
from loopwright.engine.folds import fold, folded
from loopwright.engine.step import CompositeStep, Step
from loopwright.errors import ReplayMismatch
from loopwright.records import Reason, Status
from loopwright.testing import run_virtual


@dataclass
class Parts(CompositeStep):
    """Runs an action in each of some parts, and folds each part that has ended."""

    action: Step
    names: tuple[str, ...]
    name: str = "parts"
    mark: str = "1"
    entered: list[str] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        return f"parts {self.mark}"

    async def run(self, value: Any, ctx: Context) -> Result:
        outputs = []
        for name in self.names:
            path = ctx.below(name)
            spent = ctx.run.replay.spent(path) if ctx.run.replay else Usage()
            inner = Context(
                ctx.run, path, ctx.gate, Account(path, ctx.account, None, spent), ctx.scope
            )
            identity = f"{self.fingerprint}:{name}"
            if (entry := folded(inner, self, identity)) is None:
                self.entered.append(name)
                outputs.append(await inner.call("1/evaluate", self.action, name))
                fold(inner, outputs[-1], identity)
            else:
                outputs.append(entry.value["value"])
        return Result(Status.SATISFIED, Reason.COMPLETED, "", outputs, name=self.name)


def failing_at(name: str, calls: list[str]) -> Step:
    """Return an action that spends a cent, and fails for one name."""

    async def act(value: str, ctx: Context) -> str:
        calls.append(value)
        ctx.spend(Usage(calls=1, usd=0.01))
        if value == name:
            raise ValueError("not yet")
        return value.upper()

    return step(act, fingerprint="act")


def interrupted(**options: Any) -> MemoryJournal:
    """Return the journal of a run that folded its parts a and b, and whose process ended in c."""
    journal, calls = MemoryJournal(), []
    made = Parts(failing_at("c", calls), ("a", "b", "c"))
    run_virtual(run(made, 0, journal=journal, run_id="r", **options))
    run_virtual(journal.rewind("r", "parts/c"))
    return journal


def test_a_folded_path_is_not_entered_again_and_counts() -> None:
    """A resume takes the value of the entry; usage, judging and effects are those of an uninterrupted run."""
    journal, calls = interrupted(), []
    made = Parts(failing_at("", calls), ("a", "b", "c"))
    result = run_virtual(resume(made, "r", journal=journal))
    assert (made.entered, calls, result.output) == (["c"], ["c"], ["A", "B", "C"])
    whole = run_virtual(run(Parts(failing_at("", []), ("a", "b", "c")), 0))
    assert (result.usage, result.judging) == (whole.usage, whole.judging)
    assert result.judging.calls == 3
    assert run_virtual(journal.result("r")).judging == result.judging


def test_effects_of_a_folded_path_count_towards_a_limit() -> None:
    """A limit on effects counts those that an entry stands for."""
    journal, calls = interrupted(budget=Budget(effects=3)), []
    made = Parts(failing_at("", calls), ("a", "b", "c"))
    result = run_virtual(resume(made, "r", journal=journal, budget=Budget(effects=2)))
    assert (result.reason, calls) == (Reason.BUDGET, [])


def test_a_changed_step_does_not_take_the_result_of_another() -> None:
    """The fingerprint of the entry is compared, and accept_changes accepts another one."""
    journal = interrupted()
    made = Parts(failing_at("", []), ("a", "b", "c"), mark="2")
    with pytest.raises(ReplayMismatch, match="parts"):
        run_virtual(resume(made, "r", journal=journal))
    result = run_virtual(resume(made, "r", journal=journal, accept_changes=True))
    assert (result.output, made.entered) == (["A", "B", "C"], ["c"])
