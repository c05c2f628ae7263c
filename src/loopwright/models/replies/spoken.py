"""The text of a reply as it comes, without the thinking in it, however the stream cuts it.

Rules:

1. What is sent depends on the text alone, not on the pieces in which it comes: a tag that may still
   go on is held back until it is known.
2. A block that an opening tag begins is never sent, nor is the white space around it. One that never
   ends hides the rest; at the end `own_words` says whether something of it was the answer after all.
3. A closing tag without an opening one is left out; what came before it was sent, as nobody could know.
"""

from __future__ import annotations

from collections.abc import Callable

import regex

from .own_words import own_words

__all__ = ["SpokenText"]

_NAMES = "think|thinking|thought|reasoning|reflection|analysis|scratchpad"
_OPENING = regex.compile(
    rf"<(?:{_NAMES})(?:[ \t][^<>\n]{{0,80}})?>|[\u25c1\u25c3]think[\u25b7\u25b9]|\[THINK\]"
    r"|<\|channel\|>[ \t]*(?:analysis|commentary)",
    regex.IGNORECASE,
)
_REOPENING = regex.compile(
    r"<think(?:ing)?>|[\u25c1\u25c3]think[\u25b7\u25b9]|\[THINK\]", regex.IGNORECASE
)
_CLOSING = regex.compile(
    rf"</[ \t]?(?:{_NAMES})[ \t]?>|[\u25c1\u25c3]/think[\u25b7\u25b9]|\[/THINK\]"
    r"|<\|channel\|>[ \t]*final[^<\n]{0,40}<\|message\|>",
    regex.IGNORECASE,
)
# A mark of a chat template before the first word; the role may stand behind it.
_MARK = regex.compile(
    r"<\|(?:im_start|start|start_header_id|end_header_id|begin_of_text|assistant)\|>",
    regex.IGNORECASE,
)
_ROLES = frozenset({"assistant", "model", "ai", "bot"})
_BEGINS = "<[\u25c1\u25c3"
_PLAIN = regex.compile(rf"[^\s{regex.escape(_BEGINS)}]++")
_SPACE = regex.compile(r"\s++")


class SpokenText:
    """Sends text that comes in pieces on to `hear`, without thinking; `end` says that no more comes."""

    __slots__ = (
        "_all", "_begun", "_hear", "_inside", "_last", "_left_out", "_pending", "_role", "_said", "_space",
    )  # fmt: skip

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._all: list[str] = []
        self._pending = ""  # what is not decided yet
        self._space = ""  # white space that goes on only with what follows it
        self._last = ""  # the character before what is pending
        self._inside = 0  # how many blocks of thinking are open
        self._begun = False  # since the beginning, or since thinking ended
        self._role = False  # a mark stands right before
        self._left_out = False  # of the beginning: white space behind it goes too
        self._said = False  # anything

    def __call__(self, piece: str) -> None:
        self._all.append(piece)
        self._pending += piece
        self._go_on(final=False)

    def end(self) -> None:
        """Send what was held back."""
        self._go_on(final=True)
        if self._inside and not self._said:
            self._send(own_words("".join(self._all)))
        elif not self._inside and self._begun:
            self._send(self._space)
        self._space = self._pending = ""
        if hasattr(self._hear, "end"):
            self._hear.end()

    def _send(self, text: str) -> None:
        if text:
            self._hear(text)

    def _go_on(self, *, final: bool) -> None:
        """Decide on as much of what is pending as can be decided."""
        text, at, ready = self._pending, 0, []
        while at < len(text):
            step = self._step(text, at, final)
            if step is None:
                break
            said, end = step
            ready.append(said)
            self._last = text[end - 1]
            at = end
        self._pending = text[at:]
        self._send("".join(ready))

    def _step(self, text: str, at: int, final: bool) -> tuple[str, int] | None:
        """Return what to send of the next part, and its end; None if more must come first."""
        if (space := _SPACE.match(text, at)) is not None:
            skipped = self._inside or (self._left_out and not self._said)
            self._space += "" if skipped else space[0]
            return "", space.end()
        if (plain := _PLAIN.match(text, at)) is not None:
            if self._role and not final and plain.end() == len(text):
                return None
            of_mark = self._role and plain[0].lower() in _ROLES
            self._role = False
            return "" if of_mark else self._words(plain[0]), plain.end()
        return self._tag(text, at, final)

    def _tag(self, text: str, at: int, final: bool) -> tuple[str, int] | None:
        for pattern, meaning in self._tags(text[at - 1] if at else self._last):
            found = pattern.match(text, at, partial=not final)
            if found is None:
                continue
            # The character behind a tag may be a backtick, or go on with a role's name.
            if not final and (found.partial or found.end() == len(text)):
                return None
            quoted = meaning == "close" and text[found.end() : found.end() + 1] == "`"
            if not quoted:
                self._crossed(meaning)
                return "", found.end()
        return self._words(text[at]), at + 1

    def _tags(self, before: str) -> list[tuple[regex.Pattern[str], str]]:
        """Return which tags mean something here, given the character before."""
        closing = [] if before == "`" else [(_CLOSING, "close")]
        if self._inside:
            return [*closing, (_OPENING, "open")]
        if not self._begun:
            return [*closing, (_OPENING, "open"), (_MARK, "mark")]
        at_line = "\n" in self._space
        return [*closing, (_REOPENING, "open")] if at_line else closing

    def _crossed(self, meaning: str) -> None:
        """Go into thinking, or out of it."""
        self._space, self._left_out, self._role = "", True, meaning == "mark"
        if meaning == "open":
            self._inside += 1
        elif meaning == "close":
            self._inside = max(0, self._inside - 1)
            self._begun = self._begun and self._inside > 0

    def _words(self, text: str) -> str:
        """Return words with the white space before them, or nothing inside thinking."""
        if self._inside:
            return ""
        said = f"{self._space}{text}"
        self._space, self._begun, self._said = "", True, True
        return said
