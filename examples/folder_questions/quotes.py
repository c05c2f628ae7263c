"""Whether an answer is grounded: what it quotes must stand in the files that it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "handbook"
QUOTE = re.compile(r"^> (?P<text>.+?) \((?P<file>[\w.-]+)\)$", re.MULTILINE)


def grounded(answer: Any) -> dict[str, Any] | None:
    """Score an answer by the share of its quotations that are in their files, word for word.

    Notes, which are no answer yet, are not judged.
    """
    if not isinstance(answer, str) or not answer.startswith("Answer:"):
        return None
    quotes = [(found["text"], found["file"]) for found in QUOTE.finditer(answer)]
    wrong = [f"{text!r} is not in {file}" for text, file in quotes if not _holds(file, text)]
    if not quotes:
        return {"score": 0.0, "feedback": "quote the sentences that say so: > sentence (file)"}
    return {"score": 1 - len(wrong) / len(quotes), "feedback": "; ".join(wrong)}


def _holds(file: str, text: str) -> bool:
    path = FOLDER / file
    return path.is_file() and text in " ".join(path.read_text(encoding="utf-8").split())
