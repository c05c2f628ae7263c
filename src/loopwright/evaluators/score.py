"""A score that somebody else worked out: a number in a text, an object, or a step's reply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from .. import codec
from ..codec import Json
from ..composites import sequence
from ..errors import ConfigurationError
from ..records import Evaluation
from ..step import FunctionStep, digest_of
from ..threads import in_thread
from ..tools.process import tail
from .scores_text import ScoreReading, read_score, read_score_by_pattern
from .text import normalise_reply, read_json

__all__ = ["finder", "score"]

REPLY = 32_000  # characters of a reply that go on as feedback


def score(
    label: str | None = "score",
    scale: tuple[float, float] = (0.0, 1.0),
    *,
    of: Any = None,
    pattern: str = "",
    name: str = "score",
) -> Any:
    """Make an evaluator that reads a number out of the output, or out of what the step `of` says
    of it.

    In a text the number stands behind `label`, alone to the end of its line: 0.85, 8/10 or 93%;
    without a label (None) it is the whole text. With `pattern` it is the first group, or the whole
    match, compared without case. In an object it is the member `label`; a number is itself. `scale`
    is that of a bare number. With `of`, its reply is the feedback. What cannot be read is undecided
    and never 0. The last match holds; that others differ is noted as ambiguous in a vote.

    Raises:
        ConfigurationError: for an empty label, a scale that is not two numbers in order, or a
            pattern that is no regular expression.

    >>> from loopwright import run_sync
    >>> run_sync(score(scale=(0, 10)), "Nearly there. Score: 7").output.score
    0.7
    >>> run_sync(score(), "Score: 0,85").output.undecided
    True
    """
    if label is not None and not isinstance(label, str):
        raise ConfigurationError(f"score: label: {label!r} is no text; give one, or None")
    if not isinstance(scale, list | tuple) or len(scale) != 2:
        raise ConfigurationError(f"score: scale: {scale!r} is not two numbers, such as (0, 10)")
    read_score("", label=label, scale=scale)  # refuses what could not be read by
    find = finder(pattern) if pattern else None

    def judged(value: Json) -> Evaluation:
        if find is not None:
            text = normalise_reply(codec.text_of(value))
            reading = read_score_by_pattern(text, find(text), scale)
        else:
            reading = _reading(value, label, scale)
        return _evaluation(reading, tail(codec.text_of(value), REPLY) if of is not None else "")

    async def read(value: Json) -> Evaluation:
        return judged(value) if find is None else await in_thread(judged, value)

    meaning = digest_of("score", repr((label, tuple(scale))), pattern)
    reader = FunctionStep(read, name=name if of is None else "read", fingerprint=meaning)
    return reader if of is None else sequence(of, reader, name=name)


def _evaluation(reading: ScoreReading, said: str) -> Evaluation:
    note: dict[str, Json] = {"found": list(reading.found)}
    if reading.score is None:
        note["problem"] = reading.problem
        return Evaluation(undecided=True, feedback=reading.detail, votes=(note,))
    note["ambiguous"] = True
    return Evaluation(reading.score, feedback=said, votes=(note,) if reading.ambiguous else ())


def _reading(value: Json, label: str | None, scale: tuple[float, float]) -> ScoreReading:
    if isinstance(value, str):
        found = read_json(value).value if value.lstrip().startswith(("{", "```")) else None
        if not isinstance(found, Mapping) or label not in found:
            return read_score(value, label=label, scale=scale)
        value = found
    if isinstance(value, Mapping):
        if label not in value:
            return ScoreReading(None, problem="missing", detail=f"the output has no {label!r}")
        value = value[label]
    if isinstance(value, str):
        return read_score(value, label=None, scale=scale)
    return _number(value, scale)


def _number(value: Json, scale: tuple[float, float]) -> ScoreReading:
    shown = codec.text_of(value)[:80]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ScoreReading(
            None, problem="unreadable", detail=f"{shown} is not a number", found=(shown,)
        )
    low, high = (Fraction(str(end)) for end in scale)
    share = (Fraction(str(value)) - low) / (high - low)
    if not 0 <= share <= 1:
        detail = f"{shown} lies off the scale of {low} to {high}, and a score is never clamped"
        return ScoreReading(None, problem="out_of_range", detail=detail, found=(shown,))
    return ScoreReading(float(share), found=(shown,))


def finder(pattern: str) -> Any:
    """Return a search that gives start, end and text of a pattern's first group at every match."""
    from ..patterns import compile_pattern

    compile_pattern(pattern)  # as it was written, so that an error shows the place
    group = _first_group(pattern)
    # \K makes the match begin where the group does, which tells where in the text it stands.
    marked = pattern if group is None else f"{pattern[:group]}\\K{pattern[group:]}"
    compiled = compile_pattern(marked, ignore_case=True)

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        for match in compiled.finditer(text):
            token = match.text if group is None else match.groups[0]
            if token is not None:
                yield match.start, match.start + len(token), token

    return find


def _first_group(pattern: str) -> int | None:
    """Return where the first capturing group of a pattern opens."""
    at, in_set = 0, False
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif in_set:
            in_set = sign != "]"
        elif sign == "[":
            in_set = True
            at += pattern.startswith(("^]", "]"), at + 1) + pattern.startswith("^]", at + 1)
        elif sign == "(" and _captures(pattern[at + 1 : at + 4]):
            return at
        at += 1
    return None


def _captures(opening: str) -> bool:
    if not opening.startswith("?"):
        return True
    return opening.startswith("?P<") or (opening[1:2] == "<" and opening[2:3] not in ("=", "!"))
