"""A score as a number in a text, in an object, or in the reply of a step, and the one grammar of scores.

A score in a text follows a label, or is the match of a pattern. The grammar, in ASCII digits after NFKC, with an
optional trailing full stop::

    number        0.85  1  .9  0,85  8 points      on the declared scale, 0..1 by default
    number/den    8/10  8 of 10  93 out of 100     has its own scale
    number%       93%  93 percent                  has its own scale

The number may be in brackets or quotes: [[8]], <0.9>. Any other form is a problem: 1,234 and 1e-1 and NaN
and +0.9 are `unreadable`, a number outside its scale is `out_of_range`. -0 is 0.

1. The last match decides. If an earlier match has a different number, the reading is `ambiguous`, but
   valid. If the last match cannot be read, earlier matches are not used instead.
2. After a label (`read_score`) prose without another digit may follow on the line, so
   `SCORE: 0.95 (100% of tests pass)` and `SCORE: 0.8-0.9` are unreadable. Thinking is not read, nor are
   quotations and code fences, unless the complete reply is one fence.
3. At the match of a pattern (`read_score_by_pattern`) any prose may follow, because the user's pattern
   defines the place of the number. Only characters that change the value of the number are examined.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, cast

from .._regex import compile_pattern
from ..engine.composites import attempt
from ..engine.context import Context
from ..engine.functions import in_thread
from ..engine.step import (
    CompositeStep,
    FunctionStep,
    Step,
    StepLike,
    as_step,
    digest_of,
    fingerprinted,
)
from ..errors import ConfigurationError
from ..models.reply_text import (
    lines_with_quotes,
    normalise_characters,
    normalise_reply,
    own_words,
    strip_emphasis,
    strip_fence,
)
from ..prompts.prompt import Prompt
from ..records import Evaluation, Reason, Result, Status, codec
from ..records.codec import Json
from ..tools.process import tail
from .answers import objects_of, plain, squeezed

__all__ = [
    "ScoreOf",
    "ScoreProblem",
    "ScoreReading",
    "finder",
    "is_repeated",
    "read_number",
    "read_score",
    "read_score_by_pattern",
    "score",
]

ScoreProblem = Literal["missing", "unreadable", "out_of_range", "quoted"]
_Scale = tuple[Fraction, Fraction]

# 32 digits are more than any float has; the bound also keeps every scan short. A comma is a decimal
# separator only where it cannot separate thousands.
_NUMBER = (
    r"(?:0,[0-9]{1,32}|[0-9]{1,2},[0-9]{1,2}(?![0-9])"
    r"|[0-9]{1,32}(?:\.[0-9]{1,32})?|\.[0-9]{1,32})"
)
_UNIT = (
    rf"[ \t]{{0,8}}(?:(?:/|(?:out[ \t]{{1,8}})?of\b)[ \t]{{0,8}}(?P<den>{_NUMBER})"
    r"|(?P<percent>%|per[ \t]?cent\b|pct\b)|(?P<points>points?\b|pts?\b))"
)
_VALUE = re.compile(rf"(?P<sign>-?)(?P<number>{_NUMBER})(?:{_UNIT})?\.?", re.IGNORECASE)
_BRACKETS = {"[[": "]]", "[": "]", "<": ">", "(": ")", '"': '"', "'": "'", "\u201c": "\u201d"}
_PROSE = tuple(" \t,;:!(-\u2013\u2014")  # separators between a number and prose
_UNIT_AFTER = re.compile(_UNIT, re.IGNORECASE)
# "1 out of ten", "1 von 10" and "1 star" are not 1.
_SPELT_UNIT = re.compile(
    r"[ \t]{0,8}\(?(?:out[ \t]{1,8}of\b|of[ \t]{1,8}(?:a[ \t]{1,8})?(?:one|five|ten|hundred)\b"
    r"|(?:of|von|sur|de|di|su|van|av|из)[ \t]{1,8}\d"
    r"|per[ \t]?cent\b|pct\b|points?\b|pts?\b|stars?\b|max(?:imum)?\b|on[ \t]a[ \t]scale\b"
    r"|[分点점割成])",
    re.IGNORECASE,
)
# Letters of scripts that separate words by spaces: Latin, Greek, Cyrillic, Armenian.
_LETTER = "0-9A-Za-z_\u00b5-\u058f\u1e00-\u1fff"
_WORD_START = rf"(?<![{_LETTER}])(?<![{_LETTER}][-./'\u2019])"
_NUMERIC = re.compile(r".{0,12}?\d|\W{0,4}(?:nan|inf|infinity)\b", re.IGNORECASE)
# A label followed by one of these has no score, which must not be hidden by an earlier score.
_NOTHING = re.compile(r"(?:n/?a|none|null|unknown|undefined|undecided)\b", re.IGNORECASE)
_FIGURES = re.compile(r"\W{0,8}[\d.,]+(?:[ \t]{0,8}(?:/|(?:out[ \t]{1,8})?of)[ \t]{0,8}[\d.,]+)?")
_ALPHANUMERIC = re.compile(r"[^\W_]")
_TRAILING = ".,;:!)]}\"'"
# Categories that continue a word or number. Letters without case ("Lo") do not: Japanese has no spaces.
_JOINING = {"Lu", "Ll", "Lt", "Lm", "Mn", "Mc", "Me", "Nd", "Nl", "No"}
_WINDOW = 200  # longer than the longest number with its unit
_KEPT, _KEPT_LENGTH = 20, 80

# These sentences are part of the second request to a model, whose fingerprint is recorded.
_SENTENCES: dict[ScoreProblem, str] = {
    "missing": "no score was found in the reply",
    "unreadable": "what stands where the score belongs is not one number, number/den or number%",
    "out_of_range": "the score lies off its scale, and a score is never clamped",
    "quoted": "a score stands only inside a quotation or a block of code",
}


@dataclass(frozen=True, slots=True)
class ScoreReading:
    """The score in a reply, from 0 to 1, or the `problem` that prevents reading it.

    `ambiguous` means that earlier matches have other numbers than the last one, which counts. `found` is
    the raw text of the last 20 matches in order, each cut to 80 characters. `detail` describes the problem
    in a sentence.
    """

    score: float | None
    ambiguous: bool = False
    problem: ScoreProblem | None = None
    detail: str = ""
    found: tuple[str, ...] = ()


def read_score(
    text: str,
    *,
    label: str | None = "score",
    scale: tuple[float, float] = (0.0, 1.0),
    candidate: str = "",
) -> ScoreReading:
    """Read the score that follows a label, with `:` or `=`; only prose without figures may follow it.

    The label is compared without case after NFKC, as a complete word or phrase. The number may also be
    on the next line that is not blank. A label at the start of a line always matches. Inside a line it
    matches if a digit, or a word for no number, is near: "the score: it is about style" does not match.

    Args:
        text: The reply of a model.
        label: The word before the number. None: the reply must be the number. Default: "score".
        scale: The lowest and the highest score. The result is between 0 and 1. Default: (0, 1).
        candidate: The rated text. Its scores are not read if the reply quotes them. Default: "".

    Returns:
        The score, or the reason why there is none.

    Raises:
        ConfigurationError: If the scale is not two finite numbers in order, or the label is empty.

    Example:
        >>> read_score("Clear and short. Score: 8 of 10").score
        0.8
    """
    exact = _exact_scale(scale)
    # Thinking goes first: a fence or a label inside it is not part of the answer.
    text = strip_fence(normalise_characters(own_words(text, value=True)))
    if label is None:
        alone = strip_emphasis(text).strip()
        return _conclude([alone] if alone else [], exact, prose=False)
    # A model often repeats the rated text, which may contain a planted "SCORE: 100".
    candidate_text = squeezed(candidate)
    words = strip_emphasis(normalise_characters(label)).strip().rstrip(":=").split()
    if not words:
        raise ConfigurationError(
            f"the label of a score is {label!r}, expected a word such as 'score'; "
            f"give label=None if the reply is the number alone"
        )
    phrase = r"[ \t]+".join(re.escape(word) for word in words)
    pattern = re.compile(rf"{_WORD_START}{phrase}[ \t]*[:=][ \t]*", re.IGNORECASE)
    matches = []
    for value, quoted in _labelled(text, pattern):
        figures = _FIGURES.match(value)
        said = f"{label} {figures[0] if figures else value}"
        if not (candidate_text and is_repeated(said, candidate_text)):
            matches.append((value, quoted))
    own = [value for value, quoted in matches if not quoted]
    if matches and not own:
        return _refused("quoted", [value for value, _ in matches])
    return _conclude(own, exact)


def is_repeated(text: str, candidate: str) -> bool:
    """Whether a text, squeezed, occurs in a squeezed candidate, with the same figures at its end."""
    own = squeezed(text)
    # "score: 8" does not repeat "score: 85", so no digit may follow.
    return bool(own) and re.search(re.escape(own) + r"(?!\d)", candidate) is not None


def _labelled(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
    """Yield the text after each label, and whether the label or the text is quoted."""
    # The last line ended with a label: whether the label opened that line, and whether it was quoted.
    waiting: tuple[bool, bool] | None = None
    for raw, quoted in lines_with_quotes(text):
        line = strip_emphasis(raw).strip()
        if waiting and line:
            # The number of a quoted label must be quoted too, and another label ends the search.
            fits = quoted is waiting[1] and not pattern.search(line)
            value = line[:_WINDOW] if fits else ""
            if waiting[0] or _is_answer(value):
                yield value, waiting[1]
            waiting = None
        first = _ALPHANUMERIC.search(line)
        for match in pattern.finditer(line):
            # Markers such as "- " or "1. " may precede a label that opens its line.
            opens = first is not None and first.start() == match.start()
            value = line[match.end() : match.end() + _WINDOW]
            if not value:
                waiting = opens, quoted
            elif opens or _is_answer(value):
                yield value, quoted
    # The reply ends after a label. An earlier score must not replace the one that was cut off.
    if waiting:
        yield "", waiting[1]


def _is_answer(value: str) -> bool:
    return bool(_NUMERIC.match(value) or _NOTHING.match(value))


def _conclude(values: list[str], scale: _Scale, *, prose: bool = True) -> ScoreReading:
    if not values:
        return _refused("missing", [])
    # Each distinct text is read once: a reply may repeat one label thousands of times.
    read = {value: _read_value(value, scale, prose) for value in set(values)}
    last = read[values[-1]]
    # "SCORE: see below" before the score does not make it ambiguous.
    others = {reading for value, reading in read.items() if _NUMERIC.match(value)} - {last}
    return _score_reading(last, ambiguous=bool(others), found=values)


def _read_value(value: str, scale: _Scale, prose: bool) -> float | ScoreProblem:
    opening = next((sign for sign in _BRACKETS if value.startswith(sign)), "")
    if opening:
        inner, closing, rest = value[len(opening) :].partition(_BRACKETS[opening])
        match = _VALUE.fullmatch(inner.strip()) if closing else None
    else:
        match = _VALUE.match(value)
        rest = value[match.end() :] if match else ""
        # "SCORE: 1. The text is ..." begins a list.
        if rest and match and match[0].rstrip(".").isdecimal() and match[0].endswith("."):
            return "unreadable"  # the first item of a list
    # Only prose without further figures may follow.
    ends = not rest or (prose and rest.startswith(_PROSE) and not any(map(str.isnumeric, rest)))
    if match is None or not ends:
        return "unreadable"
    # "1 out of ten" is not 1.
    if match["points"] is None and match["den"] is None and _SPELT_UNIT.match(rest):
        return "unreadable"
    number = _exact(match["number"])
    return _place(-number if match["sign"] else number, match, scale)


def _exact(number: str) -> Fraction:
    return Fraction(number.replace(",", "."))


def _place(number: Fraction, unit: re.Match[str] | None, scale: _Scale) -> float | ScoreProblem:
    """Return the position of a number on its scale. Fractions keep 93.7% exactly 0.937."""
    low, high = scale
    if unit and unit["percent"]:
        share = number / 100
    elif unit and unit["den"]:
        if not _exact(unit["den"]):
            return "unreadable"
        share = number / _exact(unit["den"])
    else:
        share = (number - low) / (high - low)
    # Never clamped: 850 on a scale of 100 is a mistake of the model, not a perfect score.
    return float(share) if 0 <= share <= 1 else "out_of_range"


def read_number(
    token: str, following: str, scale: tuple[float, float] = (0.0, 1.0), *, preceding: str = ""
) -> ScoreReading:
    """Read the number that a pattern captured, with the unit that follows it in the text.

    The token may have trailing punctuation ("0.9.") or its own unit ("8/10"). `following` is the text right
    after the token; its `/den` or `%` counts. The token is unreadable if it is only a part of a number: 0
    of "0,85", 1 of "1e-1", 0.8 of "0.8-0.9", 1 of "1 out of 10". A minus right before the token, in
    `preceding`, makes it negative.

    Raises:
        ConfigurationError: If the scale is not two finite numbers in order.
    """
    exact = _exact_scale(scale)
    value, _ = _read_match(token, following[:_WINDOW], preceding[-2:], exact)
    return _score_reading(value, ambiguous=False, found=[token])


def read_score_by_pattern(
    text: str,
    search: Iterable[tuple[int, int, str]],
    scale: tuple[float, float] = (0.0, 1.0),
    *,
    first: bool = False,
    candidate: str = "",
) -> ScoreReading:
    """Read the score at the last match of the caller's search, or at the first one.

    `search` yields, in order, the start and end of each captured number in `text` and the captured text.
    `text` is the searched text, usually from `normalise_reply`. These captures do not count: one without a
    letter or digit ("..." of a format hint), one inside the unit of the previous capture (10 of 8/10), and
    one whose line, up to its end, occurs in `candidate`. Errors of `search` are not caught.

    Raises:
        ConfigurationError: If the scale is not two finite numbers in order.
    """
    exact = _exact_scale(scale)
    candidate_text = squeezed(candidate)
    tokens: list[str] = []
    values: list[float | ScoreProblem] = []
    passed = 0
    for start, end, token in search:
        if start < passed or not _ALPHANUMERIC.search(token):
            continue
        if candidate_text and is_repeated(
            text[text.rfind("\n", 0, start) + 1 : end], candidate_text
        ):
            continue
        following, preceding = text[end : end + _WINDOW], text[max(0, start - 2) : start]
        value, used = _read_match(token, following, preceding, exact)
        passed = end + used
        tokens.append(token)
        values.append(value)
    if not values:
        return _refused("missing", [])
    return _score_reading(values[0 if first else -1], ambiguous=len(set(values)) > 1, found=tokens)


def _read_match(
    token: str, following: str, preceding: str, scale: _Scale
) -> tuple[float | ScoreProblem, int]:
    """Return the reading of a captured token and the number of characters used from `following`."""
    token = token.strip(" \t\r\n*_`")
    bare = token.rstrip(_TRAILING)
    match = _VALUE.fullmatch(bare)
    before, near = preceding[:-1], preceding[-1:]
    # A token may continue a number that began before it.
    if match is None or near.isdigit() or (near in tuple(".,/-\u2013") and before.isdigit()):
        return "unreadable", 0
    # A token with its own unit ends there: "8/10" followed by "/5" is not a second fraction.
    unit = None if match["den"] or match["percent"] else _UNIT_AFTER.match(following)
    used = unit.end() if unit else 0
    rest = following[used:] if used else token[len(bare) :] + following
    if _is_continued(rest) or (not unit and _SPELT_UNIT.match(following)):
        return "unreadable", used
    minus = match["sign"] or (preceding.endswith("-") and not preceding[:-1].isalnum())
    number = _exact(match["number"])
    return _place(-number if minus else number, unit or match, scale), used


def _is_continued(following: str) -> bool:
    """Whether a number or word continues right after a token."""
    near, after = following[:1], following[1:2]
    if near in tuple("_^/") or (near in tuple(".,:-\u2013") and after.isdigit()):
        return True
    return near != "" and unicodedata.category(near) in _JOINING


def _score_reading(
    value: float | ScoreProblem, *, ambiguous: bool, found: list[str]
) -> ScoreReading:
    if isinstance(value, str):
        return _refused(value, found)
    return ScoreReading(score=value, ambiguous=ambiguous, found=_kept(found))


def _refused(problem: ScoreProblem, found: list[str]) -> ScoreReading:
    return ScoreReading(score=None, problem=problem, detail=_SENTENCES[problem], found=_kept(found))


def _kept(found: list[str]) -> tuple[str, ...]:
    return tuple(raw[:_KEPT_LENGTH] for raw in found[-_KEPT:])


def _exact_scale(scale: tuple[float, float]) -> _Scale:
    low, high = scale
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigurationError(
            f"the scale of a score is {scale!r}, expected two finite numbers, the lower first; "
            f"write (0, 10) for a score from 0 to 10"
        )
    return Fraction(str(low)), Fraction(str(high))


def finder(pattern: str) -> Callable[[str], Iterator[tuple[int, int, str]]]:
    """Return a search that yields start, end and text of a pattern's first group at every match."""
    compile_pattern(pattern)  # unchanged, so that an error shows the position in the user's text
    group = _first_group(pattern)
    # \K makes the match begin with the group, which gives the position of the group in the text.
    marked = pattern if group is None else f"{pattern[:group]}\\K{pattern[group:]}"
    compiled = compile_pattern(marked, ignore_case=True)

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        for match in compiled.finditer(text):
            token = match.text if group is None else match.groups[0]
            if token is not None:
                yield match.start, match.start + len(token), token

    return find


def _first_group(pattern: str) -> int | None:
    """Return the position of the first capturing group in a pattern."""
    at, in_set = 0, False
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif in_set:
            in_set = sign != "]"
        elif sign == "[":
            in_set = True
            # A bracket directly after "[" or "[^" is a literal.
            at += pattern.startswith(("^]", "]"), at + 1) + pattern.startswith("^]", at + 1)
        elif sign == "(" and _captures(pattern[at + 1 : at + 4]):
            return at
        at += 1
    return None


def _captures(opening: str) -> bool:
    if not opening.startswith("?"):
        return True
    return opening.startswith("?P<") or (opening[1:2] == "<" and opening[2:3] not in ("=", "!"))


REPLY = 32_000  # characters of a reply in the feedback
_Read = Callable[[Json, str], Awaitable[ScoreReading]]


def score(
    label: str | None = "score",
    scale: tuple[float, float] = (0.0, 1.0),
    *,
    of: StepLike | None = None,
    pattern: str = "",
    name: str = "score",
) -> Step[object, Evaluation]:
    """Make an evaluator that reads a number in the output, or in the reply of the step `of`.

    In a text the number follows `label`: 0.85, 8/10, 93 of 100 or 93 %; prose without another digit may
    follow. In an object, also one inside a text, it is the member `label`, in any case. A number is the
    score itself. An unreadable score is undecided, never 0. The last match counts; if others differ, a
    vote notes that it is ambiguous. The docstring of `evaluators.score` has the grammar.

    Args:
        label: The word before the number. None: the number is the complete text. Default: "score".
        scale: The lowest and the highest value of a number without a unit. Default: 0 to 1.
        of: A step that rates the output. Its reply is the feedback, and scores in the output itself are
            not read. A prompt with an unreadable reply is asked once more.
        pattern: A regular expression, searched without case. The score is its first group, or the
            complete match, with the unit that follows.
        name: The name of the step. Default: "score".

    Returns:
        A step from an output to an Evaluation with a score from 0 to 1 and no verdict.

    Raises:
        ConfigurationError: For an empty label, a scale that is not two numbers in order, or an invalid
            pattern.

    Example:
        >>> from loopwright import run_sync
        >>> run_sync(score(scale=(0, 10)), "Nearly there. Score: 7").output.score
        0.7
        >>> run_sync(score(), "Score: 0.8-0.9").output.undecided
        True
    """
    if label is not None and not isinstance(label, str):
        raise ConfigurationError(f"score: label: {label!r} is not a text. Use a text, or None.")
    if not isinstance(scale, list | tuple) or len(scale) != 2:
        raise ConfigurationError(f"score: scale: {scale!r} is not two numbers, such as (0, 10)")
    read_score("", label=label, scale=scale)  # raises the error for an invalid label or scale
    read = _reader(label, scale, pattern)
    meaning = digest_of("score", repr((label, tuple(scale))), pattern)
    if of is not None:
        low, high = scale
        form = f"Reply with `{label or 'SCORE'}: N`, N a number from {low:g} to {high:g},"
        return ScoreOf(as_step(of), read, form=form, name=name, meaning=meaning)

    async def evaluate(value: Json) -> Evaluation:
        return _evaluation(await read(value, ""), "")

    evaluator = FunctionStep(evaluate, name=name, fingerprint=meaning)
    # A loop with this evaluator needs a success condition; without one the engine warns (`no_goal`).
    evaluator.scores_only = True
    return evaluator


def _reader(label: str | None, scale: tuple[float, float], pattern: str) -> _Read:
    """Return a function of a reply and the rated text that reads the score."""
    if not pattern:

        async def read(value: Json, candidate: str) -> ScoreReading:
            return _reading(value, label=label, scale=scale, candidate=candidate)

        return read
    find = finder(pattern)

    def search(value: Json, candidate: str) -> ScoreReading:
        text = normalise_reply(own_words(codec.text_of(value), value=True))
        return read_score_by_pattern(text, find(text), scale, candidate=candidate)

    async def search_in_thread(value: Json, candidate: str) -> ScoreReading:
        return cast("ScoreReading", await in_thread(search, value, candidate))

    return search_in_thread


class ScoreOf(CompositeStep[object, Evaluation]):
    """A score in the reply of a step about the value. See `score`."""

    scores_only = True  # it never gives a verdict

    def __init__(self, of: Step, read: _Read, *, form: str, name: str, meaning: str) -> None:
        self.of = of
        self.read = read
        self.form = form
        self.name = name
        self.meaning = meaning

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("score of", self.of.fingerprint, self.meaning)

    def parts(self) -> Iterable[Step]:
        return [self.of]

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the step and read its reply. A prompt is asked once more if it cannot be read."""
        # A step that only rearranges its input repeats the output on purpose.
        candidate = codec.text_of(value) if _has_messages(self.of) else ""
        reply = (await attempt(ctx, self.of.name.replace("/", "-"), self.of, value)).output
        reading = await self.read(reply, candidate)
        # Only a prompt can be asked for another form; a function would return the same text.
        if reading.score is None and isinstance(self.of, Prompt):
            complaint = (
                f"Your score could not be read: {reading.detail}. {self.form} and nothing else."
            )
            again = ctx.child(ctx.below("again"))
            reply = await self.of.ask_again(value, codec.text_of(reply), complaint, again)
            reading = await self.read(reply, candidate)
        evaluation = _evaluation(reading, tail(codec.text_of(reply), REPLY))
        return Result(Status.SATISFIED, Reason.COMPLETED, "scored", evaluation, name=self.name)


def _has_messages(step: Step) -> bool:
    """Whether a step may write text, instead of only rearranging its input."""
    if getattr(step, "effect", False) or hasattr(step, "model_settings"):
        return not getattr(step, "wordless", False)
    return any(_has_messages(part) for part in step.parts())


def _evaluation(reading: ScoreReading, feedback: str) -> Evaluation:
    note: dict[str, Json] = {"found": list(reading.found)}
    if reading.score is None:
        note["problem"] = reading.problem
        return Evaluation(undecided=True, feedback=reading.detail, votes=(note,))
    note["ambiguous"] = True
    return Evaluation(reading.score, feedback=feedback, votes=(note,) if reading.ambiguous else ())


def _reading(
    value: Json, *, label: str | None, scale: tuple[float, float], candidate: str
) -> ScoreReading:
    if isinstance(value, Mapping):
        return _member(value, label, scale)
    if not isinstance(value, str):
        return _number(value, scale)
    if label is None:
        return read_score(value, label=None, scale=scale, candidate=candidate)
    objects = objects_of(
        own_words(value, value=True), candidate=candidate, mark="", names=(label,)
    ).read
    # Equal scores in several objects are one score. A dict instead of a set keeps the order.
    readings = {_member(one.members, plain(label), scale): None for one in objects}
    if len(readings) > 1:
        texts = tuple(text for one in readings for text in one.found)
        detail = "the reply has several objects with different scores"
        return ScoreReading(None, problem="unreadable", detail=detail, found=texts)
    return next(iter(readings), None) or read_score(
        value, label=label, scale=scale, candidate=candidate
    )


def _member(
    members: Mapping[str, Json], label: str | None, scale: tuple[float, float]
) -> ScoreReading:
    values = {plain(key): value for key, value in members.items()}
    name = plain(label or "")
    if len(values) < len(members):
        values.pop(name, None)  # two keys have the same plain name, so neither counts
    if name not in values:
        return ScoreReading(None, problem="missing", detail=f"the output has no {label!r}")
    value = values[name]
    if isinstance(value, str):
        return read_score(value, label=None, scale=scale)
    return _number(value, scale)


def _number(value: Json, scale: tuple[float, float]) -> ScoreReading:
    text = codec.text_of(value)[:80]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ScoreReading(
            None, problem="unreadable", detail=f"{text} is not a number", found=(text,)
        )
    low, high = (Fraction(str(end)) for end in scale)
    # Exact arithmetic: 7 on a scale of 0 to 10 must be 0.7.
    share = (Fraction(str(value)) - low) / (high - low)
    if not 0 <= share <= 1:
        detail = f"{text} lies off the scale of {low} to {high}, and a score is never clamped"
        return ScoreReading(None, problem="out_of_range", detail=detail, found=(text,))
    return ScoreReading(float(share), found=(text,))
