"""The formats of an export: JSON, CSV, JSON lines and an HTML report."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from ..errors import ConfigurationError
from ..journal import Entry, RunInfo, surviving
from ..records import Candidate, Iteration
from ..records.codec import Json, text_of
from ..records.redaction import without_tokens
from .rows import item_at, verdicts_of
from .run_files import run_files
from .run_summary import is_evaluation, items_of_lists, iterations_of, recorded_json

# Beginnings that spreadsheets calculate: a model's output could read other cells or call a program
# (OWASP, CSV injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

# Characters that XML 1.0 does not have, by https://www.w3.org/TR/xml/#charsets.
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OUTCOMES = {"failed": "failure", "errored": "error"}
_COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}

COLUMNS = (
    "loop", "iteration", "score", "passed", "feedback", "error", "output", "seconds", "calls",
    "input_tokens", "output_tokens", "usd", "item",
)  # fmt: skip
CANDIDATE_COLUMNS = (
    "loop", "iteration", "candidate", "state", "score", "passed", "vary", "feedback", "error", "seconds", "calls",
    "input_tokens", "output_tokens", "usd",
)  # fmt: skip


def _json(info: RunInfo, entries: Sequence[Entry], _: Path | None) -> str:
    everything = {**recorded_json(info, entries), "entries": [entry.to_json() for entry in entries]}
    return json.dumps(everything, indent=2) + "\n"


def _jsonl(_: RunInfo, entries: Sequence[Entry], __: Path | None) -> str:
    return "".join(json.dumps(entry.to_json()) + "\n" for entry in entries)


def _csv(_: RunInfo, entries: Sequence[Entry], __: Path | None) -> str:
    loops = iterations_of(entries)
    lists = items_of_lists(entries)
    items = [item for own in loops.values() for item in own]
    # Columns of what only some loops have, if one of these has it.
    lineage = any(item.parent is not None or item.chain != 1 for item in items)
    further: dict[str, tuple[bool, Callable[[Iteration], Json]]] = {
        "chain": (lineage, lambda item: item.chain),
        "parent": (lineage, lambda item: item.continues_from),
        "strategy": (any(item.strategy for item in items), lambda item: _cell(item.strategy)),
        "candidate": (
            any(item.candidate is not None for item in items),
            lambda item: item.candidate,
        ),
        "accepted": (
            any(item.accepted is not None for item in items),
            lambda item: item.accepted,
        ),
        "verdicts": (
            any(item.evaluation and item.evaluation.verdicts for item in items),
            lambda item: json.dumps(dict(verdicts_of(item.evaluation))),
        ),
    }
    shown = {name: value for name, (present, value) in further.items() if present}
    metrics = _names(item.evaluation.metrics for item in items if item.evaluation)
    rows = []
    for path, own in loops.items():
        for item in own:
            judged = item.evaluation
            rows.append(
                [
                    _cell(path), item.number, item.score, item.passed,
                    _cell(judged.feedback if judged else ""),
                    _cell(item.error.message if item.error else ""), _cell(text_of(item.output)),
                    *_spent(item), item_at(f"{path}/{item.number}", lists),
                    *(value(item) for value in shown.values()),
                    *(judged.metrics.get(name) if judged else None for name in metrics),
                ]
            )  # fmt: skip
    return _table([*COLUMNS, *shown, *map(_cell, metrics)], rows)


def _candidates(info: RunInfo, entries: Sequence[Entry], __: Path | None) -> str:
    """Return a row for each candidate of each iteration.

    Raises:
        ConfigurationError: if no iteration of the run has several.
    """
    loops = iterations_of(entries)
    every = [
        (path, item.number, one) for path, own in loops.items() for item in own for one in item.candidates
    ]  # fmt: skip
    if not every:
        raise ConfigurationError(
            f"--format candidates.csv: no iteration of {info.run_id} has several candidates"
        )
    metrics = _names(one.metrics for _, _, one in every)
    rows = [
        [
            _cell(path), number, one.number, one.state, one.score, one.passed, _cell(text_of(one.vary)),
            _cell(one.feedback), _cell(one.error.message if one.error else ""), *_spent(one),
            *(one.metrics.get(name) for name in metrics),
        ]
        for path, number, one in every
    ]  # fmt: skip
    return _table([*CANDIDATE_COLUMNS, *map(_cell, metrics)], rows)


def _names(several: Iterable[Mapping[str, Json]]) -> list[str]:
    """Return the names of metrics in the order in which they first occur."""
    return list(dict.fromkeys(name for one in several for name in one))


def _spent(item: Iteration | Candidate) -> list[Json]:
    used = item.usage
    return [round(item.seconds, 6), used.calls, used.input_tokens, used.output_tokens, used.usd]


def _table(head: Sequence[str], rows: Iterable[Sequence[Json]]) -> str:
    text = io.StringIO()
    # The default, "\r\n", would differ from the line ends inside cells.
    table = csv.writer(text, lineterminator="\n")
    table.writerow(head)
    table.writerows(rows)
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


def _cases(form: str, info: RunInfo, entries: Sequence[Entry], _: Path | None) -> str:
    """Return the cases of an evaluation, as JSON lines or for another tool.

    Raises:
        ConfigurationError: if the run is not an evaluation of a data set.
    """
    if not is_evaluation(entries):
        raise ConfigurationError(
            f"--format {form}: {info.run_id} is not an evaluation of a data set"
        )
    # These load data sets, which other exports need not.
    from ..datasets.exports import inspect_log, pydantic_evals_report
    from .evaluations import cases_in, cases_of_file

    rows = [*cases_in(entries)]
    if form == "cases.jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    cases, file = cases_of_file(info, entries), (info.source.get("eval") or {}).get("file", "")
    log = (
        inspect_log(info.name, info.run_id, info.created, file, cases, rows)
        if form == "inspect"
        else pydantic_evals_report(info.name, cases, rows)
    )
    return json.dumps(log) + "\n"


def _junit(info: RunInfo, entries: Sequence[Entry], _: Path | None) -> str:
    """Return the cases of an evaluation as a report in JUnit's XML."""
    from xml.etree import ElementTree as ET

    from .evaluations import cases_in

    suite, counts = ET.Element("testsuite"), Counter[str]()
    for case in cases_in(entries):
        name = case["id"] if case["repeat"] == 1 else f"{case['id']} ({case['repeat']})"
        test = ET.SubElement(
            suite, "testcase", classname=info.name, name=_NOT_XML.sub("\ufffd", name), time=f"{case['seconds']:.3f}"
        )  # fmt: skip
        counts["tests"] += 1
        if case["state"] != "passed":
            kind = _OUTCOMES.get(case["state"], "skipped")
            counts[_COUNTED[kind]] += 1
            why = _NOT_XML.sub("\ufffd", case.get("error") or case["feedback"] or case["state"])
            ET.SubElement(test, kind, message=why.partition("\n")[0]).text = why
    for name in ("tests", *_COUNTED.values()):
        suite.set(name, str(counts[name]))
    suite.set("name", info.name)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


FORMS: dict[str, Callable[[RunInfo, Sequence[Entry], Path | None], str | bytes]] = {
    "json": _json, "csv": _csv, "jsonl": _jsonl, "html": _html, "patch": _patch, "bundle": _bundle,
    "candidates.csv": _candidates, "junit": _junit,
    **{form: partial(_cases, form) for form in ("cases.jsonl", "inspect", "pydantic-evals")},
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
