"""Make tests pass: try an edit, see how many tests pass with it, and build on what was best.

The project itself is never changed: each round is tried on a copy of it (run_tests.py), and the
output is the unified diff of the edits to apply.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from loopwright import Context, Iteration
from loopwright.adapters import merge

PROJECT = Path(__file__).parent / "project"
MODULE = "opening_hours.py"

# Text to find and what to put there, as a colleague or a model might propose it: some are right,
# one is of no use before others, some break what worked, and one is for a line that is not there.
EDITS = {
    "sum up the joined spans": ("in spans)\n\n\ndef is_open", "in joined(spans))\n\n\ndef is_open"),
    "open a minute later": ("start <= minute", "start < minute"),
    "touching spans are one": ("start < found[-1][1]", "start <= found[-1][1]"),
    "latest span first": ("in spans:\n", "in sorted(spans, reverse=True):\n"),
    "closed at the end": ("minute <= end", "minute < end"),
    "round the clock": ("minute / 60", "round(minute / 60)"),
    "two digits of minutes": ("{minute % 60}", "{minute % 60:02}"),
    "earliest span first": ("in spans:\n", "in sorted(spans):\n"),
    "never end earlier": ("(found[-1][0], end)", "(found[-1][0], max(found[-1][1], end))"),
}


def propose(request: dict[str, Any]) -> dict[str, Any]:
    """Return what is tried, the module with all edits of this round, and their unified diff.

    Raises:
        ValueError: for an edit of a text that is not there.
    """
    before = after = (PROJECT / MODULE).read_text(encoding="utf-8")
    for name in request["edits"]:
        old, new = EDITS[name]
        if old not in after:
            raise ValueError(f"{name!r} cannot be applied: {old!r} is not in {MODULE}")
        after = after.replace(old, new, 1)
    old_lines, new_lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
    diff = "".join(difflib.unified_diff(old_lines, new_lines, f"a/{MODULE}", f"b/{MODULE}"))
    tried = (request["edits"] or ["nothing yet"])[-1]
    return {"tried": tried, "module": MODULE, "text": after, "diff": diff}


@merge
def next_edit(_: Iteration, ctx: Context) -> dict[str, Any]:
    """Return the best edits so far and one more, the one that was tried least often."""
    best = ctx.history.best
    kept: list[str] = best.input["edits"] if best else []
    tried = [name for item in ctx.history for name in item.input["edits"][-1:]]
    left = [name for name in EDITS if name not in kept]
    return {"edits": [*kept, *sorted(left, key=tried.count)[:1]]}
