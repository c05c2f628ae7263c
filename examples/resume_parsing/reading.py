"""A resume as text: plain text as it is, HTML line by line, PDF by pypdf; and with its columns
apart, where it has two."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

_LINES = {
    "br", "dd", "div", "dl", "dt", "footer", "h1", "h2", "h3", "header", "li", "p", "section",
    "table", "td", "th", "title", "tr", "ul",
}  # fmt: skip
_GAP = 3  # spaces between two columns, at least
_SHARE = 0.3  # of the lines, that have text on both sides of a gap between columns


def read(given: dict[str, str]) -> dict[str, str]:
    """Return the `file`'s `text` line by line, and the same with one column after the other.

    Raises:
        ValueError: for a file that is neither text, HTML nor PDF, and for a PDF without pypdf.
    """
    file = Path(given["file"])
    kind = file.suffix.lower()
    if kind == ".pdf":
        try:  # only who has PDFs needs the library for them
            from pypdf import PdfReader
        except ImportError:
            raise ValueError(f"{file.name}: PDFs are read by pypdf; pip install pypdf") from None
        pages = PdfReader(file).pages
        text = "\n".join(page.extract_text() for page in pages)
        laid = "\n".join(page.extract_text(extraction_mode="layout") for page in pages)
    elif kind in (".html", ".htm"):
        text = laid = _lines_of(file.read_text(encoding="utf-8"))
    elif kind in (".txt", ".md"):
        text = laid = file.read_text(encoding="utf-8")
    else:
        raise ValueError(f"{file.name} is neither text (.txt, .md), HTML nor PDF")
    return {"file": file.name, "text": text, "columns": apart(laid)}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self._silent += tag in ("style", "script", "title")
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("style", "script", "title")
        self._break(tag)

    def _break(self, tag: str) -> None:
        if tag in _LINES:
            self.found.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.found.append(re.sub(r"\s+", " ", data))


def _lines_of(text: str) -> str:
    reader = _Reader()
    reader.feed(text)
    lines = (line.strip() for line in "".join(reader.found).split("\n"))
    return "\n".join(line for line in lines if line)


def apart(text: str) -> str:
    """Return text with its left column before its right one; text of one column as it is."""
    lines = text.splitlines()
    edge = _edge(lines)
    if not edge:
        return text
    left, right = [], []
    for line in lines:
        crosses = line[max(0, edge - _GAP) : edge].strip() != ""
        left.append(line if crosses else line[:edge])
        right.append("" if crosses else line[edge:])
    return "\n".join(part.rstrip() for part in (*left, "", *right))


def _edge(lines: list[str]) -> int:
    """Return where the right column begins, or 0."""
    filled = [line for line in lines if line.strip()]
    starts = [
        found.end() for line in filled for found in re.finditer(rf"(?<=\S) {{{_GAP},}}(?=\S)", line)
    ]
    best = max(set(starts), key=starts.count, default=0)
    return best if starts.count(best) >= max(2, _SHARE * len(filled)) else 0
