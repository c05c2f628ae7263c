"""Excerpts of long texts, and texts on one line.

An excerpt is the beginning and the end around a marker with the number of omitted bytes, or the beginning alone.
"""

from __future__ import annotations

import json
import re

from . import codec
from .codec import Json
from .iteration import Iteration

PROMPT_CHARS = 32_000  # of the result of a tool call, in a prompt
VALUE_CHARS = 500_000  # of one value in a prompt template, unless the run sets another limit
CELL = 120  # characters of a cell of a table
# The characters of the Unicode property Default_Ignorable_Code_Point, which have no width.
IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Format characters that are not ignorable, separators of lines and paragraphs, and a blank that is no space.
_FORMAT = (
    "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u2028\u2029\u2800\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f"
)
# Characters that a terminal interprets: C0 and C1 controls except tab and newline, and characters that
# change the direction of text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# In an emoji two of them change the visible sign: the selector after a symbol, and the joiner before one.
_SYMBOL = "[\u2190-\u2bff\U0001f000-\U0001faff]"
_UNSEEN = re.compile(
    f"(?!(?<={_SYMBOL})\ufe0f|\u200d{_SYMBOL})[\x00-\x08\x0b-\x1f\x7f-\x9f{IGNORABLE}{_FORMAT}]"
)
_BLANKS = re.compile(r"\s+")


def shown(output: Json, limit: int = PROMPT_CHARS) -> str:
    """Return an output as text for a prompt, cut to `limit` characters; other values become JSON."""
    text = codec.text_of(output)
    if len(text) <= limit:
        return text
    room = max(0, limit - 60)
    # Three quarters from the beginning: the errors of programs are usually at the end.
    head, tail = text[: room - room // 4], text[len(text) - room // 4 :] if room // 4 else ""
    omitted = len(text[len(head) : len(text) - len(tail)].encode())
    return f"{head}\n{marker(omitted)}\n{tail}"


def cut(text: str, limit: int) -> str:
    """Return the beginning of a text with a sign where it was cut.

    Redaction removes parts of secrets before such a sign.
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}\u2026"


def excerpt_line(text: str, limit: int) -> str:
    """Return the beginning of a text on one line, with a sign where it was cut."""
    return cut(" ".join(text.split()), limit)


def shortened(value: Json, limit: int) -> Json:
    """Return a value whose texts are excerpts of at most `limit` characters.

    A value without long texts is returned unchanged.
    """
    if isinstance(value, str):
        return shown(value, limit) if len(value) > limit else value
    if type(value) is list:
        items = [shortened(item, limit) for item in value]
        # The same object if nothing is cut, so that a declared type and identity survive.
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    if type(value) is dict:
        parts = {key: shortened(item, limit) for key, item in value.items()}
        return value if all(parts[key] is value[key] for key in parts) else parts
    return value


def marker(count: int) -> str:
    """Return the marker for omitted bytes."""
    return f"[... {count} bytes omitted ...]"


def clean(text: str) -> str:
    """Return text with control characters made visible.

    >>> clean("\x1b]0;title\x07")
    '\\\\x1b]0;title\\\\x07'
    """
    if _CONTROLS.search(text) is None:  # nearly every text
        return text
    return _CONTROLS.sub(_visible, text.replace("\r\n", "\n"))


def clean_json(text: str) -> str:
    """Return JSON text with control characters escaped; its value is unchanged."""
    return _CONTROLS.sub(lambda match: json.dumps(match[0])[1:-1], text)


def reveal(text: str) -> str:
    """Return text in which every character is seen: control characters and invisible ones are escaped.

    >>> reveal("rm\u200b \U000e0041x")
    'rm\\\\u200b \\\\U000e0041x'
    """
    return _UNSEEN.sub(_visible, text)


def numbered(text: str) -> list[str]:
    """Return the lines of a text as `reveal` shows them; several lines are numbered.

    >>> numbered("echo ok # fine\\ntouch x")
    ['1  echo ok # fine', '2  touch x']
    """
    lines = reveal(text).split("\n")
    return lines if len(lines) == 1 else [f"{n}  {line}" for n, line in enumerate(lines, 1)]


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str) -> str:
    """Return text on one line, as `reveal` shows it, with single spaces."""
    return reveal(_BLANKS.sub(" ", text)).strip()


def idea_of(item: Iteration) -> str:
    """Return a line on what an iteration tried: `idea` in the details, else the first line of its output."""
    details = {} if item.evaluation is None else item.evaluation.details
    idea = details.get("idea")
    if not isinstance(idea, str) or not idea.strip():
        idea = "" if item.output is None else codec.text_of(item.output)
    return cut(one_line(idea.strip().partition("\n")[0]), CELL)
