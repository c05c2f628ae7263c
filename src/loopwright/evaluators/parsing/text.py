"""Text of a model made ready to be read: cleaned, normalised, quotations marked.

Rules of this module and of its two readers, `scores` and `verdicts`:

1. Total: any `str` gives an outcome, no text raises. Only a wrong configuration does.
2. Linear: every scan passes over the text a fixed number of times, whatever the text says.
3. Nothing is repaired, clamped or guessed. What a reader cannot read it names as a problem.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...models.replies.own_words import IGNORABLE, own_words
from ...models.replies.scan import scan
from ...models.replies.strict_json import (
    JSON_BYTES,
    JSON_DEPTH,
    JsonProblem,
    JsonReading,
    clean_text,
    closes_fence,
    opening_fence,
    read_json,
    strip_fence,
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
    """An object of the judge's own: its members by plain name, and whether it has the mark."""

    members: Mapping[str, Any]
    marked: bool


@dataclass(frozen=True, slots=True)
class Objects:
    """What was found in a reply.

    `suspect` says that the candidate names a member that counts, `repeated` that an object was left
    out as the candidate's, `damaged` that something began like a value and is none.
    """

    read: tuple[Object, ...]
    suspect: bool
    repeated: bool
    damaged: bool


def objects_of(own: str, *, candidate: str, mark: str, names: Sequence[str]) -> Objects:
    """Return the objects with one of these members in the own words of a judge."""
    wanted = {plain(name) for name in names}
    known = squeezed(candidate)
    own = _QUOTED.sub("", own)
    found = scan(own)
    read: list[Object] = []
    repeated = False
    for one in found.values:
        whole = squeezed(own[one.start : one.end])
        for members in _inner(one.value, wanted):
            # A wrapper may add words of the judge's; the object inside is what is repeated.
            if whole in known or squeezed(_written(members)) in known:
                repeated = True
                continue
            given = _by_name(members).get("mark")
            marked = isinstance(given, str) and given.strip().casefold() == mark.casefold()
            read.append(Object(_by_name(members), marked))
    suspect = any(squeezed(name) in known for name in names)
    damaged = found.unfinished is not None or found.broken is not None or found.exhausted
    return Objects(tuple(read), suspect, repeated, damaged)


def _inner(value: Any, wanted: set[str]) -> list[dict[str, Any]]:
    """Return the objects with a wanted member that a value is, wraps once or lists."""
    if isinstance(value, list):
        return [one for item in value if isinstance(item, dict) for one in _inner(item, wanted)]
    if wanted & _by_name(value).keys():
        return [value]
    inner = list(value.values())
    if len(inner) == 1 and isinstance(inner[0], dict) and wanted & _by_name(inner[0]).keys():
        return [inner[0]]
    return []


def _by_name(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return members by plain name, those of an object inside also as `outer.inner`.

    What two keys say that are alike is a list of both, which no reader takes for a verdict.
    """
    members: dict[str, Any] = {}
    for key, member in value.items():
        inner = member if isinstance(member, dict) else {}
        for name, part in ((key, member), *((f"{key}.{k}", m) for k, m in inner.items())):
            name = plain(name)
            members[name] = [members[name], part] if name in members else part
    return members


def _written(members: Mapping[str, Any]) -> str:
    """Return the members as text, in their order, for comparison with a text."""
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
    """Return a text after NFKC, without case and escapes: its letters and digits only."""
    for _ in range(3):  # what is escaped twice is decoded twice
        decoded = _ESCAPED.sub(_character, html.unescape(text))
        if decoded == text:
            break
        text = decoded
    return _OTHERS.sub("", normalise_characters(text).casefold())


def _character(escape: re.Match[str]) -> str:
    code = int(escape[1] or escape[2] or escape[3], 16)
    return chr(code) if code < 0x110000 else ""


_IGNORABLE = re.compile(f"[{IGNORABLE}]")
# A run of emphasis marks goes unless it stands inside a word or a number: snake_case, 8*10, 0.*9.
_EMPHASIS = re.compile(r"(?<![*_`])(?:(?<![\w.,])[*_`]++|[*_`]++(?!\w|[.,]\d))")
_MARK_RUN = 30


def normalise_characters(text: str) -> str:
    """Return the text cleaned, in NFKC and without zero-width characters; marks of emphasis stay.

    Two departures from bare NFKC. A digit that is no digit of a number (superscript, circled,
    "digit full stop") is set off by a "^", so that the footnote in 0.9² cannot turn it into 0.92.
    Of more than 30 combining marks in a row only 30 stay, because ordering them takes quadratic
    time; the same bound as in Unicode's Stream-Safe Text Format (UAX 15).
    """
    text = clean_text(text)
    if text.isascii():
        return text
    text = _IGNORABLE.sub("", text)
    foreign = [char for char in set(text) if not char.isascii()]
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
        if not unicodedata.decomposition(char).startswith(("<wide>", "<font>")):
            plain = unicodedata.normalize("NFKC", char)
            if any("0" <= digit <= "9" for digit in plain):
                yield char, plain


def strip_emphasis(text: str) -> str:
    """Return the text without the marks of Markdown emphasis and inline code: * _ and backtick.

    Marks between two characters of a word or a number stay, so `QUALITY_SCORE` keeps its name and
    `8*10` does not become 810. Code fences lose their backticks: look for quotations first.
    """
    return _EMPHASIS.sub("", text)


def normalise_reply(text: str) -> str:
    """Return the reply of a model as a pattern should see it: plain characters, no emphasis.

    Use it before a user's pattern is searched; positions found are positions in this text.
    """
    return strip_emphasis(normalise_characters(text))


def lines_with_quotes(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line and whether it is quoted: in a `>` quotation or a fenced block of code.

    The lines of the fence itself are quoted; a fence that is never closed quotes all that follows.
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


# The key under which a group's output holds those of its agents; see `groups`.
AGENTS = "$agents"
# And what the group gives outside of its workflow, where that is not the map.
LAST = "$last"
RAW_CONFIDENCE = 0.5  # of a reply that states none


def agents_in(outputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return the outputs by agent, with those of a group at the group's place."""
    found: dict[str, Json] = {}
    for name, output in outputs.items():
        if isinstance(output, Mapping) and AGENTS in output:
            found |= agents_in(output[AGENTS])
        else:
            found[name] = output
    return found


def reply_text(output: Json) -> str:
    """Return what an agent's output says as text; of a group, one paragraph per agent."""
    if output is None:
        return ""
    if isinstance(output, Mapping) and AGENTS in output:
        agents = agents_in(output[AGENTS])
        return "\n\n".join(f"{name}: {reply_text(each)}" for name, each in agents.items())
    if isinstance(output, Mapping) and "response" in output:
        return reply_text(output["response"])
    return text_of(output)


def without_thinking(text: str) -> str:
    """Return a reply without the blocks in which a model thinks aloud."""
    return own_words(text)


def objects_in(output: Json) -> Iterator[Mapping[str, Json]]:
    """Iterate over the JSON objects that an output is or contains as text."""
    if isinstance(output, Mapping):
        yield output
        inner = output.get("response")
        if inner is not None and not isinstance(inner, Mapping):
            yield from objects_in(inner)
    elif isinstance(output, str) and "{" in output:
        found = [one.value for one in scan(own_words(output)).values if isinstance(one.value, dict)]
        if found and all(value == found[0] for value in found):  # of two neither is chosen
            yield found[0]


def shown(output: Json) -> TemplateValue:
    """Return an output as templates see it: it prints as its text and has the fields of its data."""
    text = reply_text(output)
    if isinstance(output, Mapping) and AGENTS in output:
        agents = {name: shown(each) for name, each in agents_in(output[AGENTS]).items()}
        return TemplateValue(text, {**agents, "response": text, "result": agents})
    data = dict(next(objects_in(output), {})) if isinstance(output, str | Mapping) else {}
    given = data.get("result")
    if "loops_completed" in data and isinstance(given, Mapping):  # a loop: what each agent gave
        data["result"] = {name: shown(each) for name, each in given.items()}
        return TemplateValue(text, {**data, "response": TemplateValue(text, data)})
    return TemplateValue(
        text, {"confidence": RAW_CONFIDENCE, "result": text, **data, "response": text}
    )
