"""How the value for a schema is read in the text of a reply.

Rules:

1. A wrong value is worse than another call, and another call is worse than a reader that is too strict.
2. The objects and arrays in the reply's own words are candidates, in fences or in prose. A single
   distinct value that fits is read; of two different values neither is. A truncated reply has no value.
3. Any text gives a result. The time is linear except for the checks of the schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from ...records import codec
from ...records.codec import Json
from ...records.json_schema import checker
from .fit import fitted
from .scan import FoundValue, Scan, scan
from .strict_json import read_json
from .text import Words, words_of

__all__ = ["Problem", "Reading", "read_loosely", "read_value", "several"]

Problem = Literal["", "no JSON", "several", "mismatch", "unfinished", "thinking", "cut"]

MAX_CANDIDATES = 200  # compared with the schema; a check may take milliseconds
SCHEMA_SHOWN = 2_000  # a longer one is in the conversation already, and would be paid for again
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
    """The value of a reply, or the problem with it.

    Args:
        value: the JSON value; None if there is a problem.
        problem: "" if the value was read, else a word for the problem.
        repairs: sentences that describe the changes to the value.
        complaint: the message to the model when it is asked again.
        mismatch: the first violation of the schema.

    Example:

    >>> read_value("none", {"type": "object"}).failure
    'the reply has no JSON value'
    """

    value: Json = None
    problem: Problem = ""
    repairs: tuple[str, ...] = ()
    complaint: str = ""
    mismatch: str = ""

    @property
    def failure(self) -> str:
        """The problem as a sentence for people; "" if the value was read."""
        return self.mismatch or _FAULTS.get(self.problem, "")

    @property
    def fault(self) -> str:
        """The former name of `failure`, valid for one more release."""
        return self.failure


def read_value(
    text: str, schema: Mapping[str, Json], *, finish: str = "stop", strict: bool = False
) -> Reading:
    """Read the only value in a reply that fits a JSON Schema.

    Args:
        text: the complete reply.
        schema: a JSON Schema; draft 2020-12 unless it has a `$schema`.
        finish: why the reply ended; a truncated one ("length") has no value. Default "stop".
        strict: read the reply as one JSON value, at most in a code fence, without any repair.
            Default False.

    Returns:
        A `Reading`: the value and the repairs, or the problem.

    Raises:
        ConfigurationError: for a schema with a reference that cannot be resolved.

    Example:

    >>> read_value('Sure! {"answer": "4"}', {"type": "object", "properties":
    ...     {"answer": {"type": "integer"}}, "required": ["answer"]}).value
    {'answer': 4}
    """
    if finish == "length":
        return Reading(problem="cut", complaint=_SHORT)
    check = checker(schema)
    if strict:
        reading = read_json(text)
        mismatch = reading.detail or check(reading.value)
        return _mismatch(mismatch) if mismatch else Reading(reading.value)
    words = words_of(text, value=True)
    if words.unclosed:
        return Reading(problem="thinking", complaint=_SHORT)
    scanned = scan(words.text)
    # A complete value before an unfinished one may be a draft of it.
    if scanned.unfinished is not None:
        return Reading(problem="unfinished", complaint=_SHORT)
    candidates = _Candidates(scanned.values or _alone(words.text), schema, check)
    return _chosen(candidates, scanned, words, schema)


def read_loosely(text: str, field: str, failure: str) -> Reading:
    """Return what a reply without a value that fits does hold: its only object, and its text as a field."""
    own = words_of(text, value=True).text
    objects = [one.value for one in scan(own).values if isinstance(one.value, dict)]
    found = objects[0] if objects and all(one == objects[0] for one in objects) else {}
    note = f"{failure}; " + ("the object in it was kept" if found else f"its text is {field!r}")
    return Reading({field: own, **found}, repairs=(note,))


class _Candidates:
    """The values of a reply, compared with the schema.

    `fitting` holds each different value that fits and its repairs, by canonical text. `problem` is the
    first violation, `last` the position of the last value that fits.
    """

    def __init__(
        self, values: list[FoundValue], schema: Mapping[str, Json], check: Callable[[Json], str]
    ) -> None:
        self.values = values
        self.fitting: dict[str, tuple[Json, list[str]]] = {}
        self.problem = ""
        self.last = 0
        for candidate in values[:MAX_CANDIDATES]:
            # It is an object too and fits many schemas.
            if candidate.value == schema:
                continue
            value, problem, notes = fitted(candidate.value, schema, check)
            if problem:
                self.problem = self.problem or problem
                continue
            self.last = candidate.start
            notes = notes if candidate.strict else ["not strict JSON", *notes]
            self.fitting.setdefault(codec.canonical(value), (value, notes))


def _chosen(
    candidates: _Candidates, scanned: Scan, words: Words, schema: Mapping[str, Json]
) -> Reading:
    fitting, values = candidates.fitting, candidates.values
    incomplete = scanned.exhausted or len(values) > MAX_CANDIDATES
    # An unread rest could hold another value that fits.
    if len(fitting) > 1 or (fitting and incomplete):
        return several(len(fitting))
    # A broken value after the last readable one may be its correction.
    if fitting and (scanned.broken is None or scanned.broken < candidates.last):
        value, notes = next(iter(fitting.values()))
        around = ["text around the value"] if _has_text_around(words.text, values) else []
        return Reading(value, "", tuple(dict.fromkeys((*words.repairs, *around, *notes))))
    if scanned.broken is not None and (fitting or not candidates.problem):
        return _mismatch("the JSON value is broken, or has a key twice")
    return _mismatch(candidates.problem) if candidates.problem else _no_json(schema)


def _alone(own: str) -> list[FoundValue]:
    """Return a text, number, boolean or null that is the complete reply."""
    reading = read_json(own)
    return [] if reading.problem else [FoundValue(reading.value, 0, len(own))]


def _has_text_around(own: str, candidates: list[FoundValue]) -> bool:
    rest = own[: candidates[0].start] + own[candidates[-1].end :]
    return bool(_FENCE.sub("", rest).strip())


def _no_json(schema: Mapping[str, Json]) -> Reading:
    shown = codec.encode(schema)
    if len(shown) > SCHEMA_SHOWN:
        shown = "the schema above"
    return Reading(
        problem="no JSON",
        complaint="Your reply has no JSON value. Reply with one JSON value for this schema and "
        f"nothing else: {shown}",
    )


def several(number: int) -> Reading:
    """Return the reading of a reply with this number of different values."""
    return Reading(
        problem="several",
        complaint=f"Your reply has {max(2, number)} different JSON values that fit. Reply with the one "
        "you mean and nothing else.",
    )


def _mismatch(problem: str) -> Reading:
    sentence = problem.rstrip(".")
    return Reading(problem="mismatch", complaint=f"{sentence}. {_ONLY}", mismatch=sentence)
