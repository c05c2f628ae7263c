"""The state that the routes of one server share: the project folder, processes of runs, and the journal.

Lists and views of runs are read from the indexes of the store if it has them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...errors import JournalDamaged
from ...journal import Journal, RunInfo
from ...journal.views import LiveLines, RunPage, RunView, Wanted
from ...records import NOTHING
from ..processes import RunProcesses
from ..project import ProjectFolder
from ..rows import scores_of
from .evaluation import CasesCache
from .events import ChangeFeed, Channels, EventChannel, RunProgressCache, Topic

T = TypeVar("T")
SPARK = 24  # iterations in the sparkline of a run, as many as its width shows
_OVER = ("satisfied", "exhausted", "failed", "impossible", "cancelled")


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of the run list: its key there, the run, and its latest scores."""

    key: int
    info: RunInfo
    scores: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of the run list.

    `searched` is the key at which a text search stopped, 0 at the end; `total` is the number of runs in
    the journal, or None if it is unknown.
    """

    rows: list[Listed]
    names: list[str]
    total: int | None
    searched: int = 0


class Records:
    """Reads a journal for pages."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._sparks: dict[tuple[str, float], tuple[float, ...]] = {}

    async def with_view(self, run_id: str, work: Callable[[RunView], T]) -> T:
        """Return the result of `work` on the view of a run. Raises RunNotFound."""
        return await self.journal.view(run_id, work)

    async def listing(self, wanted: Wanted) -> Listing:
        """Return a page of the run list."""
        return await self.journal.listing(wanted, self._listed)

    def _listed(self, page: RunPage) -> Listing:
        rows = []
        for key, view in page.rows:
            try:
                rows.append(self._row(key, view))
            except JournalDamaged as error:
                rows.append(Listed(key, view.info.as_damaged(error), ()))
        return Listing(rows, list(page.names), page.total, page.searched)

    def _row(self, key: int, view: RunView) -> Listed:
        info = view.info
        # The scores of an ended run change only by a rewind, which changes `updated`.
        cached = self._sparks.get((info.run_id, info.updated))
        if cached is not None and info.status in _OVER:
            return Listed(key, info, cached)
        loop = main_loop(view)
        over = info.status in _OVER
        marks = view.outline(loop, offset=-SPARK if over else 0) if loop else []
        scores = tuple(item.score for _, item in marks[-SPARK:] if item.score is not None)
        if over:
            self._sparks[info.run_id, info.updated] = scores
            # Simply emptied: the scores of one page of the list are read in a millisecond.
            if len(self._sparks) > 2000:
                self._sparks.clear()
        elif marks:
            usage = sum((item.usage for _, item in marks), NOTHING)
            info = replace(
                info, iterations=view.total(),
                score=max(scores_of(item for _, item in marks), default=None),
                usage=info.usage if info.usage.calls > usage.calls else usage,
            )  # fmt: skip
        return Listed(key, info, scores)


def in_order(view: RunView, loops: list[str]) -> list[str]:
    """Return loops in the order of their first iterations."""

    def first(loop: str) -> int:
        marks = view.outline(loop, limit=1)
        return marks[0][0] if marks else 0

    return sorted(loops, key=first)


def main_loop(view: RunView) -> str:
    """Return the path of the main loop of a run: the outermost one with the latest iteration."""
    loops = view.loops()
    if len(loops) < 2:
        return loops[0] if loops else ""

    def latest(loop: str) -> int:
        marks = view.outline(loop, offset=-1)
        return marks[0][0] if marks else 0

    # Each loop costs a query, and a workflow rarely has more outermost loops.
    return max(loops[:8], key=latest)


# Sends the changes of a topic to its open pages.
SendChanges = Callable[["Page", Topic, EventChannel], Awaitable[None]]


class Page:
    """The state that the routes of one server share; `closing` is set at shutdown."""

    def __init__(self, journal: Journal, url: str, folder: Path, send_changes: SendChanges) -> None:
        self.records = Records(journal)
        self.live: LiveLines = getattr(journal, "live", None) or LiveLines()
        self.feed = ChangeFeed(journal, self.live)
        self.run_progress = RunProgressCache()
        self.cases = CasesCache()
        self.project = ProjectFolder(folder)
        self.processes = RunProcesses(url, folder)
        self.closing = False
        self.channels = Channels(partial(send_changes, self))

    def close(self) -> None:
        """End all streams, and stop watching the journal."""
        self.closing = True
        self.channels.stop()
        self.feed.stop()
