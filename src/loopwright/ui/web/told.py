"""Texts as what they are, for a page: markdown as HTML, JSON and patches as such, everything else unchanged.

Markdown keeps its formatting and nothing else: HTML in it is text, and it makes no links and no images.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from ...records.codec import Json
from .. import formatting as texts
from .render import PatchLine, lines_of, readable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MAX_MARKDOWN = 20_000  # characters: rendering more takes too long
FOLDED = 24  # lines of JSON that are shown without being opened
_MARKDOWN = re.compile(
    r"^(#{1,6} \S.*\n\s*$|#{2,6} \S|```|[-*] \S|\d+\. \S|\|.+\|$)|\*\*\S", re.MULTILINE
)
_CODE = re.compile(
    r"^(def |class |import |from \S+ import |#!|#include|function |const |let |var |package )",
    re.MULTILINE,
)
_PATCH = re.compile(r"^(diff --git |--- .*\n\+\+\+ .*\n@@ )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Told:
    """A text with its kind: `markdown` with its safe `html`, `patch` with its `lines`, `json`, or `text`."""

    kind: str
    text: str
    html: str = ""
    lines: list[PatchLine] = field(default_factory=list)

    @property
    def folded(self) -> str:
        """What a long JSON value is, in words; "" for one that is shown at once."""
        if self.kind != "json" or self.text.count("\n") < FOLDED:
            return ""
        value = json.loads(self.text)
        if isinstance(value, list):
            return f"list of {texts.plural(len(value), 'item')}"
        return f"object: {', '.join(list(value)[:8])}{', …' if len(value) > 8 else ''}"


def told(value: Json) -> Told:
    """Return a value as a text with its kind."""
    if isinstance(value, dict | list) and value:
        return Told("json", readable(value))
    text = readable(value)
    if text[:1] in ("{", "[") and (parsed := _parsed(text)):
        return Told("json", readable(parsed))
    if _PATCH.search(text):
        return Told("patch", text, lines=lines_of(text))
    fenced = "```" in text
    if len(text) <= MAX_MARKDOWN and _MARKDOWN.search(text) and (fenced or not _CODE.search(text)):
        # Safe markup: the renderer escapes HTML, and makes no links and no images.
        return Told("markdown", text, Markup(_markdown().render(text)))  # noqa: S704
    return Told("text", text)


def _parsed(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt  # only for texts that are markdown

    rules = ["image", "link", "autolink", "html_block", "html_inline"]
    return MarkdownIt("commonmark", {"html": False}).disable(rules).enable("table")
