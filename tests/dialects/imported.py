"""What the tests of imported workflows share: their cases, dry runs on scripted replies, and what is checked of each."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest

from loopwright import run
from loopwright.errors import DocumentError
from loopwright.models import Models
from loopwright.models.scripted import dry_run_resources
from loopwright.testing import run_virtual

from .workflow_v2 import support
from .workflow_v2.support import Case, Listening, Played, converted, loaded, matches, written

__all__ = ["cases", "check_run", "check_same", "check_wrong"]


def cases(folder: Path) -> list[Case]:
    """Return the cases in a folder, in the order of their names."""
    return [support._case(file) for file in sorted(folder.glob("*.yaml"))]


def played(case: Case, file: Path) -> Played:
    """Run a case's document: models reply by the script, and nothing acts on the machine."""
    found, model = loaded(case, file), Listening(case.replies)
    resources = {**found.resources, "models": Models(model), **dry_run_resources(model)}
    value = case.input if case.input not in (None, "") else found.default_input
    work = run(found.step, value, resources=resources, run_id="case")
    # A workspace waits for git, which virtual time does not know.
    # Its store is in the current folder.
    with contextlib.chdir(file.parent):
        result = asyncio.run(work) if "\nnodes:" in case.files["main.yaml"] else run_virtual(work)
    return Played(result, model.asked, found)


def check_wrong(case: Case, folder: Path) -> None:
    """Every problem has its line and column, and what to do."""
    file = written(case, folder)
    with pytest.raises(DocumentError) as caught:
        loaded(case, file)
    found = [str(p).replace(f"{folder}/", "") for p in caught.value.problems]
    for wanted, problem in itertools.zip_longest(case.problems, found):
        assert wanted is not None and problem is not None, found
        assert all(part in problem for part in wanted.split(" … ")), (
            f"{problem!r} is not {wanted!r}"
        )


def check_run(case: Case, folder: Path) -> None:
    """Calls, result, steps, loops and notes are those of the case."""
    done = played(case, written(case, folder))
    outcome = done.outcome
    for key in ("status", "reason", "output", "steps", "iterations"):
        if key in case.expect:
            assert outcome[key] == case.expect[key], (key, outcome[key], outcome.get("error"))
    for part in case.expect.get("detail", ()):
        assert part in outcome["detail"]
    for name, wanted in case.expect.get("loops", {}).items():
        found = outcome["loops"][name]
        assert {key: found[key] for key in wanted} == wanted
    calls: list[dict[str, Any]] | None = case.expect.get("calls")
    if calls is not None:
        assert len(done.asked) == len(calls), [(r.path, r.prompt) for r in done.asked]
        for request, expected in zip(done.asked, calls, strict=True):
            assert not matches(request, expected), matches(request, expected)
    notes = [str(note).replace(f"{folder}/", "") for note in done.loaded.notes]
    for part, note in itertools.zip_longest(case.expect.get("notes", []), notes):
        assert part is not None and note is not None and part in note, notes


def check_same(case: Case, theirs: Path, ours: Path) -> None:
    """What `convert` prints makes the same calls with the same result, and printing it again changes nothing."""
    file = written(case, theirs)
    written(case, ours)
    first = played(case, file)
    again = converted(first.loaded, file, ours)
    second = played(case, again)
    assert second.calls == first.calls
    assert _elsewhere(second.outcome) == _elsewhere(first.outcome)
    text = again.read_text(encoding="utf-8")
    assert text.startswith("schema: loopwright/1")
    assert converted(second.loaded, again, ours).read_text(encoding="utf-8") == text


def _elsewhere(value: Any) -> Any:
    """Return a result without the commits and folders of its workspace."""
    if isinstance(value, dict):
        return {k: _elsewhere(v) for k, v in value.items() if k not in ("files", "workspace")}
    return [_elsewhere(item) for item in value] if isinstance(value, list) else value
