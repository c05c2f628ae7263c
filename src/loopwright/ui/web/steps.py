"""The steps of a workflow as rows of its run's page: how each ended, how long it took, what it gave."""

from __future__ import annotations

from dataclasses import dataclass

from ...journal.views import RunView
from ...records import Status, StepOutcome
from .. import formatting as texts
from .render import cut, readable

__all__ = ["StepRow", "steps_of"]

SHOWN = 20_000  # characters of an output; the export has all
READ = 4_000  # entries of a run; of longer ones its loops tell what it did


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step as a line: its name, its status, why it ended, its time, its output."""

    name: str
    status: str
    detail: str
    seconds: str
    output: str


def steps_of(view: RunView) -> list[StepRow]:
    """Return the steps of the workflow of a run, in the order in which they ended.

    None where there is a single one, which is a loop and shown as such.
    """
    loops = view.loops()
    if loops and view.last > READ:
        return []
    found = [_step(outcome) for outcome in view.steps()]
    return found if len(found) > 1 or not loops else []


def _step(outcome: StepOutcome) -> StepRow:
    told = "" if outcome.status in (None, Status.SATISFIED) else outcome.detail
    word = outcome.status.value if outcome.status is not None else outcome.detail or "not run"
    if outcome.status is Status.SATISFIED and outcome.detail.endswith(" skipped"):
        word = "skipped"
    took = texts.duration(outcome.seconds) if outcome.status is not None or outcome.seconds else ""
    return StepRow(outcome.name, word, told, took, cut(readable(outcome.output), SHOWN))
