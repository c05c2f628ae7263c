"""Evaluations of pydantic-evals and promptfoo as a document with `eval:`, the file of its cases, and a module of checks.

What has no counterpart is a problem at its line; see `loopwright.datasets.foreign`. An evaluator that compares an output
with a constant stands with the cases, a judge or a program in the document.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from ..datasets.files import Layout, read_foreign, read_source
from ..datasets.foreign import Foreign, Place
from ..documents.schema.document import Document
from ..errors import ConfigurationError, DocumentError, listed
from ..models.providers.endpoints import PROVIDER_NAMES
from ..records.codec import Json

__all__ = ["Converted", "converted"]

_EXPECTED: Json = {"check": "equals_expected"}
_ANY: Json = {"check": {"min_chars": 0}}  # for an evaluation whose cases have all evaluators
_RUBRIC = "rubric"  # the metadata with the criterion of a case
_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_KINDS = frozenset({"chat", "messages", "responses", "completion"})  # between provider and model
_SCRIPT = re.compile(r"file://(?:\./)?(\w+)\.py(?::(\w+))?")
_CODE = '''"""The Python assertions of {file}, as one evaluator of its cases."""

import json
{imports}
{functions}
ASSERTIONS = {table}


def evaluate(output, ctx):
    """Return whether all assertions of the case hold."""
    failed = []
    for assertion, inverse in ASSERTIONS.get(ctx.case.id, ()):
        text = output if isinstance(output, str) else json.dumps(output)
        result = assertion(text, {{"vars": ctx.case.inputs}})
        reason = assertion.__name__
        if isinstance(result, str):
            result = json.loads(result.lower() if result.lower() in ("true", "false") else result)
        if isinstance(result, dict):
            reason = result.get("reason", reason)
            result = result.get("pass", result.get("pass_"))
        if (result > 0) == inverse:
            failed.append(reason)
    return {{"passed": not failed, "feedback": "\\n".join(failed)}}
'''


class Converted(NamedTuple):
    """A document, the texts of the files that it names, and notes."""

    document: Document
    files: dict[str, str]
    notes: list[str]


def converted(path: Path) -> Converted | None:
    """Return an evaluation of another tool as a document; None if the file is none.

    Args:
        path: the file, YAML or JSON.

    Raises:
        DocumentError: with every problem of the file.
        ConfigurationError: for YAML that pydantic-evals cannot read, or a value that no document can have.
    """
    if path.suffix not in (".yaml", ".yml", ".json") or not path.is_file():
        return None
    try:
        source = read_source(path, path.name)
    except DocumentError:  # the reader of documents reports it
        return None
    if not isinstance(source.value, dict) or "schema" in source.value:
        return None
    try:
        foreign = read_foreign(source)
    except ConfigurationError:  # of no known tool
        return None
    return _Conversion(foreign, path).result()


class _Conversion:
    """One evaluation on its way to a document."""

    def __init__(self, foreign: Foreign, path: Path) -> None:
        self.foreign, self.path, self.data = foreign, path, foreign.source.value
        name = re.sub(r"[^\w.-]+", "-", foreign.name or path.stem)[:50]
        self.name = name.strip("-.") or "evaluation"
        self.files: dict[str, str] = {}

    def result(self) -> Converted:
        foreign = self.foreign
        evaluate = [*self._shared(), *self._judges()]
        task, options = self._task()
        programs = [(case.line, case.programs) for case in foreign.cases]
        for one in foreign.cases:
            one.programs = []
        layout = Layout({}, "")
        cases = [layout.case(row, f"{self.path.name}:{line}") for line, row in foreign.rows()]
        evaluate += self._programs(
            [(case.id, of) for case, (_, of) in zip(cases, programs, strict=True)]
        )
        foreign.checked()
        text = {"description": self.data["description"]} if self.data.get("description") else {}
        document = {
            "schema": "loopwright/1",
            "name": self.name,
            **text,
            "eval": {
                "dataset": {"file": f"{self.name}.cases.jsonl"},
                "task": task,
                "evaluate": evaluate or [_ANY],
                **options,
            },
        }
        lines = (json.dumps(case.to_json(), ensure_ascii=False) + "\n" for case in cases)
        self.files[f"{self.name}.cases.jsonl"] = "".join(lines)
        try:
            made = Document.model_validate(document)
        except ValidationError as error:
            why = "; ".join(
                f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()
            )
            raise ConfigurationError(
                f"{self.path.name}: it becomes no valid document: {why}"
            ) from error
        return Converted(made, self.files, foreign.notes)

    def _shared(self) -> list[Json]:
        """Return the evaluators of all cases; "as expected" stays with the cases if one expects nothing."""
        foreign, shared, kept = self.foreign, [], []
        for item in foreign.evaluate:
            if "judge" in item.value:
                shared.append(self._judge(item.value["judge"], item.at))
            elif item.value == _EXPECTED and any("expected" not in c.values for c in foreign.cases):
                kept.append(item)
            else:
                shared.append(item.value)
        foreign.evaluate = kept
        return shared

    def _judge(self, judge: Mapping[str, Json], at: Place, criterion: str | None = None) -> Json:
        text = _literal(judge["criterion"]) if criterion is None else criterion
        if judge.get("expected"):
            text += "\n\nThe expected output:\n{{ case.expected }}"
        settings = {
            key: value for key, value in judge.items() if key not in ("criterion", "expected")
        }
        if "model" in settings:
            settings["model"] = self._model(settings["model"], at)
        return {"judge": {"criterion": text, **settings}}

    def _judges(self) -> list[Json]:
        """Return the judges of cases as those of the document: equal ones, or one whose criterion is in metadata."""
        lists = [case.judges for case in self.foreign.cases]
        first = next((judges for judges in lists if judges), [])
        values = [[one.value for one in judges] for judges in lists]
        for case in self.foreign.cases:
            case.judges = []
        if all(one == values[0] for one in values):
            return [self._judge(one.value, one.at) for one in first]
        settings = [
            [{k: v for k, v in one.items() if k != "criterion"} for one in judges]
            for judges in values
        ]
        if len(settings[0]) != 1 or any(one != settings[0] for one in settings):
            self.foreign.refuse(
                first[0].at,
                "judges are the same for all cases, or one for each case with the same settings",
            )
            return []
        for case, judges in zip(self.foreign.cases, values, strict=True):
            metadata = case.values.get("metadata") or {}
            if _RUBRIC in metadata:
                self.foreign.refuse(
                    first[0].at, f"metadata has a `{_RUBRIC}`, where the criterion would stand"
                )
            case.values["metadata"] = {**metadata, _RUBRIC: judges[0]["criterion"]}
        return [self._judge(first[0].value, first[0].at, f"{{{{ case.metadata.{_RUBRIC} }}}}")]

    def _model(self, provider: Json, at: Place) -> Json:
        """Return a model as `provider:model`."""
        parts = provider.split(":") if isinstance(provider, str) else []
        if len(parts) > 2 and parts[1] in _KINDS:
            del parts[1]
        if len(parts) < 2 or parts[0] not in PROVIDER_NAMES:
            known = listed(parts[0] if parts else "", PROVIDER_NAMES)
            self.foreign.refuse(
                at, f"{provider!r:.60} is not a model of Loopwright, `provider:model`{known}"
            )
        return ":".join(parts)

    def _task(self) -> tuple[dict[str, Json], dict[str, Json]]:
        """Return the task of the evaluation, and its other options."""
        if "cases" in self.data:
            self.foreign.note(
                (), "the task is no part of the file; write it in place of the prompt of `task`"
            )
            return {"prompt": "{{ case.inputs }}"}, {}
        options = self.foreign.mapping(self.data.get("evaluateOptions"), ("evaluateOptions",))
        known = {"maxConcurrency": "at_once", "repeat": "repeat"}
        self.foreign.only(("evaluateOptions",), options, [*known])
        task = {"prompt": self._prompt(), **self._settings()}
        return task, {known[key]: value for key, value in options.items() if key in known}

    def _one(self, *names: str) -> tuple[Json, Place]:
        """Return the only value of a key that may have a list, and its place."""
        name = next((name for name in names if name in self.data), names[0])
        value = self.data.get(name)
        if isinstance(value, list) and len(value) == 1:
            return value[0], (name, 0)
        if isinstance(value, list):
            self.foreign.refuse(
                (name,), "an evaluation has one task; keep one, and compare runs with --baseline"
            )
            return None, (name,)
        return value, (name,)

    def _prompt(self) -> str:
        prompt, at = self._one("prompts")
        if isinstance(prompt, Mapping):
            prompt = prompt.get("raw")
        if isinstance(prompt, str) and prompt.startswith("file://"):
            file = self.path.parent / prompt.removeprefix("file://")
            try:
                prompt = (
                    file.read_text(encoding="utf-8") if file.suffix in (".txt", ".md") else None
                )
            except (OSError, UnicodeDecodeError):
                prompt = None
        if not isinstance(prompt, str):
            self.foreign.refuse(at, "a prompt is a text, or a file with the suffix .txt or .md")
            return ""
        names = {name for case in self.foreign.cases for name in case.values["inputs"]}
        if not names:
            return prompt
        word = re.compile(rf"(?<![\w.\"'])({'|'.join(map(re.escape, sorted(names)))})(?![\w\"'])")
        return _TAG.sub(lambda tag: word.sub(r"case.inputs.\1", tag[0]), prompt)

    def _settings(self) -> dict[str, Json]:
        provider, at = self._one("providers", "targets")
        if provider is None:
            return {}
        settings: Mapping[str, Json] = {}
        if isinstance(provider, Mapping):
            self.foreign.only(at, provider, ("id", "label", "config"))
            settings = self.foreign.mapping(provider.get("config"), (*at, "config"))
            self.foreign.only((*at, "config"), settings, ("temperature", "max_tokens"))
            provider = provider.get("id")
        return {"model": self._model(provider, at), **settings}

    def _programs(self, cases: list[tuple[str, Any]]) -> list[Json]:
        """Write the module of Python assertions, and return its evaluator; nothing without one."""
        names: dict[Json, str] = {}
        imports, functions = [], []
        table: dict[str, list[str]] = {}
        for case, programs in cases:
            for program in programs:
                code, inverse = program.value["code"], program.value["inverse"]
                if code not in names:
                    names[code] = f"assertion_{len(names) + 1}"
                    script = _SCRIPT.fullmatch(code) if isinstance(code, str) else None
                    if script is not None:
                        imports.append(
                            f"from {script[1]} import {script[2] or 'get_assert'} as {names[code]}"
                        )
                        self.foreign.note(
                            program.at, f"the document needs {script[1]}.py beside it"
                        )
                    elif isinstance(code, str) and not code.startswith("file://"):
                        body = textwrap.indent(code if "\n" in code else f"return {code}", "    ")
                        functions.append(f"\ndef {names[code]}(output, context):\n{body}\n")
                    else:
                        self.foreign.refuse(
                            program.at, "a Python assertion is code, or a file beside this one"
                        )
                table.setdefault(case, []).append(f"({names[code]}, {inverse})")
        if not table:
            return []
        rows = "".join(f"    {case!r}: [{', '.join(items)}],\n" for case, items in table.items())
        module = f"{re.sub('[^0-9A-Za-z_]', '_', self.name)}_checks"
        self.files[f"{module}.py"] = _CODE.format(
            file=self.path.name, imports="\n".join(imports), functions="\n".join(functions), table=f"{{\n{rows}}}",
        )  # fmt: skip
        return [{"python": f"{module}:evaluate"}]


def _literal(text: str) -> str:
    """Return a text as a template of exactly this text."""
    return f"{{% raw %}}{text}{{% endraw %}}" if re.search(r"\{[{%#]", text) else text
