"""What tests of documents share: documents written to a folder, loaded, and run on scripted replies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopwright import Result, run
from loopwright.documents import Loaded, Settings, load
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
