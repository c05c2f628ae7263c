"""The state that the routes of one server share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from ...journal import Journal
from ...journal.views import LiveLines
from .events import ChangeFeed, Channels, EventChannel, RunProgressCache, Topic
from .project import ProjectFolder, RunProcesses
from .queries import Records

# Sends the changes of a topic to its open pages.
SendChanges = Callable[["Page", Topic, EventChannel], Awaitable[None]]


class Page:
    """The state that the routes of one server share; `closing` is set at shutdown."""

    def __init__(self, journal: Journal, url: str, folder: Path, send_changes: SendChanges) -> None:
        self.records = Records(journal)
        self.live: LiveLines = getattr(journal, "live", None) or LiveLines()
        self.feed = ChangeFeed(journal, self.live)
        self.run_progress = RunProgressCache()
        self.project = ProjectFolder(folder)
        self.processes = RunProcesses(url, folder)
        self.closing = False
        self.channels = Channels(partial(send_changes, self))

    def close(self) -> None:
        """End all streams, and stop watching the journal."""
        self.closing = True
        self.channels.stop()
        self.feed.stop()
