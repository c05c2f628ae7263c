"""The kinds of model errors, and the action after a failed attempt: a pure function of the previous failures.

=================  =========  ==================================================================
kind               repeated   meaning
=================  =========  ==================================================================
transient          yes        the endpoint or the connection failed temporarily
throttled          yes        too many requests; no request before `retry_after`
quota              no         the credit or quota is used up
permanent          no         the request cannot succeed; `reason` says why
truncated          no         the reply reached the token limit; `on_cutoff` decides what follows
refused            no         a safety filter or the model declined
malformed          no         the reply has another format; two more calls quote the problem
unknown_outcome    yes        no complete reply after the request was sent; it may be billed
cancelled          no         a person or a signal ended the call
empty_output       no         the reply is empty; one more call follows
=================  =========  ==================================================================

====================================  ======================================================
failure                               next action
====================================  ======================================================
transient, unknown_outcome            wait and try again, 5 attempts at each endpoint
transient, not_running                wait and try again, 2 attempts
throttled                             the same, but never before `retry_after`
throttled, and the wait is too long   another endpoint, else suspend the run, else fail
quota                                 another endpoint, else suspend the run, else fail
truncated                             by on_cutoff: once more with double the cap on tokens, or fail
malformed                             twice more with the problem quoted, then fail
empty_output                          once more, then fail
refused                               another endpoint, else fail
an unsupported format                 at once, in the next format
permanent                             another endpoint, else fail
cancelled                             fail
====================================  ======================================================

A judge uses another endpoint only if the first one refuses every request, for example because of a wrong
key or an unknown model. Otherwise its scores would not be comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ..errors import MODEL_ERROR_KINDS, Billed, ModelError, StepError
from ..records import Usage, codec
from ..records.codec import Json

if TYPE_CHECKING:
    from .protocol import Request

__all__ = [
    "KINDS",
    "NOT_RUNNING",
    "OF_ALL",
    "Action",
    "Billed",
    "ModelError",
    "Policy",
    "Tally",
    "decide",
    "error_from_json",
    "model_error_of",
    "too_many_calls",
]


KINDS = MODEL_ERROR_KINDS


def error_from_json(data: Mapping[str, Json], *, path: str = "") -> ModelError:
    """Return the error that `ModelError.to_json` wrote."""
    return ModelError(
        data["message"],
        kind=data["kind"],
        path=path,
        reason=data.get("reason", ""),
        retry_after=data.get("retry_after"),
        usage=Usage.from_json(data["usage"]) if "usage" in data else None,
        billed=data.get("billed"),
        partial=data.get("partial", ""),
        problem=data.get("problem", ""),
        fields=tuple(data.get("fields", ())),
        parts=data.get("parts"),
    )


def too_many_calls(request: Request, number: int) -> ModelError:
    """Return the error of a reply that calls more tools than one reply may."""
    problem = (
        f"it calls {number} tools or more at once, {request.max_tool_calls} is the limit of one reply; "
        "call fewer tools, and continue after their results"
    )
    return ModelError(
        f"{request.provider}/{request.model}: {problem} (max_tool_calls_per_reply)",
        kind="malformed", problem=problem, path=request.path, reason="too_many_tool_calls",
    )  # fmt: skip


def model_error_of(error: StepError) -> ModelError | None:
    """Return the failure of a call as a ModelError, or None if no model call caused it."""
    if isinstance(error, ModelError):
        return error
    if error.kind not in KINDS:
        return None
    return ModelError(str(error), kind=error.kind, path=error.path, retry_after=error.retry_after)


Action = Literal["wait", "again", "escalate", "re_ask", "failover", "suspend", "fail"]

NOT_RUNNING = "not_running"  # the reason of a connection that this machine refused
FORMATS = 3  # formats of structured output after the first; see `pydantic_ai.rungs`
# With these reasons an endpoint refuses every request, so that all requests move to the same next endpoint.
OF_ALL = frozenset({"unauthorised", "forbidden", "not_found", "configuration"})


@dataclass(frozen=True, slots=True)
class Policy:
    """The number and duration of retries of one call; times are in seconds.

    Args:
        attempts: at each endpoint, for temporary failures (transient, throttled, unknown outcome).
            Default 5.
        re_asks: after an answer in the wrong format, with the problem quoted; default 2.
        escalations: with twice the token limit, if `on_cutoff` is retry; default 1.
        empty_retries: after an empty reply; default 1.
        delay, longest_delay: the wait after failure k is uniform(0, min(longest_delay, delay *
            2^(k-1))), "full jitter" (AWS Architecture Blog, 2015); defaults 0.5 and 30.
        longest_told: the longest `retry_after` to wait for; default 120.
        whole: the longest total wait of one call; default 300.

    Raises:
        ConfigurationError: for a number below its minimum.

    Example:

    >>> Policy(delay=1).backoff(3, 0.5)
    2.0
    """

    attempts: int = 5
    re_asks: int = 2
    escalations: int = 1
    empty_retries: int = 1
    delay: float = 0.5
    longest_delay: float = 30.0
    longest_told: float = 120.0
    whole: float = 300.0

    def __post_init__(self) -> None:
        codec.integer("policy: attempts", self.attempts, minimum=1)
        codec.check_integers("policy: ", self, ("re_asks", "escalations", "empty_retries"))
        for name in ("delay", "longest_delay", "longest_told", "whole"):
            codec.number(f"policy: {name}", getattr(self, name), minimum=0)

    def backoff(self, failures: int, chance: float) -> float:
        """Return the wait in seconds after this number of failures; `chance` is in [0, 1)."""
        # The exponent is limited, because 2.0 ** 1024 overflows.
        return chance * min(self.longest_delay, self.delay * 2.0 ** min(failures - 1, 60))


@dataclass(frozen=True, slots=True)
class Tally:
    """The failures of one call; `tries` counts those at the current endpoint."""

    tries: int = 0
    formats: int = 0
    re_asks: int = 0
    escalations: int = 0
    empties: int = 0
    target: int = 0

    def moved(self) -> Tally:
        """Return the tally at the next endpoint."""
        return replace(self, tries=0, formats=0, target=self.target + 1)


def decide(
    failure: ModelError, tally: Tally, policy: Policy, *, others: bool, too_long: bool
) -> tuple[Action, Tally]:
    """Return the action after a failure, and the new tally.

    `others` means that another endpoint is available, `too_long` that this one requested a wait that is
    too long.
    """
    elsewhere: tuple[Action, Tally] = ("failover", tally.moved())
    match failure.kind:
        # Without a wait and without counting as a try: the endpoint works, the format does not.
        case "transient" if failure.reason == "format_unsupported" and tally.formats < FORMATS:
            return "again", replace(tally, formats=tally.formats + 1)
        case "transient" | "throttled" | "unknown_outcome":
            tried = replace(tally, tries=tally.tries + 1)
            # The tries begin again after a suspension, which may last for hours.
            if too_long:
                return elsewhere if others else ("suspend", replace(tally, tries=0))
            # A server of this machine that is off stays off; one that restarts answers the second time.
            off = failure.reason == NOT_RUNNING
            if tried.tries < (min(policy.attempts, 2) if off else policy.attempts):
                return "wait", tried
            return elsewhere if others else ("fail", tried)
        case "quota":
            return elsewhere if others else ("suspend", replace(tally, tries=0))
        case "refused" | "permanent":
            return elsewhere if others else ("fail", tally)
        case "truncated" if tally.escalations < policy.escalations:
            return "escalate", replace(tally, escalations=tally.escalations + 1)
        case "malformed" if tally.re_asks < policy.re_asks:
            return "re_ask", replace(tally, re_asks=tally.re_asks + 1)
        case "empty_output" if tally.empties < policy.empty_retries:
            return "wait", replace(tally, empties=tally.empties + 1)
        case _:
            return "fail", tally
