"""`export`: a run as JSON, CSV, JSON lines or a report.

`html` is a report in one file: the status, the reason, the curves and the iterations.
`json` is the object of `show --json` with all `entries`; `jsonl` has one journal entry per line,
including entries that a rewind discarded; `csv` has one row per iteration. A text cell of `csv` that
begins like a formula (= + - @) gets an apostrophe, so that a spreadsheet does not calculate it.
`candidates.csv` has one row per candidate, `cases.jsonl` one line per case of an evaluation.
`inspect` is a log of Inspect and `pydantic-evals` a report of pydantic-evals, each as JSON.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ...errors import ConfigurationError
from ...journal import Entry, Journal, RunInfo
from ..export import exported
from ..journals import DEFAULT, folder_of, reading
from ..run_summary import on_record
from .options import JournalUrl, RunName
from .output import Output


class Form(StrEnum):
    """The formats of an export."""

    JSON = "json"
    CSV = "csv"
    JSONL = "jsonl"
    HTML = "html"
    PATCH = "patch"
    BUNDLE = "bundle"
    CANDIDATES = "candidates.csv"
    CASES = "cases.jsonl"
    INSPECT = "inspect"
    PYDANTIC_EVALS = "pydantic-evals"


def export(
    name: RunName,
    journal: JournalUrl = DEFAULT,
    form: Annotated[Form, typer.Option("--format", "-f", help="Format.")] = Form.JSON,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="FILE", help="Output: the run.  [default: stdout]"),
    ] = None,
) -> int:
    """Export a run as JSON (everything), CSV (iterations), JSON lines (journal), HTML (report), or its files as a patch or git bundle.

    candidates.csv has the candidates of its iterations, cases.jsonl the cases of an evaluation. inspect and pydantic-evals are
    the cases in a log or report that these tools read.

    Examples:
        loopwright export last
        loopwright export last --format html --out report.html
    """

    async def read(store: Journal) -> tuple[RunInfo, list[Entry], Path | None]:
        return *await on_record(store, name), folder_of(store)

    info, entries, folder = reading(journal, read)
    content = exported(form, info, entries, folder)
    with Output() as output:
        if out is None or out == "-":
            if isinstance(content, bytes):
                raise ConfigurationError("--format bundle: give a file with --out FILE")
            output.write_result(content)
        else:
            write_file("--out", Path(out), content)
            output.note(f"wrote {info.run_id} to {out}")
    return 0


def write_file(option: str, path: Path, content: str | bytes) -> None:
    """Write the file of an option completely, or not at all.

    Raises:
        ConfigurationError: if it cannot be written.
    """
    # Beside the target, because `replace` is atomic only within one file system.
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):  # a folder without write access
            partial.unlink(missing_ok=True)
        why = error.strerror or type(error).__name__
        raise ConfigurationError(f"{option}: {str(path)!r} cannot be written: {why}") from error
