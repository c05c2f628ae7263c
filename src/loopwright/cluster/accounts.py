"""Budgets over workers: what all runs of a queue, or of a key, may spend together.

Rules:

1. A run reports its total after each call, and at its end. The total replaces the one before, so a report that is
   repeated, or lost with its worker, changes nothing: the next one has it.
2. A call that costs something is refused once the account has spent its budget. Calls in progress then, and those that
   other workers begin within a second, may exceed it.
3. A run that has not begun waits in its queue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from ..conditions import Budget, amount
from ..engine.budgets import Spending
from ..errors import ConfigurationError, Stopped
from ..journal import RunInfo
from ..records import NOTHING, Reason, Stop, Usage
from .source_keys import SUBMITTED_AS

__all__ = ["AccountStore", "RunSpending", "SharedBudgets", "accounts_of"]

_FRESH = 1.0  # seconds for which the total of an account is not read again
Report = tuple[str, str, Usage]  # an account, a run, and what the run has spent


class AccountStore(Protocol):
    """Where the spending of all workers is counted."""

    async def spend(self, reports: Sequence[Report]) -> None:
        """Record what runs have spent; a lower amount than before is left out."""

    async def spent(self) -> dict[str, Usage]:
        """Return what the runs of each account have spent."""


def accounts_of(row: RunInfo) -> list[str]:
    """Return the accounts of a run: its queue, its key, and the part of the key before each slash.

    Example:
        >>> accounts_of(RunInfo("r", "r", queue="slow", source={"submitted_as": "batch/7"}))
        ['queue:slow', 'key:batch/7', 'key:batch']
    """
    accounts = [f"queue:{row.queue}"]
    key = str(row.source.get(SUBMITTED_AS) or "")
    while key:
        accounts.append(f"key:{key}")
        key = key.rpartition("/")[0]
    return accounts


def checked_budgets(budgets: Mapping[str, Budget]) -> dict[str, Budget]:
    """Return the budgets of a worker. Raises ConfigurationError for another name or limit."""
    for name, budget in budgets.items():
        kind, _, rest = name.partition(":")
        if kind not in ("queue", "key") or not rest:
            raise ConfigurationError(
                f"budgets: {name!r} is not an account; use queue:NAME or key:KEY"
            )
        if budget.effects is not None or not budget.spending:
            raise ConfigurationError(f"budgets: {name}: use calls, tokens or usd")
    return dict(budgets)


class SharedBudgets:
    """The budgets of a worker.

    Args:
        store: where spending is counted.
        budgets: what may be spent, by account.
    """

    def __init__(self, store: AccountStore, budgets: Mapping[str, Budget]) -> None:
        self._store = store
        self._budgets = budgets
        self._totals: dict[str, Usage] = {}
        self._read = -_FRESH  # when the totals were read
        self._waiting: dict[tuple[str, str], Usage] = {}  # reports by account and run
        self._reporting = asyncio.Lock()

    def of(self, row: RunInfo) -> RunSpending | None:
        """Return the budgets that apply to a run; None without one."""
        names = [name for name in accounts_of(row) if name in self._budgets]
        return RunSpending(self, row.run_id, names) if names else None

    async def used_up(self, names: Sequence[str]) -> str:
        """Return a sentence on the first of these accounts that has spent its budget, or ""."""
        if time.monotonic() - self._read > _FRESH:
            await self._refresh()
        for name in names:
            budget, total = self._budgets[name], self._totals.get(name, NOTHING)
            for unit in ("calls", "tokens", "usd"):
                cap, used = getattr(budget, unit), getattr(total, unit)
                if cap is not None and used >= cap:
                    return f"{amount(used)} of {amount(cap)} {unit} of the budget {name} spent"
        return ""

    async def report(self, names: Sequence[str], run_id: str, usage: Usage) -> None:
        """Record what a run has spent; reports of several runs share a statement."""
        for name in names:
            self._waiting[name, run_id] = usage
        async with self._reporting:
            reports, self._waiting = self._waiting, {}
            if not reports:  # another report had it
                return
            try:
                await self._store.spend(
                    [(name, run, spent) for (name, run), spent in sorted(reports.items())]
                )
            except BaseException:
                self._waiting = {**reports, **self._waiting}
                raise
            await self._refresh()

    async def _refresh(self) -> None:
        self._totals = await self._store.spent()
        self._read = time.monotonic()


class RunSpending(Spending):
    """The budgets over workers that apply to a run; see Spending."""

    def __init__(self, budgets: SharedBudgets, run_id: str, names: Sequence[str]) -> None:
        self._budgets = budgets
        self._run_id = run_id
        self._names = names
        self._reported = NOTHING

    async def used_up(self) -> str:
        """Return a sentence on an account that has spent its budget, or ""."""
        return await self._budgets.used_up(self._names)

    async def admit(self) -> None:
        """Raise Stopped for the run if one of its accounts has spent its budget."""
        if detail := await self.used_up():
            raise Stopped("", Stop(Reason.BUDGET, detail))

    async def report(self, usage: Usage) -> None:
        """Record what the run has spent until now."""
        if usage != self._reported:
            await self._budgets.report(self._names, self._run_id, usage)
            self._reported = usage
