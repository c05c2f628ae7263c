"""The error tree: every exception that this package raises on purpose.

::

    LoopwrightError
      ConfigurationError     a value given in Python or YAML cannot mean anything
      DocumentError          a document is wrong; carries every problem with its place
      StepError              a step failed; carries its path, the attempt and the cause
        StepTimeout          a step ran over its own time limit
        ModelError           a model call failed; its kind says whether a retry can help
        EvaluationError      an evaluator could not do its work
      JournalError           the durable record refuses
        RunNotFound          no run of that id
        RunLocked            another live process owns the run
        ReplayMismatch       code, input or document changed since the run was recorded
        JournalDamaged       a record does not match its checksum
        JournalUnavailable   the store cannot be read or written (disk full, no permission)
      NotSatisfied           only from Result.unwrap(); carries the Result

    LoopwrightWarning        a warning, not an error: likely not meant; its code names the kind

    Interruption             not an error: control leaves the step, no `except Exception` sees it
      Stopped                a guard of an enclosing loop ended it
      Suspended              the run waits for a person or a quota
      OwnershipLost          another owner took the run over: write nothing more
"""

from __future__ import annotations

import bisect
import difflib
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .records import Result, Stop, Usage
    from .records.codec import Json

__all__ = [
    "BROKEN_EVALUATOR",
    "MODEL_ERROR_KINDS",
    "Billed",
    "ConfigurationError",
    "DocumentError",
    "EvaluationError",
    "Interruption",
    "JournalDamaged",
    "JournalError",
    "JournalUnavailable",
    "LoopwrightError",
    "LoopwrightWarning",
    "ModelError",
    "NotSatisfied",
    "OwnershipLost",
    "Problem",
    "ReplayMismatch",
    "RunLocked",
    "RunNotFound",
    "StepError",
    "StepTimeout",
    "Stopped",
    "Suspended",
    "nearest",
]


_VALIDATION = "validation error"
_FORM = re.compile(r"[0-9]+ validation errors? for \S{1,200}\s+")
_MARKS = re.compile(
    r"[ \t]*\[type=[\w.]{1,80}, input_value=.{0,2000}?, input_type=\w{1,80}\]", re.DOTALL
)
_LINK = re.compile(r"\s*For further information visit https://errors\.pydantic\.dev/\S*")
_PART = re.compile(r"^(\S{1,300})\n  (\S.*)$", re.MULTILINE)


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the closest candidate, or an empty string."""
    found = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


BROKEN_EVALUATOR = "evaluator_broken"
_LINE = (
    60  # characters of names in a message, which is a line of a terminal with what is around them
)
_LONG = 40  # characters of one of them
_ALIKE = 0.45  # of two names; less is chance
_LOOKED_AT = 200  # names that are compared, as that takes time


def without_validation(text: str) -> str:
    """Return what an error says without the marks of the library that validates: only which part is wrong
    with what, as people read it.

    >>> without_validation("1 validation error for Tool\\nname\\n  Field required [type=missing, "
    ...     "input_value={}, input_type=dict]\\n    For further information visit https://errors.pydantic.dev/2/v/m")
    'it does not have the expected form: name: field required'
    """
    if _VALIDATION not in text:
        return text
    text = _LINK.sub("", _MARKS.sub("", text))
    text = _FORM.sub("it does not have the expected form: ", _PART.sub(_part_said, text))
    return "; ".join(text.splitlines())


def _part_said(found: re.Match[str]) -> str:
    return f"{found[1]}: {found[2][:1].lower()}{found[2][1:]}"


def listed(
    word: str, candidates: Iterable[str], *, lead: str = "known here", more: str = ""
) -> str:
    """Return the names there are, as "; known here: a, b", or an empty string.

    Where they are longer than a line, those like `word` come first, and the others are counted;
    `more` says where all are told.

    >>> listed("x", ["calls", "tokens"])
    '; known here: calls, tokens'
    """
    known = [name if len(name) <= _LONG else name[: _LONG - 1] + "…" for name in candidates]
    known = list(dict.fromkeys(known))
    if len(", ".join(known)) <= _LINE:
        return f"; {lead}: {', '.join(known)}" if known else ""
    match = difflib.SequenceMatcher(b=word[:_LONG].lower())

    def unlike(name: str) -> float:
        match.set_seq1(name.lower())
        return -ratio if (ratio := match.ratio()) >= _ALIKE else 0.0

    known[:_LOOKED_AT] = sorted(known[:_LOOKED_AT], key=unlike)
    ends = list(itertools.accumulate(len(name) + 2 for name in known))
    shown = known[: max(1, bisect.bisect(ends, _LINE + 2))]
    return f"; {lead}: {', '.join(shown)} and {len(known) - len(shown)} more{more and f' ({more})'}"


class LoopwrightError(Exception):
    """The root of everything this package raises on purpose."""


class LoopwrightWarning(UserWarning):
    """Something that is likely not meant, and no error; `code` names its kind.

    >>> LoopwrightWarning("nothing reports usage", code="budget_cannot_bind")
    LoopwrightWarning('budget_cannot_bind: nothing reports usage')
    """

    def __init__(self, sentence: str, *, code: str = "") -> None:
        super().__init__(f"{code}: {sentence}" if code else sentence)
        self.code = code or sentence.partition(":")[0]


class ConfigurationError(LoopwrightError, ValueError):
    """A value given in Python or YAML cannot mean anything."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a document, with its place; line and column count from 1, 0 is unknown."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class DocumentError(LoopwrightError):
    """A document is wrong; `problems` lists everything found, in document order."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda p: (p.file, p.line, p.column))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class StepError(LoopwrightError):
    """A step failed; `path` says where, `kind` names the cause, `retryable` if again can help.

    `retry_after` is the number of seconds before which a retry is not wanted, if it was told.
    `exception` and `traceback` describe the user's exception behind it, as text, also after a resume;
    `__cause__` is that exception itself, in the process that raised it.
    """

    result: Result | None = (
        None  # of a loop, or what is made of loops: how it ended, with what it has
    )

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        kind: str = "error",
        retryable: bool = True,
        retry_after: float | None = None,
        exception: str = "",
        traceback: str = "",
    ) -> None:
        super().__init__(message)
        self.path = path
        self.kind = kind
        self.retryable = retryable
        self.retry_after = retry_after
        self.exception = exception
        self.traceback = traceback

    @classmethod
    def of(cls, result: Result, path: str) -> StepError:
        """Return the error of a part that failed, with what is known of the exception behind it."""
        error = cls(result.detail, path=path, kind=result.reason.value)
        error.result = result
        error.caused_by(result)
        return error

    def caused_by(self, result: Result) -> None:
        """Take over the exception behind the failure of a part."""
        if result.error is not None:
            self.exception, self.traceback = result.error.exception, result.error.traceback
        self.__cause__ = result.cause


class StepTimeout(StepError):
    """A step ran over its own time limit."""

    def __init__(self, message: str, *, path: str = "", kind: str = "timeout") -> None:
        super().__init__(message, path=path, kind=kind)


Billed = Literal["no", "maybe", "yes"]

MODEL_ERROR_KINDS: tuple[str, ...] = (
    "transient", "throttled", "quota", "permanent", "truncated", "refused", "malformed",
    "unknown_outcome", "cancelled", "empty_output",
)  # fmt: skip
_AGAIN = frozenset({"transient", "throttled", "unknown_outcome"})
_BILLED: dict[str, Billed] = {
    "truncated": "yes", "refused": "yes", "malformed": "yes", "empty_output": "yes",
    "unknown_outcome": "maybe", "cancelled": "maybe",
}  # fmt: skip
_PARTIAL_CHARS = 20_000


class ModelError(StepError):
    """A model call failed.

    Args:
        kind: one of MODEL_ERROR_KINDS; it decides `retryable`. `models.errors` explains them.
        reason: what exactly, where a kind has several causes: context_too_long, stream_incomplete.
        retry_after: seconds before which the endpoint wants no other request.
        usage: tokens that were counted before it failed, or None.
        billed: whether the request costs money: no, maybe, yes.
        partial: the text received so far; never an output.
        problem: what a re-ask quotes, for `malformed`.
        fields: names of the request's fields to change, for `permanent`.
        parts: what the model keeps with the call, opaque, as in Reply.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        path: str = "",
        reason: str = "",
        retry_after: float | None = None,
        usage: Usage | None = None,
        billed: Billed | None = None,
        partial: str = "",
        problem: str = "",
        fields: tuple[str, ...] = (),
        parts: Json = None,
    ) -> None:
        if kind not in MODEL_ERROR_KINDS:
            raise ConfigurationError(
                f"fault: kind: {kind!r} is unknown{nearest(kind, MODEL_ERROR_KINDS)}"
            )
        again = kind in _AGAIN
        super().__init__(message, path=path, kind=kind, retryable=again, retry_after=retry_after)
        self.reason = reason
        self.usage = usage
        self.billed: Billed = billed or _BILLED.get(kind, "no")
        # With a sign where it was cut, as `records.excerpts.cut`: what stands before one is cleaned
        # of parts of secrets.
        long = len(partial) > _PARTIAL_CHARS
        self.partial = f"{partial[: _PARTIAL_CHARS - 1]}\u2026" if long else partial
        self.problem = problem
        self.fields = fields
        self.parts = parts

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object without the fields that say nothing."""
        data: dict[str, Json] = {"kind": self.kind, "message": str(self), "billed": self.billed}
        names = ("reason", "partial", "problem", "parts")
        data |= {name: value for name in names if (value := getattr(self, name))}
        if self.retry_after is not None:
            data["retry_after"] = self.retry_after
        if self.usage:
            data["usage"] = self.usage.to_json()
        if self.fields:
            data["fields"] = list(self.fields)
        return data


class EvaluationError(StepError):
    """An evaluator could not do its work: the output is neither good nor bad, it is unjudged.

    Of kind BROKEN_EVALUATOR it could not do it for any output, so the loop ends, whatever it does at
    other failures.
    """


class JournalError(LoopwrightError):
    """The durable record refuses."""


class RunNotFound(JournalError):
    """No run of that id is in the journal; `what` says it without the `hint` at what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what + hint)
        self.what = what
        self.hint = hint


class RunLocked(JournalError):
    """Another live process owns the run."""


class ReplayMismatch(JournalError):
    """Code, input or document changed since the run was recorded."""

    def __init__(self, message: str, *, path: str, recorded: str, now: str) -> None:
        super().__init__(message)
        self.path = path
        self.recorded = recorded
        self.now = now


class JournalDamaged(JournalError):
    """A record does not match its checksum; nothing from it was used."""


class JournalUnavailable(JournalError):
    """The store cannot be read or written; what was acknowledged before is still there."""


class NotSatisfied(LoopwrightError):
    """The run ended without being satisfied; `result` carries what it produced."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"{result.status}: {result.detail}")
        self.result = result
        self.__cause__ = result.cause


class Interruption(BaseException):
    """Control leaves the step; a BaseException, so that no `except Exception` swallows it."""


class Stopped(Interruption):
    """A guard of an enclosing loop ended it; `owner` is the path of that loop."""

    def __init__(self, owner: str, stop: Stop) -> None:
        super().__init__(f"{owner or 'run'}: {stop.detail}")
        self.owner = owner
        self.stop = stop


class Suspended(Interruption):
    """The run waits for a person, or for a quota longer than it may wait."""

    def __init__(self, stop: Stop, *, path: str, request: dict[str, Any] | None = None) -> None:
        super().__init__(stop.detail)
        self.stop = stop
        self.path = path
        self.request = request or {}


class OwnershipLost(Interruption):
    """Another owner took the run over: this process must write nothing more."""
