"""Verdicts read from a judge's reply: a signed line of text, a plain yes or no, a JSON object.

A false yes ends a loop on bad work and a false no costs a round, so where a reply allows two
readings it is `unparsable` and the judge is asked again; a yes is never inferred from prose.

1. `read_verdict`: the last line that is not blank is exactly `VERDICT <nonce>: YES` or `... NO`.
   Text without the nonce changes nothing. A verdict line in a quotation or a fence is not the
   verdict, but if it differs from the last line the two are in conflict.
2. `read_yes_no`: the first standalone YES or NO (`workflow/v2.0`). A word stands alone if it is
   placed as an answer: it opens the reply, a line or a sentence ("Yes, ...") or follows an answer
   cue ("Answer: NO"). After YES no word may follow at once, but for "the", "because" and the like
   at the very start; for NO either sign is enough. So "I can't say yes", "not yes" and "there is
   no doubt" hold no answer, "YES and NO", "YES/NO" and "YES NO" name the choices, and what comes
   after the answer is not weighed, unless it answers again and differently.
3. `read_structured_verdict`: an object that is already parsed; nothing in it is coerced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..errors import ConfigurationError
from .text import clean_text, lines_with_quotes, normalise_characters, strip_emphasis, strip_fence

__all__ = [
    "Answer",
    "Verdict",
    "VerdictProblem",
    "read_structured_verdict",
    "read_verdict",
    "read_yes_no",
]

Answer = Literal["yes", "no", "unsure", "unparsable"]
VerdictProblem = Literal[
    "missing", "unreadable", "quoted", "misplaced", "conflict", "wrong_type", "out_of_range"
]

_SENTENCES: dict[VerdictProblem, str] = {
    "missing": "no verdict was found in the reply",
    "unreadable": "the verdict is not given in the form that was asked for",
    "quoted": "a verdict stands only inside a quotation or a block of code",
    "misplaced": "the verdict is not the last line of the reply",
    "conflict": "the reply gives two different verdicts",
    "wrong_type": "a member of the verdict has the wrong type",
    "out_of_range": "the score of the verdict is not between 0 and 1",
}

_LETTER = "0-9A-Za-z_\u00b5-\u058f\u1e00-\u1fff"
_WORD = (
    rf"(?<![{_LETTER}])(?<![{_LETTER}][-'\u2019])(?:yes|no)"
    rf"(?![{_LETTER}]|[-'\u2019][{_LETTER}])"
)
_CHOICE = (
    rf"(?P<choice>{_WORD}\W{{0,3}}(?:and/or|and|or|[/|&])\W{{0,3}}{_WORD}"
    rf"|(?=yes[ \t]{{1,3}}no|no[ \t]{{1,3}}yes){_WORD}[ \t]{{1,3}}{_WORD})"
)
_YES_NO = re.compile(rf"{_CHOICE}|{_WORD}", re.IGNORECASE)
_CUE = re.compile(
    r"(?:^|[.!?\u3002])[\W_]*(?:(?:so|thus|therefore|hence|my|the|final|overall|correct),?\s+)*"
    r"(?:answer|verdict|decision|result|conclusion|judge?ment|evaluation|assessment"
    r"|condition(?: is)? (?:met|satisfied))(?:\s+is)?\s*[:=]?$",
    re.IGNORECASE,
)
_SENTENCE_END = tuple(".!?\u3002")
_WRAPPING = re.compile(r"[^\w.!?\u3002:=]+$")
_QUOTES = " \t\"'\u2019\u201d\u00bb"
_GOES_ON = tuple("?/&+=<>~^%$@\\_|")
_SUBJECT = re.compile(
    r"[ \t]+(?:it|the|this|these|all|both|because|since|every|each)\b", re.IGNORECASE
)
_ALPHANUMERIC = re.compile(r"[^\W_]")
_THOUGHT = re.compile(r"\s*<(think|thinking)>", re.IGNORECASE)
_WINDOW = 120


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said: yes, no, unsure, or unparsable for the `problem` told in `detail`.

    `score` (0 to 1), `reason` and `contradiction` come from a structured reply only. A
    contradiction is a yes with a score below the threshold; the stricter, no, is then the answer.
    """

    answer: Answer
    problem: VerdictProblem | None = None
    detail: str = ""
    score: float | None = None
    reason: str = ""
    contradiction: bool = False

    @property
    def passed(self) -> bool | None:
        """True for yes, False for no, None if the judge did not decide."""
        return {"yes": True, "no": False}.get(self.answer)


def _unparsable(problem: VerdictProblem, detail: str = "") -> Verdict:
    return Verdict("unparsable", problem, detail or _SENTENCES[problem])


def read_verdict(text: str, *, nonce: str | None = None) -> Verdict:
    """Read the line `VERDICT <nonce>: YES` or `... NO` that must be the last of the reply.

    Compared without case after NFKC, with zero-width characters and emphasis removed and spaces
    collapsed; beyond that to the letter, so `YES.` and `- VERDICT ...` are not it. Without a nonce
    the line is `VERDICT: YES`, which a candidate's text can forge.

    Raises:
        ConfigurationError: the nonce is given but blank.
    """
    signature = ["verdict", *_plain(normalise_characters(nonce or "")).split()]
    if nonce is not None and len(signature) == 1:
        raise ConfigurationError(
            f"the nonce of a verdict is {nonce!r}, expected random letters and digits; "
            f"give nonce=None to read an unsigned verdict"
        )
    said: dict[str, bool] = {}  # each signed word: was it said outside a quotation?
    last: str | None = None
    for raw, quoted in lines_with_quotes(normalise_characters(text)):
        line = _plain(raw.strip().lstrip("> ") if quoted else raw)
        if not line and not (quoted and raw.strip()):
            continue
        head, colon, word = line.rpartition(":")
        word = " ".join(word.split())
        signed = bool(colon) and head.split() == signature
        last = word if signed and not quoted else None
        if signed:
            said[word] = said.get(word, False) or not quoted
    return _weigh(said, last)


def _plain(text: str) -> str:
    return strip_emphasis(text).strip().casefold()


def _weigh(said: dict[str, bool], last: str | None) -> Verdict:
    if not said:
        return _unparsable("missing")
    if not any(said.values()):
        return _unparsable("quoted")
    if len(said) > 1:
        return _unparsable("conflict")
    if not said.keys() <= {"yes", "no"}:
        return _unparsable("unreadable")
    if last is None:
        return _unparsable("misplaced")
    return Verdict("yes" if last == "yes" else "no")


def read_yes_no(text: str) -> Verdict:
    """Read the first standalone YES or NO of a reply to "answer YES or NO", in any case.

    Rule 2 of this module says what stands alone. Quotations and fences are left out, unless the
    whole reply is one fence; so is a block of `<think>` that opens the reply.
    """
    text = strip_fence(_without_thought(normalise_characters(text)))
    lines = [(strip_emphasis(line), quoted) for line, quoted in lines_with_quotes(text)]
    own = "\n".join(line for line, quoted in lines if not quoted)
    answers = _answers(own)
    first, _ = next(answers, ("", False))
    if not first:
        if _YES_NO.search(own):
            return _unparsable("unreadable")
        return _unparsable(
            "quoted" if any(_YES_NO.search(line) for line, _ in lines) else "missing"
        )
    if any(word != first and closed for word, closed in answers):
        return _unparsable("conflict")
    return Verdict("yes" if first == "yes" else "no")


def _without_thought(text: str) -> str:
    opening = _THOUGHT.match(text)
    if opening is None:
        return text
    closing = re.compile(rf"</{opening[1]}>", re.IGNORECASE).search(text, opening.end())
    return text[closing.end() :] if closing else ""


def _answers(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each YES and NO that stands as an answer, and whether no word comes next."""
    first = _ALPHANUMERIC.search(text)
    for found in _YES_NO.finditer(text):
        if found["choice"]:
            continue
        word, start, end = found[0].lower(), found.start(), found.end()
        closed = _closes(text, end)
        if word == "no":
            stands = closed or _opens(text, start)
        else:
            leads = first is not None and first.start() == start
            stands = (closed and _opens(text, start)) or (leads and bool(_SUBJECT.match(text, end)))
        if stands:
            yield word, closed


def _opens(text: str, start: int) -> bool:
    """Whether a word opens a line or a sentence, or follows an answer cue."""
    before = text[max(0, start - _WINDOW) : start]
    cut = start > _WINDOW and "\n" not in before
    head = ("x" if cut else "") + before[before.rfind("\n") + 1 :]
    lead = _WRAPPING.sub("", head)
    if not lead:
        return True
    if lead.endswith(_SENTENCE_END):
        abbreviated = lead[-2:-1] == "." or lead[-3:-2] == "."  # "..." and "e.g."
        return not abbreviated and (lead != head or lead[-1] == "\u3002")
    return _CUE.search(lead) is not None


def _closes(text: str, end: int) -> bool:
    """Whether what comes next is the end, a new line or punctuation, rather than a word."""
    near = text[end : end + _WINDOW].lstrip(_QUOTES)[:1]
    return not near.isalnum() and near not in _GOES_ON


def read_structured_verdict(value: object, *, threshold: float | None = None) -> Verdict:
    """Read `{"verdict": "yes"|"no"|"unsure", "score": number|null, "reason": text}`, parsed.

    `verdict` is required and compared as text is (case, width, emphasis); `score` may be null or
    absent, `reason` absent; other members are not looked at. Nothing is coerced: "0.9" is no
    score, true no verdict, and a score outside 0..1 is refused, not clamped.
    """
    if not isinstance(value, dict):
        return _wrong_type("reply", value, "an object with verdict, score and reason")
    problem = _member_problem(value)
    if problem is not None:
        return problem
    word = _plain(normalise_characters(value["verdict"]))
    score = value.get("score")
    reason = clean_text(value.get("reason", ""))
    return _decide(word, None if score is None else float(score) + 0.0, reason, threshold)


def _member_problem(value: dict[object, object]) -> Verdict | None:
    if "verdict" not in value:
        return _unparsable("missing", "the reply has no 'verdict', expected yes, no or unsure")
    answer, score, reason = value["verdict"], value.get("score"), value.get("reason", "")
    if not isinstance(answer, str):
        return _wrong_type("verdict", answer, "the text yes, no or unsure")
    if not isinstance(reason, str):
        return _wrong_type("reason", reason, "a text")
    if isinstance(score, bool) or not isinstance(score, int | float | None):
        return _wrong_type("score", score, "a number from 0 to 1, or null")
    return None if score is None or 0 <= score <= 1 else _unparsable("out_of_range")


def _wrong_type(member: str, value: object, expected: str) -> Verdict:
    kinds = {bool: "a boolean", str: "a text", int: "a number", float: "a number", list: "a list"}
    kind = "null" if value is None else kinds.get(type(value), "an object")
    return _unparsable("wrong_type", f"the {member} is {kind}, expected {expected}")


def _decide(word: str, score: float | None, reason: str, threshold: float | None) -> Verdict:
    if word == "yes":
        # "not at least" rather than "below": a threshold of NaN is never reached.
        low = score is not None and threshold is not None and not score >= threshold
        return Verdict("no" if low else "yes", score=score, reason=reason, contradiction=low)
    if word in {"no", "unsure"}:
        return Verdict("no" if word == "no" else "unsure", score=score, reason=reason)
    return _unparsable("unreadable", "the verdict is another word than yes, no or unsure")
