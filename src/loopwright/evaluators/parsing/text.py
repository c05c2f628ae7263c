"""The preparation of a model's text for reading: cleaning, normalisation, quotations, JSON objects.

Rules of this module and of its two readers, `scores` and `verdicts`:

1. Total: every `str` has a result. Only an invalid configuration raises an error.
2. Linear: every scan passes over the text a fixed number of times, whatever the text contains.
3. Nothing is repaired, clamped or guessed. A text that cannot be read is reported as a problem.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...models.replies.own_words import (
    IGNORABLE,
    clean_text,
    closes_fence,
    opening_fence,
    own_words,
    strip_fence,
)
from ...models.replies.scan import scan
from ...models.replies.strict_json import (
    JSON_BYTES,
    JSON_DEPTH,
    JsonProblem,
    JsonReading,
    read_json,
)
from ...records.codec import Json, text_of
from ...templates import TemplateValue

__all__ = [
    "AGENTS",
    "JSON_BYTES",
    "JSON_DEPTH",
    "LAST",
    "JsonProblem",
    "JsonReading",
    "Object",
    "Objects",
    "agents_in",
    "clean_text",
    "lines_with_quotes",
    "normalise_characters",
    "normalise_reply",
    "objects_in",
    "objects_of",
    "plain",
    "read_json",
    "reply_text",
    "shown",
    "squeezed",
    "strip_emphasis",
    "strip_fence",
    "without_thinking",
]

_ESCAPED = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|x([0-9a-fA-F]{2}))")
_OTHERS = re.compile(r"[\W_]+")
_QUOTED = re.compile(r"^[ \t]*>.*$", re.MULTILINE)


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


_IGNORABLE = re.compile(f"[{IGNORABLE}]")
# Removes emphasis marks, except inside a word or a number: snake_case, 8*10, 0.*9. The quantifiers are
# possessive, so that a long run of marks takes linear time.
_EMPHASIS = re.compile(r"(?<![*_`])(?:(?<![\w.,])[*_`]++|[*_`]++(?!\w|[.,]\d))")
_MARK_RUN = 30


def normalise_characters(text: str) -> str:
    """Return the text cleaned, in NFKC and without zero-width characters. Emphasis marks stay.

    There are two differences from plain NFKC. A "^" is inserted before superscript, circled and similar
    digits, so that the footnote in 0.9² does not make it 0.92. Of more than 30 combining marks in a row only
    30 stay, the limit of Unicode's Stream-Safe Text Format (UAX 15).
    """
    text = clean_text(text)
    # ASCII is already in NFKC, and most replies are ASCII.
    if text.isascii():
        return text
    text = _IGNORABLE.sub("", text)
    foreign = [char for char in set(text) if not char.isascii()]
    # Before normalisation, which orders combining marks in quadratic time.
    text = _bound_marks(text, foreign)
    text = text.translate({ord(char): f"^{plain}" for char, plain in _digit_look_alikes(foreign)})
    return unicodedata.normalize("NFKC", text)


def _bound_marks(text: str, characters: list[str]) -> str:
    marks = "".join(
        re.escape(char)
        for char in characters
        if unicodedata.combining(unicodedata.normalize("NFKD", char)[0])
    )
    if not marks:
        return text
    return re.sub(f"([{marks}]{{{_MARK_RUN}}})[{marks}]+", r"\1", text)


def _digit_look_alikes(characters: list[str]) -> Iterator[tuple[str, str]]:
    for char in characters:
        # Full-width and mathematical digits are ordinary digits in another style.
        if not unicodedata.decomposition(char).startswith(("<wide>", "<font>")):
            plain = unicodedata.normalize("NFKC", char)
            if any("0" <= digit <= "9" for digit in plain):
                yield char, plain


def strip_emphasis(text: str) -> str:
    """Return the text without the marks of Markdown emphasis and inline code: * _ and backtick.

    Marks between two characters of a word or a number stay, so `QUALITY_SCORE` keeps its name and
    `8*10` does not become 810. Code fences lose their backticks, so detect quotations first.
    """
    return _EMPHASIS.sub("", text)


def normalise_reply(text: str) -> str:
    """Return the reply of a model without emphasis and in normalised characters, for a pattern search.

    The positions of matches are positions in the returned text.
    """
    return strip_emphasis(normalise_characters(text))


def lines_with_quotes(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line and whether it is quoted: in a `>` quotation or a fenced block of code.

    The lines of the fence itself are quoted. A fence without an end quotes all following lines.
    """
    fence = ""
    for line in text.splitlines():
        if fence:
            yield line, True
            if closes_fence(line, fence):
                fence = ""
            continue
        fence = opening_fence(line)
        yield line, bool(fence) or line.lstrip().startswith(">")


# The output of a group of agents holds the outputs of its agents under this key. See `AgentGroup`.
AGENTS = "$agents"
# The output of the group's last agent, which the next step of the outer workflow receives.
LAST = "$last"
RAW_CONFIDENCE = 0.5  # the dialect's confidence of a reply that states none


def agents_in(outputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return the outputs by agent. The agents of a group replace the group."""
    agents: dict[str, Json] = {}
    for name, output in outputs.items():
        if isinstance(output, Mapping) and AGENTS in output:
            agents |= agents_in(output[AGENTS])
        else:
            agents[name] = output
    return agents


def reply_text(output: Json) -> str:
    """Return an agent's output as text, for a group with one paragraph per agent."""
    if output is None:
        return ""
    if isinstance(output, Mapping) and AGENTS in output:
        agents = agents_in(output[AGENTS])
        return "\n\n".join(f"{name}: {reply_text(each)}" for name, each in agents.items())
    if isinstance(output, Mapping) and "response" in output:
        return reply_text(output["response"])
    return text_of(output)


def without_thinking(text: str) -> str:
    """Return a reply without its blocks of thinking."""
    return own_words(text)


def objects_in(output: Json) -> Iterator[Mapping[str, Json]]:
    """Yield the JSON objects of an output: the output itself, and an object in its text."""
    if isinstance(output, Mapping):
        yield output
        inner = output.get("response")
        if inner is not None and not isinstance(inner, Mapping):
            yield from objects_in(inner)
    elif isinstance(output, str) and "{" in output:
        objects = [
            one.value for one in scan(own_words(output)).values if isinstance(one.value, dict)
        ]
        # With two different objects it is unknown which one is the answer, so neither is used.
        if objects and all(value == objects[0] for value in objects):
            yield objects[0]


def shown(output: Json) -> TemplateValue:
    """Return an output for templates: it prints as its text and has the fields of its data."""
    text = reply_text(output)
    if isinstance(output, Mapping) and AGENTS in output:
        agents = {name: shown(each) for name, each in agents_in(output[AGENTS]).items()}
        return TemplateValue(text, {**agents, "response": text, "result": agents})
    data = dict(next(objects_in(output), {})) if isinstance(output, str | Mapping) else {}
    outputs = data.get("result")
    # The output of a loop node: `result` holds the output of each of its agents.
    if "loops_completed" in data and isinstance(outputs, Mapping):
        data["result"] = {name: shown(each) for name, each in outputs.items()}
        return TemplateValue(text, {**data, "response": TemplateValue(text, data)})
    return TemplateValue(
        text, {"confidence": RAW_CONFIDENCE, "result": text, **data, "response": text}
    )
