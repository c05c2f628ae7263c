"""`export`: a run as JSON, CSV, JSON lines or a report.

`html` is one file that needs no other: what a run is, why it ended, its curves and iterations.
`json` is the object of `show --json` with all `entries`; `jsonl` one journal entry per line, those
that a rewind set aside included; `csv` one row per iteration. A text cell of `csv` that begins like a
formula (= + - @) has an apostrophe before it, so that a spreadsheet shows it and calculates nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ...errors import ConfigurationError
from ..export import FORMS
from ..journals import DEFAULT, reading
from ..run_summary import on_record
from .options import JournalUrl, RunName
from .output import Output

__all__ = ["export"]


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
