"""What the tests of `workflow/v2.0` share: cases read from files, and runs on scripted replies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopwright import Result, run
from loopwright.documents import Loaded, Settings, load
from loopwright.documents.load import to_native_yaml
from loopwright.documents.yaml.reader import read
from loopwright.memory import InMemory
from loopwright.models import Models, Reply, Request, ScriptedModel
from loopwright.testing import run_virtual

CASES = Path(__file__).parent / "cases"
JUDGE = "Evaluate this condition:"


class Listening(ScriptedModel):
    """A scripted model that keeps what it was asked."""

    def __init__(self, rules: Any) -> None:
        super().__init__(rules)
        self.asked: list[Request] = []

    async def complete(
        self, request: Request, *, on_text: Callable[[str], None] | None = None
    ) -> Reply:
        self.asked.append(request)
        return await super().complete(request, on_text=on_text)


@dataclass(frozen=True)
class Case:
    """One case file: documents, replies, and what must then be true."""

    name: str
    files: Mapping[str, str]
    replies: list[Any]
    expect: Mapping[str, Any]
    problems: list[str]
    input: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    literal: bool = False

    @property
    def runs(self) -> bool:
        """Whether it is one that can run."""
        return not self.problems and "notes_only" not in self.expect


@dataclass(frozen=True)
class Played:
    """A run that ended: its result, what the model was asked in order, the loaded document."""

    result: Result
    asked: list[Request]
    loaded: Loaded

    @property
    def calls(self) -> list[dict[str, Any]]:
        """What makes one call differ from another, without when and by which run it was made."""
        return [
            {**request.to_json(), "path": request.path, "whole": request.timeouts.whole}
            for request in self.asked
        ]

    @property
    def outcome(self) -> dict[str, Any]:
        """The result as JSON, without the times that it took."""
        data = json.loads(json.dumps(self.result.to_json()))
        return _untimed(data)


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _untimed(v) for k, v in value.items() if k != "seconds"}
    return [_untimed(item) for item in value] if isinstance(value, list) else value


def cases() -> list[Case]:
    """Return all cases, in the order of their names."""
    return [_case(file) for file in sorted(CASES.glob("*.yaml"))]


def _case(file: Path) -> Case:
    data = read(file.read_bytes(), file.name).value
    known = {"about", "files", "replies", "input", "settings", "expect", "problems", "literal"}
    assert data.keys() <= known, f"{file.name}: unknown {data.keys() - known}"
    assert ("problems" in data) != ("expect" in data), f"{file.name}: problems or expect"
    return Case(
        file.stem, data["files"], data.get("replies", []), data.get("expect", {}),
        data.get("problems", []), data.get("input", ""), data.get("settings", {}),
        data.get("literal", False),
    )  # fmt: skip


def written(case: Case, folder: Path) -> Path:
    """Write the documents of a case; return the first, which is the one to run."""
    for name, text in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / next(iter(case.files))


def loaded(case: Case, file: Path) -> Loaded:
    """Load a case's document."""
    return load(file, Settings(**{"root": file.parent, **case.settings}))


def played(case: Case, file: Path, **options: Any) -> Played:
    """Run a case's document in virtual time."""
    found = loaded(case, file)
    model = Listening(case.replies)
    resources = {**found.resources, "models": Models(model), "memory": InMemory()}
    value = found.default_input if case.input is None else case.input
    work = run(found.step, value, resources=resources, run_id="case", **options)
    return Played(run_virtual(work), model.asked, found)


def converted(found: Loaded, file: Path, folder: Path) -> Path:
    """Write the native form of a loaded document, and of all it calls, under the same names."""
    for name, document in found.documents.items():
        path = folder / Path(name).relative_to(file.parent.resolve())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_native_yaml(document), encoding="utf-8")
    return folder / file.name


def matches(call: Request, wanted: Mapping[str, Any]) -> list[str]:
    """Return what of a call is not as wanted."""
    bad = []
    prompt = call.prompt
    if "path" in wanted and not re.search(wanted["path"], call.path):
        bad.append(f"path {call.path!r} is not {wanted['path']!r}")
    if "prompt" in wanted and prompt != wanted["prompt"]:
        bad.append(f"prompt {prompt!r} is not {wanted['prompt']!r}")
    bad += [
        f"{part!r} is not in {prompt!r}" for part in wanted.get("says", ()) if part not in prompt
    ]
    bad += [f"{part!r} is in {prompt!r}" for part in wanted.get("lacks", ()) if part in prompt]
    found = {
        "model": f"{call.provider}:{call.model}", "temperature": call.temperature,
        "max_tokens": call.max_tokens, "timeout": call.timeouts.whole,
    }  # fmt: skip
    bad += [
        f"{k} {v!r} is not {wanted[k]!r}"
        for k, v in found.items()
        if k in wanted and v != wanted[k]
    ]
    if wanted.get("judge") is not None and (JUDGE in prompt) != wanted["judge"]:
        bad.append("is no judge's question" if wanted["judge"] else "is a judge's question")
    return bad
