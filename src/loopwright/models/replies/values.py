"""The value in a reply: exactly one that fits the schema, or what to ask the model for instead.

Rules:

1. A wrong value is worse than another call; another call is worse than not to read what is plain.
2. Objects and arrays in the reply's own words are candidates, in fences or in prose. One distinct
   fitting value is read, of two neither. What was cut off is never read.
3. Total, and linear but for the schema's own checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...records import codec
from ...records.codec import Json
from ..structured_output import checker
from .fit import fitted
from .own_words import words_of
from .scan import Found, scan
from .strict_json import read_json

__all__ = ["Problem", "Reading", "read_value", "several"]

Problem = Literal["", "no JSON", "several", "mismatch", "unfinished", "thinking", "cut"]

CHECKED = 200  # candidates that are compared with the schema
SCHEMA_SHOWN = 2_000
_FENCE = re.compile(r"```\w*|~~~\w*")
_SHORT = (
    "Your reply ended before its JSON value did. Reply with the JSON value only, and keep it short."
)
_FAULTS: Mapping[str, str] = {
    "no JSON": "the reply has no JSON value",
    "several": "the reply has several different JSON values that fit",
    "unfinished": "the reply ended before its JSON value did",
    "thinking": "the reply ended inside its thinking",
    "cut": "the reply was cut off",
}
_ONLY = "Reply with the whole corrected JSON value and nothing else."


@dataclass(frozen=True, slots=True)
class Reading:
    """The value of a reply, or the `problem` with it ("" when read), and the `repairs` made.

    `complaint` is what to tell the model when it is asked again, `fault` what to tell people.
    """

    value: Json = None
    problem: Problem = ""
    repairs: tuple[str, ...] = ()
    complaint: str = ""
    mismatch: str = ""

    @property
    def fault(self) -> str:
        """What is wrong with the reply, in words for people; "" when it was read."""
        return self.mismatch or _FAULTS.get(self.problem, "")


def read_value(
    text: str, schema: Mapping[str, Json], *, finish: str = "stop", strict: bool = False
) -> Reading:
    """Read the one value in a reply that fits a JSON Schema.

    `finish` is why the reply ended: of one that was cut off (`length`) nothing is read. `strict`
    reads the whole reply as one JSON value, in a code fence at most, and changes nothing in it.

    Raises:
        ConfigurationError: for a schema whose references lead nowhere.

    >>> read_value('Sure! {"answer": "4"}', {"type": "object", "properties":
    ...     {"answer": {"type": "integer"}}, "required": ["answer"]}).value
    {'answer': 4}
    """
    if finish == "length":
        return Reading(problem="cut", complaint=_SHORT)
    check = checker(schema)
    if strict:
        strictly = read_json(text)
        wrong = strictly.detail or check(strictly.value)
        return _mismatch(wrong) if wrong else Reading(strictly.value)
    words = words_of(text)
    if words.unclosed:
        return Reading(problem="thinking", complaint=_SHORT)
    own = words.text
    found = scan(own)
    candidates = found.found or _alone(own)
    fitting: dict[str, tuple[Json, list[str]]] = {}
    first, last = "", 0
    for candidate in candidates[:CHECKED]:
        if candidate.value == schema:
            continue  # the schema, repeated
        value, problem, notes = fitted(candidate.value, schema, check)
        if problem:
            first = first or problem
        else:
            last = candidate.start
            notes = notes if candidate.strict else ["not strict JSON", *notes]
            fitting.setdefault(codec.canonical(value), (value, notes))
    if found.unfinished is not None:
        return Reading(problem="unfinished", complaint=_SHORT)
    if len(fitting) > 1 or (fitting and (found.exhausted or len(candidates) > CHECKED)):
        return several(len(fitting))
    if fitting and (found.broken is None or found.broken < last):
        value, notes = next(iter(fitting.values()))
        around = ["text around the value"] if _around(own, candidates) else []
        return Reading(value, "", tuple(dict.fromkeys((*words.repairs, *around, *notes))))
    if found.broken is not None and (fitting or not first):
        return _mismatch("the JSON value is broken, or has a key twice")
    return _mismatch(first) if first else _nothing(schema)


def _alone(own: str) -> list[Found]:
    """Return a text, number, boolean or null that is the whole of a reply."""
    reading = read_json(own)
    return [] if reading.problem else [Found(reading.value, 0, len(own))]


def _around(own: str, candidates: list[Found]) -> bool:
    rest = own[: candidates[0].start] + own[candidates[-1].end :]
    return bool(_FENCE.sub("", rest).strip())


def _nothing(schema: Mapping[str, Json]) -> Reading:
    shown: Any = codec.encode(schema)
    if len(shown) > SCHEMA_SHOWN:
        shown = "the schema above"
    return Reading(
        problem="no JSON",
        complaint="Your reply has no JSON value. Reply with one JSON value for this schema and "
        f"nothing else: {shown}",
    )


def several(number: int) -> Reading:
    """Return the reading of a reply that gives so many values."""
    return Reading(
        problem="several",
        complaint=f"Your reply has {max(2, number)} different JSON values that fit. Reply with the one "
        "you mean and nothing else.",
    )


def _mismatch(problem: str) -> Reading:
    said = problem.rstrip(".")
    return Reading(problem="mismatch", complaint=f"{said}. {_ONLY}", mismatch=said)
