"""Signs in a change that a person should read it. They are listed and never a verdict: each has honest uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = ["MAX_SIGNS", "suspicious_lines"]

MAX_SIGNS = 20
_LENGTH = 120  # characters of a line
# What the sign may be for, and how it looks.
_SIGNS: Mapping[str, re.Pattern[str]] = {
    "names the test program": re.compile(
        r"\b_?pytest\b|\bunittest\b|PYTEST_|NODE_OPTIONS|node:test|\btesting\.Testing\b"
    ),
    "changes loaded modules": re.compile(r"\bsys\.modules\b|\bsys\.meta_path\b|require\.cache"),
    "ends the process": re.compile(
        r"\bos\._exit\b|\bos\.kill\b|\bprocess\.exit\b|\bos\.Exit\b|\batexit\b|process\.on\(.exit"
    ),
    "is equal to everything": re.compile(r"\b__eq__\b.*True|lambda\b[^:]*:\s*True\b"),
    "changes what assert means": re.compile(r"#\s*(define|undef)\s+(assert|NDEBUG)\b"),
    "uses the network": re.compile(
        r"\burllib\.request\b|\brequests\.(get|post)\b|\bsocket\.socket\b|\bfetch\("
    ),
    "waits": re.compile(r"\btime\.sleep\b|\bsetTimeout\("),
    "inspects its caller": re.compile(r"\binspect\.stack\b|\bsys\._getframe\b|\bcurrentframe\("),
}


def suspicious_lines(patch: str, skip: Iterable[str] = ()) -> list[str]:
    """Return the added lines of a patch that carry a sign, each with its file and the reason.

    >>> patch = "+++ b/shop.py\\n+import os; os._exit(0)\\n+total = 3\\n"
    >>> suspicious_lines(patch)
    ['shop.py: ends the process: import os; os._exit(0)']
    """
    skipped, found, path = frozenset(skip), list[str](), ""
    for line in patch.splitlines():
        if line.startswith("+++ "):
            path = line[4:].removeprefix("b/").strip()
        elif line.startswith("+") and path not in skipped:
            text = line[1:].strip()
            signs = (name for name, sign in _SIGNS.items() if sign.search(text))
            if (sign := next(signs, "")) and len(found) < MAX_SIGNS:
                found.append(f"{path}: {sign}: {text[:_LENGTH]}")
    return found
