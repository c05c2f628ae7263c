"""The lines of a patch, for the page and for reports, which need no web server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...records.redaction import of_environment

MAX_DIFF = 200_000  # characters of a difference on a page and in a report


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line of a patch: `file`, `header`, `hunk`, `added`, `removed` or `same`."""

    kind: str
    text: str


def lines_of(patch: str) -> list[PatchLine]:
    """Return the lines of a patch without the secrets of this process, and without those over the limit."""
    # Before the cut: a key that is cut in two is not found.
    text = str(of_environment(os.environ).clean(patch))
    lines = list(_classified(text[:MAX_DIFF].splitlines()))
    if len(text) > MAX_DIFF:
        rest = f"{len(text) - MAX_DIFF:,} more characters; loopwright workspace diff has the complete patch"
        lines.append(PatchLine("header", rest))
    return lines


def _classified(lines: Iterable[str]) -> Iterator[PatchLine]:
    signs = {"@": "hunk", "+": "added", "-": "removed"}
    header = False
    for line in lines:
        starts = line.startswith("diff --git ")
        # After the first hunk, `---` is a removed line that begins with two dashes.
        header = starts or (header and not line.startswith("@@ "))
        kind = "header" if header else signs.get(line[:1], "same")
        yield PatchLine("file" if starts else kind, line)
