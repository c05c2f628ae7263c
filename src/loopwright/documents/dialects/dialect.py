"""What a dialect of documents is: how it is recognised, and how it becomes a native document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...errors import Problem
from ..project import Project
from ..schema.document import Document
from ..yaml.reader import Source

__all__ = ["Called", "Dialect"]

# The native document that a document means by a name; None where there is none.
Called = Callable[[str], Document | None]


def _no_remarks(document: Document, source: Source, called: Called) -> Iterable[Problem]:
    """Return nothing: the lints of native documents say all."""
    del document, source, called
    return ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect of documents.

    `matches` says whether a document is of it, and whether parts of documents count (`lenient`); it raises a
    DocumentError for a part that does not count. `translate` returns the native document, and the source as asked by
    native paths; it raises a DocumentError with every problem found. `template_language` is the `templates` of the
    native document. `remarks` are what is odd about a document that compiled, each with its place.
    """

    name: str
    matches: Callable[[Source, bool], bool]
    translate: Callable[[Source, Project], tuple[Source, Document]]
    template_language: str = "native"
    remarks: Callable[[Document, Source, Called], Iterable[Problem]] = _no_remarks
