"""The report on a document before it runs: its problems, what is missing here, notes, and its plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ..errors import ConfigurationError, DocumentError, Problem
from ..records.codec import Json
from .sources import SourceSettings, load_source


class CheckReport(TypedDict):
    """The report on one document, as `check --json` prints it."""

    file: str
    ok: bool
    problems: list[dict[str, Json]]
    missing: list[dict[str, Json]]
    notes: list[dict[str, Json]]
    plan: dict[str, Json] | None


def report_on(file: str, settings: SourceSettings, *, offline: bool = False) -> CheckReport:
    """Return the report on one document."""
    problems: Sequence[Problem]
    try:
        # A check must not run the code that it is asked about.
        source = load_source(file, settings, execute=False)
        plan = source.plan()
    except DocumentError as error:
        problems = error.problems
    except ConfigurationError as error:
        problems = [Problem(file, 0, 0, "", str(error))]
    else:
        missing = [_json(problem) for problem in source.missing(offline=offline)]
        notes = [_json(note) for note in (*source.notes, *source.lints())]
        return CheckReport(
            file=file, ok=not missing, problems=[], missing=missing, notes=notes, plan=plan
        )
    wrong = [_json(problem) for problem in problems]
    return CheckReport(file=file, ok=False, problems=wrong, missing=[], notes=[], plan=None)


def _json(problem: Problem) -> dict[str, Json]:
    names = ("file", "line", "column", "path", "code", "message")
    return {**{name: getattr(problem, name) for name in names}, "text": str(problem)}
