"""The exceptions that Loopwright raises on purpose.

::

    LoopwrightError
        ConfigurationError      an invalid value in Python, YAML or on the command line
            TemplateError       a template is invalid, or cannot be rendered
        DocumentError           an invalid document
        StepError               a step failed
            BudgetExceeded      a required loop used up its budget
            StepTimeout         a step exceeded its own time limit
            ModelError          a model call failed
            EvaluationError     an evaluator failed, so the output has no verdict
            StoppedEarly        a measurement ends because it is worse than earlier ones
        JournalError            the journal refuses
            RunNotFound         no run has this id
            RunLocked           another live process owns the run
            ReplayMismatch      code, input or document changed since the run was recorded
            JournalDamaged      a record does not match its checksum
            JournalUnavailable  the store cannot be read or written
        NotSatisfied            raised by `Result.unwrap()` only
    LoopwrightWarning           a warning: a likely mistake
    Interruption                control leaves the step; not an error, and not an `Exception`
        Stopped                 a condition of an enclosing loop ended the step
        Suspended               the run waits for a person or a quota
        OwnershipLost           another owner took the run over

Kinds, and what to do:

- `ConfigurationError`: has no kind. Change the value; the message names it and the nearest valid one. Of a `TemplateError`,
  the message has the line and the column.
- `DocumentError`: has no kind. Correct each of its `problems`; `loopwright check FILE` lists them.
- `StepError`: `error` (a function raised), `not_json` (a value that JSON cannot hold; return other
  types), `bad_input`, `bad_step`, `bad_adapt` (a step received or returned an invalid value; correct
  the step), `template` (correct the template), `exit_status`, `cannot_start`, `output_too_large`,
  `bad_argument` (a command; correct it or its input), `tool_error`, `invalid_arguments`,
  `tool_rounds`, `server_died`, `server_gone`, `server_timeout`, `server_error` (a tool or MCP server;
  retry or repair it), `no_workspace`, `unknown_price` (a coding agent; set its workspace or its price),
  `no_memory`, `memory_unavailable` (check the journal), `all_failed`,
  `no_consensus`, `items`, `candidates_failed` (every alternative failed; see their own errors), `bad_choice` (a judge of a duel or a
  function named no candidate; correct it), `no_stub`, `bad_stub` (a
  dry run; add or correct the rule), or the reason of an inner loop. Handle it with `retry`,
  `fallback` or the loop's `on_error`; `retryable` says whether a retry can help.
- `BudgetExceeded`: `budget`. Raise the budget and resume, or continue with a cheaper step.
- `StepTimeout`: `timeout`. Raise the limit of the step, or retry.
- `ModelError`: one of MODEL_ERROR_KINDS. `transient`, `throttled` and `unknown_outcome` are retried by
  the retry policy. For `quota`, add credit; for `permanent`, change the request; for `truncated`, raise
  `max_tokens`; for `refused`, `malformed` and `empty_output`, change the prompt or the model.
- `EvaluationError`: `bad_score`, `bad_metric`, `bad_evaluation` (return a valid evaluation), `check_error`,
  `pattern_timeout` (correct the check or its pattern), `no_verdict`, `undecided` (change the prompt of
  the judge), `evaluator_broken` (correct the evaluator; the loop ends at once).
- `RunNotFound`: list the runs with `loopwright runs`. `RunLocked`: wait, or `loopwright cancel RUN`.
  `ReplayMismatch`: undo the change, or accept it with `--accept-changes`. `JournalDamaged`: restore the
  journal from a backup. `JournalUnavailable`: free disk space, or correct the path or permissions; then
  resume.
- `NotSatisfied`: read `result.reason`; raise a limit and resume, or change the loop.
- `Interruption`: do not catch it; clean up in `finally`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .records import Result, Stop, Usage
    from .records.codec import Json

__all__ = [
    "BROKEN_EVALUATOR",
    "MODEL_ERROR_KINDS",
    "Billed",
    "BudgetExceeded",
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
    "TemplateError",
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
    """Return "; did you mean 'x'?" for the closest candidate, or an empty string.

    Args:
        word: the unknown word.
        candidates: the valid words.

    >>> nearest("sqlit", ["memory", "sqlite"])
    "; did you mean 'sqlite'?"
    """
    import difflib  # only for a mistake

    matches = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


BROKEN_EVALUATOR = "evaluator_broken"  # the kind of an evaluator that fails for every output
_LINE = 60  # characters of names in a message, so that the message fits a line of a terminal
_LONG = 40  # characters of one name
_ALIKE = 0.45  # the similarity of two names below which it is chance
_COMPARED = 200  # names compared, because a comparison takes time


def without_validation(text: str) -> str:
    """Return the text of an error without pydantic's type and URL annotations.

    >>> without_validation("1 validation error for Tool\\nname\\n  Field required [type=missing, "
    ...     "input_value={}, input_type=dict]\\n    For further information visit https://errors.pydantic.dev/2/v/m")
    'it does not have the expected form: name: field required'
    """
    if _VALIDATION not in text:
        return text
    text = _LINK.sub("", _MARKS.sub("", text))
    text = _FORM.sub("it does not have the expected form: ", _PART.sub(_part_text, text))
    return "; ".join(text.splitlines())


def _part_text(match: re.Match[str]) -> str:
    return f"{match[1]}: {match[2][:1].lower()}{match[2][1:]}"


def listed(
    word: str, candidates: Iterable[str], *, lead: str = "known here", more: str = ""
) -> str:
    """Return the valid names, as "; known here: a, b", or an empty string.

    If they are longer than a line, the names most similar to `word` come first and the others are
    counted; `more` tells how to list them all.

    >>> listed("x", ["calls", "tokens"])
    '; known here: calls, tokens'
    """
    names = [name if len(name) <= _LONG else name[: _LONG - 1] + "…" for name in candidates]
    names = list(dict.fromkeys(names))
    if len(", ".join(names)) <= _LINE:
        return f"; {lead}: {', '.join(names)}" if names else ""
    import bisect
    import difflib

    match = difflib.SequenceMatcher(b=word[:_LONG].lower())

    def unlike(name: str) -> float:
        match.set_seq1(name.lower())
        return -ratio if (ratio := match.ratio()) >= _ALIKE else 0.0

    names[:_COMPARED] = sorted(names[:_COMPARED], key=unlike)
    ends = list(itertools.accumulate(len(name) + 2 for name in names))
    shown = names[: max(1, bisect.bisect(ends, _LINE + 2))]
    return f"; {lead}: {', '.join(shown)} and {len(names) - len(shown)} more{more and f' ({more})'}"


class LoopwrightError(Exception):
    """The base class of all errors that Loopwright raises on purpose.

    Example:
        >>> from loopwright import Loop, LoopwrightError
        >>> try:
        ...     Loop(str.upper, keep="first")
        ... except LoopwrightError as error:
        ...     print(type(error).__name__)
        ConfigurationError
    """


class LoopwrightWarning(UserWarning):
    """A likely mistake that does not prevent the run.

    Args:
        sentence: the message.
        code: its kind, such as `budget_cannot_bind`; put before the message.

    >>> LoopwrightWarning("nothing reports usage", code="budget_cannot_bind")
    LoopwrightWarning('budget_cannot_bind: nothing reports usage')
    """

    def __init__(self, sentence: str, *, code: str = "") -> None:
        super().__init__(f"{code}: {sentence}" if code else sentence)
        self.code = code or sentence.partition(":")[0]


class ConfigurationError(LoopwrightError, ValueError):
    """A value in Python, YAML or on the command line is invalid.

    Args:
        option: the option of a loop that is invalid, such as `explore`; "" if there is none (default).
        advice: the code of an advice that the command line and the page each write in their own
            words, such as `mix_versions`; "" if there is none (default).
    """

    def __init__(self, *args: object, option: str = "", advice: str = "") -> None:
        super().__init__(*args)
        self.option = option
        self.advice = advice


class TemplateError(ConfigurationError):
    """A template is invalid, or cannot be rendered with these values.

    Args:
        reason: The message without the position.
        line: The line inside the template, from 1. Default: 0, unknown.
        column: The column inside the line, from 1. Default: 0, unknown.

    Example:
        >>> from loopwright.templates import compile_template
        >>> compile_template("{{ name | uper }}")
        Traceback (most recent call last):
            ...
        loopwright.errors.TemplateError: template line 1, column 11: there is no filter 'uper'; did you mean 'upper'?
    """

    def __init__(self, reason: str, *, line: int = 0, column: int = 0) -> None:
        place = f"template line {line}" if line else "template"
        if line and column:
            place = f"{place}, column {column}"
        super().__init__(f"{place}: {reason}")
        self.reason = reason
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a document.

    Args:
        file: the path of the document.
        line, column: its place, from 1; 0 is unknown.
        path: the keys that lead to the value, such as `steps.refine.until`.
        message: the problem, and how to correct it.
        code: the kind of a note, such as `price_unused`; "" for an error (default).
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    code: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return ": ".join(part for part in (place, self.path, self.code, self.message) if part)


class DocumentError(LoopwrightError):
    """A document is invalid.

    Args:
        problems: all its problems; the attribute has them in the order of the document.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda p: (p.file, p.line, p.column))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class StepError(LoopwrightError):
    """A step failed.

    Args:
        message: the cause, and how to correct it.
        path: the place in the run, such as `refine/2/execute`.
        kind: the cause in a word; see the list in `loopwright.errors`.
        retryable: whether a retry can help (default: True).
        retry_after: seconds to wait before a retry, if the other side named a time.
        exception: the qualified name of the exception of the user's function.
        traceback: its traceback, as text; recorded, so that it is available after a resume.

    In the process in which the exception was raised, `__cause__` is the exception itself. `result` is
    the result of an inner loop or workflow that failed.
    """

    result: Result | None = None

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
        """Return the error for an inner result that failed, with the exception that caused it."""
        error = cls(result.detail, path=path, kind=result.reason.value)
        error.result = result
        error.caused_by(result)
        return error

    def caused_by(self, result: Result) -> None:
        """Take over the exception that caused the failure of an inner result."""
        if result.error is not None:
            self.exception, self.traceback = result.error.exception, result.error.traceback
        self.__cause__ = result.cause


class BudgetExceeded(StepError):
    """A required loop used up its own budget; its kind is `budget`.

    A budget of the run or of an enclosing loop ends that loop as a condition does, and raises nothing in
    the step.
    """


class StepTimeout(StepError):
    """A step exceeded its own time limit."""

    def __init__(self, message: str, *, path: str = "", kind: str = "timeout") -> None:
        super().__init__(message, path=path, kind=kind)


class StoppedEarly(StepError):
    """An evaluation ends here, because its values are worse than those of earlier ones; see `Context.interim`."""


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
        message: the cause, and how to correct it.
        kind: one of MODEL_ERROR_KINDS; it determines `retryable`. `loopwright.models.errors` explains
            each.
        path: the place in the run.
        reason: the exact cause within a kind, such as context_too_long or stream_incomplete.
        retry_after: seconds before which the endpoint accepts no other request.
        usage: tokens counted before the failure, or None.
        billed: whether the request costs money: no, maybe or yes (default: by kind).
        partial: the text received before the failure; never used as an output.
        problem: the problem that the next prompt quotes, for `malformed`.
        fields: names of the fields of the request to change, for `permanent`.
        parts: opaque data of the provider, as in Reply.

    Raises:
        ConfigurationError: for an unknown kind.
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
                f"model error: kind: {kind!r} is unknown{nearest(kind, MODEL_ERROR_KINDS)}"
            )
        again = kind in _AGAIN
        super().__init__(message, path=path, kind=kind, retryable=again, retry_after=retry_after)
        self.reason = reason
        self.usage = usage
        self.billed: Billed = billed or _BILLED.get(kind, "no")
        # Cut with the same sign as `records.display.cut`: redaction removes a part of a secret there.
        long = len(partial) > _PARTIAL_CHARS
        self.partial = f"{partial[: _PARTIAL_CHARS - 1]}\u2026" if long else partial
        self.problem = problem
        self.fields = fields
        self.parts = parts

    def to_json(self) -> dict[str, Json]:
        """Return the error as a JSON object without empty fields."""
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
    """An evaluator failed: the output is neither good nor bad.

    An evaluator that fails for every output has the kind BROKEN_EVALUATOR; the loop then ends at once.
    """


class JournalError(LoopwrightError):
    """The base class of the errors of a journal."""


class RunNotFound(JournalError):
    """No run in the journal has this id.

    Args:
        what: the message.
        hint: the advice after it.
    """

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what + hint)
        self.what = what
        self.hint = hint


class RunLocked(JournalError):
    """Another live process owns the run.

    Args:
        message: the process, and how to stop it.
        owner: the process as `HOST:PID`; empty if it is unknown.
        until: when its lease ends unless it is renewed, in seconds since the epoch; 0 if unknown.
    """

    def __init__(self, message: str, *, owner: str = "", until: float = 0.0) -> None:
        super().__init__(message)
        self.owner = owner
        self.until = until


class ReplayMismatch(JournalError):
    """Code, input or document changed since the run was recorded.

    Args:
        message: the change, and how to accept it.
        path: the place in the run.
        recorded, now: the recorded and the present value or fingerprint.
    """

    def __init__(self, message: str, *, path: str, recorded: str, now: str) -> None:
        super().__init__(message)
        self.path = path
        self.recorded = recorded
        self.now = now


class JournalDamaged(JournalError):
    """A record does not match its checksum; no part of it was used."""


class JournalUnavailable(JournalError):
    """The store cannot be read or written; entries committed before are safe."""


class NotSatisfied(LoopwrightError):
    """A run ended without success. Only `Result.unwrap` raises it.

    Args:
        result: the result of the run. Its exception, if there is one, is `__cause__`.

    Example:
        >>> from loopwright import Loop, MaxIterations, NotSatisfied, run_sync
        >>> loop = Loop(str.upper, lambda text: len(text) > 3, until=MaxIterations(1))
        >>> try:
        ...     run_sync(loop, "a").unwrap()
        ... except NotSatisfied as error:
        ...     print(error.result.status, error.result.output)
        exhausted A
    """

    def __init__(self, result: Result) -> None:
        super().__init__(f"{result.status}: {result.detail}")
        self.result = result
        self.__cause__ = result.cause


class Interruption(BaseException):
    """Control leaves the step. A BaseException, so that `except Exception` does not catch it."""


class Stopped(Interruption):
    """A condition of an enclosing loop ended the step.

    Args:
        owner: the path of that loop; empty for the run.
        stop: the reason and its sentence.
    """

    def __init__(self, owner: str, stop: Stop) -> None:
        super().__init__(f"{owner or 'run'}: {stop.detail}")
        self.owner = owner
        self.stop = stop


class Suspended(Interruption):
    """The run waits for a person, a quota that returns too late, or something else outside of it.

    Args:
        stop: the reason and its sentence.
        path: the place in the run that waits.
        request: the values to show to the person (default: none).
    """

    def __init__(self, stop: Stop, *, path: str, request: dict[str, Json] | None = None) -> None:
        super().__init__(stop.detail)
        self.stop = stop
        self.path = path
        self.request = request or {}


class OwnershipLost(Interruption):
    """Another owner took the run over; this process may write nothing more to it."""
