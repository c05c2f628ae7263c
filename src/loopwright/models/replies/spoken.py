"""The own words of a model while its reply arrives, for listeners to streamed text.

1. A tag that may still continue is held back until it is complete.
2. Blocks that open the reply are never sent, nor is the white space around them. If a block never ends,
   `own_words` decides at the end whether it contains the answer.
3. A closing tag without an opening tag is sent, as the text before it has been sent already.
4. The mark that ends a turn, and the text after it, are not sent.
"""

from __future__ import annotations

from collections.abc import Callable

import regex

from .text import CLOSING, END, OPENING, ROLES, own_words

__all__ = ["SpokenText"]

# For a stream, the `regex` library tells whether a tag may still continue (a partial match).
_OPENING_MARK = regex.compile(
    rf"{OPENING}|<\|channel\|>[ \t]*(?:analysis|commentary)", regex.IGNORECASE
)
_CLOSING_MARK = regex.compile(
    rf"{CLOSING}|<\|channel\|>[ \t]*final[^<\n]{{0,40}}<\|message\|>", regex.IGNORECASE
)
# A mark of a chat template before the first word; a role may follow it.
_MARK = regex.compile(
    r"<\|(?:im_start|start|start_header_id|end_header_id|begin_of_text|assistant)\|>"
    r"|<start_of_turn>|<bos>|<s>|<\uff5cAssistant\uff5c>|\[/INST\]",
    regex.IGNORECASE,
)
_ENDING = regex.compile(END.pattern)
_ROLE_NAMES = frozenset(ROLES.split("|"))
_BEGINS = "<[\u25c1\u25c3"
_PLAIN = regex.compile(rf"[^\s{regex.escape(_BEGINS)}]++")
_SPACE = regex.compile(r"\s++")


class SpokenText:
    """Passes text that arrives in pieces to `receiver`, without thinking; call `end` after the last piece."""

    __slots__ = (
        "_all",
        "_data",
        "_ended",
        "_inside",
        "_last",
        "_left_out",
        "_pending",
        "_receiver",
        "_role",
        "_sent",
        "_space",
    )  # fmt: skip

    def __init__(self, receiver: Callable[[str], None]) -> None:
        self._receiver = receiver
        self._all: list[str] = []
        self._pending = ""  # not decided yet
        self._space = ""  # white space that is sent only before a word
        self._last = ""  # the character before the pending text
        self._inside = 0  # number of open thinking blocks
        self._ended = False  # the turn of the model ended; text of other turns may follow
        self._data = False  # the first word begins a JSON value, whose strings may contain marks
        self._role = False  # the previous part is a mark
        self._left_out = False  # a part was left out: the white space after it is too
        self._sent = False  # a word was sent

    def __call__(self, piece: str) -> None:
        self._all.append(piece)
        self._pending += piece
        self._process(final=False)

    def end(self) -> None:
        """Send the text that was held back."""
        self._process(final=True)
        # The block never ended and nothing was sent: the answer, if there is one, is in the complete text.
        if self._inside and not self._sent:
            self._send(own_words("".join(self._all)))
        elif not self._inside and self._sent and not self._ended:
            self._send(self._space)
        self._space = self._pending = ""
        if hasattr(self._receiver, "end"):
            self._receiver.end()

    def _send(self, text: str) -> None:
        if text:
            self._receiver(text)

    def _process(self, *, final: bool) -> None:
        """Process as much of the pending text as possible."""
        text, at, ready = self._pending, 0, []
        while at < len(text):
            step = self._step(text, at, final)
            if step is None:
                break
            part, end = step
            ready.append(part)
            self._last = text[end - 1]
            at = end
        self._pending = text[at:]
        self._send("".join(ready))

    def _step(self, text: str, at: int, final: bool) -> tuple[str, int] | None:
        """Return the text to send for the next part, and its end; None if the part may continue."""
        if (space := _SPACE.match(text, at)) is not None:
            skipped = self._inside or self._ended or (self._left_out and not self._sent)
            self._space += "" if skipped else space[0]
            return "", space.end()
        if (plain := _PLAIN.match(text, at)) is not None:
            # "assis" may become the role "assistant" with the next piece.
            if self._role and not final and plain.end() == len(text):
                return None
            of_mark = self._role and plain[0].lower() in _ROLE_NAMES
            self._role = False
            return "" if of_mark else self._words(plain[0]), plain.end()
        return self._tag(text, at, final)

    def _tag(self, text: str, at: int, final: bool) -> tuple[str, int] | None:
        for pattern, meaning in self._tags(text[at - 1] if at else self._last):
            match = pattern.match(text, at, partial=not final)
            if match is None:
                continue
            # The character after a tag may be a backtick or the beginning of a role.
            if not final and (match.partial or match.end() == len(text)):
                return None
            quoted = self._inside > 0 and text[match.end() : match.end() + 1] == "`"
            # HTML strikes text out with these tags. Only what came before is the same for every cut.
            quoted |= match[0] == "</s>" and "<s>" in "".join(self._all)[1 : at - len(text)]
            if not quoted:
                self._crossed(meaning)
                return "", match.end()
        return self._words(text[at]), at + 1

    def _tags(self, before: str) -> list[tuple[regex.Pattern[str], str]]:
        """Return the tags that are possible here, after the character `before`."""
        if self._inside:
            return [] if before == "`" else [(_CLOSING_MARK, "close"), (_OPENING_MARK, "open")]
        if not self._sent:
            return [(_CLOSING_MARK, "close"), (_OPENING_MARK, "open"), (_MARK, "mark")]
        # In JSON, a mark inside a string is content.
        ends = before in "}]\n" if self._data else before != "`"
        return [(_ENDING, "end")] if ends and not self._ended else []

    def _crossed(self, meaning: str) -> None:
        """Enter or leave a thinking block."""
        self._space, self._left_out, self._role = "", True, meaning == "mark"
        if meaning == "open":
            self._inside += 1
        elif meaning == "end":
            self._ended = True
        elif meaning == "close":
            self._inside = max(0, self._inside - 1)

    def _words(self, text: str) -> str:
        """Return words with the white space before them, or "" inside thinking."""
        if self._inside or self._ended:
            return ""
        if not self._sent:
            self._data = text[0] in "{["
        words = f"{self._space}{text}"
        self._space, self._sent = "", True
        return words
