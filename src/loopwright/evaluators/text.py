"""Text of a model made ready to be read: cleaned, normalised, quotations marked, JSON parsed.

Rules of this module and of its two readers, `scores_text` and `verdicts`:

1. Total: any `str` gives an outcome, no text raises. Only a wrong configuration does.
2. Linear: every scan passes over the text a fixed number of times, whatever the text says.
3. Nothing is repaired, clamped or guessed. What a reader cannot read it names as a problem.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "JSON_BYTES",
    "JSON_DEPTH",
    "JsonProblem",
    "JsonReading",
    "clean_text",
    "lines_with_quotes",
    "normalise_characters",
    "normalise_reply",
    "read_json",
    "strip_emphasis",
    "strip_fence",
]

JSON_BYTES = 5_000_000
JSON_DEPTH = 64

JsonProblem = Literal["empty", "too_large", "too_deep", "duplicate_key", "not_finite", "malformed"]

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile("[\ud800-\udfff]")
# The characters that Unicode calls Default_Ignorable_Code_Point: they take no room on the page.
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# A run of emphasis marks goes unless it stands inside a word or a number: snake_case, 8*10, 0.*9.
_EMPHASIS = re.compile(r"(?<![*_`])(?:(?<![\w.,])[*_`]++|[*_`]++(?!\w|[.,]\d))")
_MARK_RUN = 30
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_STRUCTURE = re.compile(r'\\.|["\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class JsonReading:
    """The value of a JSON reply, or the `problem` that kept it from being read, and a sentence."""

    value: Any = None
    problem: JsonProblem | None = None
    detail: str = ""


def clean_text(text: str) -> str:
    """Return the text with lone surrogates as U+FFFD and without NUL, for the point of ingestion.

    Two surrogates that make a pair become the character they mean. What comes out can always be
    encoded as UTF-8 and bound by a database.
    """
    text = text.replace("\0", "")
    if _LONE.search(text) is None:
        return text
    text = _PAIR.sub(lambda pair: _join_pair(pair[0]), text)
    return _LONE.sub("\ufffd", text)


def _join_pair(pair: str) -> str:
    return pair.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


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
            if _closes(line, fence):
                fence = ""
            continue
        fence = _opening(line)
        yield line, bool(fence) or line.lstrip().startswith(">")


def _opening(line: str) -> str:
    found = _FENCE.match(line)
    if found is None or (found[1][0] == "`" and "`" in line[found.end() :]):
        return ""
    return found[1]


def _closes(line: str, fence: str) -> bool:
    run = line.strip()
    return len(run) >= len(fence) and not run.strip(fence[0])


def strip_fence(text: str) -> str:
    """Return what stands inside the code fence if the whole text is one fenced block, else all."""
    text = text.strip().removeprefix("\ufeff").strip()
    first, last = text.find("\n"), text.rfind("\n")
    fence = _opening(text[:first]) if first >= 0 else ""
    if not fence or not _closes(text[last + 1 :], fence):
        return text
    body = text[first + 1 : last] if first < last else ""
    return text if any(_closes(line, fence) for line in body.split("\n")) else body


class _JsonError(ValueError):
    def __init__(self, problem: JsonProblem, detail: str) -> None:
        super().__init__(detail)
        self.problem: JsonProblem = problem


def read_json(text: str) -> JsonReading:
    """Read one JSON value, alone or in one code fence, by the letter of RFC 8259.

    Refused, each with its own problem: text before or after, NaN and infinities (1e400 too), a
    repeated key, more than 64 levels, more than 5,000,000 bytes of UTF-8. Strings and keys of the
    value are cleaned as by `clean_text`.
    """
    source = strip_fence(clean_text(text))
    try:
        _check_size(source)
        value = json.loads(
            source,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except _JsonError as refusal:
        return JsonReading(problem=refusal.problem, detail=str(refusal))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        return JsonReading(
            problem="malformed",
            detail=f"the reply is not JSON at {place}; expected one JSON value and nothing else",
        )
    except ValueError:
        return JsonReading(
            problem="malformed",
            detail="the reply holds a number too long to read; expected one plain JSON value",
        )
    return JsonReading(value=_clean(value) if "\\u" in source else value)


def _check_size(source: str) -> None:
    if not source.strip():
        raise _JsonError("empty", "the reply is empty; expected one JSON value")
    if len(source) > JSON_BYTES or len(source.encode()) > JSON_BYTES:
        limit = f"{JSON_BYTES:,} bytes"
        raise _JsonError("too_large", f"the reply is too large; expected at most {limit} of JSON")
    depth, quoted = 0, False
    for token in _STRUCTURE.finditer(source):
        mark = token[0]
        if mark == '"':
            quoted = not quoted
        elif not quoted and mark in "[{":
            depth += 1
        elif not quoted and mark in "]}":
            depth -= 1
        if depth > JSON_DEPTH:
            limit = f"{JSON_DEPTH} levels"
            raise _JsonError("too_deep", f"the reply nests too deep; expected at most {limit}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Cleaned before compared: two keys must not become one after the check.
    members = {clean_text(key): value for key, value in pairs}
    if len(members) < len(pairs):
        raise _JsonError(
            "duplicate_key", "the reply repeats a key of an object; expected each key once"
        )
    return members


def _refuse_constant(name: str) -> float:
    raise _JsonError("not_finite", f"the reply holds {name}; expected finite numbers only")


def _finite(literal: str) -> float:
    number = float(literal)
    return number if math.isfinite(number) else _refuse_constant("a number beyond any float")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean(member) for member in value]
    if isinstance(value, dict):
        return {key: _clean(member) for key, member in value.items()}
    return value
