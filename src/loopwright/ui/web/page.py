"""The state that the routes of one server share: the project folder, processes of runs, and the journal.

A run is a separate `loopwright` process, which outlives the page. Lists and views of runs are read from the indexes of
the store if it has them.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from ..._platform import new_group
from ...documents.schema.inputs import DeclaredInputs
from ...errors import ConfigurationError, DocumentError, JournalDamaged, LoopwrightError
from ...journal import Journal, RunInfo
from ...journal.views import LiveLines, RunPage, RunView, Wanted
from ...records import NOTHING
from ...records.codec import text_of
from ..consent import actions_text, is_approved
from ..inputs import VARIABLE
from ..journals import PROGRAM
from ..rows import scores_of
from ..sources import SourceSettings, load_source
from .events import ChangeFeed, Channels, EventChannel, RunProgressCache, Topic

MAX_DOCUMENTS = 60  # each is loaded for the list, which takes milliseconds
MAX_DEPTH = 3  # folders below the project folder
_MAX_SIZE = 1 << 20  # bytes
_KINDS = (".yaml", ".yml")
# A project has other YAML files too, such as those of CI, which must not be listed as broken workflows.
_BEGINS = re.compile(rb"^(schema|\$schema|orchestrator)\s*:", re.MULTILINE)
_SKIPPED = ("node_modules", "__pycache__", "venv", "build", "dist")
POLL_SECONDS = 0.05  # seconds between two checks of the signal; a person does not notice the delay
_LAST = 2000  # characters of the messages of a failed process


@dataclass(frozen=True, slots=True)
class KnownDocument:
    """A document: its file, its name, whether it may be started, its actions, its default input and declared inputs."""

    file: str
    name: str
    trusted: bool = False
    runs: str = ""
    input: str = ""
    inputs: DeclaredInputs | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """A folder with workflows in it."""

    folder: Path

    def documents(self) -> list[KnownDocument]:
        """Return the documents in the folder, by name."""
        return [self._document(file) for file in self._files()]

    def find(self, file: str) -> KnownDocument | None:
        """Return a document by its file in `documents`, or None."""
        # Only listed files: a request must not name another file of the machine.
        return self._document(file) if file in self._files() else None

    def _files(self) -> list[str]:
        return sorted(name for name, _ in zip(self._walk(), range(MAX_DOCUMENTS), strict=False))

    def _walk(self) -> Iterator[str]:
        for root, folders, files in os.walk(self.folder):
            here = Path(root).relative_to(self.folder)
            deep = len(here.parts) >= MAX_DEPTH
            folders[:] = (
                [] if deep else sorted(n for n in folders if n[0] != "." and n not in _SKIPPED)
            )
            for name in sorted(files):
                if name.endswith(_KINDS) and _is_document(Path(root) / name):
                    yield str(here / name)

    def _document(self, file: str) -> KnownDocument:
        try:
            # Listing a folder must not run the code in it.
            source = load_source(str(self.folder / file), SourceSettings(), execute=False)
            actions = source.local_actions()
        except DocumentError as error:
            return KnownDocument(file, file, problem=str(error.problems[0]))
        except LoopwrightError as error:
            return KnownDocument(file, file, problem=str(error))
        return KnownDocument(
            file,
            source.name,
            trusted=is_approved(actions),
            runs=actions_text(actions) if actions else "",
            input=text_of(source.default_input),
            inputs=source.inputs,
        )


def _is_document(path: Path) -> bool:
    with suppress(OSError):
        if path.is_file() and path.stat().st_size <= _MAX_SIZE:
            return _BEGINS.search(path.read_bytes()) is not None
    return False


class RunProcesses:
    """Starts processes and watches them; they continue when the page ends."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._watched: set[asyncio.Task[int]] = set()

    async def launch(self, words: Sequence[str], stdin: str | None = None) -> None:
        """Start `loopwright WORDS…` and return once it has opened and accepted the run.

        Raises:
            ConfigurationError: with its last message, if it ended without opening the run, or refused
                to resume it.
        """
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as messages:
            signal = Path(folder, "opened")
            signal.touch()
            process = await self._start(words, stdin, messages, signal)
            ended = asyncio.create_task(process.wait())
            # asyncio keeps only weak references to tasks, and an ended process must be collected.
            self._watched.add(ended)
            ended.add_done_callback(self._watched.discard)
            while not ended.done() and not signal.stat().st_size:
                await asyncio.wait({ended}, timeout=POLL_SECONDS)
            if not signal.stat().st_size:
                messages.seek(0)
                said = messages.read().decode("utf-8", "replace")[-_LAST:].splitlines()
                lines = [line for line in said if line.strip()]
                ours = "loopwright: "
                errors = [line.removeprefix(ours) for line in lines if line.startswith(ours)]
                silent = f"the process ended with exit code {ended.result()} and no message"
                # The last error is the reason; notes and warnings precede it.
                raise ConfigurationError((errors or lines or [silent])[-1])

    async def _start(
        self, words: Sequence[str], stdin: str | None, messages: IO[bytes], signal: Path
    ) -> asyncio.subprocess.Process:
        # The journal as a variable: a URL may contain a password, and arguments are visible to all users.
        environment = {**os.environ, "LOOPWRIGHT_JOURNAL": self._url, "NO_COLOR": "1"}
        environment[VARIABLE] = str(signal)
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, *words, cwd=self._folder, env=environment,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL, stderr=messages,
            **new_group(),  # Ctrl-C ends the page, not the runs
        )  # fmt: skip
        if process.stdin is not None:
            with suppress(BrokenPipeError, ConnectionResetError):
                # A process that refuses its command line ends before it reads the input.
                process.stdin.write((stdin or "").encode())
                await process.stdin.drain()
            process.stdin.close()
        return process


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
        self.project = ProjectFolder(folder)
        self.processes = RunProcesses(url, folder)
        self.closing = False
        self.channels = Channels(partial(send_changes, self))

    def close(self) -> None:
        """End all streams, and stop watching the journal."""
        self.closing = True
        self.channels.stop()
        self.feed.stop()
