"""The formats of an export: JSON, CSV, JSON lines and an HTML report."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from ..errors import ConfigurationError
from ..journal import Entry, RunInfo, surviving
from ..records.codec import text_of
from ..records.redaction import without_tokens
from .rows import item_at, verdicts_of
from .run_files import run_files
from .run_summary import items_of_lists, iterations_of, recorded_json

# Beginnings that spreadsheets calculate: a model's output could read other cells or call a program
# (OWASP, CSV injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

COLUMNS = (
    "loop", "iteration", "score", "passed", "feedback", "error", "output", "seconds", "calls",
    "input_tokens", "output_tokens", "usd", "item",
)  # fmt: skip


def _json(info: RunInfo, entries: Sequence[Entry], _: Path | None) -> str:
    everything = {**recorded_json(info, entries), "entries": [entry.to_json() for entry in entries]}
    return json.dumps(everything, indent=2) + "\n"


def _jsonl(_: RunInfo, entries: Sequence[Entry], __: Path | None) -> str:
    return "".join(json.dumps(entry.to_json()) + "\n" for entry in entries)


def _csv(_: RunInfo, entries: Sequence[Entry], __: Path | None) -> str:
    text = io.StringIO()
    # The default, "\r\n", would differ from the line ends inside cells.
    table = csv.writer(text, lineterminator="\n")
    loops = iterations_of(entries)
    evaluations = (item.evaluation for items in loops.values() for item in items)
    # In the order in which they first occur.
    metrics = list(dict.fromkeys(name for one in evaluations if one for name in one.metrics))
    decided = (
        ["accepted"] if any(i.accepted is not None for its in loops.values() for i in its) else []
    )
    judged = (
        ["verdicts"]
        if any(i.evaluation and i.evaluation.verdicts for its in loops.values() for i in its)
        else []
    )
    table.writerow([*COLUMNS, *decided, *judged, *map(_cell, metrics)])
    lists = items_of_lists(entries)
    for path, items in loops.items():
        for item in items:
            used = item.usage
            table.writerow(
                [
                    _cell(path), item.number, item.score, item.passed,
                    _cell(item.evaluation.feedback if item.evaluation else ""),
                    _cell(item.error.message if item.error else ""), _cell(text_of(item.output)),
                    round(item.seconds, 6), used.calls, used.input_tokens, used.output_tokens,
                    used.usd, item_at(f"{path}/{item.number}", lists),
                    *([item.accepted] if decided else []),
                    *([json.dumps(dict(verdicts_of(item.evaluation)))] if judged else []),
                    *(item.evaluation.metrics.get(name) if item.evaluation else None for name in metrics),
                ]
            )  # fmt: skip
    return text.getvalue()


def _cell(text: str) -> str:
    """Return a text as a cell that a spreadsheet does not calculate.

    A text that begins like a formula gets an apostrophe; numbers stay numbers. A carriage return becomes
    a line feed, because the writer does not quote it and it would start a row.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    if not text.startswith(_FORMULA):
        return lines
    try:
        float(text)
    except ValueError:
        return f"'{lines}"
    return text


def _html(info: RunInfo, entries: Sequence[Entry], journal: Path | None) -> str:
    # By name, because the page loads a web framework and imports this module.
    text: str = import_module("loopwright.ui.web.run_page").report(info, entries, journal)
    return text


def _patch(info: RunInfo, entries: Sequence[Entry], journal: Path | None) -> str:
    """Return the changes of the files in place since the start, which `git apply` takes.

    Raises:
        ConfigurationError: if the run has no files in place.
    """
    placed = [e for e in surviving(entries) if e.kind == "finished" and e.path.endswith("/placed")]
    for entry in reversed(placed):
        files = run_files(info.run_id, entries, entry.path.removesuffix("/placed"), journal)
        if files is not None:
            patch = files.store.diff(files.base, str(entry.value["commit"]))
            return patch.encode("utf-8", "replace").decode()
    raise ConfigurationError(f"--format patch: {info.run_id} has no workspace, or has not ended")


def _bundle(info: RunInfo, entries: Sequence[Entry], journal: Path | None) -> bytes:
    """Return the snapshots of all iterations as a bundle, which `git clone` and `git fetch` take.

    Raises:
        ConfigurationError: if the run has no workspace on this machine.
    """
    for path in iterations_of(entries):
        files = run_files(info.run_id, entries, path, journal)
        saved = None if files is None else files.saved(info.run_id, path)
        if saved is not None:
            return saved.bundle(path)
    raise ConfigurationError(f"--format bundle: {info.run_id} has no workspace with an iteration")


FORMS: dict[str, Callable[[RunInfo, Sequence[Entry], Path | None], str | bytes]] = {
    "json": _json, "csv": _csv, "jsonl": _jsonl, "html": _html, "patch": _patch, "bundle": _bundle,
}  # fmt: skip


def exported(
    form: str, info: RunInfo, entries: Sequence[Entry], journal: Path | None
) -> str | bytes:
    """Return a run in a format, without the tokens of addresses for events; its files stay as they are.

    Raises:
        ConfigurationError: if the run has nothing in this format.
    """
    content = FORMS[form](info, entries, journal)
    return content if isinstance(content, bytes) or form == "patch" else without_tokens(content)
