"""`check` and `schema`: documents before they run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ..codec import Json as JsonValue
from ..errors import ConfigurationError, DocumentError, Problem
from .options import Json, Model, Sets
from .output import Output
from .sources import Given, load_source

__all__ = ["check", "schema"]


def check(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Documents, or package.module:attribute.")
    ],
    sets: Sets = None,
    model: Model = None,
    as_json: Json = False,
) -> int:
    """Tell every problem of documents, or what they would run; nothing is run, nothing is paid.

    Exit codes: 0 if all can run, 2 if one has problems.
    """
    with Output(as_json=as_json) as output:
        given = Given.of(sets, model=model)
        reports = [_report(file, given) for file in files]
        if as_json:
            output.give({"ok": all(report["ok"] for report in reports), "documents": reports})
        else:
            for report in reports:
                _tell(report, output)
    return 0 if all(report["ok"] for report in reports) else 2


def _report(file: str, given: Given) -> dict[str, Any]:
    """Return what there is to say about one document."""
    try:
        source = load_source(file, given, execute=False)
        plan = source.plan()
    except DocumentError as error:
        problems = [_problem(problem) for problem in error.problems]
        return {"file": file, "ok": False, "problems": problems, "notes": [], "plan": None}
    except ConfigurationError as error:
        problem = Problem(file, 0, 0, "", str(error))
        return {
            "file": file,
            "ok": False,
            "problems": [_problem(problem)],
            "notes": [],
            "plan": None,
        }
    notes = [_problem(note) for note in (*source.notes, *source.lints())]
    return {"file": file, "ok": True, "problems": [], "notes": notes, "plan": plan}


def _problem(problem: Problem) -> dict[str, JsonValue]:
    return {
        "file": problem.file, "line": problem.line, "column": problem.column,
        "path": problem.path, "message": problem.message, "text": str(problem),
    }  # fmt: skip


def _tell(report: Mapping[str, Any], output: Output) -> None:
    for problem in report["problems"]:
        output.note(problem["text"])
    for note in report["notes"]:
        output.note(f"note: {note['text']}")
    if not report["ok"]:
        return
    output.say((f"{report['file']}: ", "bold"), ("can run", "green"))
    for key, value in report["plan"].items():
        if key == "notes" or value in (None, "", [], {}):
            continue
        lines = _lines(value)
        title = key.replace("_", " ")
        if len(lines) == 1 and not isinstance(value, list):
            output.say((f"  {title}: ", "dim"), lines[0])
            continue
        output.say((f"  {title}:", "dim"))
        for line in lines:
            output.say(f"    {line}")


def _lines(value: JsonValue) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{key}: {_inline(item)}" for key, item in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_inline(item) for item in value]
    return [_inline(value)]


def _inline(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        known = {key: _inline(item) for key, item in value.items() if item is not None}
        name = known.pop("name", "")
        facts = ", ".join(
            text if key == "kind" else f"{key.replace('_', ' ')} {text}"
            for key, text in known.items()
        )
        return f"{name}: {facts}" if name and facts else name or facts
    if isinstance(value, Sequence):
        return ", ".join(_inline(item) for item in value)
    return json.dumps(value)


def schema() -> int:
    """Print the JSON Schema of documents; an editor completes and checks them with it."""
    from ..documents import export_schema

    with Output() as output:
        output.put(json.dumps(export_schema(), indent=2))
    return 0
