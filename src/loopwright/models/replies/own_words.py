"""The own words of a model: a reply without thinking, without marks of a chat template and without its fence.

Rules for a complete reply:

1. The result depends on the text alone, not on the pieces in which it arrived.
2. The text after the last closing tag of a thinking block counts, even without an opening tag, which a
   template may have written. A reply that opens with thinking and never closes it has no own words.
3. A reply that is one strict JSON value is unchanged: a tag inside a string is content.
4. The time is linear, and `own_words(own_words(text))` is `own_words(text)`.

Rules for a streamed reply:

5. A tag that may still continue is held back until it is complete.
6. A block after an opening tag is never sent, nor is the white space around it. If the block never ends,
   `own_words` decides at the end whether it contains the answer.
7. A closing tag without an opening tag is left out. The text before it has been sent already.
8. The mark that ends a turn, and the text after it, are not sent, unless a final channel follows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import regex

__all__ = [
    "IGNORABLE",
    "THINKING",
    "SpokenText",
    "Words",
    "clean_text",
    "closes_fence",
    "is_blank",
    "opening_fence",
    "own_words",
    "strip_fence",
    "words_of",
]

# The characters of the Unicode property Default_Ignorable_Code_Point, which have no width.
IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_INK = re.compile(rf"[^\s\x00-\x1f\x7f\u2800{IGNORABLE}]")
THINKING = "thinking left out"  # the repair of a reply with the thinking of a model
_NAMES = "think|thinking|thought|reasoning|reflection|analysis|scratchpad"
# A tag between backticks is a quotation.
_CLOSING = re.compile(
    rf"(?<!`)(?:</[ \t]?(?:{_NAMES})[ \t]?>|[\u25c1\u25c3]/think[\u25b7\u25b9]|\[/THINK\])(?!`)",
    re.IGNORECASE,
)
_OPENING = re.compile(
    rf"(?:<(?:{_NAMES})(?:[ \t][^<>\n]{{0,80}})?>|[\u25c1\u25c3]think[\u25b7\u25b9]|\[THINK\])",
    re.IGNORECASE,
)
# In the middle of a reply only these tags open thinking, and only at the start of a line.
# Words such as <analysis> are also used as headings of an answer.
_REOPENED = re.compile(
    r"^[ \t]*(?:<think(?:ing)?>|[\u25c1\u25c3]think[\u25b7\u25b9]|\[THINK\])",
    re.IGNORECASE | re.MULTILINE,
)
# The channels of the Harmony format (gpt-oss): only `final` is the answer.
_FINAL = re.compile(r"<\|channel\|>[ \t]*final[^<\n]{0,40}<\|message\|>")
_CHANNEL = re.compile(r"<\|channel\|>[ \t]*(?:analysis|commentary)\b")
_ROLES = "assistant|model|ai|bot"
# Headers of ChatML, Llama, Gemma, Mistral and DeepSeek templates, which servers without the right template
# leave in the reply.
_HEADER = re.compile(
    rf"\s*(?:<\|im_start\|>[ \t]*(?:{_ROLES})?\b|<\|start_header_id\|>[ \t]*(?:{_ROLES})[ \t]*<\|end_header_id\|>"
    rf"|<start_of_turn>[ \t]*(?:{_ROLES})\b|<\|start\|>[ \t]*(?:{_ROLES})\b|<\|(?:{_ROLES})\|>|\[/INST\]|<s>(?!.*</s>)"
    rf"|<\|begin_of_text\|>|<bos>|<\uff5cAssistant\uff5c>"
    rf"|\#{{2,3}}[ \t]*(?:Response|Assistant|Answer):?[ \t]*(?=\n)|(?-i:[Aa]ssistant|model):?[ \t]*(?=\n|$))",
    re.IGNORECASE,
)
_HEADERS = 8  # headers in a row that are removed; more do not occur and would cost time
_PASSES = 4  # enough for marks inside marks, and a bound for hostile text
_END = re.compile(
    r"<\|(?:channel|im_end|im_start|eot_id|eom_id|end_of_text|endoftext|end|return|call|user|system|start)\|>"
    r"|<\|start_header_id\|>|<(?:end|start)_of_turn>|</s>|<eos>|<EOS>|<\uff5cend\u2581of\u2581sentence\uff5c>|<\uff5cUser\uff5c>"
    r"|\[/?INST\]|<</?SYS>>"
)
_TURN = re.compile(
    r"^(?:\#{2,3}[ \t]*(?:User|Human|Instruction|Question)[ \t]*:?[ \t]*$|(?:User|Human):)",
    re.MULTILINE,
)
_SPEAKER = re.compile(r"[*_\s]*[A-Z][\w .'-]{0,30}[*_]{0,2}:(?:\s|$)")
# A model may write one character as two escaped halves, "\ud83d\ude00".
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile("[\ud800-\udfff]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Words:
    """The parts of a reply: own words, thinking, and whether the thinking never ended."""

    text: str
    thinking: str = ""
    unclosed: bool = False
    repairs: tuple[str, ...] = ()


def own_words(text: str) -> str:
    """Return the answer of a model without thinking, turn headers and the text of later turns.

    Args:
        text: the complete reply.

    Returns:
        The answer; "" if the reply consists of thinking only.

    Example:

    >>> own_words("<think>four?</think>\\n\\n4<|im_end|>")
    '4'
    """
    return words_of(text).text


def clean_text(text: str) -> str:
    """Return the text without NUL and with U+FFFD for lone surrogates.

    Two surrogates that form a pair become their character. The result can always be encoded as UTF-8
    and stored in a database.
    """
    text = text.replace("\0", "")
    if _LONE.search(text) is None:
        return text
    text = _PAIR.sub(lambda pair: _join_pair(pair[0]), text)
    return _LONE.sub("\ufffd", text)


def _join_pair(pair: str) -> str:
    return pair.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def opening_fence(line: str) -> str:
    """Return the marks of the code fence that a line opens, or ""."""
    fence = _FENCE.match(line)
    if fence is None or (fence[1][0] == "`" and "`" in line[fence.end() :]):
        return ""
    return fence[1]


def closes_fence(line: str, fence: str) -> bool:
    """Whether a line closes the code fence that these marks opened."""
    run = line.strip()
    return len(run) >= len(fence) and not run.strip(fence[0])


def strip_fence(text: str) -> str:
    """Return the content of the code fence if the text is one fenced block, else the text."""
    text = text.strip().removeprefix("\ufeff").strip()
    first, last = text.find("\n"), text.rfind("\n")
    fence = opening_fence(text[:first]) if first >= 0 else ""
    if not fence or not closes_fence(text[last + 1 :], fence):
        return text
    body = text[first + 1 : last] if first < last else ""
    return text if any(closes_fence(line, fence) for line in body.split("\n")) else body


def is_blank(text: str) -> bool:
    """Whether a text has only white space, zero-width and control characters."""
    return _INK.search(text) is None


def words_of(text: str) -> Words:
    """Return the own words and the thinking of a reply."""
    words = _split(text)
    for _ in range(_PASSES):  # marks from the middle may now be at the beginning
        again = _split(words.text)
        if again.text == words.text:
            break
        repairs = tuple(dict.fromkeys((*words.repairs, *again.repairs)))
        words = Words(again.text, words.thinking + again.thinking, again.unclosed, repairs)
    return words


def _split(text: str) -> Words:
    repairs: list[str] = []
    rest, thinking = _after_thinking(text)
    if rest is None:
        return Words("", text, unclosed=True, repairs=(THINKING,))
    if thinking:
        repairs.append(THINKING)
    own = _turn(rest)
    if _opens(own):  # there was a header before the tag
        return Words("", text, unclosed=True, repairs=(THINKING,))
    if own.strip() != rest.strip():
        repairs.append("marks of a chat template left out")
    return Words(own, thinking, repairs=tuple(repairs))


def _after_thinking(text: str) -> tuple[str | None, str]:
    """Return the text after the thinking, None if the thinking never ends, and the thinking."""
    closing = None
    for closing in _CLOSING.finditer(text):  # noqa: B007 - the last match counts
        pass
    # A tag inside a JSON string is content (rule 3).
    if closing is not None and _is_json(text):
        closing = None
    rest, thinking = text, ""
    if closing is not None:
        rest, thinking = text[closing.end() :].lstrip(), text[: closing.end()]
    final = None
    for final in _FINAL.finditer(rest):  # noqa: B007 - the last match counts
        pass
    if final is not None:
        rest, thinking = rest[final.end() :].lstrip(), thinking + rest[: final.end()]
    # The reply has a channel for thinking and never reaches the channel of the answer.
    elif _CHANNEL.search(rest) and not _is_json(rest):
        return None, text
    if _opens(rest):
        return None, text
    # A model that starts to think again after its answer has answered already.
    reopened = _REOPENED.search(rest)
    if reopened is not None and not _is_json(rest):
        thinking += rest[reopened.start() :]
        rest = rest[: reopened.start()].rstrip()
    return rest, thinking


def _opens(text: str) -> bool:
    start = _INK.search(text)
    return start is not None and _OPENING.match(text, start.start()) is not None


def _is_json(text: str) -> bool:
    """Whether a text is one strict JSON object or array."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _turn(text: str) -> str:
    """Return the first turn of a text without its header, up to its end mark or the next turn."""
    rest = text
    for _ in range(_HEADERS):
        header = _HEADER.match(rest)
        if header is None:
            break
        rest = rest[header.end() :].lstrip()
    if _is_json(rest):
        return rest
    end = _first_end(rest)
    return rest if end is None else rest[:end].rstrip()


def _first_end(text: str) -> int | None:
    ends = []
    opened = text.find("<s>")
    for mark in _END.finditer(text):
        struck = mark[0] == "</s>" and 0 <= opened < mark.start()  # struck-through text in HTML
        # A mark in backticks is quoted by an answer about chat templates.
        quoted = text[mark.start() - 1 : mark.start()] == "`"
        if not struck and not quoted:
            ends.append(mark.start())
            break
    for turn in _TURN.finditer(text):
        before = text[: turn.start()].rstrip()
        last_line = before[before.rfind("\n") + 1 :]
        # A template continues with the turn of the user when the model missed its end mark.
        # In a dialogue that is the content of the reply, other lines have speakers too.
        if before and not _SPEAKER.match(last_line):
            ends.append(turn.start())
        break
    return min(ends) if ends else None


# For a stream, the `regex` library tells whether a tag may still continue (a partial match).
_STREAM_OPENING = regex.compile(
    rf"<(?:{_NAMES})(?:[ \t][^<>\n]{{0,80}})?>|[\u25c1\u25c3]think[\u25b7\u25b9]|\[THINK\]"
    r"|<\|channel\|>[ \t]*(?:analysis|commentary)",
    regex.IGNORECASE,
)
_REOPENING = regex.compile(
    r"<think(?:ing)?>|[\u25c1\u25c3]think[\u25b7\u25b9]|\[THINK\]", regex.IGNORECASE
)
_STREAM_CLOSING = regex.compile(
    rf"</[ \t]?(?:{_NAMES})[ \t]?>|[\u25c1\u25c3]/think[\u25b7\u25b9]|\[/THINK\]"
    r"|<\|channel\|>[ \t]*final[^<\n]{0,40}<\|message\|>",
    regex.IGNORECASE,
)
# A mark of a chat template before the first word; a role may follow it.
_MARK = regex.compile(
    r"<\|(?:im_start|start|start_header_id|end_header_id|begin_of_text|assistant)\|>"
    r"|<start_of_turn>|<bos>|<s>|<\uff5cAssistant\uff5c>|\[/INST\]",
    regex.IGNORECASE,
)
_STREAM_END = regex.compile(_END.pattern)
_ROLE_NAMES = frozenset(_ROLES.split("|"))
_BEGINS = "<[\u25c1\u25c3"
_PLAIN = regex.compile(rf"[^\s{regex.escape(_BEGINS)}]++")
_SPACE = regex.compile(r"\s++")


class SpokenText:
    """Passes text that arrives in pieces to `receiver`, without thinking; call `end` after the last piece."""

    __slots__ = (
        "_all",
        "_begun",
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
        self._begun = False  # a word was sent since the beginning, or since the last block
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
        elif not self._inside and self._begun and not self._ended:
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
            quoted = meaning == "close" and text[match.end() : match.end() + 1] == "`"
            # HTML strikes text out with these tags.
            quoted |= match[0] == "</s>" and "<s>" in "".join(self._all)[1:]
            if not quoted:
                self._crossed(meaning)
                return "", match.end()
        return self._words(text[at]), at + 1

    def _tags(self, before: str) -> list[tuple[regex.Pattern[str], str]]:
        """Return the tags that are possible here, after the character `before`."""
        closing = [] if before == "`" else [(_STREAM_CLOSING, "close")]
        if self._inside:
            return [*closing, (_STREAM_OPENING, "open")]
        if not self._begun:
            return [*closing, (_STREAM_OPENING, "open"), (_MARK, "mark")]
        if self._ended:
            return closing
        tags = [*closing, (_REOPENING, "open")] if "\n" in self._space else closing
        # In JSON, a mark inside a string is content.
        ends = before in "}]\n" if self._data else before != "`"
        return [*tags, (_STREAM_END, "end")] if ends else tags

    def _crossed(self, meaning: str) -> None:
        """Enter or leave a thinking block."""
        self._space, self._left_out, self._role = "", True, meaning == "mark"
        if meaning == "open":
            self._inside += 1
        elif meaning == "end":
            self._ended = True
        elif meaning == "close":
            self._ended = False  # the final channel of a reply follows
            self._inside = max(0, self._inside - 1)
            self._begun = self._begun and self._inside > 0

    def _words(self, text: str) -> str:
        """Return words with the white space before them, or "" inside thinking."""
        if self._inside or self._ended:
            return ""
        if not self._begun:
            self._data = text[0] in "{["
        words = f"{self._space}{text}"
        self._space, self._begun, self._sent = "", True, True
        return words
