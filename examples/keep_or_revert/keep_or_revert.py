"""Tune the settings of a small training program: `python examples/keep_or_revert/keep_or_revert.py`.

Each iteration changes one setting. A change that does not lower the validation loss is put back.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from loopwright import Iteration, Workspace, keep_or_revert_loop, metric, run_sync
from loopwright.records.history import idea_of, why

PROJECT = Path(__file__).parent / "project"


def tell(item: Iteration) -> None:
    """Print an iteration once it is recorded."""
    word = "keep  " if item.accepted else "revert"
    print(f"{item.number:2}  {word}  {idea_of(item)}: {item.feedback}, {why(item)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        project = Path(shutil.copytree(PROJECT, Path(folder) / "project"))
        loop = keep_or_revert_loop(
            [sys.executable, "optimizer.py"],
            metric("val_loss", [sys.executable, "train.py"], pattern=r"val_loss: (\S+)"),
            {"val_loss": "minimise"},
            max_iterations=12,
            workspace=Workspace(project, merge="none", home=Path(folder) / "home"),
            on_iteration=tell,
        )
        result = run_sync(loop, None)
        best = result.best
        assert result.workspace is not None
        settings = (Path(result.workspace["folder"]) / "settings.json").read_text(encoding="utf-8")
        print(f"{result.status} after {result.iterations} iterations: {result.detail}")
        if best is not None and best.objective is not None:
            print(f"best: iteration {best.number}, {best.objective.name} {best.objective.text}")
        print(settings, end="")
