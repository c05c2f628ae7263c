"""The lines of a patch, for the page and for reports, which need no web server."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ...records.redaction import of_environment

MAX_DIFF = 200_000  # characters of a difference on a page and in a report


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line of a patch: `file`, `hunk`, `added`, `removed` or `same`."""

    kind: str
    text: str


def lines_of(patch: str) -> list[PatchLine]:
    """Return the lines of a patch without the secrets of this process, and without those over the limit."""
    # Before the cut: a key that is cut in two is not found.
    text = str(of_environment(os.environ).clean(patch))
    lines = [PatchLine(_kind(line), line) for line in text[:MAX_DIFF].splitlines()]
    if len(text) > MAX_DIFF:
        rest = f"{len(text) - MAX_DIFF:,} more characters; loopwright workspace diff has the complete patch"
        lines.append(PatchLine("file", rest))
    return lines


def _kind(line: str) -> str:
    if line.startswith(("diff --git ", "--- ", "+++ ", "index ", "new file", "deleted file")):
        return "file"
    signs = {"@": "hunk", "+": "added", "-": "removed"}
    return signs.get(line[:1], "same")
