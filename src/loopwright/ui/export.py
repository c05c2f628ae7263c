"""The formats of an export, for the command line and the page: JSON, CSV, JSON lines and a report."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from importlib import import_module

from ..journal import Entry, RunInfo
from ..records.codec import text_of
from .progress import item_at
from .run_summary import items_of_lists, recorded_json, rounds_of

__all__ = ["COLUMNS", "FORMS"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")

COLUMNS = (
    "loop", "iteration", "score", "passed", "feedback", "error", "output", "seconds", "calls",
    "input_tokens", "output_tokens", "usd", "item",
)  # fmt: skip


def _json(info: RunInfo, entries: Sequence[Entry]) -> str:
    whole = {**recorded_json(info, entries), "entries": [entry.to_json() for entry in entries]}
    return json.dumps(whole, indent=2) + "\n"


def _jsonl(_: RunInfo, entries: Sequence[Entry]) -> str:
    return "".join(json.dumps(entry.to_json()) + "\n" for entry in entries)


def _csv(_: RunInfo, entries: Sequence[Entry]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    lists = items_of_lists(entries)
    for path, items in rounds_of(entries).items():
        for item in items:
            used = item.usage
            table.writerow(
                [
                    _cell(path), item.number, item.score, item.passed,
                    _cell(item.evaluation.feedback if item.evaluation else ""),
                    _cell(item.error.message if item.error else ""), _cell(text_of(item.output)),
                    round(item.seconds, 6), used.calls, used.input_tokens, used.output_tokens,
                    used.usd, item_at(f"{path}/{item.number}", lists),
                ]
            )  # fmt: skip
    return text.getvalue()


def _cell(text: str) -> str:
    """Return a text as a cell that a spreadsheet shows and does not calculate.

    What begins like a formula gets an apostrophe before it; numbers stay numbers. A carriage return
    becomes a line feed: the writer does not quote one, so that the rest would be a row of its own.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    if not text.startswith(_FORMULA):
        return lines
    try:
        float(text)
    except ValueError:
        return f"'{lines}"
    return text


def _html(info: RunInfo, entries: Sequence[Entry]) -> str:
    # Drawn as the page draws it, which stands above this and is known by name only.
    drawn: str = import_module("loopwright.ui.web.report").report(info, entries)
    return drawn


FORMS: dict[str, Callable[[RunInfo, Sequence[Entry]], str]] = {
    "json": _json, "csv": _csv, "jsonl": _jsonl, "html": _html,
}  # fmt: skip
