"""The marker by which a reasoning agent completes its task: `TASK_COMPLETE: [final answer]`.

Rules:

1. The marker counts at the beginning of a line, outside code fences, in any case. Emphasis, heading signs,
   quotation marks and a bracket before it are decoration. In the middle of a line, in a list or in a block
   quotation the marker is only mentioned and does not count.
2. The last marker counts. The answer is the rest of the message after it, over any number of lines. A marker
   before the placeholder of the instructions (`[final answer]`) or of the task (`<the sum>`) repeats it and
   does not count. Markers in a thinking block do not count either, and such a block at the end of the message
   is no part of the answer.
3. Decoration that begins before the marker ends after the answer. One pair of brackets (or of emphasis, on a
   single line) around the answer is removed, unless the answer is a list such as `[1, 2, 3]`.
4. An answer that consists of decoration only is not an answer, so the task is not complete.
5. Markers in a quotation of the complete prompt do not count.
6. In the last iteration more places count: in a list, after a sentence or a word such as "Therefore,", and
   inside a fence, whose rest is the answer.

No text is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...models.reply_text import own_words, read_json

__all__ = ["MARKER", "completion"]

MARKER = "TASK_COMPLETE:"
MAX_PLACEHOLDER = 500  # characters of a marker line that are compared with the task

_OPENING = "\"'\u201c\u201d\u2018\u2019«»„*_~`"  # decoration around a marker or an answer
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
# The text after the marker in the instructions and the notice, which is not an answer.
_PLACEHOLDER = re.compile(
    r"[\s*_]*[\[<(](?:your |the )?(?:final )?answer[\])>][^\n]*", re.IGNORECASE
)
_IN_BRACKETS = re.compile(r"<.*>|\[.*\]|\{.*\}|\(.*\)|[.\u2026]+")
_NAMED = re.compile(r"TASK\\?_COMPLETE[^:\uff1a\n]{0,5}[:\uff1a]", re.IGNORECASE)
_THOUGHT = re.compile(
    r"^[ \t]*(<(?:think|thinking|thought)>)|</(?:think|thinking|thought)>",
    re.IGNORECASE | re.MULTILINE,
)
# Text before a marker in the last iteration: the sign of a list, the end of a sentence, a word such as "so".
_LEAD = re.compile(
    r"[\s>]*(?:[-+*•]|\d{1,3}[.)])?[\s>]*"
    r"(?:(?:.*[.!?:;,\u2013\u2014>-]|therefore|so|thus|hence|finally|and)\s*)?",
    re.IGNORECASE,
)
_EMPHASIS = ("***", "___", "**", "__", "~~", "*", "_", "`")


def completion(text: str, prompt: str = "", *, lenient: bool = False) -> str | None:
    """Return the final answer in a message, or None if the message does not complete the task.

    Args:
        text: The message.
        prompt: The task. Markers in a quotation of it do not count. Default: none.
        lenient: Whether to apply the rules of the last iteration. Default: False.

    Returns:
        The answer without the marker and its decoration, or None.

    Example:
        >>> completion("It is 6 times 7.\\nTASK_COMPLETE: [42]")
        '42'
        >>> completion("I must end with TASK_COMPLETE: and my answer.") is None
        True
    """
    own = _without(own_words(text, value=True), prompt)
    parts, at = [], 0
    for start, end in _thoughts(own):
        parts += [own[at:start], "\n" * (end - start)]
        at = end
    visible = "".join((*parts, own[at:]))
    own = own[: len(visible.rstrip())]
    named = [_line_of(prompt[match.end() :]) for match in _NAMED.finditer(prompt)]
    markers = [
        (match, end)
        for match, end in _markers(visible)
        if not _repeats(own[end : end + MAX_PLACEHOLDER], named)
    ]
    answer = _answer(markers[-1][0], own[markers[-1][1] :]) if markers else ""
    # The strict rules come first, so that the last iteration reads a correct reply like any other.
    if not answer and lenient:
        answer = _leniently(own, named)
    return answer or None


def _thoughts(text: str) -> Iterator[tuple[int, int]]:
    """Iterate over the thinking blocks that begin a line: start and end."""
    start = None
    for tag in _THOUGHT.finditer(text):
        if tag[1] and start is None:
            start = tag.start()
        elif not tag[1] and start is not None:
            yield start, tag.end()
            start = None


def _line_of(text: str) -> str:
    """Return the first line of a text without its decoration."""
    return text.strip(_OPENING + " \t\r\n").split("\n", 1)[0].rstrip(_OPENING + " \t\r")


def _repeats(rest: str, named: Sequence[str]) -> bool:
    """Whether the text after a marker is the placeholder of the instructions, or one `named` by the task."""
    if _PLACEHOLDER.match(rest):
        return True
    line = _line_of(rest)
    if _IN_BRACKETS.fullmatch(line):
        return any(one.startswith(line) for one in named)
    # A single word is an answer that the task asks for, and several texts are a choice.
    return " " in line and [one.rstrip(".") for one in named] == [line.rstrip(".")]


def _leniently(text: str, named: Sequence[str]) -> str:
    """Return the answer after the last marker by the rules of the last iteration, or ""."""
    answer, fence, start = "", "", 0
    for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", text):
        edge = _FENCE.match(line)
        if edge and (not fence or (edge[1].startswith(fence) and not edge[2].strip())):
            fence = "" if fence else edge[1]
        # A cheap test before the pattern.
        elif (place := line.upper().rfind("TASK")) >= 0:
            lead = line[:place].rstrip("".join(_OPENING) + "[( \t")
            match = _LINE.match(line, len(lead)) if _LEAD.fullmatch(line, 0, len(lead)) else None
            rest = text[start + match.end() :] if match else ""
            if match and not _repeats(rest[:MAX_PLACEHOLDER], named):
                if fence:
                    rest = re.split(rf"(?m)^[ \t]*{re.escape(fence)}[`~]*[ \t]*$", rest)[0]
                answer = _answer(match, rest) or answer
        start += len(line)
    return answer


def _without(text: str, prompt: str) -> str:
    quoted = prompt.strip()
    # Only a task with the marker could be mistaken for an answer.
    if not quoted or not _LINE.search(quoted):
        return text
    return text.replace(quoted, "")


def _markers(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Iterate over the markers that count: the match in the line, and the start of the answer."""
    fence = ""
    start = 0
    for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", text):
        edge = _FENCE.match(line)
        if fence:
            if edge and edge[1].startswith(fence) and not edge[2].strip():
                fence = ""
        elif edge and not (edge[1][0] == "`" and "`" in edge[2]):
            fence = edge[1]
        elif (match := _LINE.match(line)) is not None and not _listed(match):
            yield match, start + match.end()
        start += len(line)


def _listed(match: re.Match[str]) -> bool:
    """Return whether the line is an item of a list, whose star is not emphasis."""
    return bool(match["gap"]) and match["before"] == "*"


def _answer(match: re.Match[str], rest: str) -> str:
    """Return the answer without the decoration of the marker and of the answer."""
    answer = rest.strip().strip(_INVISIBLE).strip()
    # Decoration that opens before the marker closes after it, or at the end of the answer.
    left, closed = match["before"], match["between"] + match["after"]
    for sign in reversed(left):
        end = _CLOSING.get(sign, sign)
        if end in closed:
            closed = closed.replace(end, "", 1)
        elif answer.endswith(end):
            answer = answer.removesuffix(end).rstrip()
    if closed and not left:  # the decoration belongs to the answer, as in `TASK_COMPLETE:**42**`
        answer = match["after"] + answer
    answer = _unbracketed(_plain(answer))
    return answer if answer.strip(_OPENING + "[]() \t\r\n") else ""


def _plain(answer: str) -> str:
    """Return an answer of one line without the emphasis around it."""
    if "\n" in answer or "\r" in answer:
        return answer
    for sign in _EMPHASIS:
        inner = answer[len(sign) : -len(sign)]
        around = answer.startswith(sign) and answer.endswith(sign)
        if around and len(answer) > 2 * len(sign) and sign[0] not in inner:
            return inner.strip()
    return answer


def _unbracketed(answer: str) -> str:
    """Return an answer without the pair of square brackets around it."""
    if not (answer.startswith("[") and answer.endswith("]")):
        return answer
    depth = 0
    for place, sign in enumerate(answer):
        depth += (sign == "[") - (sign == "]")
        if depth == 0 and place < len(answer) - 1:
            return answer  # the first bracket closes before the end, so the two are not a pair
    return answer if _is_list(answer) else answer[1:-1].strip()


def _is_list(answer: str) -> bool:
    """Return whether an answer in brackets is a list, and not one decorated word or number."""
    # `[42]` is a decorated number, `[1, 2]` and `["a"]` are lists.
    reading = read_json(answer)
    value = reading.value
    if reading.problem:
        return bool(re.fullmatch(r"\[\s*(['\"]).*\1\s*\]", answer, re.DOTALL))
    return len(value) != 1 or not isinstance(value[0], int | float) or isinstance(value[0], bool)
