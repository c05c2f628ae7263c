"""What no model should ever read: placeholders that were not filled in, and objects printed in place of a text.

python tests/dialects/leftovers.py calls.jsonl...      transcripts, as `loopwright run --transcript` writes them
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["leftovers"]

# What the templates of both dialects, and objects of this program, would leave behind in a text.
_WRONG = {
    "a placeholder": re.compile(r"\{\{|\{%|\{#"),
    "None": re.compile(r"\bNone\b"),
    "a Python object": re.compile(r"\{'|\['|TemplateValue\(|Undefined|<[\w.]+ object at "),
    "a wrapper": re.compile(r"\$agents|[\"']previous_outputs[\"']|[\"']internal_reasoning[\"']"),
}


def leftovers(record: Mapping[str, Any], *, literal: bool = False) -> list[str]:
    """Return what is wrong in the prompts of a record of a transcript; `literal` says that braces are meant."""
    found = []
    for message in record["messages"]:
        if message["role"] not in ("system", "user"):
            continue  # what a model or a tool said is theirs
        for what, pattern in _WRONG.items():
            match = pattern.search(message["content"])
            if match and not (literal and what == "a placeholder"):
                around = message["content"][max(0, match.start() - 30) : match.end() + 30]
                found.append(f"{record['path']}: {what}: …{around}…")
    return found


def _main(files: list[str]) -> int:
    records = [json.loads(line) for file in files for line in Path(file).read_text().splitlines()]
    wrong = [text for record in records for text in leftovers(record)]
    print(*wrong, f"{len(records)} calls, {len(wrong)} leftovers", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
