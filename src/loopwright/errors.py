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

    Interruption             not an error: control leaves the step, no `except Exception` sees it
      Stopped                a guard of an enclosing loop ended it
      Suspended              the run waits for a person or a quota
      OwnershipLost          another owner took the run over: write nothing more
"""

from __future__ import annotations

import bisect
import difflib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .records import Result, Stop

__all__ = [
    "ConfigurationError",
    "DocumentError",
    "EvaluationError",
    "Interruption",
    "JournalDamaged",
    "JournalError",
    "JournalUnavailable",
    "LoopwrightError",
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


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the closest candidate, or an empty string."""
    found = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


_LINE = (
    60  # characters of names in a message, which is a line of a terminal with what is around them
)
_LONG = 40  # characters of one of them
_ALIKE = 0.45  # of two names; less is chance
_LOOKED_AT = 200  # names that are compared, as that takes time


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
    """

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        kind: str = "error",
        retryable: bool = True,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.kind = kind
        self.retryable = retryable
        self.retry_after = retry_after


class StepTimeout(StepError):
    """A step ran over its own time limit."""

    def __init__(self, message: str, *, path: str = "", kind: str = "timeout") -> None:
        super().__init__(message, path=path, kind=kind)


class ModelError(StepError):
    """A model call failed; `kind` is a word of the fault vocabulary (transient, throttled, …)."""


class EvaluationError(StepError):
    """An evaluator could not do its work: the output is neither good nor bad, it is unjudged."""


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
