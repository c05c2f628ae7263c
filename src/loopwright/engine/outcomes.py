"""The outcome of a composite step: that of its part, or the worst of several, so that no success hides an unsatisfied loop.

A part that fails raises an error, as a function does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import BudgetExceeded, ConfigurationError, StepError, nearest
from ..records import Reason, Result, Status
from ..records.codec import Json
from ..records.typed import CARRIERS, TypedMembers, ValueType
from .context import Context
from .step import CompositeStep, Step

__all__ = [
    "ACCEPTABLE",
    "RANKED",
    "Unsatisfied",
    "Wrapper",
    "acceptable",
    "attempt",
    "checked",
    "combined",
    "outputs_by_name",
]

# From the worst to the best.
RANKED = tuple(
    Status(word)
    for word in ("cancelled", "suspended", "failed", "impossible", "exhausted", "satisfied")
)
ACCEPTABLE = ("failed", "exhausted", "impossible")  # statuses that `accept` may name


def acceptable(owner: str, accept: str | Iterable[str], *, required: bool) -> tuple[str, ...]:
    """Return the statuses that a step accepts, checked.

    Raises:
        ConfigurationError: for another word, or for a step that is required and accepts.
    """
    words = (accept,) if isinstance(accept, str) else tuple(accept)
    for word in words:
        if word not in ACCEPTABLE:
            raise ConfigurationError(
                f"{owner}: accept: {word!r} is none of {', '.join(ACCEPTABLE)}"
                f"{nearest(str(word), ACCEPTABLE)}"
            )
    if words and required:
        raise ConfigurationError(
            f"{owner}: required and accept: {' and '.join(words)} contradict each other; remove one of "
            "the two"
        )
    return tuple(str(word) for word in words)


def combined(
    name: str, output: Json, ended: Sequence[tuple[str, Step, Result]], ctx: Context
) -> Result:
    """Return the result of a step: that of the worst of its parts, each a (name, step, result).

    Of several equal ones, the first counts. A status that a part accepts does not count.
    """
    counting = [(part, r) for part, step, r in ended if r.status.value not in step.accept]
    if not all(r.satisfied for _, r in counting):
        part, worst = min(counting, key=lambda item: RANKED.index(item[1].status))
        return Result(
            worst.status,
            worst.reason,
            _named_detail(part, worst.detail),
            output,
            name=name,
            also=worst.also,
            # The document continued after this failure, so the step around this one does too.
            gone_on=worst.status is Status.FAILED,
            error=worst.error,
            cause=worst.cause,
        )
    reached = next((r for _, r in reversed(counting) if r.reason is not Reason.COMPLETED), None)
    reason = reached.reason if reached else Reason.COMPLETED
    detail = reached.detail if reached else f"{ctx.path or name} completed"
    accepted = [f"{part} {r.status.value}" for part, s, r in ended if r.status.value in s.accept]
    if accepted:
        detail = f"{detail}; accepted: {', '.join(accepted)}"
    return Result(Status.SATISFIED, reason, detail, output, name=name)


def outputs_by_name(outputs: dict[str, Json]) -> Json:
    """Return the outputs of several parts as an object that carries their declared types, if any has one."""
    if CARRIERS.isdisjoint(map(type, outputs.values())):
        return outputs
    return TypedMembers(outputs)


def _named_detail(name: str, detail: str) -> str:
    return detail if detail.startswith((f"{name}: ", f"{name} ")) else f"{name}: {detail}"


class Unsatisfied(StepError):
    """A required loop was not satisfied; `result` is its result."""

    result: Result

    def __init__(self, result: Result, path: str) -> None:
        detail = f"{path} is required, but {result.detail}"
        budget = result.reason is Reason.BUDGET
        super().__init__(detail, path=path, kind="budget" if budget else result.status.value)
        self.result = result
        self.caused_by(result)


class _OverBudget(Unsatisfied, BudgetExceeded):
    """A required loop used up its budget."""


class Wrapper(CompositeStep):
    """One step, run in another way: it counts for the workflow around it as that step does."""

    inner: Step

    def parts(self) -> Iterable[Step]:
        return [self.inner]

    @property
    def input_type(self) -> ValueType | None:
        return self.inner.input_type

    @property
    def output_type(self) -> ValueType | None:
        return self.inner.output_type

    @property
    def required(self) -> bool:
        return self.inner.required

    @property
    def accept(self) -> tuple[str, ...]:
        return self.inner.accept

    @property
    def scores_only(self) -> bool:
        return self.inner.scores_only


async def attempt(ctx: Context, name: str, inner: Step, value: Json) -> Result:
    """Run a part and return its result; a failed loop raises an error, as a failed function does.

    Raises:
        StepError: if it failed and its failure is not tolerated, or it is required and not satisfied.
    """
    return checked(await ctx.outcome(name, inner, value), inner, ctx.below(name))


def checked(result: Result, inner: Step, path: str) -> Result:
    """Return the result of a part if the step around it continues.

    Raises:
        StepError: if it failed and its failure is not tolerated, or it is required and not satisfied.
    """
    if result.status is Status.SATISFIED:
        return result
    if result.status is Status.FAILED and not result.gone_on:
        raise StepError.of(result, path)
    if inner.required:
        kind = _OverBudget if result.reason is Reason.BUDGET else Unsatisfied
        raise kind(result, path)
    return result
