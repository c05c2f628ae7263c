"""Programs that print text, Aider, and programs that print JSON with facts at known places."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from ....records import Usage
from ....records.codec import Json
from ..failures import failure_of
from .reader import TEXT_CHARS, EventReader, figure, member, text_in

__all__ = ["AiderReader", "FieldsReader", "TextReader"]

_TOKENS = re.compile(
    r"Tokens: ([\d.,]{1,12})([kM]?) sent,.*?([\d.,]{1,12})([kM]?) received\.?"
    r"(?: Cost: \$([\d.]{1,12}) message, \$([\d.]{1,12}) session)?"
)
_UNITS = {"": 1, "k": 1000, "M": 1_000_000}
_EDIT = re.compile(r"Applied edit to (\S.{0,500})")
_ERROR = re.compile(r"litellm\.(?:\w+\.)*(\w+Error)\b.{0,400}|(?:^|\s)(\w+Error): .{0,400}")


class TextReader(EventReader):
    """The reader of a program that prints text: its output is its message."""

    counts: ClassVar[bool] = False

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._lines: list[str] = []
        self._size = 0

    def feed(self, line: str) -> list[str]:
        """Read one line of output and return it as a live line."""
        self._lines.append(line)
        self._size += len(line) + 1
        # The end of a long output is kept: the result is usually there.
        while self._size > TEXT_CHARS and len(self._lines) > 1:
            self._size -= len(self._lines.pop(0)) + 1
        return [line] if line.strip() else []

    def finish(self) -> None:
        """Complete the facts after the last line."""
        self.text = "\n".join(self._lines)[-TEXT_CHARS:].strip()
        self.turns = 1


class AiderReader(TextReader):
    """The reader of Aider, which prints its tokens and its edits as text."""

    counts: ClassVar[bool] = True

    def feed(self, line: str) -> list[str]:
        """Read one line of output and return it as a live line."""
        short = line[:2000]
        if (match := _TOKENS.search(short)) is not None:
            tokens = [_amount(match[1], match[2]), _amount(match[3], match[4])]
            usd = float(match[5]) if match[5] and match[5].count(".") <= 1 else 0.0
            self.usage += Usage(calls=0, input_tokens=tokens[0], output_tokens=tokens[1], usd=usd)
            self.turns += 1
            self.failure = None
            return [line]
        if (match := _EDIT.search(short)) is not None:
            self.wrote(match[1].strip())
        elif (match := _ERROR.search(short)) is not None:
            self.failure = failure_of(match[0], default="unknown_outcome")
        return super().feed(line)

    def finish(self) -> None:
        """Complete the facts after the last line."""
        turns = self.turns
        super().finish()
        self.turns = turns
        self.ended = turns > 0


def _amount(number: str, unit: str) -> int:
    try:
        return min(int(float(number.replace(",", "")) * _UNITS[unit]), 1 << 50)
    except ValueError:
        return 0


class FieldsReader(EventReader):
    """The reader of JSON lines with facts at the places that the manifest names. The last value of a fact counts."""

    def event(self, data: Mapping[str, Json]) -> list[str]:
        """Read one event and return its live lines."""
        values = {name: _at(data, pointer) for name, pointer in self.manifest.fields.items()}
        if isinstance(session := values.get("session"), str) and session:
            self.session = session
        counted = {name: values.get(name) for name in ("input_tokens", "output_tokens", "usd")}
        if any(value is not None for value in counted.values()):
            self.usage = self.usage.most(self.counted(**counted))
        self.turns = max(self.turns, figure(values.get("turns")))
        if message := text_in(values.get("error")):
            self.failure = failure_of(message, default="unknown_outcome")
        lines = [text_in(values.get("tool"))]
        if text := text_in(values.get("text")):
            lines.append(self.say(text))
            self.ended = True
        return lines

    def plain(self, line: str) -> list[str]:
        """Keep a line that is no event as a note."""
        super().plain(line)
        return [line] if line.strip() else []


def _at(data: Json, pointer: str) -> Json:
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(data, list):
            data = data[int(key)] if key.isdigit() and int(key) < len(data) else None
        else:
            data = member(data, key)
    return data
