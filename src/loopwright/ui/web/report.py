"""A run as one self-contained HTML file, without scripts and links to other hosts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from ...errors import LoopwrightError
from ...journal import Entry, RunInfo
from ...journal.views import EntriesView
from ...records import Failure
from ...records.codec import Json
from ..progress import verdicts_of
from ..run_files import run_files
from .events import RunProgress
from .page_models import Row, Section, inner_of, section_of
from .patch_lines import PatchLine, lines_of
from .queries import in_order, main_loop
from .render import STATIC, cut, readable, render
from .run_header import run_of
from .steps import steps_of

_MAX_VALUE = 100_000  # characters of a value: a report is sent by mail


def report(info: RunInfo, entries: Sequence[Entry], journal: Path | None = None) -> str:
    """Return a run as an HTML document: header, input, output, curves, iterations."""
    view, run_progress = EntriesView(info, entries), RunProgress()
    run_progress.update(view)
    style = (STATIC / "page.css").read_text("utf-8")
    # The policy of the file allows this style sheet and nothing else.
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    sections = [
        section_of(view, loop, run_progress, all_rows=True) for loop in in_order(view, view.loops())
    ]
    end = view.ending() or {}
    return render(
        "report.html", run=run_of(view, main_loop(view), run_progress), sections=sections,
        style=Markup(style), digest=digest,  # noqa: S704
        steps=steps_of(view), failure=Failure.from_json(end.get("error")), input=_shown(info.input), output=_shown(end.get("output")),
        detail=lambda row: _detail(view, row), patch=lambda row: _patch(entries, view, row, journal), inside=lambda row: _inside(view, row),
    )  # fmt: skip


def _detail(view: EntriesView, row: Row) -> list[tuple[str, str]]:
    """Return the titles and texts of an open iteration."""
    item = view.iteration(row.loop, row.number)
    parts = [("Input", _shown(item.input)), ("Output", _shown(item.output))]
    if item.error is not None:
        parts.append(("Error", item.error.message))
        parts.append(("Traceback", item.error.traceback))
    if item.evaluation is not None:
        parts.append(("Feedback", item.evaluation.feedback))
        words = {True: "yes", False: "no", None: "undecided"}
        answers = [f"{words[passed]}: {text}" for text, passed in verdicts_of(item.evaluation)]
        parts.append(("Sentences", "\n".join(answers)))
    return [(title, text) for title, text in parts if text]


def _patch(
    entries: Sequence[Entry], view: EntriesView, row: Row, journal: Path | None
) -> list[PatchLine]:
    """Return the lines that an iteration changed, if its files are on this machine."""
    try:
        files = run_files(view.info.run_id, entries, row.loop, journal)
        item = view.iteration(row.loop, row.number)
        return [] if files is None else lines_of(files.diff_from_parent(item))
    except LoopwrightError as error:
        return [PatchLine("file", str(error))]


def _shown(value: Json) -> str:
    return cut(readable(value), _MAX_VALUE)


def _inside(view: EntriesView, row: Row) -> list[Section]:
    return inner_of(view, f"{row.loop}/{row.number}", opened=True)
