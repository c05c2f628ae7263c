"""Judge several changes of one project with one sealed check, without a loop around each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loopwright import Workflow, Workspace, run_sync
from loopwright.coding.sealed.measure import TestCommand, isolated
from loopwright.coding.sealed.sealed_check import SealedCheck
from loopwright.coding.sealed.verdict import Sealed, SealOptions
from loopwright.records import Evaluation

Change = Callable[[Path], None]


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files into a folder."""
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def judged(
    root: Path,
    project: Mapping[str, str],
    command: Sequence[str] | str,
    changes: Mapping[str, Change],
    *,
    hanging: Sequence[str] = (),
    report: str = "auto",
    sandbox: Any = "none",
    **options: Any,
) -> dict[str, Evaluation]:
    """Return the evaluation of each change, and under "" that of the unchanged project.

    The changes in `hanging` never end, so they have a short timeout.
    """
    source = root / "project"
    write(source, project)
    workspace = Workspace(source, kind="snapshot", home=root / "home", merge="none")
    results: dict[str, Evaluation] = {}

    async def judge(_: object, ctx: Any) -> None:
        files = ctx.scope.files

        def check(timeout: float) -> SealedCheck:
            # Without the plug-ins of this environment, which take longer to import than the tests to run.
            env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            runs = TestCommand(command, report, timeout=timeout, env=env, sandbox=isolated(sandbox))
            return SealedCheck("tests", runs, SealOptions(**options), None, ctx)

        sealed = await check(120).prepare()
        results[""] = sealed.evaluation
        # What a resumed run reads.
        sealed = Sealed.from_json(sealed.to_json())
        for name, change in changes.items():
            for place in ctx.folder.iterdir():
                if place.is_dir() and not place.is_symlink():
                    shutil.rmtree(place)
                else:
                    place.unlink()
            write(ctx.folder, project)
            change(ctx.folder)
            files.current = await files.state.capture(name, files.base["commit"])
            results[name] = await check(3 if name in hanging else 120).evaluate(sealed)

    run_sync(Workflow("bench", {"judge": judge}, workspace=workspace)).unwrap()
    return results


def verdict(evaluation: Evaluation) -> str:
    """Return the verdict in a word: touched, forged, passed or failed."""
    if evaluation.tampered is not None:
        return evaluation.tampered.kind
    return "passed" if evaluation.passed else "failed"
