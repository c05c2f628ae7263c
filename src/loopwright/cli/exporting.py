"""`export`: a run as JSON, CSV, JSON lines or a report.

`html` is one file that needs no other: what a run is, why it ended, its curves and iterations.
`json` is the object of `show --json` with all `entries`; `jsonl` one journal entry per line, those
that a rewind set aside included; `csv` one row per iteration.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from ..codec import text_of
from ..errors import ConfigurationError
from ..journal import Entry, RunInfo
from .journals import DEFAULT, reading
from .looking import rounds_of
from .options import JournalUrl, RunName
from .output import Output
from .recorded import on_record, recorded_json

__all__ = ["FORMS", "export"]

COLUMNS = (
    "loop", "iteration", "score", "passed", "feedback", "error", "output", "seconds", "calls",
    "input_tokens", "output_tokens", "usd",
)  # fmt: skip


class Form(StrEnum):
    """What a run can be written as."""

    JSON = "json"
    CSV = "csv"
    JSONL = "jsonl"
    HTML = "html"


def export(
    name: RunName,
    journal: JournalUrl = DEFAULT,
    form: Annotated[Form, typer.Option("--format", "-f", help="What to write.")] = Form.JSON,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="Where to; stdout by default.")
    ] = None,
) -> int:
    """Write a run as JSON (all of it), CSV (its iterations), JSON lines (its journal) or HTML (a report)."""
    info, entries = reading(journal, lambda store: on_record(store, name))
    text = FORMS[form](info, entries)
    with Output() as output:
        if out is None or out == "-":
            output.put(text)
        else:
            _write(Path(out), text)
            output.note(f"{info.run_id} is written to {out}")
    return 0


def _json(info: RunInfo, entries: Sequence[Entry]) -> str:
    whole = {**recorded_json(info, entries), "entries": [entry.to_json() for entry in entries]}
    return json.dumps(whole, indent=2) + "\n"


def _jsonl(_: RunInfo, entries: Sequence[Entry]) -> str:
    return "".join(json.dumps(entry.to_json()) + "\n" for entry in entries)


def _csv(_: RunInfo, entries: Sequence[Entry]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for path, items in rounds_of(entries).items():
        for item in items:
            used = item.usage
            table.writerow(
                [
                    path, item.number, item.score, item.passed,
                    item.evaluation.feedback if item.evaluation else "",
                    item.error.message if item.error else "", text_of(item.output),
                    round(item.seconds, 6), used.calls, used.input_tokens, used.output_tokens,
                    used.usd,
                ]
            )  # fmt: skip
    return text.getvalue()


def _html(info: RunInfo, entries: Sequence[Entry]) -> str:
    # Drawn as the page draws it, which stands above the command line and is known by name only.
    drawn: str = import_module("loopwright.web.report").report(info, entries)
    return drawn


FORMS: dict[str, Callable[[RunInfo, Sequence[Entry]], str]] = {
    Form.JSON: _json, Form.CSV: _csv, Form.JSONL: _jsonl, Form.HTML: _html,
}  # fmt: skip


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_text(text, "utf-8", newline="")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):  # where it cannot be written it cannot be removed either
            beside.unlink(missing_ok=True)
        why = error.strerror or type(error).__name__
        raise ConfigurationError(f"--out: {str(path)!r} cannot be written: {why}") from error
