"""A run on a terminal or a pipe: its rows while it runs, how it ended, and where the user's code failed.

An iteration is one line: columns on a terminal, a sentence on a pipe. A terminal has live rows, a pipe plain lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from ...coding.workspace.store import GitStore
from ...coding.workspace.tree import WorkspaceSource
from ...conditions import CEILING, UNITS, Budget, amount, unit_of
from ...errors import LoopwrightError
from ...journal import Entry, RunInfo, surviving
from ...journal.protocol import shown_url
from ...journal.questions import Question
from ...records import Failure, Reason, Result, Status, StepOutcome
from ...records.codec import Json, text_of
from ...records.redaction import last_frame
from .. import formatting as texts
from ..formatting import Signs
from ..journals import command_line, files_line, resume_command, resume_line, retry_line
from ..rows import LINE_INPUT, Ending, Notice, Progress, Row, Shown, answers_of
from ..run_summary import (
    TREES,
    CodingSummary,
    failing_text,
    handed_over,
    is_for_workers,
    result_json,
    workspaces_of,
)
from . import DEBUG
from .output import Output, Part

if TYPE_CHECKING:
    from rich.live import Live

DETAIL = 120  # characters of the end of a loop
SHOWN = 200  # characters of feedback on a plain line
ITEM = 60  # characters of the item of a list on a plain line
NARROW = 76  # columns; below, verdicts are signs without words (a common width of split terminals)
WIDE = 96  # columns; below, labels are shorter, to leave room for the feedback


class ColumnWidths(NamedTuple):
    """The width of each column; the feedback gets the rest of the line."""

    label: int
    bar: int
    verdict: int
    cost: int
    time: int
    gap: int
    feedback: int = 0

    @classmethod
    def within(cls, width: int) -> ColumnWidths:
        """Return the columns of a line of `width` cells."""
        fixed = cls(label=min(24, width // 5), bar=10, verdict=11, cost=8, time=7, gap=2)
        if width < NARROW:
            fixed = cls(label=10, bar=5, verdict=1, cost=7, time=7, gap=1)
        elif width < WIDE:
            fixed = cls(label=12, bar=10, verdict=11, cost=8, time=7, gap=1)
        taken = sum(fixed[:5]) + 5 * fixed.gap + 6  # 6: a space and the score behind its bar
        return fixed._replace(feedback=max(8, width - taken))


def indented(row: Row) -> str:
    """Return a row's label, indented by two spaces for each outer loop."""
    return "  " * row.depth + texts.one_line(row.label)


def label_of(row: Row, cells: int, signs: Signs) -> str:
    """Return the label in `cells` cells: the number stays, the loop's name may be cut."""
    indent, number = "  " * min(row.depth, 4), f" {row.iteration.number}"
    name = texts.one_line(row.path.rsplit("/", 1)[-1])
    return indent + texts.fit(name, cells - len(indent) - len(number), signs) + number


def row_line(row: Row, columns: ColumnWidths, signs: Signs) -> list[Part]:
    """Return a row in columns: label, score, verdict, feedback, cost, time."""
    item = row.iteration
    sign, word, style = row.verdict(signs)
    verdict = sign if columns.verdict == 1 else f"{sign} {word}"
    summary = "  ".join(filter(None, (texts.confirmed(item), row.summary)))
    if row.item:
        named = texts.fit(_item(row), max(8, columns.feedback // 2), signs)
        summary = f"{named}: {summary}" if summary else named
    feedback = texts.fit(summary, columns.feedback, signs)
    gap = " " * columns.gap
    # A score with its bar, or the objective in the same width.
    bar, rating = texts.bar(row.part, columns.bar, signs), f" {row.rating():5}{gap}"
    if item.accepted is not None:
        room = columns.bar + 6
        bar, rating = _padded(texts.fit(row.rating(signs), room, signs), room), gap
    return [
        (_padded(label_of(row, columns.label, signs), columns.label) + gap, "bold"),
        (bar, style or "cyan"),
        rating,
        (_padded(verdict, columns.verdict) + gap, style),
        (_padded(feedback, columns.feedback) + gap, "red" if item.error else ""),
        (f"{texts.cost(item.usage):>{columns.cost}}{gap}", "dim"),
        (f"{texts.duration(item.seconds):>{columns.time}}", "dim"),
    ]


def row_text(row: Row, signs: Signs) -> str:
    """Return a row as a plain line: `refine 2: score 0.85, passed, $0.0012, 1.2 s: feedback`."""
    item = row.iteration
    summary = texts.fit(row.summary, SHOWN, signs)
    measure = item.objective
    tested = f" ({text})" if (text := texts.confirmed(item)) else ""
    facts = [
        f"score {row.rating()}" if row.part is not None else "",
        f"{texts.one_line(measure.name)} {texts.objective(item, signs)}{tested}"
        if measure is not None
        else "",
        row.verdict(signs)[1],
        texts.cost(item.usage),
        texts.duration(item.seconds),
    ]
    of_item = f" ({texts.fit(_item(row), ITEM, signs)})" if row.item else ""
    line = f"{indented(row)}{of_item}: {', '.join(fact for fact in facts if fact)}"
    return f"{line}: {summary}" if summary else line


def _item(row: Row) -> str:
    return texts.one_line(row.item[:LINE_INPUT])


def _padded(text: str, cells: int) -> str:
    return text + " " * (cells - texts.width(text))


def ending_line(ending: Ending, signs: Signs) -> str:
    """Return the end of a loop inside the run as a line."""
    name = texts.one_line(ending.path.rsplit("/", 1)[-1])
    stop = ending.stop
    # The detail of a failed condition begins with the name of its loop.
    detail = texts.one_line(stop.detail).removeprefix(f"{name}: ")
    # The end of the run has the complete detail, such as the output of a check that cannot run.
    return f"{'  ' * ending.depth}{name} {stop.reason.status.value}: {texts.fit(detail, DETAIL, signs)}"


def note_line(note: Notice, signs: Signs) -> str:
    """Return a question or an answer as a line."""
    return f"{'  ' * note.depth}{texts.fit(texts.one_line(note.text), SHOWN, signs)}"


def steps_text(outcomes: Collection[StepOutcome]) -> str:
    """Return the number of steps: `3 steps`, or `2 of 3 steps` if some were not satisfied."""
    good = sum(one.status is Status.SATISFIED for one in outcomes)
    total = texts.plural(len(outcomes), "step")
    return total if good == len(outcomes) else f"{good} of {total}"


def step_line(one: StepOutcome, columns: ColumnWidths, signs: Signs) -> list[Part]:
    """Return a step of a workflow in columns: name, status, duration, output."""
    word = texts.status_of_step(one)
    style = _STATUS_STYLES[one.status] if one.status is not None else "dim"
    failed = one.status is not None and one.status is not Status.SATISFIED
    result = one.detail if failed else texts.value_line(one.output)
    room = columns.feedback + columns.bar
    return [
        (_padded(texts.fit(texts.one_line(one.name), columns.label, signs), columns.label), "bold"),
        (f"  {word:11}  ", style),
        (f"{texts.duration(one.seconds) if one.reason or one.seconds else '':>8}  ", "dim"),
        texts.fit(texts.one_line(result[:LINE_INPUT]), room, signs),
    ]


_STATUS_STYLES = {
    Status.SATISFIED: "green",
    Status.EXHAUSTED: "yellow",
    Status.FAILED: "red",
    Status.IMPOSSIBLE: "red",
    Status.CANCELLED: "red",
    Status.SUSPENDED: "cyan",
}


def ending_text(result: Result, status: str = "", *, scripted: bool = False) -> str:
    """Return one sentence: the reason, the iterations, the time and the cost.

    `status` replaces the status of a run that has not ended: `running`, `interrupted`.
    """
    word = status or result.status.value
    detail = texts.one_line(result.detail)
    parts = [f"{word.capitalize()}: {detail}" if detail else word.capitalize()]
    count = result.total or result.iterations
    facts = [texts.plural(count, "iteration")] if count else []
    if not count and result.outcomes:
        facts.append(steps_text(result.outcomes.values()))
    facts.append(texts.duration(result.seconds))
    if result.usage:
        facts.append(texts.spent(result.usage, scripted=scripted))
        if result.judging:
            work, judging = result.usage.less(result.judging), result.judging
            facts.append(
                f"{texts.cost(work) or 'nothing'} for work and {texts.cost(judging)} for judging"
            )
    best = result.best
    # The only loop of a workflow is what its user optimises.
    loops = [result, *(result.loops.values() if len(result.loops) == 1 else ())]
    accepted = next((one.best for one in loops if one.best and one.best.objective), None)
    if accepted is not None and accepted.objective is not None:
        value = f"{texts.one_line(accepted.objective.name)} {texts.rated(accepted)}"
        facts.append(f"accepted: iteration {accepted.number} with {value}")
    elif any(
        one.best is None and one.history and one.history[-1].accepted is False for one in loops
    ):
        facts.append("accepted: no iteration")
    elif best is not None and best.score is not None and result.reason is not Reason.CONDITION_MET:
        facts.append(f"best: iteration {best.number} with {texts.score(best.score)}")
    if result.reported_score is not None:
        facts.append(f"second evaluation: {texts.score(result.reported_score)}")
    owners = (result,) if result.held_out else result.loops.values()
    hidden = [one for loop in owners for one in (loop.held_out or {}).values()]
    for one in hidden:
        what = "held out" if "dataset" in one else "held-out tests"
        facts.append(f"{what}: {texts.held_out(one)}")
    if result.explored_iterations:
        facts.append(texts.plural(result.explored_iterations, "explored iteration"))
    return f"{parts[0]} ({', '.join(facts)})"


REFRESH_SECONDS = 0.1  # seconds between two updates of a live view


class LinesView:
    """A run as plain lines: one per iteration; if verbose, one per effect too.

    `conditions` adds a line for each answer to a condition, as users of `workflow/v2.0` expect.
    """

    def __init__(self, output: Output, *, verbose: bool = False, conditions: bool = False) -> None:
        self.output = output
        self.verbose = verbose
        self.conditions = conditions
        self.progress = Progress()
        self.has_entries = False
        self._waiting: list[Part | Shown] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        return None

    def recall(
        self,
        title: str,
        entries: Sequence[Entry],
        bounds: Mapping[str, Json] | None = None,
        *,
        rerun: bool = False,
    ) -> None:
        """Prepare the recorded part of the run; it is shown, below the title, with the next entry.

        `bounds` are those of the run, see `Progress`; with `rerun`, what is in doubt runs again without an answer.
        """
        self.progress = Progress(bounds)
        # Shown with the next entry, so that a refused resume prints no rows.
        self.has_entries = bool(entries)
        kept = surviving(entries)
        # To one who resumes, a question that has or needs no answer would look like one that is open.
        settled = {
            entry.path
            for entry in kept
            if entry.kind == "answered"
            or (rerun and entry.kind == "asked" and entry.value["request"].get("kind") == "doubt")
        }
        told = [entry for entry in kept if entry.kind != "asked" or entry.path not in settled]
        self._waiting = [(title, "bold"), *self.progress.recall(told)]

    def show_entry(self, entry: Entry) -> None:
        """Show an entry that has just become durable."""
        self.has_entries = True
        waiting, self._waiting = self._waiting, []
        shown = self.progress.apply(entry)
        if self.verbose and entry.kind in ("finished", "cut"):
            waiting.append((effect_line(entry, self.output), "dim"))
        for item in waiting:
            self._show(item)
        for item in shown:
            if self.conditions and isinstance(item, Row):
                for condition, answer in answers_of(item.iteration.evaluation):
                    said = f"[INFO] Condition evaluation: '{texts.one_line(condition)}' -> {answer}"
                    self.output.write((said, "dim"))
            self._show(item)

    def show_wait(self, sentence: str) -> None:
        """Show what a submitted run waits for."""
        self.output.note(sentence)

    def show_text(self, path: str, piece: str) -> None:
        """Ignore a piece of a model's reply; plain lines show the result of the call."""

    def _show(self, item: Part | Shown) -> None:
        if isinstance(item, str | tuple):
            self.output.write(item, wrap=True)
            return
        if isinstance(item, Ending):
            self.output.write((ending_line(item, self.output.signs), "dim"))
            return
        if isinstance(item, Notice):
            self.output.write((note_line(item, self.output.signs), "yellow"), wrap=True)
            return
        self.row(item)

    def row(self, row: Row) -> None:
        """Show a finished iteration."""
        self.output.write(row_text(row, self.output.signs))


class LiveView(LinesView):
    """A run on a terminal: finished iterations as rows, a line on the effects in progress, and the end of
    the text that a model is writing.

    `cap` and `seconds` are the limits of the run, for the line on progress.
    """

    def __init__(
        self,
        output: Output,
        *,
        verbose: bool = False,
        conditions: bool = False,
        cap: Budget | None = None,
        seconds: float = math.inf,
    ) -> None:
        super().__init__(output, verbose=verbose, conditions=conditions)
        self.cap = cap
        self.seconds = seconds
        self._live: Live | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._shift = 0.0  # active seconds of the run, less this process's clock

    async def __aenter__(self) -> Self:
        from rich.live import Live

        self._shift = self.progress.active - time.monotonic()
        # No refresh by a thread of the library: it would write into the rows that this task prints.
        self._live = Live(console=self.output.console, auto_refresh=False, transient=True)
        self._live.start()
        self._refreshing = asyncio.ensure_future(self._refresh_repeatedly())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._refreshing
        if self._live is not None:
            self._live.stop()

    def show_entry(self, entry: Entry) -> None:
        """Show an entry that has just become durable."""
        # Entries of another process, as `watch` reads them, may be ahead of this clock.
        self._shift = max(self._shift, entry.at - time.monotonic())
        super().show_entry(entry)

    def show_text(self, path: str, piece: str) -> None:
        """Show a piece of the reply of the model that is called at a path."""
        self.progress.add_text(path, piece)

    async def _refresh_repeatedly(self) -> None:
        from rich.text import Text

        assert self._live is not None
        while True:
            now, room = time.monotonic() + self._shift, self.output.width - 1
            lines = [Text(line, style="cyan", no_wrap=True) for line in self.lines(now, room)]
            if text := self.reply(room):
                lines.append(Text(text, style="dim", no_wrap=True))
            self._live.update(Text("\n").join(lines), refresh=True)
            await asyncio.sleep(REFRESH_SECONDS)

    def lines(self, now: float, room: int) -> list[str]:
        """Return the effects in progress and the usage, on one line of `room` cells or on two."""
        effects_line = self.effects_line(now)
        if texts.width(effects_line) <= room:
            return [effects_line]
        head, _, used = effects_line.partition(" | ")
        return [texts.fit(line, room, self.output.signs) for line in (head, f"  {used}")]

    def reply(self, room: int) -> str:
        """Return the end of the reply that is being written, in at most `room` cells."""
        in_flight = self.progress.in_flight
        replies = [text for path, text in self.progress.replies.items() if path in in_flight]
        text = texts.one_line(replies[-1]) if replies else ""
        return f"  {texts.fit_end(text, room - 2, self.output.signs)}" if text else ""

    def effects_line(self, now: float) -> str:
        """Return the line on the effects in progress at the run's active second `now`."""
        spin = self.output.signs.spin
        parts = [spin[int(now * 10) % len(spin)]]
        in_flight = list(self.progress.in_flight.items())
        if in_flight:
            path, started = in_flight[-1]
            name = texts.fit_end(texts.one_line(path), self.output.width // 2, self.output.signs)
            parts.append(f"{name} {texts.duration(max(0.0, now - started))}")
            if path in self.progress.models:  # `show` prints its provider too
                model = self.progress.models[path].rpartition(":")[2]
                parts.append(f"({texts.fit(texts.one_line(model), 24, self.output.signs)})")
            if len(in_flight) > 1:
                parts.append(f"and {len(in_flight) - 1} more")
        if total := self.progress.all_cases:
            parts.append(f"| {len(self.progress.cases):,} of {texts.plural(total, 'case')}")
        limit = f"of {texts.duration(self.seconds)}" if self.seconds < math.inf else "total"
        parts.append(f"| {texts.duration(max(0.0, now))} {limit}")
        if spent := self._spent():
            judging = texts.cost(self.progress.judging)
            parts.append(f"| {spent}, {judging} of it for judging" if judging else f"| {spent}")
        return " ".join(parts)

    def _spent(self) -> str:
        spent, cap = self.progress.spent, self.cap
        parts = []
        if cap is not None and cap.usd is not None:
            bound = "at most " if spent.estimated else ""
            parts.append(f"{bound}{texts.money(spent.usd)} of {texts.money(cap.usd)}")
        if cap is not None and cap.calls is not None:
            parts.append(f"{spent.calls} of {cap.calls} calls")
        if cap is not None and cap.tokens is not None:
            parts.append(f"{spent.tokens} of {cap.tokens} tokens")
        return ", ".join(parts) or texts.cost(spent)

    def row(self, row: Row) -> None:
        columns = ColumnWidths.within(self.output.width - 1)
        self.output.write(*row_line(row, columns, self.output.signs))


def effect_line(entry: Entry, output: Output) -> str:
    """Return the end of an effect as a line: path, duration, cost, result."""
    facts = [texts.duration(entry.seconds), texts.cost(entry.usage)]
    if entry.kind == "cut":
        facts.append("cut short")
    line = f"  {texts.one_line(entry.path)}: {', '.join(fact for fact in facts if fact)}"
    result = entry.error.message if entry.error else texts.value_line(entry.value)
    return f"{line}: {texts.fit(texts.one_line(result), 80, output.signs)}" if result else line


def reports_conditions(source: Mapping[str, Json]) -> bool:
    """Return whether the users of this document's dialect expect lines on its conditions."""
    return source.get("dialect") == "workflow/v2.0"


def view_of(
    output: Output,
    *,
    verbose: bool,
    conditions: bool = False,
    cap: Budget | None = None,
    seconds: float = math.inf,
    shared: bool = False,
) -> LinesView:
    """Return a live view on a terminal, or else plain lines.

    A terminal that is `shared` with log lines gets plain lines too, because updates in place would
    break them.
    """
    if output.terminal and not shared:
        return LiveView(output, verbose=verbose, conditions=conditions, cap=cap, seconds=seconds)
    return LinesView(output, verbose=verbose, conditions=conditions)


# The used amounts and the limits in the sentence of a stop, and what a refused call would take.
_FIGURE = re.compile(
    r"\b(\d[\d.e+-]*) (?:of|used|calls|tokens|usd|effects|iterations|phase iterations)\b"
)
LONG_LINE = 400  # characters of a line of the output on a screen without a terminal
SHOWN_LINES = 60  # of an output on a terminal, so that the reason stays visible; a pipe gets all
_STYLES = {
    Status.SATISFIED: "bold green",
    Status.EXHAUSTED: "bold yellow",
    Status.SUSPENDED: "bold cyan",
}


def report_result(
    result: Result,
    output: Output,
    url: str,
    questions: Sequence[Question] = (),
    *,
    info: RunInfo | None = None,
) -> None:
    """Write why a run ended, its output, its journal, and the commands to continue with.

    `info` is the row of the run; by default it was started here, and the command line knows its step.
    """
    row = info or RunInfo(result.run_id, result.name, source={"python": ""})
    output.write(
        (ending_text(result, scripted=row.scripted), _STYLES.get(result.status, "bold red")),
        wrap=True,
    )
    # No other command can open this journal, so none is suggested.
    in_memory = url.startswith("memory:")
    traceback_command = "" if in_memory else command_line("show", result.run_id, url, "--traceback")
    report_failure(result, output, traceback_command)
    for warning in result.warnings:
        output.note(f"warning: {texts.one_line(warning)}")
    # A suspension without a question waits for a pause or for quota.
    waits = result.reason is Reason.WAITING
    if result.request and not questions and not waits:
        request = {key: value for key, value in result.request.items() if key != "path"}
        detail = texts.one_line(text_of(request or ""))
        output.write(f"waiting at {result.request.get('path', '')}: {detail}")
    # As JSON: the declared type of a Python function has no text form.
    if not waits or result.output is not None:
        report_output(result.view(typed=False).output, output, questions)
    for workspace in workspaces_of(result):
        _report_files(workspace, result, output)
    if in_memory:
        output.write(("not saved: a memory: journal ends with its process", "dim"))
        return
    output.write((f"journal: {shown_url(url)}", "dim"))
    output.write(("details: ", "dim"), command_line("show", result.run_id, url))
    if questions:
        report_questions(questions, result, output, url)
    elif waits:
        report_wait(result, output, url)
    elif line := continuation_line(result, row, url):
        output.write(("continue: ", "dim"), line)
    elif result.status is Status.SUSPENDED:
        report_continuation(row, output, url)


def report_handed_over(workspace: Mapping[str, Json], result: Result, output: Output) -> bool:
    """Write how the files of a workspace were handed over, if they were; return whether."""
    taken = False
    for one in handed_over(workspace, result):
        if not one.label:
            output.write((one.text, "yellow"), wrap=True)
            continue
        taken = True
        how = f" ({one.command})" if one.command else ""
        output.write((f"{one.label}: ", "dim"), f"{one.text}{how}", (one.problem, "yellow"))
    return taken


def report_coding(summary: CodingSummary, output: Output) -> None:
    """Write who worked in a coding loop, what its check says, and which tests turned."""
    for title, text in summary.lines():
        output.write((f"{title}: ", "dim"), text, wrap=True)


def _report_files(workspace: Mapping[str, Json], result: Result, output: Output) -> None:
    """Write where the files of a workspace are, and how to take them."""
    folder = Path(text_of(workspace.get("folder", "")))
    # The files of `here` are in place already.
    if not report_handed_over(workspace, result, output) and folder.parent.parent.name == TREES:
        output.write(
            ("files: ", "dim"), texts.one_line(str(folder)), failing_text(workspace, result)
        )
        # A person may have deleted the store.
        with contextlib.suppress(LoopwrightError):
            if GitStore(folder.parents[2]).tree_of(workspace["base"]) == workspace["tree"]:
                output.write("no file differs from the beginning")
                return
        words = ("diff", "apply", *(["branch"] if WorkspaceSource.of(Path.cwd()).git else []))
        commands = [files_line(word, result.run_id, folder) for word in words]
        output.write(("take them:", "dim"), *(f"\n  {command}" for command in commands))


def _raising(result: Result) -> tuple[str, ...]:
    """Return the option that raises the limit that ended a run, with twice its figure; () if none does."""
    figures = [float(figure) for figure in _FIGURE.findall(result.detail)]
    if result.reason is Reason.BUDGET and (unit := unit_of(result.detail)):
        name = next(name for name, raised in UNITS.items() if raised == unit)
        new = 2 * max(*figures, getattr(result.usage, unit, 0.0))
        return f"--{name.replace('_', '-')}", amount(new if unit == "usd" else int(new))
    # Of several loops at a limit, one that is not in the sentence may be raised.
    used = max(1, *figures, *(one.iterations for one in (result, *result.loops.values())))
    if result.reason in (Reason.MAX_ITERATIONS, Reason.PHASE_LIMIT) and used < CEILING:
        return "--max-iterations", str(min(2 * int(used), CEILING))
    return ()


def continuation_line(result: Result, info: RunInfo, url: str) -> str:
    """Return the line that continues a run that has ended: by a higher limit, or by a retry; "" if neither does."""
    if option := _raising(result):
        return resume_line(info, url, *option)
    errors = [
        result.error,
        *(item.error for one in (result, *result.loops.values()) for item in one.history),
    ]
    if result.status is not Status.FAILED or not any(error and error.path for error in errors):
        return ""
    return retry_line(info, url)


def report_questions(
    questions: Sequence[Question], result: Result, output: Output, url: str
) -> None:
    """Write a line per open question, with its path, and the commands that answer them and end a hold."""
    asked = [question for question in questions if question.kind != "hold"]
    for question in asked:
        # The detail of the result stands above.
        detail = "" if question.detail == result.detail else f": {texts.one_line(question.detail)}"
        output.write((f"waiting at {texts.one_line(question.path)}", "bold"), detail, wrap=True)
    if asked:
        output.write(("answer: ", "dim"), command_line("approve", result.run_id, url))
    if len(asked) < len(questions):
        output.write(("continue: ", "dim"), command_line("continue", result.run_id, url))


def report_wait(result: Result, output: Output, url: str) -> None:
    """Write how the wait of a suspended run ends, and the command that then continues it."""
    for event in (result.request or {}).get("events") or ():
        words = (
            ("--run", result.run_id) if event["key"] == result.run_id else ("--key", event["key"])
        )
        line = command_line("signal", event["name"], url, *words)
        output.write(("send the event: ", "dim"), line)
    output.write(("continue when it is over: ", "dim"), command_line("resume", "", url, "--due"))


def report_continuation(
    info: RunInfo, output: Output, url: str, *, lead: str = "", doubt: Sequence[str] = ()
) -> None:
    """Write how an interrupted run, or a suspended one without a question, continues.

    `doubt` are the effects that may have acted, which the printed command runs again.
    """
    if not is_for_workers(info, url):
        output.write((f"{lead}resume: ", "dim"), resume_line(info, url, *_rerun(doubt)))
        _report_doubt(doubt, output)
    elif lead or info.status == "interrupted" or info.wake_at:
        output.write(
            (f"{lead}a worker continues it; watch: ", "dim"),
            command_line("watch", info.run_id, url),
        )
    else:
        again = command_line("submit", "", url, "--again", info.run_id)
        output.write(("start it again: ", "dim"), again)


def _rerun(doubt: Sequence[str]) -> tuple[str, ...]:
    """Return the option with which a resume does not ask before it repeats effects that may have acted."""
    return ("--in-doubt", "rerun") if doubt else ()


def _report_doubt(doubt: Sequence[str], output: Output) -> None:
    if doubt:
        names = texts.one_line(", ".join(doubt[:_MOST_DOUBT]))
        output.note(
            f"{names} had begun and may have acted; it runs again, and without this option you are asked first"
        )


_MOST_DOUBT = 3  # effects that a line names


def report_interruption(
    result: Result | None,
    output: Output,
    url: str,
    *,
    cause: str,
    source: Mapping[str, Json],
    had_entries: bool = True,
    doubt: Sequence[str] = (),
) -> None:
    """Write the recorded part of a run that `cause` ended, and how to resume it."""
    if result is None and had_entries:
        output.note(f"stopped by {cause}; {shown_url(url)} no longer holds the run")
    elif result is None:
        output.note(f"stopped by {cause} before anything was recorded")
    else:
        if output.as_json:
            output.write_json(result_json(result))
        output.write((ending_text(result, "interrupted"), "bold yellow"), wrap=True)
        line = resume_command(source, result.run_id, url, *_rerun(doubt))
        output.note(f"recorded results are kept; resume: {line}")
        _report_doubt(doubt, output)


def report_output(
    value: Json, output: Output, questions: Sequence[Question] = (), *, whole: bool = False
) -> None:
    """Write the output of a run, or the one that a question is about.

    A terminal gets SHOWN_LINES lines, wrapped at words, or with `whole` all, a line each; a pipe gets the text
    unchanged. Empty text is omitted.
    """
    title = "output:"
    waiting = [question.request["output"] for question in questions if "output" in question.request]
    if waiting:
        value, title = waiting[0], "output to review:"
    if value is None:
        output.write(("output: null", "dim"))
        return
    text = text_of(value)
    if not text.strip():
        if waiting:
            output.write((f"{title} empty text", "dim"))
        return
    if not output.terminal:
        output.write(title)
        lines = text.split("\n") if whole else [text]
        for line in lines:
            output.write(texts.fit(line, LONG_LINE, output.signs) if whole else line)
        if whole and any(len(line) > LONG_LINE for line in lines):
            output.write(f"  {output.signs.more} long lines are cut; show --output prints all")
        return
    # Tabs have no fixed width, so they cannot be wrapped.
    lines = output.wrapped(texts.clean(text).expandtabs(4), output.width - 2)
    output.write((title, "dim"))
    for line in lines if whole else lines[:SHOWN_LINES]:
        output.write("  " + line)
    if len(lines) > SHOWN_LINES and not whole:
        left = texts.plural(len(lines) - SHOWN_LINES, "more line")
        output.write((f"  {output.signs.more} {left}; show --output prints all", "dim"))


def place_of(failure: Failure) -> str:
    """Return the file, the line and the function in which the user's code failed, or ""."""
    frame = last_frame(failure.traceback)
    if frame is None:
        return ""
    file, here = Path(frame.file), Path.cwd()
    # Editors and terminals open a relative path by a click.
    shown = file.relative_to(here) if file.is_relative_to(here) else file
    return f"{shown}, line {frame.line}, in {frame.function}"


def report_failure(result: Result, output: Output, command: str) -> None:
    """Write where the user's code failed, and the command that shows the traceback.

    The traceback itself is written without such a command, and under LOOPWRIGHT_DEBUG.
    """
    failure = result.error
    if failure is None or not failure.traceback:
        return
    if not command or os.environ.get(DEBUG):
        output.write(texts.clean(failure.traceback.rstrip()))
        return
    error = texts.one_line(failure.traceback.rstrip().rpartition("\n")[2])
    if place := place_of(failure):
        error = f"{texts.one_line(place)}: {error}"
    output.write(("failed at: ", "dim"), error, wrap=True)
    output.write(("traceback: ", "dim"), command)


def show_tracebacks(
    info: RunInfo, result: Result, entries: Sequence[Entry], output: Output
) -> None:
    """Write the traceback of each failure in a run, equal ones once."""
    by_traceback: dict[str, tuple[Failure, list[str]]] = {}
    failures = [failure for entry in surviving(entries) for failure in _failures_of(entry)]
    for failure in [*failures, *([result.error] if result.error is not None else [])]:
        if failure.traceback:
            _, paths = by_traceback.setdefault(failure.traceback, (failure, []))
            if failure.path not in paths:
                paths.append(failure.path)
    if output.as_json:
        rows = [{**failure.to_json(), "paths": paths} for failure, paths in by_traceback.values()]
        output.write_json({"run_id": info.run_id, "failures": rows})
        return
    if not by_traceback:
        output.write(f"{info.run_id}: no function of yours failed in this run")
    for failure, paths in by_traceback.values():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        output.write((f"{texts.one_line(paths[0])}{more}:", "bold"))
        output.write(texts.clean(failure.traceback.rstrip()))


def _failures_of(entry: Entry) -> list[Failure]:
    if entry.kind != "finished":
        return []
    if entry.error is not None:
        return [entry.error]
    error: Json = entry.value.get("error") if isinstance(entry.value, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("traceback"), str):
        return []
    return [  # of a tool call, which hands its error to the model as a value
        Failure(
            "",
            str(error.get("kind")),
            str(error.get("message")),
            entry.path,
            exception=str(error.get("exception", "")),
            traceback=error["traceback"],
        )
    ]
