"""A run as people watch it: live rows on a terminal, plain lines on a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ..codec import text_of
from ..conditions import Budget
from ..journal import Entry
from . import texts
from .output import Output, Part
from .progress import Ending, Note, Progress, Row, Shown, judged
from .rows import Columns, ending_line, note_line, row_line, row_text

if TYPE_CHECKING:
    from rich.live import Live

__all__ = ["LinesView", "LiveView", "View", "view_of"]

BEAT = 0.1  # seconds between two looks at what is in flight


class View(Protocol):
    """What watches a run through its journal entries."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None: ...
    def recall(self, title: str, entries: Sequence[Entry]) -> None:
        """Take up what is on record of the run; shown, under the title, once it goes on."""

    def hear(self, entry: Entry) -> None:
        """Show an entry that has just become durable."""

    def hear_text(self, path: str, piece: str) -> None:
        """Show text that the model called at a path has just said."""


class LinesView:
    """A run as plain lines: one per iteration; verbose, one per effect too."""

    def __init__(self, output: Output, *, verbose: bool = False) -> None:
        self.output = output
        self.verbose = verbose
        self.progress = Progress()
        self._waiting: list[Part | Shown] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        return None

    def recall(self, title: str, entries: Sequence[Entry]) -> None:
        """Take up what is on record of the run; shown, under the title, once it goes on."""
        self._waiting = [(title, "bold"), *self.progress.recall(entries)]

    def hear(self, entry: Entry) -> None:
        """Show an entry that has just become durable."""
        waiting, self._waiting = self._waiting, []
        shown = self.progress.hear(entry)
        if self.verbose and entry.kind in ("finished", "cut"):
            waiting.append((effect_line(entry, self.output), "dim"))
        for item in (*waiting, *shown):
            self._show(item)

    def hear_text(self, path: str, piece: str) -> None:
        """Take note of text that a model has just said: a pipe is shown what came of it."""

    def _show(self, item: Part | Shown) -> None:
        if isinstance(item, str | tuple):
            self.output.say(item, wrap=True)
            return
        if isinstance(item, Ending):
            self.output.say((ending_line(item), "dim"))
            return
        if isinstance(item, Note):
            self.output.say((note_line(item, self.output.signs), "yellow"), wrap=True)
            return
        for condition, answer in judged(item.iteration.evaluation):
            asked = texts.one_line(condition)
            self.output.say((f"[INFO] Condition evaluation: '{asked}' -> {answer}", "dim"))
        self._row(item)

    def _row(self, row: Row) -> None:
        self.output.say(row_text(row, self.output.signs))


class LiveView(LinesView):
    """A run on a terminal: finished iterations as rows, a line on what is in flight, and below it the
    end of what a model is saying.

    `cap` is what the run may spend and `seconds` how long it may take, for that line.
    """

    def __init__(
        self,
        output: Output,
        *,
        verbose: bool = False,
        cap: Budget | None = None,
        seconds: float = math.inf,
    ) -> None:
        super().__init__(output, verbose=verbose)
        self.cap = cap
        self.seconds = seconds
        self._live: Live | None = None
        self._beat: asyncio.Task[None] | None = None
        self._shift = 0.0  # active seconds of the run, less this process's clock

    async def __aenter__(self) -> Self:
        from rich.live import Live

        self._shift = self.progress.active - time.monotonic()
        self._live = Live(console=self.output.console, auto_refresh=False, transient=True)
        self._live.start()
        self._beat = asyncio.ensure_future(self._beating())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._beat is not None:
            self._beat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beat
        if self._live is not None:
            self._live.stop()

    def hear(self, entry: Entry) -> None:
        """Show an entry that has just become durable."""
        self._shift = max(self._shift, entry.at - time.monotonic())
        super().hear(entry)

    def hear_text(self, path: str, piece: str) -> None:
        """Show text that the model called at a path has just said."""
        self.progress.hear_text(path, piece)

    async def _beating(self) -> None:
        while True:
            self._refresh()
            await asyncio.sleep(BEAT)

    def _refresh(self) -> None:
        from rich.text import Text

        assert self._live is not None
        now, room = time.monotonic() + self._shift, self.output.width - 1
        lines = [Text(line, style="cyan", no_wrap=True) for line in self.lines(now, room)]
        if said := self.saying(room):
            lines.append(Text(said, style="dim", no_wrap=True))
        self._live.update(Text("\n").join(lines), refresh=True)

    def lines(self, now: float, room: int) -> list[str]:
        """Return what is in flight and what was used, on one line of `room` cells or on two."""
        flight = self.flight(now)
        if texts.width(flight) <= room:
            return [flight]
        head, _, used = flight.partition(" | ")
        return [texts.fit(line, room, self.output.signs) for line in (head, f"  {used}")]

    def saying(self, room: int) -> str:
        """Return the end of what the model that spoke last is saying, in at most `room` cells."""
        heard = [text for path, text in self.progress.heard.items() if path in self.progress.flying]
        said = texts.one_line(heard[-1]) if heard else ""
        return f"  {texts.fit_end(said, room - 2, self.output.signs)}" if said else ""

    def flight(self, now: float) -> str:
        """Return the line on what is in flight at the run's active second `now`."""
        spin = self.output.signs.spin
        parts = [spin[int(now * 10) % len(spin)]]
        flying = list(self.progress.flying.items())
        if flying:
            path, started = flying[-1]
            name = texts.fit_end(texts.one_line(path), self.output.width // 2, self.output.signs)
            parts.append(f"{name} {texts.duration(max(0.0, now - started))}")
            if path in self.progress.models:  # its provider is told by `show`
                model = self.progress.models[path].rpartition(":")[2]
                parts.append(f"({texts.fit(texts.one_line(model), 24, self.output.signs)})")
            if len(flying) > 1:
                parts.append(f"and {len(flying) - 1} more")
        most = f"of {texts.duration(self.seconds)}" if self.seconds < math.inf else "in all"
        parts.append(f"| {texts.duration(max(0.0, now))} {most}")
        if spent := self._spent():
            judging = texts.cost(self.progress.judging)
            parts.append(f"| {spent}, {judging} of it on judging" if judging else f"| {spent}")
        return " ".join(parts)

    def _spent(self) -> str:
        spent, cap = self.progress.spent, self.cap
        told = []
        if cap is not None and cap.usd is not None:
            told.append(f"{texts.money(spent.usd)} of {texts.money(cap.usd)}")
        if cap is not None and cap.calls is not None:
            told.append(f"{spent.calls} of {cap.calls} calls")
        if cap is not None and cap.tokens is not None:
            told.append(f"{spent.tokens} of {cap.tokens} tokens")
        return ", ".join(told) or texts.cost(spent)

    def _row(self, row: Row) -> None:
        columns = Columns.within(self.output.width - 1)
        self.output.say(*row_line(row, columns, self.output.signs))


def effect_line(entry: Entry, output: Output) -> str:
    """Return an effect's end as a line: its path, how long it took, what it cost and gave."""
    facts = [texts.duration(entry.seconds), texts.cost(entry.usage)]
    if entry.kind == "cut":
        facts.append("cut short")
    line = f"[INFO] {texts.one_line(entry.path)}: {', '.join(fact for fact in facts if fact)}"
    told = entry.error.message if entry.error else text_of(entry.value)
    return f"{line}: {texts.fit(texts.one_line(told), 80, output.signs)}" if told else line


def view_of(
    output: Output,
    *,
    verbose: bool,
    cap: Budget | None = None,
    seconds: float = math.inf,
    beside: bool = False,
) -> View:
    """Return the view that fits the output: live if people watch, else plain lines.

    `beside` is whether others write to the same terminal: a line that is drawn again and again would
    break theirs.
    """
    if output.terminal and not beside:
        return LiveView(output, verbose=verbose, cap=cap, seconds=seconds)
    return LinesView(output, verbose=verbose)
