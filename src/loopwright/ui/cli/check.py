"""`check`, `convert` and `schema`: documents before they run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...documents import Settings, export_schema, load
from ...documents.load import to_native_yaml
from ...documents.schema.export import EDITOR_SCHEMA, MODELINE, editor_schema
from ...errors import ConfigurationError
from ...records.codec import Json
from .. import formatting as texts
from ..check_report import CheckReport, report_on
from ..sources import SourceSettings
from .options import AsJson, DocumentOptions, Lenient, ModelOptions, expanded
from .output import Output

if TYPE_CHECKING:
    from ..conversion import Converted


@expanded
def check(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Documents, or package.module:attribute.")
    ],
    options: ModelOptions,
    offline: Annotated[
        bool, typer.Option("--offline", help="Contact no server, not even a local one.")
    ] = False,
    lenient: Lenient = False,
    as_json: AsJson = False,
) -> int:
    """Report all problems of documents, or their plan. Nothing is run and no model is called.

    The check includes the keys, packages and local servers that a document needs. With --replies no
    key and no model server is needed.

    Exit codes: 0 all documents can run here, 2 a document has problems, 1 all documents are valid but
    something is missing here.

    Examples:
        loopwright check polish.yaml
        loopwright check polish.yaml --offline --json
    """
    with Output(as_json=as_json) as output:
        settings = replace(SourceSettings.of(options), lenient=lenient)
        reports = [report_on(file, settings, offline=offline) for file in files]
        if as_json:
            output.write_json({"ok": all(report["ok"] for report in reports), "documents": reports})
        else:
            for report in reports:
                _write(report, output)
    if any(report["problems"] for report in reports):
        # A wrong document counts more than a missing key: the first cannot run anywhere.
        return 2
    return 0 if all(report["ok"] for report in reports) else 1


def _write(report: CheckReport, output: Output) -> None:
    for problem in report["problems"]:
        output.note(texts.reveal(problem["text"]))
    for note in report["notes"]:
        output.note(f"note: {texts.reveal(note['text'])}")
    for missing in report["missing"]:
        output.note(f"missing: {texts.reveal(missing['text'])}")
    if report["plan"] is None:
        return
    verdict = ("can run", "green") if report["ok"] else ("is valid, but cannot run here", "yellow")
    output.write((f"{texts.reveal(report['file'])}: ", "bold"), verdict)
    for key, value in report["plan"].items():
        if key == "notes" or value in (None, "", [], {}):
            continue
        items = [texts.numbered(item) for item in _items(value)]
        title = key.replace("_", " ")
        if len(items) == 1 and len(items[0]) == 1 and not isinstance(value, list):
            output.write((f"  {title}: ", "dim"), items[0][0])
            continue
        output.write((f"  {title}:", "dim"))
        for lines in items:
            # The lines of one item are below it, so that none of them looks like an item.
            output.write(f"    {lines[0]}")
            for line in lines[1:]:
                output.write(f"    {line}")


def _items(value: Json) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{key}: {_inline(item)}" for key, item in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_inline(item) for item in value]
    return [_inline(value)]


def _inline(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        facts = {key: _inline(item) for key, item in value.items() if item is not None}
        name = facts.pop("name", "")
        line = ", ".join(
            text if key == "kind" else f"{key.replace('_', ' ')} {text}"
            for key, text in facts.items()
        )
        return f"{name}: {line}" if name and line else name or line
    if isinstance(value, Sequence):
        return ", ".join(_inline(item) for item in value)
    return json.dumps(value)


@expanded
def convert(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Document of any dialect, or data set of pydantic-evals or promptfoo.",
        ),
    ],
    options: DocumentOptions,
    folder: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Output: the documents.  [default: stdout]"
        ),
    ] = None,
    lenient: Lenient = False,
) -> int:
    """Convert a document to the native dialect. It runs the same.

    With --out, the documents that it calls are converted too, and the JSON Schema for editors is written beside them.
    A data set of pydantic-evals and a configuration of promptfoo become a document with `eval:` and the file of its cases.

    Examples:
        loopwright convert polish.yaml
        loopwright convert polish.yaml --out native
    """
    from ..conversion import converted  # loads models and data sets, which `check` need not

    with Output() as output:
        if (found := converted(Path(file))) is not None:
            _write_evaluation(found, folder, output)
            return 0
        settings = SourceSettings.of(options)
        document_settings = Settings(
            sets=settings.sets,
            agents=settings.agents,
            model=settings.model,
            lenient=lenient,
            execute=False,
        )
        loaded = load(file, document_settings)
        for note in loaded.notes:
            output.note(f"note: {note}")
        if folder is None:
            output.write(to_native_yaml(next(iter(loaded.documents.values()))).rstrip("\n"))
            return 0
        documents = loaded.documents.items()
        texts = {
            f"{Path(name).stem}.yaml": to_native_yaml(document) for name, document in documents
        }
        _write_files({name: MODELINE + text for name, text in texts.items()}, folder, output)
    return 0


def _write_evaluation(found: Converted, folder: str | None, output: Output) -> None:
    """Print the document of an evaluation, or write it into a folder with the files that it names."""
    text = to_native_yaml(found.document)
    for note in found.notes:
        output.note(f"note: {note}")
    if folder is None:
        output.note(f"note: --out DIR also writes {', '.join(found.files)}")
        output.write(text.rstrip("\n"))
        return
    _write_files({f"{found.document.name}.yaml": MODELINE + text, **found.files}, folder, output)


def _write_files(files: Mapping[str, str], folder: str, output: Output) -> None:
    """Write files and the JSON Schema of documents, and print their paths."""
    target = Path(folder)
    if target.suffix in (".yaml", ".yml") and not target.is_dir():
        raise ConfigurationError(
            f"--out: {folder!r} is the name of a file, and --out takes a folder; for one document use > {folder}"
        )
    target.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (target / name).write_text(text, encoding="utf-8")
        output.write(str(target / name))
    (target / EDITOR_SCHEMA).write_text(editor_schema(), encoding="utf-8")


def schema(
    draft_07: Annotated[
        bool,
        typer.Option("--draft-07", help="In draft-07, which editors read.  [default: 2020-12]"),
    ] = False,
) -> int:
    """Print the JSON Schema of documents, for completion and checks in editors.

    Examples:
        loopwright schema
        loopwright schema --draft-07 > loopwright.schema.json
    """
    with Output() as output:
        output.write_result(json.dumps(export_schema(draft_07=draft_07), indent=2))
    return 0
