"""The answers in what models write: the JSON objects of judges, and the answer formats of prompts.

Rules of this module and of the readers in `score` and `verdicts`:

1. Total: every `str` has a result. Only an invalid configuration raises an error.
2. Linear: every scan passes over the text a fixed number of times, whatever the text contains.
3. Nothing is repaired, clamped or guessed. A text that cannot be read is reported as a problem.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import StepError
from ..models.protocol import Reply
from ..models.reply_text import clean_text, normalise_characters, own_words
from ..models.reply_values import scan
from ..records.codec import Json, text_of

__all__ = [
    "NO",
    "YES",
    "Answer",
    "Object",
    "Objects",
    "answer",
    "objects_in",
    "objects_of",
    "plain",
    "read_binary",
    "read_classification",
    "reply_text",
    "squeezed",
]

_ESCAPED = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|x([0-9a-fA-F]{2}))")
_OTHERS = re.compile(r"[\W_]+")
_QUOTED = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
NOT_CLASSIFIED = "not-classified"
# A reply often begins with "Correct" or "Right" instead of the requested "true".
YES = frozenset({"yes", "true", "correct", "right", "affirmative", "1"})
NO = frozenset({"no", "false", "incorrect", "wrong", "negative", "not", "0"})
_WORD = re.compile(r"[^\W_]+")
# In order of precedence: the members that models use for the label of a classification.
_LABELS = ("response", "category", "classification", "result")


@dataclass(frozen=True, slots=True)
class Object:
    """A JSON object that a judge wrote: its members by plain name, and whether it has the mark."""

    members: Mapping[str, Any]
    marked: bool


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects in a reply.

    `suspect` means that the candidate names one of the requested members, `repeated` that an object was
    ignored because it repeats the candidate, `damaged` that the reply has a broken JSON value.
    """

    read: tuple[Object, ...]
    suspect: bool
    repeated: bool
    damaged: bool


def objects_of(own: str, *, candidate: str, mark: str, names: Sequence[str]) -> Objects:
    """Return the objects with one of these members in the judge's own words."""
    plain_names = {plain(name) for name in names}
    known = squeezed(candidate)
    # A judge quotes the candidate with ">". A verdict in such a line is not its own.
    own = _QUOTED.sub("", own)
    result = scan(own)
    read: list[Object] = []
    repeated = False
    for value in result.values:
        repeated_text = squeezed(own[value.start : value.end])
        for members in _inner(value.value, plain_names):
            # The judge may wrap a repeated object in one of its own, so both are compared.
            if repeated_text in known or squeezed(_written(members)) in known:
                repeated = True
                continue
            mark_member = _by_name(members).get("mark")
            marked = (
                isinstance(mark_member, str) and mark_member.strip().casefold() == mark.casefold()
            )
            read.append(Object(_by_name(members), marked))
    suspect = any(squeezed(name) in known for name in names)
    # `exhausted`: the scan reached its limit, so later objects are unknown.
    damaged = result.unfinished is not None or result.broken is not None or result.exhausted
    return Objects(tuple(read), suspect, repeated, damaged)


def _inner(value: Any, names: set[str]) -> list[dict[str, Any]]:
    """Return the objects with a requested member: the value, the object that it wraps, or its items."""
    if isinstance(value, list):
        return [one for item in value if isinstance(item, dict) for one in _inner(item, names)]
    if names & _by_name(value).keys():
        return [value]
    # Many models answer {"result": {...}}. Deeper nesting is not an answer to the question.
    inner = list(value.values())
    if len(inner) == 1 and isinstance(inner[0], dict) and names & _by_name(inner[0]).keys():
        return [inner[0]]
    return []


def _by_name(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return members by plain name, those of an inner object also as `outer.inner`.

    If two keys have the same plain name, the value is a list of both, which no reader accepts as a verdict.
    """
    members: dict[str, Any] = {}
    for key, member in value.items():
        inner = member if isinstance(member, dict) else {}
        for name, part in ((key, member), *((f"{key}.{k}", m) for k, m in inner.items())):
            name = plain(name)
            members[name] = [members[name], part] if name in members else part
    return members


def _written(members: Mapping[str, Any]) -> str:
    """Return the members as text in their order, for the comparison with a candidate."""
    return " ".join(f"{key} {_value(value)}" for key, value in members.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return _written(value)
    if isinstance(value, list):
        return " ".join(map(_value, value))
    return "null" if value is None else str(value)


def plain(name: str) -> str:
    """Return a member's name without case, `_`, `-` and spaces."""
    return re.sub(r"[\s_-]", "", normalise_characters(name)).casefold()


def squeezed(text: str) -> str:
    """Return only the letters and digits of a text, after NFKC, without case and escapes."""
    # A candidate can hide a planted verdict in nested escapes. Three passes keep the time linear.
    for _ in range(3):
        decoded = _ESCAPED.sub(_character, html.unescape(text))
        if decoded == text:
            break
        text = decoded
    return _OTHERS.sub("", normalise_characters(text).casefold())


def _character(escape: re.Match[str]) -> str:
    code = int(escape[1] or escape[2] or escape[3], 16)
    # Above the last code point of Unicode `chr` raises an error.
    return chr(code) if code < 0x110000 else ""


def reply_text(output: Json) -> str:
    """Return the output of a model as text: that of its member `response`, if it has one."""
    if output is None:
        return ""
    if isinstance(output, Mapping) and "response" in output:
        return reply_text(output["response"])
    return text_of(output)


def objects_in(output: Json) -> Iterator[Mapping[str, Json]]:
    """Yield the JSON objects of an output: the output itself, and an object in its text."""
    if isinstance(output, Mapping):
        yield output
        inner = output.get("response")
        if inner is not None and not isinstance(inner, Mapping):
            yield from objects_in(inner)
    elif isinstance(output, str) and "{" in output:
        objects = [
            one.value
            for one in scan(own_words(output, value=True)).values
            if isinstance(one.value, dict)
        ]
        # With two different objects it is unknown which one is the answer, so neither is used.
        if objects and all(value == objects[0] for value in objects):
            yield objects[0]


@dataclass(frozen=True)
class Answer:
    """An answer format: `instruction` is added to the prompt, `read` returns the output of a reply."""

    kind: str
    instruction: str
    read: Callable[[Reply], Json]


def answer(kind: str, options: Sequence[str] = ()) -> Answer:
    """Return an answer format: unchanged text, JSON, binary (true or false) or one of several options."""
    if kind == "binary":
        return Answer(
            kind, "Answer with true or false only.", lambda reply: read_binary(reply.text)
        )
    if kind == "classification":
        instruction = f"Answer with exactly one of: {', '.join(options)}." if options else ""
        return Answer(kind, instruction, lambda reply: read_classification(reply.text, options))
    return Answer(kind, "", _object if kind == "json" else lambda reply: reply.text)


def _object(reply: Reply) -> Json:
    """Return the object with a member `response` in a reply, otherwise the text without thinking blocks."""
    text = own_words(reply.text, value=True)
    reply_object = next((o for o in objects_in(text) if "response" in o), None)
    return dict(reply_object) if reply_object is not None else text


def read_binary(text: str) -> bool:
    """Return whether a reply means yes, by its first word that is a yes or a no.

    Raises:
        StepError: If it contains neither.
    """
    reply_object = next(objects_in(text), None)
    # Only these members are read: the words of other members, such as a reason, are not the answer.
    if reply_object is not None and isinstance(
        reply_object.get("response", reply_object.get("result")), bool | str
    ):
        text = reply_text(reply_object.get("response", reply_object.get("result")))
    for word in _WORD.findall(clean_text(own_words(text, value=True)).lower()):
        if word in YES or word in NO:
            return word in YES
    raise StepError(
        f"the reply {text[:60]!r} is neither true nor false; ask for true or false only",
        kind="unreadable",
    )


def read_classification(text: str, options: Sequence[str]) -> str:
    """Return the option that a reply equals, or the only one it names, otherwise `not-classified`."""
    labels = (o[key] for o in objects_in(text) for key in _LABELS if key in o)
    label = reply_text(next(labels, text))
    label = clean_text(own_words(label, value=True)).strip().strip("\"'`*. ").casefold()
    for option in options:
        if option.casefold() == label:
            return option
    # Without word boundaries "unsafe" would count as "safe".
    matches = [o for o in options if re.search(rf"(?<!\w){re.escape(o.casefold())}(?!\w)", label)]
    return matches[0] if len(matches) == 1 else NOT_CLASSIFIED
