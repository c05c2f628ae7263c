"""What tests of documents share: documents written to a folder, loaded, and run on scripted replies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.support import DyingJournal
from loopwright import Result, run
from loopwright.documents import Loaded, Settings, load
from loopwright.errors import OwnershipLost
from loopwright.models import Models, ScriptedModel
from loopwright.testing import run_virtual

HEAD = "schema: loopwright/1\nname: main\nmodel: openai:gpt-4o\nsteps:\n"


def written(folder: Path, files: Mapping[str, str] | str) -> Path:
    """Write documents, the first of which is the one to load; a text is the steps of one."""
    given = {"main.yaml": HEAD + files} if isinstance(files, str) else files
    for name, text in given.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / next(iter(given))


def loaded(folder: Path, files: Mapping[str, str] | str, **settings: Any) -> Loaded:
    """Load a document."""
    return load(written(folder, files), Settings(**settings))


def scripted(replies: Any) -> dict[str, Any]:
    """Return resources in which a script answers."""
    return {"models": Models(ScriptedModel(replies)), "model": "openai:gpt-4o"}


def play(found: Loaded, replies: Any = (), value: Any = None, **options: Any) -> Result:
    """Run a loaded document in virtual time."""
    resources = scripted(list(replies) or [{"replies": ["ok"]}])
    return run_virtual(run(found.step, value, resources=resources, **options))


def crashed_everywhere(
    found: Loaded, replies: Any, value: Any = None, *, before: bool = False
) -> None:
    """Check that a run killed at any journal write, and taken up again, ends as one without."""

    def live(journal: DyingJournal) -> Result | None:
        resources = scripted(replies)
        work = run(
            found.step, value, journal=journal, run_id="r", resources=resources, random=lambda: 0.5
        )
        try:
            return run_virtual(work)
        except (asyncio.CancelledError, OwnershipLost):
            return None

    journal = DyingJournal()
    whole = live(journal)
    assert whole is not None
    for at in range(1, journal.appended + 1):
        dying = DyingJournal(at, before=before)
        assert live(dying) is None
        dying.at = 0
        again = live(dying)
        assert again is not None
        assert told(again) == told(whole), f"died at write {at}"


def told(result: Result) -> Any:
    """Return a result without its times, and without usages: a call in doubt is counted."""

    def strip(data: Any) -> Any:
        if isinstance(data, dict):
            return {
                k: strip(v) for k, v in data.items() if k not in ("seconds", "usage", "usage_by")
            }
        return [strip(v) for v in data] if isinstance(data, list) else data

    return strip(result.to_json())
