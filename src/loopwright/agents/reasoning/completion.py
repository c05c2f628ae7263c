"""The marker by which a reasoning agent says that it is done: `TASK_COMPLETE: [final answer]`.

Rules:

1. The marker counts where a line begins with it, outside code fences, in any case. Emphasis, a
   heading's signs, quotation marks and a bracket before it are decoration. In the middle of a line,
   in a list or in a block quotation it is talked about, not used.
2. The last one counts; the answer is the rest of the message after it, over any number of lines. A
   marker with the placeholder of the instructions after it (`[final answer]`) repeats them and says
   nothing, nor does one in a thinking block.
3. Decoration that began before the marker ends where the answer does, and one pair of brackets (or
   of emphasis, on a single line) around the whole answer is taken off, unless it is a list such as
   `[1, 2, 3]`.
4. An answer of nothing but decoration is no answer: the task is not complete.
5. What a message quotes of its own prompt, whole, is not the message's own.
6. On the last permitted round the marker is read leniently: in a list, after a sentence or a word such
   as "Therefore,", and inside a fence, of which the answer is the rest.

Every text has exactly one reading, and none is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...models.replies.own_words import own_words
from ...models.replies.strict_json import read_json

__all__ = ["MARKER", "completion"]

MARKER = "TASK_COMPLETE:"

_OPENING = "\"'\u201c\u201d\u2018\u2019«»„*_~`"  # what may stand around a marker or an answer
_SIGNS = re.escape(_OPENING)
_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)", re.DOTALL)
_LINE = re.compile(
    rf"[\s{_INVISIBLE}]*+(?:\#{{1,6}}[ \t]++)?"
    rf"(?P<before>[{_SIGNS}\[\(]*+)(?P<gap>[ \t]*+)"
    rf"TASK\\?_COMPLETE(?P<between>[{_SIGNS}]*+)[ \t]*+[:\uff1a](?P<after>[{_SIGNS}]*+)",
    re.IGNORECASE | re.ASCII,
)
_CLOSING = {
    "[": "]", "(": ")", "\u201c": "\u201d", "\u2018": "\u2019", "«": "»", "„": "\u201c",
}  # fmt: skip
# What the instructions and the notice write after the marker, and no answer.
_PLACEHOLDER = re.compile(
    r"[\s*_]*[\[<(](?:your |the )?(?:final )?answer[\])>][^\n]*", re.IGNORECASE
)
# A line before a marker that is no part of a sentence about it: a list's sign, a sentence, a word.
_LEAD = re.compile(
    r"[\s>]*(?:[-+*•]|\d{1,3}[.)])?[\s>]*"
    r"(?:(?:.*[.!?:;,\u2013\u2014>-]|therefore|so|thus|hence|finally|and)\s*)?",
    re.IGNORECASE,
)
_EMPHASIS = ("***", "___", "**", "__", "~~", "*", "_", "`")


def completion(text: str, prompt: str = "", *, lenient: bool = False) -> str | None:
    """Return the final answer in a message, or None if it does not say that the task is complete.

    `prompt` is what was asked: where the message repeats it whole, a marker in it does not count.
    `lenient` is for the last permitted round.

    >>> completion("It is 6 times 7.\\nTASK_COMPLETE: [42]")
    '42'
    >>> completion("I must end with TASK_COMPLETE: and my answer.") is None
    True
    """
    own = _without(own_words(text), prompt)
    found = [(match, end) for match, end in _marked(own) if not _PLACEHOLDER.match(own, end)]
    answer = _answer(found[-1][0], own[found[-1][1] :]) if found else ""
    if not answer and lenient:
        answer = _leniently(own)
    return answer or None


def _leniently(text: str) -> str:
    """Return the answer after the last marker anywhere that is used and not talked about, or ""."""
    answer, fence, start = "", "", 0
    for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", text):
        edge = _FENCE.match(line)
        if edge and (not fence or (edge[1].startswith(fence) and not edge[2].strip())):
            fence = "" if fence else edge[1]
        elif (place := line.upper().rfind("TASK")) >= 0:
            lead = line[:place].rstrip("".join(_OPENING) + "[( \t")
            found = _LINE.match(line, len(lead)) if _LEAD.fullmatch(line, 0, len(lead)) else None
            rest = text[start + found.end() :] if found else ""
            if found and not _PLACEHOLDER.match(rest):
                rest = (
                    re.split(rf"(?m)^[ \t]*{re.escape(fence)}[`~]*[ \t]*$", rest)[0]
                    if fence
                    else rest
                )
                answer = _answer(found, rest) or answer
        start += len(line)
    return answer


def _without(text: str, prompt: str) -> str:
    quoted = prompt.strip()
    if not quoted or not _LINE.search(quoted):
        return text
    return text.replace(quoted, "")


def _marked(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Iterate over the markers that count: the match in their line, and where the answer begins."""
    fence = ""
    start = 0
    for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", text):
        edge = _FENCE.match(line)
        if fence:
            if edge and edge[1].startswith(fence) and not edge[2].strip():
                fence = ""
        elif edge and not (edge[1][0] == "`" and "`" in edge[2]):
            fence = edge[1]
        elif (found := _LINE.match(line)) is not None and not _listed(found):
            yield found, start + found.end()
        start += len(line)


def _listed(found: re.Match[str]) -> bool:
    """Return whether the line is an item of a list: a star that is no emphasis."""
    return bool(found["gap"]) and found["before"] == "*"


def _answer(match: re.Match[str], rest: str) -> str:
    """Return the answer without the decoration that belongs to the marker or encloses all of it."""
    answer = rest.strip().strip(_INVISIBLE).strip()
    # What the marker opened and did not close by itself is closed at the end of the answer.
    left, closed = match["before"], match["between"] + match["after"]
    for sign in reversed(left):
        end = _CLOSING.get(sign, sign)
        if end in closed:
            closed = closed.replace(end, "", 1)
        elif answer.endswith(end):
            answer = answer.removesuffix(end).rstrip()
    if closed and not left:  # the answer's own, as in `TASK_COMPLETE:**42**`
        answer = match["after"] + answer
    answer = _unbracketed(_plain(answer))
    return answer if answer.strip(_OPENING + "[]() \t\r\n") else ""


def _plain(answer: str) -> str:
    """Return an answer of one line without the emphasis around all of it."""
    if "\n" in answer or "\r" in answer:
        return answer
    for sign in _EMPHASIS:
        inner = answer[len(sign) : -len(sign)]
        around = answer.startswith(sign) and answer.endswith(sign)
        if around and len(answer) > 2 * len(sign) and sign[0] not in inner:
            return inner.strip()
    return answer


def _unbracketed(answer: str) -> str:
    """Return an answer without the one pair of square brackets around all of it."""
    if not (answer.startswith("[") and answer.endswith("]")):
        return answer
    depth = 0
    for place, sign in enumerate(answer):
        depth += (sign == "[") - (sign == "]")
        if depth == 0 and place < len(answer) - 1:
            return answer  # the first one closes before the end: they are not a pair
    return answer if _is_list(answer) else answer[1:-1].strip()


def _is_list(answer: str) -> bool:
    """Return whether an answer in brackets is a list, and not one word or figure in decoration."""
    reading = read_json(answer)
    value = reading.value
    if reading.problem:
        return bool(re.fullmatch(r"\[\s*(['\"]).*\1\s*\]", answer, re.DOTALL))
    return len(value) != 1 or not isinstance(value[0], int | float) or isinstance(value[0], bool)
