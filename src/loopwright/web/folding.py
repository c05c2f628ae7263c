"""What a run is doing, folded from its entries as they come; its open pages share it."""

from __future__ import annotations

from collections.abc import Iterable

from ..cli.progress import Progress
from ..codec import Json
from ..journal import Entry, surviving
from ..stores.views import RunView

__all__ = ["Fold", "Folds"]

KEPT = 64  # runs whose fold is kept
_STILL = ("interrupted", "suspended")


class Fold:
    """How far a run is: what it is doing and spent, which models it asked, which limits were raised
    (by path, "" for the run), and up to which entry that holds.

    `rewinds` counts how often something was set aside while it was looked at.
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self.models: dict[str, None] = {}
        self.raised: dict[str, dict[str, Json]] = {}
        self.last = 0
        self.rewinds = 0
        self._latest: list[Entry] = []  # what was taken up last

    def since(self, seq: int, view: RunView) -> list[Entry]:
        """Return the entries after a number, as far as they were taken up."""
        if seq >= self.last:
            return []
        if self._latest and self._latest[0].seq <= seq + 1:
            return [entry for entry in self._latest if entry.seq > seq]
        return view.since(seq)

    def hear(self, view: RunView) -> None:
        """Take up what came since."""
        entries = view.since(self.last)
        if not entries:
            return
        fresh = self.last == 0
        self.last = entries[-1].seq
        self._latest = entries
        if any(entry.kind == "rewound" for entry in entries):
            self.rewinds += not fresh
            self.progress = Progress()
            self.take(surviving(entries if fresh else view.since(0)))
        else:
            self.take(entries)

    def take(self, entries: Iterable[Entry]) -> None:
        """Take up entries that no rewind set aside."""
        for entry in entries:
            self.progress.hear(entry)
            if entry.kind in _STILL or (entry.kind == "ended" and not entry.path):
                self.progress.flying.clear()
            elif entry.kind == "started" and isinstance(entry.value, dict):
                model = entry.value.get("model")
                if isinstance(model, str):
                    self.models[model] = None
            elif entry.kind == "accepted" and isinstance(entry.value, dict):
                self.raised[entry.path] = {**self.raised.get(entry.path, {}), **entry.value}


_OVER = ("satisfied", "exhausted", "failed", "cancelled")
_FIRST = 40  # entries in which a run has asked its model


def _brief(view: RunView) -> Fold:
    """Return the fold of a run that nobody went on with: its row has all but its models."""
    fold = Fold()
    fold.take(view.since(0, _FIRST))
    fold.last = view.last
    return fold


class Folds:
    """The folds of the runs that were looked at last."""

    def __init__(self) -> None:
        self._folds: dict[str, Fold] = {}

    def of(self, view: RunView) -> Fold:
        """Return the fold of a run, up to date; of one that ended as it began, what is worth telling."""
        info = view.info
        run_id = info.run_id
        if info.epoch == 1 and info.status in _OVER and run_id not in self._folds:
            return _brief(view)
        fold = self._folds.pop(run_id, None) or Fold()
        self._folds[run_id] = fold
        while len(self._folds) > KEPT:
            del self._folds[next(iter(self._folds))]
        fold.hear(view)
        return fold
