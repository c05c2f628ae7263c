"""How the parts of a run ended: the steps of a workflow, the items of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .codec import Json
from .isolation import Record, own
from .iteration import Failure, Iteration
from .outcome import Reason, Status, Stop

__all__ = ["ItemOutcome", "StepOutcome", "item_outcomes"]


@dataclass(frozen=True, slots=True)
class ItemOutcome(Record):
    """How one item of a list ended; one that was not done has neither status nor reason.

    `index` is its place in the list, from 0, and that of its output.
    """

    index: int
    item: Json
    status: Status | None = None
    reason: Reason | None = None
    detail: str = ""
    output: Json = None
    error: Failure | None = None

    def view(self) -> ItemOutcome:
        """Return it for one reader, who gets copies of its values."""
        return replace(self, item=own(self.item), output=own(self.output))

    def to_json(self) -> Json:
        """Return it as a row of the item table."""
        return {
            "index": self.index,
            "item": self.item,
            "status": self.status and self.status.value,
            "reason": self.reason and self.reason.value,
            "detail": self.detail,
            "output": self.output,
            "error": self.error and self.error.to_json(),
        }


def item_outcomes(items: Sequence[Json], done: Sequence[Iteration]) -> tuple[ItemOutcome, ...]:
    """Return the table of a list: a row for each of `items`, with what is recorded of it."""
    records = {record.number: record for record in done}
    rows = (ItemOutcome(index, item) for index, item in enumerate(items))
    return tuple(
        row if (found := records.get(row.index + 1)) is None else _done(row, found) for row in rows
    )


def _done(row: ItemOutcome, record: Iteration) -> ItemOutcome:
    stop = item_stop(record)
    return replace(
        row,
        status=stop.reason.status, reason=stop.reason, detail=stop.detail,
        output=None if record.error is not None else record.output, error=record.error,
    )  # fmt: skip


def item_stop(record: Iteration) -> Stop:
    """Return how an item ended; see `ended_item`."""
    if record.error is not None:
        if record.interrupted:
            return Stop(Reason.STOPPED, record.error.message)
        kinds = (r for r in Reason if r.status is Status.FAILED and r.value == record.error.kind)
        return Stop(next(kinds, Reason.ERROR), record.error.message)
    votes = record.evaluation.votes if record.evaluation is not None else ()
    for vote in votes:
        if isinstance(vote, Mapping) and "ended" in vote:
            return Stop.from_json(vote["ended"])
    return Stop(Reason.COMPLETED)


@dataclass(frozen=True, slots=True)
class StepOutcome(Record):
    """How a step of a workflow ended; one that did not run has neither status nor reason.

    `seconds` are active seconds of the run, `items` the table of a list.
    """

    name: str
    status: Status | None = None
    reason: Reason | None = None
    detail: str = ""
    seconds: float = 0.0
    output: Json = None
    items: tuple[ItemOutcome, ...] = ()

    def view(self) -> StepOutcome:
        """Return it for one reader, who gets copies of its values."""
        return replace(self, output=own(self.output), items=own(self.items))

    def to_json(self) -> Json:
        """Return it as a JSON object; its output is among the `steps` of the result."""
        data: dict[str, Json] = {
            "status": self.status and self.status.value,
            "reason": self.reason and self.reason.value,
            "detail": self.detail,
            "seconds": round(self.seconds, 6),
        }
        if self.items:
            data["items"] = [item.to_json() for item in self.items]
        return data
