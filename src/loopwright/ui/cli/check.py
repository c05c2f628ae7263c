"""`check` and `schema`: documents before they run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ...documents import export_schema
from ...errors import ConfigurationError, DocumentError, Problem
from ...records.codec import Json as JsonValue
from ..sources import Given, load_source
from .options import Agents, AsJson, Lenient, Model, ModelUrl, Replies, Sets
from .output import Output

__all__ = ["check", "schema"]


Offline = Annotated[
    bool, typer.Option("--offline", help="Contact no server, not even on this machine.")
]


def check(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Documents, or package.module:attribute.")
    ],
    sets: Sets = None,
    model: Model = None,
    model_url: ModelUrl = None,
    replies: Replies = None,
    offline: Offline = False,
    agents: Agents = None,
    lenient: Lenient = False,
    as_json: AsJson = False,
) -> int:
    """Tell every problem of documents, or what they would run; nothing is run, nothing is paid.

    What they need here is looked for too: keys, packages, servers on this machine. With --replies no
    model is asked, so neither its key nor its server is missed.

    Exit codes: 0 if all can run here, 2 if one has problems, 1 if all are right but one lacks something
    here.
    """
    with Output(as_json=as_json) as output:
        given = Given.of(
            sets, agents, model=model, model_url=model_url, replies=replies, lenient=lenient
        )
        reports = [_report(file, given, offline=offline) for file in files]
        if as_json:
            output.give({"ok": all(report["ok"] for report in reports), "documents": reports})
        else:
            for report in reports:
                _tell(report, output)
    if any(report["problems"] for report in reports):
        return 2
    return 0 if all(report["ok"] for report in reports) else 1


def _report(file: str, given: Given, *, offline: bool) -> dict[str, Any]:
    """Return what there is to say about one document."""
    try:
        source = load_source(file, given, execute=False)
        plan = source.plan()
    except DocumentError as error:
        return _wrong(file, error.problems)
    except ConfigurationError as error:
        return _wrong(file, [Problem(file, 0, 0, "", str(error))])
    notes = [_problem(note) for note in (*source.notes, *source.lints())]
    missing = [_problem(what) for what in source.missing(offline=offline)]
    told = {"problems": [], "missing": missing, "notes": notes, "plan": plan}
    return {"file": file, "ok": not missing, **told}


def _wrong(file: str, problems: Sequence[Problem]) -> dict[str, Any]:
    told = {"problems": [_problem(problem) for problem in problems], "missing": [], "notes": []}
    return {"file": file, "ok": False, **told, "plan": None}


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
    for what in report["missing"]:
        output.note(f"missing: {what['text']}")
    if report["problems"]:
        return
    verdict = ("can run", "green") if report["ok"] else ("is right, and cannot run here", "yellow")
    output.say((f"{report['file']}: ", "bold"), verdict)
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
    with Output() as output:
        output.put(json.dumps(export_schema(), indent=2))
    return 0
