"""The own words of a model: its reply without thinking and without leftovers of a chat template.

Rules:

1. One answer for one text, however the stream that brought it was cut into pieces.
2. What comes after the last closing tag of a thinking block counts, also where no opening tag is
   there (a template wrote it). A reply that opens with thinking and never closes it has no own words.
3. A reply that is one strict JSON value is its own words whole: a tag inside a string is content.
4. Total and linear; `own_words(own_words(text))` is `own_words(text)`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

__all__ = ["IGNORABLE", "Words", "is_blank", "own_words", "words_of"]

# The characters that Unicode calls Default_Ignorable_Code_Point: they take no room on the page.
IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_INK = re.compile(rf"[^\s\x00-\x1f\x7f\u2800{IGNORABLE}]")
_NAMES = "think|thinking|thought|reasoning|reflection|analysis|scratchpad"
# A tag between backticks is written about, not used.
_CLOSING = re.compile(
    rf"(?<!`)(?:</[ \t]?(?:{_NAMES})[ \t]?>|[\u25c1\u25c3]/think[\u25b7\u25b9]|\[/THINK\])(?!`)",
    re.IGNORECASE,
)
_OPENING = re.compile(
    rf"(?:<(?:{_NAMES})(?:[ \t][^<>\n]{{0,80}})?>|[\u25c1\u25c3]think[\u25b7\u25b9]|\[THINK\])",
    re.IGNORECASE,
)
# In the middle of a reply only these open thinking, at the start of a line.
_REOPENED = re.compile(
    r"^[ \t]*(?:<think(?:ing)?>|[\u25c1\u25c3]think[\u25b7\u25b9]|\[THINK\])",
    re.IGNORECASE | re.MULTILINE,
)
_FINAL = re.compile(r"<\|channel\|>[ \t]*final[^<\n]{0,40}<\|message\|>")
_CHANNEL = re.compile(r"<\|channel\|>[ \t]*(?:analysis|commentary)\b")
_ROLES = "assistant|model|ai|bot"
_HEADER = re.compile(
    rf"\s*(?:<\|im_start\|>[ \t]*(?:{_ROLES})?\b|<\|start_header_id\|>[ \t]*(?:{_ROLES})[ \t]*<\|end_header_id\|>"
    rf"|<start_of_turn>[ \t]*(?:{_ROLES})\b|<\|start\|>[ \t]*(?:{_ROLES})\b|<\|(?:{_ROLES})\|>|\[/INST\]|<s>(?!.*</s>)"
    rf"|<\|begin_of_text\|>|<bos>|<\uff5cAssistant\uff5c>"
    rf"|\#{{2,3}}[ \t]*(?:Response|Assistant|Answer):?[ \t]*(?=\n)|(?-i:[Aa]ssistant|model):?[ \t]*(?=\n|$))",
    re.IGNORECASE,
)
_HEADERS = 8
_PASSES = 4
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


@dataclass(frozen=True, slots=True)
class Words:
    """A reply taken apart: its own words, the thinking before them, and whether thinking never ended."""

    text: str
    thinking: str = ""
    unclosed: bool = False
    repairs: tuple[str, ...] = ()


def own_words(text: str) -> str:
    """Return what a model says itself: no thinking, no header of a turn, nothing after its turn.

    >>> own_words("<think>four?</think>\\n\\n4<|im_end|>")
    '4'
    """
    return words_of(text).text


def is_blank(text: str) -> bool:
    """Whether nothing in a text can be seen: white space, zero-width and control characters only."""
    return _INK.search(text) is None


def words_of(text: str) -> Words:
    """Return a reply taken apart into its own words and its thinking."""
    found = _taken_apart(text)
    for _ in range(_PASSES):  # what is left may begin with marks that stood in the middle
        again = _taken_apart(found.text)
        if again.text == found.text:
            break
        found = Words(
            again.text, found.thinking + again.thinking, again.unclosed,
            tuple(dict.fromkeys((*found.repairs, *again.repairs))),
        )  # fmt: skip
    return found


def _taken_apart(text: str) -> Words:
    repairs: list[str] = []
    rest, thinking = _after_thinking(text)
    if rest is None:
        return Words("", text, unclosed=True, repairs=("thinking left out",))
    if thinking:
        repairs.append("thinking left out")
    own = _turn(rest)
    if _opens(own):  # a header stood before it
        return Words("", text, unclosed=True, repairs=("thinking left out",))
    if own.strip() != rest.strip():
        repairs.append("marks of a chat template left out")
    return Words(own, thinking, repairs=tuple(repairs))


def _after_thinking(text: str) -> tuple[str | None, str]:
    """Return what comes after thinking, None if it never ends, and the thinking."""
    closing = None
    if "<" in text or "\u25c1" in text or "\u25c3" in text or "[" in text:
        for closing in _CLOSING.finditer(text):  # noqa: B007 - the last one is wanted
            pass
    if closing is not None and _is_json(text):
        closing = None
    rest, thinking = text, ""
    if closing is not None:
        rest, thinking = text[closing.end() :].lstrip(), text[: closing.end()]
    final = None
    for final in _FINAL.finditer(rest):  # noqa: B007 - the last one is wanted
        pass
    if final is not None:
        rest, thinking = rest[final.end() :].lstrip(), thinking + rest[: final.end()]
    elif _CHANNEL.search(rest) and not _is_json(rest):
        return None, text
    if _opens(rest):
        return None, text
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
    """Return the first turn in a text: without its header, up to its end mark or the next turn."""
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
        struck = mark[0] == "</s>" and 0 <= opened < mark.start()  # struck through, in HTML
        quoted = text[mark.start() - 1 : mark.start()] == "`"
        if not struck and not quoted:
            ends.append(mark.start())
            break
    for turn in _TURN.finditer(text):
        before = text[: turn.start()].rstrip()
        spoken = before[before.rfind("\n") + 1 :]
        # In a dialogue that the reply itself tells, other lines have speakers too.
        if before and not _SPEAKER.match(spoken):
            ends.append(turn.start())
        break
    return min(ends) if ends else None
