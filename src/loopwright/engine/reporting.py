"""Which steps report what they cost: a budget binds only where one does."""

from __future__ import annotations

from ..conditions import Budget
from .step import Leaf, Step

__all__ = ["CANNOT_BIND", "OVERSHOOT", "cannot_bind", "reports"]

# The codes of the warnings: a budget that nothing uses up, and a call that went beyond one.
CANNOT_BIND = "budget_cannot_bind"
OVERSHOOT = "overshoot"


def reports(step: Step) -> bool:
    """Return whether a step, or one inside it, can report what it costs.

    A model call does. A function does if it takes a context (`ctx.spend`) or states a `reserve`, a command
    if it has `usage`. What nothing is known of counts as reporting.
    """
    if step.reports is not None:
        return step.reports
    if isinstance(step, Leaf):
        return step.wants_context or step.reserve is not None
    parts = list(step.parts())
    return not parts or any(reports(part) for part in parts)


def cannot_bind(step: Step, budget: Budget, where: str) -> str:
    """Return the sentence for a budget that no step inside `step` can ever use up, or ""."""
    if not budget.spending or reports(step):
        return ""
    units = [name for name in ("calls", "tokens", "usd") if getattr(budget, name) is not None]
    return (
        f"{where}: the budget of {' and '.join(units)} cannot bind, as no step in it reports what it "
        "costs; report it with ctx.spend(Usage(…)), give reserve= to the function or usage= to the "
        "command, or limit effects instead: Budget(effects=…)"
    )
